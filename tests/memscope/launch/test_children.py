"""Processes that a recorded program starts: which have a file, each its own."""

from __future__ import annotations

import os
import sys
import venv
from pathlib import Path

import pytest

from memscope.reader.recording import Recording
from tests.memscope.launch.programs import PYTHON, ROOT, marks_of, record, run_process

pytestmark = pytest.mark.slow

ASK = "import memscope, os\ndef ask(): memscope.active_recorder().mark(f'by {os.getpid()}')\n"
USE_CUDA = (
    "import torch\n"
    "calls = [call for call, _ in torch.cuda._queued_calls]\n"
    "[call() for call in calls if 'memscope' in type(getattr(call, '__self__', call)).__module__]\n"
)


def recordings(folder: Path) -> dict[int, Path]:
    """Files of the run by pid; all of one run id."""
    found, ids = {}, set()
    for path in sorted(folder.glob("*.mscope")):
        with Recording(path) as recording:
            assert recording.state.name == "complete", path
            found[recording.header.pid] = path
            ids.add(recording.header.run_id)
    assert len(ids) == 1
    return found


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_child_that_asks_has_its_own_file(method: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        f"{ASK}import multiprocessing\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context('{method}')\n"
        "    children = [context.Process(target=target) for target in (ask, print)]\n"
        "    for child in children: child.start()\n"
        "    for child in children: child.join()\n"
        "    ask()\n"
        "    print(children[0].pid, os.getpid(), children[0].exitcode)\n"
    )
    ended = record(tmp_path, "program.py")
    child, parent, code = map(int, ended.out.split())
    assert (ended.code, ended.err, code) == (0, "", 0)
    files = recordings(tmp_path)
    assert files == {
        parent: tmp_path / "run.mscope",
        child: tmp_path / f"run.{child}.mscope",
    }
    assert {pid: marks_of(path) for pid, path in files.items()} == {
        pid: [f"by {pid}"] for pid in files
    }


def test_forked_child_never_writes_into_its_parents_file(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import memscope, os, time\n"
        "recorder = memscope.active_recorder()\n"
        "recorder.mark('before')\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    recorder.mark('child')\n"
        "    time.sleep(1)\n"
        "else:\n"
        "    os.waitpid(pid, 0)\n"
        "    recorder.mark('after')\n"
    )
    assert record(tmp_path, "program.py").code == 0
    assert list(recordings(tmp_path).values()) == [tmp_path / "run.mscope"]
    assert marks_of(tmp_path / "run.mscope") == ["before", "after"]


def test_child_that_uses_cuda_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {USE_CUDA!r}], check=True)\n"
        "subprocess.run([sys.executable, '-c', 'import torch'], check=True)\n"
    )
    ended = record(tmp_path, "program.py")
    assert (ended.code, ended.err) == (0, "")
    assert len(recordings(tmp_path)) == 2


def test_every_rank_has_a_file_and_its_helpers_none(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'])"
    (tmp_path / "program.py").write_text(
        "import os, subprocess, sys\n"
        "for rank in '01':\n"
        f"    code = {code!r}\n"
        "    subprocess.run([sys.executable, '-c', code], env={**os.environ, 'RANK': rank})\n"
    )
    assert record(tmp_path, "program.py").code == 0
    ranks = set()
    for path in recordings(tmp_path).values():
        with Recording(path) as recording:
            ranks.add(recording.header.rank)
    assert ranks == {None, 0, 1}
    assert len(recordings(tmp_path)) == 3


def test_exec_begins_another_file(tmp_path: Path) -> None:
    code = f"import os; os.execv({PYTHON!r}, [{PYTHON!r}, '-c', 'print(1)'])"
    ended = record(tmp_path, "-c", code)
    assert ended.out == "1\n"
    names = sorted(path.name for path in tmp_path.glob("*.mscope"))
    assert len(names) == 2
    assert "run.mscope" in names


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python whose site-packages hold the hook, as the wheel puts it there."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    hook = ROOT / "memscope" / "launch" / "memscope-torch.pth"
    (site / hook.name).write_text(hook.read_text())
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (site / "a.pth").write_text("\n".join([str(ROOT), *packages]))
    return folder / "bin" / "python"


def test_variable_alone_records_without_the_wrapper(installed: Path, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, os\n"
        f"subprocess.run([sys.executable, '-c', {ASK + 'ask()'!r}], check=True)\n"
        "print(os.environ.get('PYTHONPATH'))"
    )
    environment = {"MEMSCOPE_RECORD": str(tmp_path / "out")}
    ended = run_process([installed, "-c", code], tmp_path, environment)
    own = os.environ.get("PYTHONPATH")
    assert (ended.code, ended.out, ended.err, ended.said) == (0, f"{own}\n", "", ())
    names = sorted(path.name for path in recordings(tmp_path / "out").values())
    assert len(names) == 2
    assert names[1] == "run-001.mscope"


def test_each_program_begins_a_run_of_its_own(installed: Path, tmp_path: Path) -> None:
    for _ in range(2):
        run_process([installed, "-c", "pass"], tmp_path, {"MEMSCOPE_RECORD": str(tmp_path)})
    names = sorted(path.name for path in tmp_path.glob("*.mscope"))
    assert names == ["run-001.mscope", "run-002.mscope"]


def test_installed_hook_leaves_pythonpath_alone(installed: Path, tmp_path: Path) -> None:
    command = [installed, "-m", "memscope", "run", "-o", "run.mscope", "-c"]
    ended = run_process([*command, "import os; print(os.environ.get('PYTHONPATH'))"], tmp_path, {})
    assert ended.out == f"{os.environ.get('PYTHONPATH')}\n"
    assert (tmp_path / "run.mscope").exists()


def test_folder_that_cannot_be_made_is_said_once(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {"MEMSCOPE_RECORD": str(tmp_path / "file" / "folder")}
    ended = run_process([installed, "-c", "print(1)"], tmp_path, environment)
    assert (ended.code, ended.out, ended.err) == (0, "1\n", "")
    assert len(ended.said) == 1
    assert "not recorded" in ended.said[0]


def test_verbs_do_not_record_themselves(installed: Path, tmp_path: Path) -> None:
    run_process([installed, "-m", "memscope", "--help"], tmp_path, {"MEMSCOPE_RECORD": "."})
    assert not list(tmp_path.glob("*.mscope"))


def test_torchrun_gives_each_rank_a_file_of_one_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        "import memscope\n"
        "recorder = memscope.active_recorder()\n"
        "for _ in range(3):\n"
        "    with recorder.step(): pass\n"
    )
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    assert record(tmp_path, *words).code == 0
    command = [PYTHON, "-m", "memscope", "summary", "run.mscope"]
    shown = run_process(command, tmp_path).out
    assert "run of 3 processes" in shown
    ranks = {}
    for path in recordings(tmp_path).values():
        with Recording(path) as recording:
            ranks[recording.header.rank] = path.name
    assert set(ranks) == {None, 0, 1}
    assert ranks[None] == "run.mscope"
    opened = next(line for line in shown.splitlines() if line.startswith("recording "))
    assert opened.split()[1] in (ranks[0], ranks[1]), "the launcher is not what one looks for"


def test_the_tracker_of_multiprocessing_is_nobodys_rank(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, time\nfrom multiprocessing import shared_memory\nos.environ['RANK'] = '0'\n"
        "memory = shared_memory.SharedMemory(create=True, size=16)\ntime.sleep(1)\n"
        "memory.close(); memory.unlink()\n"
    )
    assert record(tmp_path, "program.py").code == 0
    assert [path.name for path in tmp_path.glob("*.mscope")] == ["run.mscope"]
