"""Damaged snapshots, one after the other in one worker process: `... mutations FIRST COUNT`.

What the child of `memscope explain` does with a file is done with each of them. Prints one line a
fault; a worker that dies or hangs is a fault too, which whoever started it sees.
"""

from __future__ import annotations

import gc
import gzip
import io
import json
import pickle
import random
import resource
import sys
import time
from collections import Counter
from typing import Any

from memscope.analysis.diagnosis.snapshot.explain import explain_stream
from memscope.errors import MemscopeError
from memscope.interop.snapshot.plain_data import open_plain
from tests.paths import DATA

CASES = DATA / "snapshots"
LIMIT_BYTES = 1 << 30
LIMIT_SECONDS = 20.0
ODD = (None, -1, 0, 1, 10**18, 2**63, 2**70, 1.5, float("nan"), True, "x", "", b"\0", [], {}, ())


def mutate(seed: int) -> bytes:
    """A recorded snapshot with some of its bytes or values changed."""
    chance = random.Random(seed)
    data = chance.choice(sorted(CASES.glob("*.pickle"))).read_bytes()
    return chance.choice((flip, cut, splice, misplace, misplace, repack))(data, chance)


def flip(data: bytes, chance: random.Random) -> bytes:
    """Some bits are wrong."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 3, 30))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(data: bytes, chance: random.Random) -> bytes:
    """The end is missing."""
    return data[: chance.randrange(len(data))]


def splice(data: bytes, chance: random.Random) -> bytes:
    """A part stands where another should."""
    start, end = sorted(chance.randrange(len(data)) for _ in range(2))
    place = chance.randrange(len(data))
    return data[:place] + data[start : min(end, start + 4000)] + data[place:]


def misplace(data: bytes, chance: random.Random) -> bytes:
    """Values that cannot be, in a pickle that is whole."""
    snapshot = pickle.loads(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        holders = list(_holders(snapshot))
        holder = chance.choice(holders)
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if keys:
            key = chance.choice(keys)
            action = chance.random()
            if action < 0.15:
                del holder[key]
            elif action < 0.3:
                holder[key] = chance.choice(holders)  # a cycle, or a list in two places
            else:
                holder[key] = chance.choice(ODD)
    return pickle.dumps(snapshot, protocol=chance.randrange(2, 6))


def repack(data: bytes, chance: random.Random) -> bytes:
    """A gzip file that is damaged, or not."""
    packed = gzip.compress(data, 1)
    return chance.choice((packed, flip(packed, chance), cut(packed, chance)))


def _holders(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict | list) and depth < 7:
        yield value
        for each in list(value.values() if isinstance(value, dict) else value):
            yield from _holders(each, depth + 1)


def outcome(data: bytes) -> str:
    """ "explained", or the sentence; anything else that happens is raised."""
    try:
        found = explain_stream(open_plain(io.BytesIO(data)), len(data) * 40)
        json.dumps(found, allow_nan=False)
        return "explained"
    except MemoryError:
        return "memory"
    except MemscopeError as error:
        text = str(error)
        assert "\n" not in text
        assert 10 < len(text) < 400
        return "refused"


def main(first: int, count: int) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    outcomes: Counter[str] = Counter()
    faults = 0
    for seed in range(first, first + count):
        started = time.process_time()
        try:
            outcomes[outcome(mutate(seed))] += 1
        except Exception as error:
            faults += 1
            print(f"seed {seed}: {type(error).__name__}: {error}"[:300])
        if time.process_time() - started > LIMIT_SECONDS:
            faults += 1
            print(f"seed {seed}: {time.process_time() - started:.0f} s")
        gc.collect()
    print(json.dumps(outcomes))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
