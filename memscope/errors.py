"""The one exception that reaches the user as a sentence and a next step."""


class MemscopeError(Exception):
    """A mistake that the user can mend: what is wrong, and what to do next."""

    def __init__(self, problem: str, next_step: str = "") -> None:
        super().__init__(f"{problem} {next_step}".strip())
        self.problem = problem
        self.next_step = next_step
