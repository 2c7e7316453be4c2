"""The recipes for CI: files that can be read, commands that exist, and what they come to."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from memscope.analysis.limits.limits import parse_limits
from memscope.cli.verbs import VERBS
from memscope.configuration import read_limits_file
from tests.paths import ROOT

CI = ROOT / "examples" / "ci"
SCRIPT = CI / "check_against_main.sh"
WORKFLOWS = ("github-actions.yml", "gitlab-ci.yml")

# A program without torch that holds as many bytes of a device as it says.
PROGRAM = """\
import memscope
from memscope.events import Kind
recorder = memscope.active_recorder()
recorder.fact("device.0", {"name": "host", "kind": "host", "total_bytes": 10000})
recorder.emit(Kind.DEVICE_MALLOC, bytes=SIZE)
"""


def load(name: str) -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((CI / name).read_text())


def scripts(found: Any) -> Iterator[str]:
    """Every shell line of a workflow, wherever it stands."""
    if isinstance(found, dict):
        for key, value in found.items():
            if key in ("run", "script", "after_script"):
                yield from [value] if isinstance(value, str) else value
            else:
                yield from scripts(value)
    elif isinstance(found, list):
        for value in found:
            yield from scripts(value)


def memscope_lines(text: str) -> list[list[str]]:
    """The words of each call of memscope in a script."""
    joined = text.replace("\\\n", " ")
    calls = re.findall(
        r"^(?:\$ |\()?(?:cd \S+ && )?(memscope .*?)\)?(?: >.*)?$", joined, flags=re.M
    )
    return [shlex.split(call) for call in calls]


def parse(words: list[str]) -> argparse.Namespace:
    """Raises SystemExit where the verb has no such option."""
    module = import_module(VERBS[words[1]].module)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    module.add_arguments(parser)
    if "--" in words:
        words = words[: words.index("--")]
    return parser.parse_args(words[2:])


@pytest.mark.parametrize("name", WORKFLOWS)
def test_each_workflow_has_a_job_with_and_one_without_a_gpu(name: str) -> None:
    found = load(name)
    jobs = found.get("jobs", found)
    assert sorted(job.removeprefix("memory-") for job in jobs) == ["cpu", "gpu"]
    for job, content in jobs.items():
        lines = "\n".join(scripts(content))
        assert "memscope check run.mscope" in lines
        assert ("check_against_main.sh" in lines) == ("gpu" in job)
        assert "--junit" in lines


@pytest.mark.parametrize("name", [*WORKFLOWS, "check_against_main.sh", "README.md"])
def test_every_memscope_command_exists(name: str) -> None:
    text = "\n".join(scripts(load(name))) if name in WORKFLOWS else (CI / name).read_text()
    calls = memscope_lines(text)
    assert len(calls) >= 2
    for words in calls:
        parse(words)


def test_every_file_that_is_named_is_there() -> None:
    texts = "\n".join((CI / name).read_text() for name in WORKFLOWS)
    named = set(re.findall(r"(?<!-)\bci/([\w.-]+)", texts)) - {"baseline.toml"}
    assert named == {"limits.toml", "limits-gpu.toml", "check_against_main.sh"}
    assert all((CI / name).exists() for name in named)


@pytest.mark.parametrize("name", ["limits.toml", "limits-gpu.toml"])
def test_limits_can_be_read(name: str) -> None:
    assert len(parse_limits(read_limits_file(CI / name))) >= 2


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With this memscope first in PATH."""
    places = [str(Path(sys.executable).parent), os.environ["PATH"]]
    identity = {
        f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    return os.environ | identity | {"PATH": os.pathsep.join(places)}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_cpu_job_passes_and_breaks_its_limits(
    name: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    jobs = load(name)
    jobs = jobs.get("jobs", jobs)
    (job,) = [content for job, content in jobs.items() if "cpu" in job]
    calls = [line for line in scripts(job) if line.startswith("memscope ")]
    shutil.copytree(CI, tmp_path / "ci")
    (tmp_path / "train.py").write_text("import time\ntime.sleep(0.3)\n")
    code = "; ".join(["set -e", *calls])
    done = run(["sh", "-c", code], tmp_path, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "memory.xml").exists()
    limits = tmp_path / "ci" / "limits.toml"
    limits.write_text(limits.read_text().replace("4 GiB", "1 MiB"))
    done = run([*calls[-1].split(), "--force"], tmp_path, environment)
    assert done.returncode == 1, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "tolerance", "code"),
    [(1000, "5%", 0), (1050, "5%", 0), (1200, "5%", 1), (1200, "1", 0)],
)
def test_a_branch_that_needs_more_than_main_fails(
    tmp_path: Path, environment: dict[str, str], size: int, tolerance: str, code: int
) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.replace("SIZE", "1000"))
    for words in (["init", "-q", "-b", "main"], ["add", "train.py"], ["commit", "-qm", "one"]):
        assert run(["git", *words], tmp_path, environment).returncode == 0
    program.write_text(PROGRAM.replace("SIZE", str(size)))
    command = [str(SCRIPT), "main", "python", "train.py"]
    done = run(command, tmp_path, environment | {"TOLERANCE": tolerance})
    assert done.returncode == code, done.stdout + done.stderr
    assert ("fail" in done.stdout) == (code == 1)
    listed = run(["git", "worktree", "list"], tmp_path, environment).stdout
    assert len(listed.splitlines()) == 1


def run(
    command: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
