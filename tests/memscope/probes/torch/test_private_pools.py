"""Private pools by torch's map: read seldom, never where it is large, and with a reason."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from memscope.analysis.ledger.ledger import make_ledgers
from memscope.events import Kind
from memscope.facts import Fact
from memscope.probes.torch import private_pools
from memscope.probes.torch.private_pools import PrivatePoolProbe
from tests.fakes import FakeTorch, ListRecorder
from tests.memscope.analysis.build import event, fact, fold
from tests.memscope.analysis.torch_runs import GPU, MIB, TOTAL, sample

SEGMENTS = [
    {"device": 0, "segment_pool_id": (0, 0), "total_size": 20 * MIB, "active_size": 0},
    {"device": 0, "segment_pool_id": (0, 1), "total_size": 20 * MIB, "active_size": 5 * MIB},
    {"device": 0, "segment_pool_id": (3, 0), "total_size": 2 * MIB, "active_size": 0},
    {"device": 9, "segment_pool_id": (3, 0), "total_size": 2 * MIB, "active_size": 0},
]


class MappedTorch(FakeTorch):
    """Torch with a map of its allocator and ``blocks`` in use."""

    def __init__(
        self, blocks: int = 10, *, is_old: bool = False, has_history: bool = False
    ) -> None:
        super().__init__()
        self._C._cuda_isHistoryEnabled = lambda: has_history
        self.blocks, self.reads = blocks, 0
        new = lambda mempool_id=None, include_traces=True: None  # noqa: E731
        old = lambda mempool_id=None: None  # noqa: E731
        self.cuda.memory = SimpleNamespace(memory_snapshot=old if is_old else new)
        self._C._cuda_memorySnapshot = self.read_map

    def read_map(self, options: object) -> dict[str, Any]:
        assert options == (0, 0, False)
        self.reads += 1
        return {"segments": SEGMENTS}

    def counters(self, device: int) -> dict[str, Any]:
        return super().counters(device) | {"active": {"all": {"current": self.blocks}}}


def read(torch: MappedTorch, monkeypatch: pytest.MonkeyPatch, times: int = 5) -> ListRecorder:
    monkeypatch.setitem(sys.modules, "torch", torch)
    recorder, probe = ListRecorder(), PrivatePoolProbe()
    for _ in range(times):
        probe(recorder)  # type: ignore[arg-type]
    return recorder


def test_free_bytes_of_private_pools_are_read_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch, clock = (
        MappedTorch(),
        SimpleNamespace(perf_counter_ns=lambda: 1, thread_time_ns=lambda: 1),
    )
    monkeypatch.setattr(private_pools, "time", clock)
    rows = {row.name: row.bytes for row in read(torch, monkeypatch).of(Kind.SAMPLE)}
    assert rows == {
        "torch.private_free_bytes": 17 * MIB,
        "torch.private_split_bytes": 15 * MIB,
    }
    assert torch.reads == 1


@pytest.mark.parametrize(
    ("torch", "reason"),
    [
        (MappedTorch(is_old=True), "before 2.11 cannot be read without its traces"),
        (MappedTorch(has_history=True), "not read while its history is on"),
        (MappedTorch(30_000), "map of 30,000 blocks is not read while the program runs"),
    ],
)
def test_what_would_cost_much_is_not_read_and_says_so(
    torch: MappedTorch, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = read(torch, monkeypatch).rows
    assert row.name == Fact.PRIVATE_POOLS
    assert reason in row.data["absent"]
    assert torch.reads == 0


def test_torch_that_uses_no_device_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(MappedTorch(0), monkeypatch).rows == []


def test_ledger_counts_no_byte_of_a_private_pool_twice() -> None:
    sizes = {
        "torch.allocated_bytes": 30 * MIB,
        "torch.active_bytes": 30 * MIB,
        "torch.inactive_split_bytes": 20 * MIB,
        "torch.private_free_bytes": 17 * MIB,
        "torch.private_split_bytes": 15 * MIB,
        "torch.reserved_bytes": 62 * MIB,
    }
    rows = [sample(name, at, size) for at, (name, size) in enumerate(sizes.items())]
    (ledger,) = make_ledgers(fold([GPU, *rows]))
    found = {line.key: line.bytes for _, line in ledger.lines}
    assert found["torch.private"] == 17 * MIB
    assert found["torch.split"] == 5 * MIB
    assert found["torch.cache"] == 10 * MIB
    assert ledger.total.bytes == TOTAL


def test_ledger_says_why_pools_were_not_read() -> None:
    rows = [
        sample("torch.reserved_bytes", 0, MIB),
        fact(Fact.PRIVATE_POOLS, {"absent": "too many blocks"}),
    ]
    (ledger,) = make_ledgers(fold([GPU, *rows, event(Kind.MARK, name="x")]))
    line = ledger.find("torch.private")
    assert line is not None
    assert (line.bytes, line.reason) == (None, "too many blocks")
