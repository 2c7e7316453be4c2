"""The user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from memscope.errors import MemscopeError


def cache_folder() -> Path:
    """MEMSCOPE_CACHE_DIR, or the platform's cache folder. Created if missing."""
    named = os.environ.get("MEMSCOPE_CACHE_DIR")
    folder = Path(named) if named else Path(platformdirs.user_cache_dir("memscope"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MemscopeError(
            f"The cache folder {folder} cannot be created ({error.strerror}).",
            "Set MEMSCOPE_CACHE_DIR to a folder that you may write to.",
        ) from None
    return folder
