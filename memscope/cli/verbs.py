"""The verbs: the one table of what the command line does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a verb lives, as text: the module is imported when the verb runs."""

    module: str
    help: str


VERBS = {
    "demo": Verb("memscope.cli.demo", "the whole of it: decode a real model and look at it"),
    "decode": Verb("memscope.cli.decode", "continue a prompt within a memory limit, recorded"),
    "run": Verb("memscope.cli.run", "any PyTorch program, recorded while it runs"),
    "live": Verb("memscope.cli.live", "it runs: watch a recording as it grows"),
    "report": Verb("memscope.cli.report", "it ran: one HTML file that works offline"),
    "summary": Verb("memscope.cli.summary", "its metrics and verdicts, as text or JSON"),
    "check": Verb("memscope.cli.check", "fail where a limit is broken"),
    "diff": Verb("memscope.cli.diff", "it changed: what grew from A to B"),
    "explain": Verb("memscope.cli.explain", "it failed: why memory ran out, from log or snapshot"),
    "export": Verb("memscope.cli.export", "its events as Arrow or Parquet"),
    "bench": Verb("memscope.cli.bench", "what recording costs"),
    "doctor": Verb("memscope.cli.doctor", "what can be read on this machine, what not, and why"),
}
