"""The peak of a test is its own: neither an earlier test's, nor missed by the sampler."""

from __future__ import annotations

import pytest

from memscope.analysis.timeline import read
from tests.memscope.pytest_plugin.program import RunTests

# Torch's caching allocator as far as its counters go: what is freed stays reserved.
TORCH = """
import sys
from types import SimpleNamespace

GIB = 1 << 30


class Allocator:
    allocated = reserved = peak = 0

    def alloc(self, size):
        self.allocated += size
        self.reserved = max(self.reserved, self.allocated)
        self.peak = max(self.peak, self.reserved)

    def free(self, size):
        self.allocated -= size

    def empty_cache(self):
        self.reserved = self.allocated

    def reset_peak(self, device):
        self.peak = self.reserved

    def counters(self, device):
        found = {"num_device_alloc": 1, "num_alloc_retries": 0, "num_ooms": 0}
        for name in ("allocated", "reserved", "active", "requested", "inactive_split"):
            now = getattr(self, name, 0)
            found[f"{name}_bytes"] = {"all": {"current": now, "peak": max(now, self.peak)}}
        return found


memory = Allocator()


@pytest.fixture(autouse=True, scope="module")
def fake_torch():
    patch = pytest.MonkeyPatch()
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 1,
        empty_cache=memory.empty_cache,
        reset_peak_memory_stats=memory.reset_peak,
        memory_stats_as_nested_dict=memory.counters,
        get_allocator_backend=lambda: "native",
        is_current_stream_capturing=lambda: False,
        mem_get_info=lambda device: (40 * GIB, 80 * GIB),
        get_device_properties=lambda device: SimpleNamespace(
            uuid="0a", name="Made-up", total_memory=80 * GIB
        ),
    )
    library = SimpleNamespace(_cuda_memoryStats=memory.counters)
    patch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, _C=library, __file__="torch"))
    yield
    patch.undo()


def use(size):
    memory.alloc(size)
    memory.free(size)

"""


@pytest.mark.parametrize(("limit", "outcome"), [("4 GiB", "passed"), ("3.9 GiB", "failed")])
def test_peak_of_a_short_body_is_not_missed(run_tests: RunTests, limit: str, outcome: str) -> None:
    result = run_tests(
        f"{TORCH}@pytest.mark.memscope('memory.peak_bytes <= {limit}')\n"
        "def test_it():\n    use(4 * GIB)\n"
    )
    result.assert_outcomes(**{outcome: 1})


def test_peak_after_the_last_sample_is_not_missed(run_tests: RunTests) -> None:
    result = run_tests(
        f"{TORCH}import time\n"
        "@pytest.mark.memscope('memory.peak_bytes <= 3.9 GiB')\n"
        "def test_it():\n    time.sleep(0.08)\n    use(4 * GIB)\n"
    )
    result.assert_outcomes(failed=1)


def test_earlier_peak_does_not_count(run_tests: RunTests) -> None:
    result = run_tests(
        f"{TORCH}def test_large():\n    use(8 * GIB)\n"
        "@pytest.mark.memscope('memory.peak_bytes <= 1 GiB')\n"
        "def test_small():\n    use(GIB)\n"
    )
    result.assert_outcomes(passed=2)


def test_what_fixtures_hold_counts(run_tests: RunTests) -> None:
    result = run_tests(
        f"{TORCH}@pytest.fixture\n"
        "def held():\n    memory.alloc(2 * GIB)\n    yield\n    memory.free(2 * GIB)\n"
        "@pytest.mark.memscope('memory.peak_bytes <= 3 GiB')\n"
        "@pytest.mark.parametrize('size', [1, 2])\n"
        "def test_it(held, size):\n    use(size * GIB)\n"
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED *test_it?2? *"])


def test_failure_has_the_ledger_of_the_card(
    run_tests: RunTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card's readings are of one moment, however far a busy machine draws it out."""
    monkeypatch.setattr(read, "SAME_MOMENT_NS", 60 * 10**9)
    result = run_tests(
        f"{TORCH}@pytest.mark.memscope('memory.peak_bytes <= 1 GiB')\n"
        "def test_it():\n    memory.alloc(4 * GIB)\n"
    )
    result.stdout.fnmatch_lines(
        [
            "memscope: memory.peak_bytes = 4.00 GiB, limit <= 1 GiB*",
            "largest holders at the peak",
            "ledger: device 0, Made-up, *",
            "*torch reserved *4.00 GiB*",
        ]
    )
