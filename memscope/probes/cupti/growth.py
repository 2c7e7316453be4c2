"""What a process holds that no call accounts for, and how it grew while code was loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Growth:
    """``base_bytes``: at the first reading, the context and what the driver loaded by then."""

    base_bytes: int | None = None
    modules_bytes: int = 0
    _last_bytes: int = 0
    _last_loads: int = 0

    def add(self, unaccounted_bytes: int, loads_before: int, loads_after: int) -> int:
        """A reading, with the modules loaded before and after it; by how much code grew it.

        What it grew by without any load is nobody's, and stays unexplained.
        """
        grown = 0
        if self.base_bytes is None:
            self.base_bytes = unaccounted_bytes
        elif loads_after > self._last_loads:
            before = self.modules_bytes
            self.modules_bytes = max(before + unaccounted_bytes - self._last_bytes, 0)
            grown = self.modules_bytes - before
        self._last_bytes, self._last_loads = unaccounted_bytes, loads_before
        return grown
