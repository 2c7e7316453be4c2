from __future__ import annotations

import gzip
import json
import pickle
import pickletools
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memscope.analysis.diagnosis.snapshot.explain import explain_snapshot
from memscope.errors import MemscopeError
from memscope.interop.snapshot.guarded import Allowance, examine
from memscope.interop.snapshot.snapshot import check_snapshot, read_snapshot
from tests.memscope.fake_allocator import MIB, FakeAllocator
from tests.paths import DATA, ROOT

CASES = DATA / "snapshots"
LEAK = (CASES / "leak.pickle").read_bytes()
MUTATIONS = 400


def refusal(path: Path) -> str:
    """The one sentence that a file is refused with."""
    with pytest.raises(MemscopeError) as caught:
        explain_snapshot(path)
    assert caught.value.exit_code == 2
    assert str(path) in caught.value.problem
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    def write_file(data: bytes) -> Path:
        path = tmp_path / "snapshot.pickle"
        path.write_bytes(data)
        return path

    return write_file


def small() -> dict[str, Any]:
    """A snapshot of one segment with two blocks."""
    allocator = FakeAllocator()
    allocator.alloc(8 * MIB)
    return allocator.snapshot()


def _calls(mark: Path) -> dict[str, bytes]:
    """Pickles that would run a command if anything were loaded."""

    class Reduced:
        def __reduce__(self) -> Any:
            import os

            return os.system, (f"touch {mark}",)

    command = f"touch {mark}".encode()
    return {
        "global": b"cos\nsystem\n(S'" + command + b"'\ntR.",
        "inst": b"(S'" + command + b"'\nios\nsystem\n.",
        "obj": b"(cos\nsystem\nS'" + command + b"'\no.",
        "reduce 2": pickle.dumps(Reduced(), protocol=2),
        "reduce 5": pickle.dumps({"segments": [Reduced()]}, protocol=5),
        "eval": b"cbuiltins\neval\n(S'open(" + repr(str(mark)).encode()[1:-1] + b")'\ntR.",
        "newobj": b"\x80\x04\x8c\x08builtins\x8c\x06object\x93)\x81.",
        "extension": b"\x80\x02\x82\x01.",
        "persistent": b"Pid\n.",
        "callable of data": b"\x80\x04]C\x01x\x85R.",
        "build": b"\x80\x04}}\x8c\x01a\x8c\x01bsb.",
    }


@pytest.mark.parametrize("name", list(_calls(Path("mark"))))
def test_nothing_in_a_pickle_is_run(
    name: str, write: Callable[[bytes], Path], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    text = refusal(write(_calls(mark)[name]))
    assert not mark.exists()
    assert "snapshot" in text


def test_class_that_is_asked_for_is_named(write: Callable[[bytes], Path]) -> None:
    assert "it asks to load os.system" in refusal(write(b"cos\nsystem\n(S'true'\ntR."))


def test_class_named_with_control_characters_is_harmless(write: Callable[[bytes], Path]) -> None:
    assert "\x1b" not in refusal(write(b"cos\x1b[31m\nsystem\n."))


def _bombs() -> dict[str, bytes]:
    shared = b"\x80\x02]q\x00" + b"".join(
        b"](h%ch%ce" % (n, n) + b"q%c" % (n + 1) for n in range(60)
    )
    return {
        "memo of gigabytes in 9 bytes": b"\x80\x02Nr\xff\xff\xff\x0f.",
        "list of 2^60 leaves": shared + b".",
        "2^60 leaves as segments": shared + b"0" * 61 + b"}X\x08\x00\x00\x00segmentsh\x3cs.",
        "length beyond the file": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x0f.",
        "bytearray of a pebibyte": b"\x80\x05\x96\x00\x00\x00\x00\x00\x00\x04\x00.",
        "text of 4 GiB": b"\x80\x02X\xff\xff\xff\xff.",
        "lists in lists": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".",
        "tuples in tuples as a key": b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns.",
        "integer of 100,000 digits": b"L" + b"9" * 100_000 + b"L\n.",
        "only marks": b"(" * 1_000_000,
    }


def children_cpu_seconds() -> float:
    """What the processes took that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("name", list(_bombs()))
def test_bomb_is_refused_soon_in_one_sentence(name: str, write: Callable[[bytes], Path]) -> None:
    before = children_cpu_seconds()
    refusal(write(_bombs()[name]))
    assert children_cpu_seconds() - before < 25


def test_hash_that_never_ends_is_stopped(write: Callable[[bytes], Path]) -> None:
    key = b")" + b"".join(b"q%ch%c\x86" % (n, n) for n in range(60))
    path = write(b"\x80\x02}" + key + b"Ns.")
    with pytest.raises(MemscopeError, match=r"was not read within 2 s"):
        examine(
            "memscope.analysis.diagnosis.snapshot.explain:explain_stream",
            path,
            allowance=Allowance(floor_seconds=2),
        )


def _edit(change: Callable[[dict[str, Any]], Any]) -> Any:
    data = small()
    replaced = change(data)
    return data if replaced is None else replaced


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *way, key, value = path

    def change(data: dict[str, Any]) -> None:
        place: Any = data
        for step in way:
            place = place[step]
        place[key] = value

    return change


def _unset(*path: Any) -> Callable[[dict[str, Any]], None]:
    *way, key = path

    def change(data: dict[str, Any]) -> None:
        place: Any = data
        for step in way:
            place = place[step]
        del place[key]

    return change


def _cycle(data: dict[str, Any]) -> None:
    data["segments"][0]["blocks"].append(data["segments"][0]["blocks"])


def _own_frames(data: dict[str, Any]) -> None:
    frames: list[Any] = []
    frames.append(frames)
    data["device_traces"][0][0]["frames"] = frames


def _same_blocks(data: dict[str, Any]) -> None:
    data["segments"] = [data["segments"][0]] * 10_000
    data["segments"][0]["blocks"] = data["segments"][0]["blocks"] * 10_000


SEGMENT, BLOCK = ("segments", 0), ("segments", 0, "blocks", 0)
EVENT = ("device_traces", 0, 0)
IMPOSSIBLE = {
    "a number": lambda data: 7,
    "no segments": _unset("segments"),
    "segments a dict": _set("segments", {}),
    "segment a number": _set("segments", 0, 3),
    "segment without address": _unset(*SEGMENT, "address"),
    "segment without blocks": _unset(*SEGMENT, "blocks"),
    "blocks a number": _set(*SEGMENT, "blocks", 4),
    "block a list": _set(*SEGMENT, "blocks", 0, []),
    "block without size": _unset(*BLOCK, "size"),
    "block of negative size": _set(*BLOCK, "size", -512),
    "block of 10^18": _set(*BLOCK, "size", 10**18),
    "block of 2^80": _set(*BLOCK, "size", 1 << 80),
    "block of 1.5": _set(*BLOCK, "size", 1.5),
    "block of True": _set(*BLOCK, "size", True),
    "blocks that do not add up": _set(*BLOCK, "size", 512),
    "block elsewhere": _set(*BLOCK, "address", 4096),
    "unknown state": _set(*BLOCK, "state", "borrowed"),
    "state a number": _set(*BLOCK, "state", 1),
    "segment of 10^18": _set(*SEGMENT, "total_size", 10**18),
    "negative address": _set(*SEGMENT, "address", -1),
    "wrong sum": _set(*SEGMENT, "allocated_size", 5),
    "pool of three": _set(*SEGMENT, "segment_pool_id", (1, 2, 3)),
    "pool of texts": _set(*SEGMENT, "segment_pool_id", ("a", "b")),
    "stream a text": _set(*SEGMENT, "stream", "0"),
    "traces a number": _set("device_traces", 1),
    "trace a dict": _set("device_traces", 0, {}),
    "event a number": _set(*EVENT, 1),
    "event without action": _unset(*EVENT, "action"),
    "event without address": _unset(*EVENT, "addr"),
    "event of 10^18": _set(*EVENT, "size", 10**18),
    "event of negative size": _set(*EVENT, "size", -1),
    "time a text": _set(*EVENT, "time_us", "noon"),
    "frames a number": _set(*EVENT, "frames", 5),
    "frame a number": _set(*EVENT, "frames", [5]),
    "frame without a line": _set(*EVENT, "frames", [{"name": "f", "filename": "g"}]),
    "cyclic blocks": _cycle,
    "cyclic frames": _own_frames,
    "one list in many places": _same_blocks,
    "overlapping segments": lambda data: data["segments"].append(data["segments"][0]),
}


@pytest.mark.parametrize("name", list(IMPOSSIBLE))
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(MemscopeError) as caught:
        check_snapshot(_edit(IMPOSSIBLE[name]), 100_000)
    assert "\n" not in str(caught.value)


IGNORED = {
    "unknown keys": _set(*SEGMENT, "colour", [1, {}]),
    "unknown event keys": _set(*EVENT, "novelty", object),
    "unknown file keys": _set("host_segments", 5),
    "unknown action": _set(*EVENT, "action", "annotate"),
    "metadata a number": _set(*EVENT, "user_metadata", 5),
    "settings a list": _set("allocator_settings", []),
    "annotations a number": _set("external_annotations", 5),
    "annotation without a name": _set("external_annotations", [{"stage": "START"}]),
    "no traces": _unset("device_traces"),
    "event without frames": _unset(*EVENT, "frames"),
    "stack empty": _set(*EVENT, "frames", []),
}


@pytest.mark.parametrize("name", list(IGNORED))
def test_what_is_not_known_is_ignored(name: str) -> None:
    snapshot = check_snapshot(_edit(IGNORED[name]), 100_000)
    assert int(snapshot.segments.bytes.sum()) == 20 * MIB


@pytest.mark.parametrize("protocol", range(6))
def test_every_pickle_protocol_is_read(protocol: int, write: Callable[[bytes], Path]) -> None:
    found = explain_snapshot(write(pickle.dumps(pickle.loads(LEAK), protocol=protocol)))
    assert (found.diagnosis, found.sizes_bytes["allocated"]) == ("growth", 335_544_320)


def test_json_and_gzip_say_the_same(write: Callable[[bytes], Path]) -> None:
    expected = explain_snapshot(CASES / "leak.pickle").to_json()
    assert explain_snapshot(write(gzip.compress(LEAK))).to_json() == expected
    assert explain_snapshot(write(json.dumps(pickle.loads(LEAK)).encode())).to_json() == expected


def test_active_awaiting_free_is_pending_too() -> None:
    data = small()
    data["segments"][0]["blocks"][0]["state"] = "active_awaiting_free"
    data["segments"][0]["allocated_size"] = 0
    assert check_snapshot(data, 100_000).blocks.state.tolist() == [1, 2]


def test_control_characters_in_names_are_made_harmless() -> None:
    data = small()
    frame = {"name": "f\x1b[31m\u202e", "filename": "a\nb.py", "line": 1}
    data["device_traces"][0][0] |= {"frames": [frame], "user_metadata": "step\x07 1"}
    snapshot = check_snapshot(data, 100_000)
    texts = [*snapshot.stacks.frames, *snapshot.traces[0].labels]
    assert all(text.isprintable() for text in texts)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (LEAK[:-100], "cut short or damaged"),
        (gzip.compress(LEAK)[:-50], "cut short or damaged"),
        (b"\x1f\x8bnonsense", "cut short or damaged"),
        (b"hello", "no memory snapshot"),
        (b"{}", "no list of segments"),
        (b"[" * 100_000, "nested too deeply"),
        (pickle.dumps({"model": 1}), "no list of segments"),
    ],
)
def test_no_snapshot_is_said_in_words(
    data: bytes, words: str, write: Callable[[bytes], Path]
) -> None:
    assert words in refusal(write(data))


def test_missing_file_and_folder_are_said(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "nothing")
    assert "cannot be read" in refusal(tmp_path)


def test_file_beside_the_snapshot_is_never_imported(
    write: Callable[[bytes], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    for module in ("json", "gzip", "numpy", "memscope"):
        (tmp_path / f"{module}.py").write_text(f"open({str(mark)!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    assert explain_snapshot(write(LEAK)).diagnosis == "growth"
    assert not mark.exists()


def test_memory_stays_within_what_a_file_may_take(write: Callable[[bytes], Path]) -> None:
    lists = b"\x80\x02]" + b"(" + b"}" * 3_000_000 + b"e."  # 24 times its size and more
    with pytest.raises(MemscopeError, match="more than 8 times its size in memory"):
        examine(
            "memscope.analysis.diagnosis.snapshot.explain:explain_stream",
            write(lists),
            allowance=Allowance(floor_bytes=160 << 20, floor_seconds=300),
        )


def test_file_beyond_this_machine_is_refused(write: Callable[[bytes], Path]) -> None:
    with pytest.raises(MemscopeError, match=r"too large to read here: 28.9 KiB once unpacked"):
        examine(
            "memscope.analysis.diagnosis.snapshot.explain:explain_stream",
            write(gzip.compress(LEAK)),
            allowance=Allowance(floor_bytes=1 << 50),
        )


@pytest.mark.slow
def test_damaged_snapshots_are_explained_or_refused() -> None:
    """In a worker: a signal, a hang or any other exception is a failure."""
    worker = subprocess.run(
        [sys.executable, "-m", "tests.memscope.interop.snapshot.mutations", "0", str(MUTATIONS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert worker.returncode == 0, worker.stdout + worker.stderr[-2000:]
    outcomes = json.loads(worker.stdout.splitlines()[-1])
    assert sum(outcomes.values()) == MUTATIONS
    assert min(outcomes["explained"], outcomes["refused"]) > 10


def test_pickles_of_the_cases_name_no_class() -> None:
    for path in CASES.glob("*.pickle"):
        names = {opcode.name for opcode, _, _ in pickletools.genops(path.read_bytes())}
        assert not names & {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ"}
        with path.open("rb") as stream:
            assert read_snapshot(stream, path.stat().st_size).traces
