"""The GPUs of this machine now, the processes that hold their memory, and what is unknown."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator

from memscope.analysis.ledger.machine import CardBalance, Holding, balance_machine, machine_json
from memscope.cli.text.columns import align
from memscope.probes.nvml.machine import MachineReading, read_machine
from memscope.text import clean
from memscope.units import format_bytes

REFRESH_SECONDS = 1.0
CLEAR = "\x1b[H\x1b[J"
HEADINGS = ("bytes", "what", "user", "container", "age", "command")


def show_machine(*, as_json: bool = False) -> int:
    """Print the machine once. Returns 0 even if nothing can be read; the reason is printed."""
    reading = read_machine()
    if as_json:
        print(json.dumps(machine_json(reading), indent=2))
    else:
        print("\n".join(machine_lines(reading)))
    return 0


def follow_machine() -> int:
    """Refresh it every second until Ctrl-C. If stdout is not a terminal, print it once."""
    if not sys.stdout.isatty():
        return show_machine()
    try:
        while True:
            width, height = shutil.get_terminal_size()
            lines = [*machine_lines(read_machine()), "", "Press Ctrl-C to leave."]
            shown = "\n".join(line[:width] for line in lines[: height - 1])
            print(f"{CLEAR}{shown}", end="", flush=True)
            time.sleep(REFRESH_SECONDS)
    except KeyboardInterrupt:
        print()
        return 0


def machine_lines(reading: MachineReading) -> list[str]:
    """The lines for one reading of the machine."""
    place = ", in a container" if reading.is_container else ""
    lines = [f"this machine: driver {clean(reading.driver or 'unknown', 40)}{place}"]
    if reading.problem is not None:
        lines.append(
            f"no GPU can be read: {reading.problem.reason}. {reading.problem.fix}".rstrip()
        )
    for balance in balance_machine(reading):
        lines += ["", *_card_lines(balance)]
    return lines


def _card_lines(balance: CardBalance) -> list[str]:
    card = balance.card
    total = "size not measured" if card.total_bytes is None else format_bytes(card.total_bytes)
    uuid = f", {clean(card.uuid, 60)}" if card.uuid else ""
    lines = [f"GPU {card.index}: {clean(card.name, 60)}, {total}{uuid}"]
    lines += align([HEADINGS, *map(_row, balance.holdings)])
    lines += [f"  {text}" for text in _reasons(balance)]
    return lines


def _row(holding: Holding) -> tuple[str, ...]:
    size = "not measured" if holding.bytes is None else _signed(holding.bytes)
    entry = holding.entry
    if entry is None:
        return (size, holding.label, "", "", "", "")
    age = "" if entry.age_s is None else format_age(entry.age_s)
    command = clean(entry.command or "", 100)
    return (size, holding.label, clean(entry.user or "", 20), entry.container or "", age, command)


def _reasons(balance: CardBalance) -> Iterator[str]:
    for holding in balance.holdings:
        if holding.reason:
            yield f"{holding.label}: {clean(holding.reason)}"
    for name, problem in balance.card.missing.items():
        yield f"{name} not measured: {clean(problem.reason)}. {problem.fix}".rstrip()


def format_age(seconds: float) -> str:
    """An age in its two largest units, like "3 h 05 min"."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{int(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60:02d} h"


def _signed(size: int) -> str:
    return f"-{format_bytes(-size)}" if size < 0 else format_bytes(size)
