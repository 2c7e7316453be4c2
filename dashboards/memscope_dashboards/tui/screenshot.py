"""Draw the live view: `python -m memscope_dashboards.tui.screenshot RECORDING OUT.svg`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from memscope_dashboards.tui.app import LiveApp
from memscope_dashboards.tui.run_feed import RunFeed

SIZE = (136, 36)


def draw(recording: Path, *, size: tuple[int, int] = SIZE) -> str:
    """The live view of ``recording`` as SVG. ``size`` is (columns, rows)."""
    return asyncio.run(_draw(recording, size))


async def _draw(recording: Path, size: tuple[int, int]) -> str:
    app = LiveApp(RunFeed(recording), period_s=0.05)
    async with app.run_test(size=size) as pilot:
        while app.is_running and (app.snapshot is None or app.snapshot.is_catching_up):
            await pilot.pause(0.05)
        await pilot.pause()
        return app.export_screenshot(title=f"memscope live {recording.name}")


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw(Path(sys.argv[1])), encoding="utf-8")
