"""The inputs of the evaluation of a program, and its effects."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from amfs.errors import WorkflowError
from amfs.swift.requests import Request
from amfs.workflow.workflow import Task

# ── events ─────────────────────────────────────────────────────────────────────────────────────────


class Begin(Struct, frozen=True):
    """The first event."""


class TaskEnded(Struct, frozen=True):
    """A task has ended; ``ok``: its outputs are there."""

    id: str
    ok: bool


class Answered(Struct, frozen=True):
    """A request has been fulfilled, or ``answer`` is a ``Refused``."""

    serial: int
    answer: Any


Event: TypeAlias = Begin | TaskEnded | Answered

# ── effects ────────────────────────────────────────────────────────────────────────────────────────


class Submit(Struct, frozen=True):
    """Run these; each is to be answered by ``TaskEnded``. Their inputs exist, or are outputs of tasks submitted before."""

    tasks: list[Task]


class Forget(Struct, frozen=True):
    """Files that no task and no request will name any more, and that no task reads which has not ended."""

    names: tuple[str, ...]


class Ask(Struct, frozen=True):
    """Fulfil a request, and answer by ``Answered``. ``serial`` 0: no answer is wanted."""

    serial: int
    request: Request


class Finished(Struct, frozen=True):
    """The program has come to its end. ``error``: its fault, None if there is none (tasks may have failed all the same)."""

    error: WorkflowError | None = None


Effect: TypeAlias = Submit | Forget | Ask | Finished


class Limits(Struct, frozen=True):
    """How far a program unfolds ahead of what has been done. ``tasks``: begun and not ended. ``waiting``: statements that wait. ``rounds``:
    of a loop, begun at a time. ``static``: no task will ever end (a task list is made)."""

    tasks: int = 4000
    waiting: int = 40_000
    rounds: int = 64
    static: bool = False
