"""Whose code is running: what lets a simulated process vanish at once, as a real one does under `kill -9`.

Every callback of the simulated loop remembers the context it was scheduled in, and contexts are inherited by whatever
is scheduled from there. So a process is one context variable: when it is marked dead, the loop drops everything that
belongs to it, and no `finally` of its coroutines runs before the simulation is over.
"""

from contextvars import ContextVar


class ProcessCrashed(BaseException):
    """Unwinds the code of a process that was crashed in the middle of a step; nobody is meant to catch it."""


class SimulatedOwner:
    """One simulated process's identity; `alive` goes from true to false and never back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True

    def __repr__(self) -> str:
        return f"<{self.name}, {'alive' if self.alive else 'dead'}>"


OWNER: ContextVar[SimulatedOwner | None] = ContextVar("millstream_simulated_owner", default=None)
"""The process whose code runs now; None is the simulation itself and everything that never crashes."""
