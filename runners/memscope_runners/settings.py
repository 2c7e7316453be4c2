"""The settings of one decoder run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Where weights are kept and how they move. No setting changes a result."""

    policy: str = "off"
    keep: int | None = None
    allocator: str = "pool"
    unit: str = "slab"
    prefetch: bool = True
    preload: bool | None = None  # None: where the policy keeps everything
    device_limit_bytes: int | None = None
    poison: bool = False
    device: str = "host"  # or "cuda:0"
    host_keep: int | None = None  # slabs on the host; None: all, pinned where that is possible

    @property
    def is_preloading(self) -> bool:
        """Whether layers are uploaded before the first step."""
        return self.policy == "off" if self.preload is None else self.preload

    def facts(self) -> dict[str, object]:
        """The `policy` fact of a recording."""
        names = ("policy", "keep", "allocator", "unit", "prefetch", "host_keep")
        return {name: getattr(self, name) for name in names} | {"preload": self.is_preloading}
