"""Exceptions that reach the user as one sentence and a next step."""


class MemscopeError(Exception):
    """A mistake that the user can fix: what is wrong, and what to do next."""

    exit_code = 2

    def __init__(self, problem: str, next_step: str = "") -> None:
        super().__init__(f"{problem} {next_step}".strip())
        self.problem = problem
        self.next_step = next_step


class OutOfMemory(MemscopeError):
    """Our own runner ran out of device memory."""

    exit_code = 4
