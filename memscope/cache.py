"""The user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from memscope.errors import MemscopeError


def cache_folder() -> Path:
    """MEMSCOPE_CACHE_DIR, or the platform's own place; made if missing."""
    named = os.environ.get("MEMSCOPE_CACHE_DIR")
    folder = Path(named) if named else Path(platformdirs.user_cache_dir("memscope"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MemscopeError(
            f"The cache folder {folder} cannot be made ({error.strerror}).",
            "Set MEMSCOPE_CACHE_DIR to a folder that can be written.",
        ) from None
    return folder
