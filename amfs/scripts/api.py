"""Scripts in an ``amfs.Session``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from amfs.errors import AmfsError
from amfs.runs.api import Handle, Session
from amfs.scripts.script import Script
from amfs.scripts.world import World
from amfs.swift.tree import Program
from amfs.workflow.workflow import Task


class SessionRun:
    """A session as the run of a script."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.ended: Callable[[Handle], None] | None = None

    def add(self, tasks: list[Task]) -> None:
        for handle in self.session.submit_tasks(tasks):
            if handle.skipped and self.ended is not None:
                self.ended(handle)

    def makes(self, name: str) -> bool:
        return self.session.makes(name)

    def forget(self, names: list[str]) -> None:
        self.session.forget(names)

    def read(self, name: str) -> bytes:
        return self.session.read(name)

    def nodes(self) -> list[str]:
        return self.session.nodes()

    def locate(self, name: str) -> list[int]:
        return self.session.locate(name)


def run_program(
    program: Program, session: Session, *, arguments: Sequence[str] = (), base: str | os.PathLike[str] = "",
    show: Callable[[str, bool], None] | None = None,
) -> list[Handle]:  # fmt: skip
    """Run a checked program in a session, to its end; its tasks are the session's. Returns those that failed. Raises ``WorkflowError`` for
    mistakes that show only now. ``show`` gets the text that the program prints, and whether it is for standard error."""
    run = SessionRun(session)
    world = World(run, os.path.abspath(base or os.getcwd()), arguments, show=show)
    script = Script(program, run, world)
    failed: list[Handle] = []

    def ended(handle: Handle) -> None:
        if not handle.ok:
            failed.append(handle)
        script.ended(handle.id, handle.ok)

    before: Any = session.on_ended
    session.on_ended = run.ended = ended
    try:
        error = script.run()
    finally:
        session.on_ended = before
        world.close()
    if error is not None:
        raise error
    if session.over:
        raise AmfsError(f"the run ended before the script: {session.over}")
    return failed
