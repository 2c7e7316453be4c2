"""Names of all readings that memscope takes, and the statistics that a limit can use."""

from __future__ import annotations

from memscope.probes import PROBE_READINGS
from memscope.readings import RUNNER_READINGS

STATISTICS = ("peak", "min", "end", "p95", "median", "growth")
READINGS = (*PROBE_READINGS, *RUNNER_READINGS)
BY_NAME = {reading.name: reading for reading in READINGS}
AREAS = frozenset(reading.name.partition(".")[0] for reading in READINGS)
