"""What make sets up, with a Python that only writes down what it is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.paths import ROOT

HAS_DRIVER = Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi") is not None

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")

FAKE_PYTHON = """#!/bin/sh
echo "$@" >> "{log}"
if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi
"""
OLD_PYTHON = "#!/bin/sh\nexit 1\n"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with what make reads, and a Python that logs its arguments."""

    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``make setup`` by the given Python alone; the environment's own choices are left out."""
        choices = ("CONSTRAINTS", "PYTHON", "TORCH_INDEX", "MAKEFLAGS", "MAKELEVEL")
        return subprocess.run(
            ["make", "setup", "PYTHON=./python", *words],
            cwd=self.folder,
            env={key: value for key, value in os.environ.items() if key not in choices},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def installs(self) -> list[str]:
        """What pip was asked to install, pip itself left out."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if "--editable" in line]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    write_python(tmp_path / "python", FAKE_PYTHON.format(log=tmp_path / "log"))
    return Checkout(tmp_path)


def write_python(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_second_run_installs_nothing(checkout: Checkout) -> None:
    assert checkout.make().returncode == 0
    before = checkout.log.read_text()
    assert "--editable .[all,dev]" in before
    assert checkout.make().returncode == 0
    assert checkout.installs() == [line for line in before.splitlines() if "--editable" in line]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_newer_file_installs_again(checkout: Checkout, name: str) -> None:
    checkout.make("CONSTRAINTS=constraints.txt")
    stamp = (checkout.folder / ".venv/.memscope-ready").stat().st_mtime
    os.utime(checkout.folder / name, (stamp + 5, stamp + 5))
    checkout.make("CONSTRAINTS=constraints.txt")
    assert len(checkout.installs()) == 2


def test_other_constraints_install_again(checkout: Checkout) -> None:
    checkout.make("CONSTRAINTS=constraints.txt")
    checkout.make("CONSTRAINTS=")
    first, second = checkout.installs()
    assert "-c constraints.txt" in first
    assert "-c" not in second.split()


def test_torch_index_is_one_more_index(checkout: Checkout) -> None:
    checkout.make("TORCH_INDEX=https://example.org/cpu")
    (install,) = checkout.installs()
    assert "--extra-index-url https://example.org/cpu" in install


@pytest.mark.skipif(sys.platform != "linux" or HAS_DRIVER, reason="needs Linux without a driver")
def test_without_driver_constraints_are_default_and_said(checkout: Checkout) -> None:
    run = checkout.make()
    assert "-c constraints.txt" in checkout.installs()[0]
    assert "no NVIDIA driver" in run.stdout
    assert "TORCH_INDEX=https://download.pytorch.org/whl/cpu make setup" in run.stdout


def test_missing_constraints_are_named(checkout: Checkout) -> None:
    run = checkout.make("CONSTRAINTS=absent.txt")
    assert run.returncode == 2
    assert "There is no file absent.txt" in run.stderr


def test_old_python_is_refused_and_leaves_nothing(checkout: Checkout) -> None:
    write_python(checkout.folder / "python", OLD_PYTHON)
    run = checkout.make()
    assert run.returncode == 2
    assert "Python 3.11 or newer" in run.stderr
    assert not (checkout.folder / ".venv").exists()


def test_failed_install_is_tried_again(checkout: Checkout) -> None:
    failing = FAKE_PYTHON.format(log=checkout.log) + 'case "$*" in *--editable*) exit 1;; esac\n'
    write_python(checkout.folder / "python", failing)
    assert checkout.make().returncode != 0
    assert checkout.make().returncode != 0
    assert len(checkout.installs()) == 2


def test_constraints_pin_every_requirement() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert "torch==2.13.0" in pins
    assert pins == sorted(pins, key=str.lower)
    assert all(line.count("==") == 1 and "+" not in line for line in pins)
