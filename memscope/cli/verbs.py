"""The verbs of the command line, in one table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """The name of a verb's module, which is imported when the verb runs, and its line of help."""

    module: str
    help: str


VERBS = {
    "demo": Verb("memscope.cli.demo", "Decode a small model and show the recording"),
    "decode": Verb("memscope.cli.decode", "Continue a prompt within a memory limit and record it"),
    "run": Verb("memscope.cli.run", "Run a PyTorch program and record it"),
    "live": Verb("memscope.cli.live", "Follow a running recording"),
    "report": Verb("memscope.cli.report", "Write an HTML report"),
    "summary": Verb("memscope.cli.summary", "Show metrics and broken limits, as text or JSON"),
    "check": Verb("memscope.cli.check", "Fail if a limit is broken"),
    "diff": Verb("memscope.cli.diff", "Compare two recordings or two memory snapshots"),
    "explain": Verb(
        "memscope.cli.explain", "Explain why memory ran out, from a log, a snapshot or a recording"
    ),
    "export": Verb("memscope.cli.export", "Write the events as Arrow, Parquet or a Perfetto trace"),
    "bench": Verb("memscope.cli.bench", "Measure what recording costs"),
    "doctor": Verb(
        "memscope.cli.doctor", "Show what can be read on this machine, and how to get the rest"
    ),
}
