"""A script that runs: its evaluation, driven by the tasks that end and the requests that are answered.

The evaluation belongs to the thread that calls ``run``; tasks and answers come from others.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any

from amfs.errors import WorkflowError
from amfs.scripts.world import Run, World
from amfs.swift.depth import deep
from amfs.swift.evaluate.effects import Answered, Ask, Begin, Effect, Event, Finished, Forget, Limits, Submit, TaskEnded
from amfs.swift.evaluate.statements import compile_program
from amfs.swift.tree import Program
from amfs.workflow.workflow import Task

#: Events that are handled before tasks are submitted.
_AT_ONCE = 4096

#: With so many tasks out nothing is urgent, and ends of tasks are taken in after this many seconds, many at once: a thread that is woken
#: for each of them takes more of the loop's time than they need.
_PLENTY, _REST = 500, 0.02


class Script:
    """See the module."""

    def __init__(self, program: Program, run: Run, world: World, limits: Limits | None = None) -> None:
        self.machine = compile_program(program, limits)
        self._run = run
        self._world = world
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._batch: list[Task] = []
        self._forgotten: list[str] = []

    def ended(self, id: str, ok: bool) -> None:
        """A task has ended. For any thread."""
        self._events.put(TaskEnded(id, ok))

    def stop(self) -> None:
        """``run`` shall return soon. For any thread."""
        self._events.put(None)

    def run(self) -> WorkflowError | None:
        """Evaluate the program to its end. Returns what went wrong in it; of tasks that failed nothing. Raises ``WorkflowError`` for tasks
        that are faulty."""
        return deep(self._evaluate)

    def _evaluate(self) -> WorkflowError | None:
        finished = self._carry_out(self.machine.handle(Begin()))
        while finished is None:
            self._submit()
            if len(self.machine.tasks) > _PLENTY:
                time.sleep(_REST)
            for number in range(_AT_ONCE):
                try:
                    event = self._events.get(block=not number)
                except queue.Empty:
                    break
                if event is None:
                    return None
                if isinstance(event, Answered) or event.id in self.machine.tasks:  # type: ignore[union-attr]
                    finished = self._carry_out(self.machine.handle(event))
                if finished is not None:
                    break
        self._submit()
        return finished.error

    def _submit(self) -> None:
        if self._batch:
            batch, self._batch = self._batch, []
            self._run.add(batch)
        if self._forgotten:
            names, self._forgotten = self._forgotten, []
            self._world.forget(names)

    def _carry_out(self, effects: list[Effect]) -> Finished | None:
        for effect in effects:
            if isinstance(effect, Submit):
                self._batch += self._world.host.placed(effect.tasks)
            elif isinstance(effect, Forget):
                self._forgotten += effect.names
            elif isinstance(effect, Ask):
                self._world.fulfil(effect.request, self._answerer(effect.serial))
            else:
                return effect
        return None

    def _answerer(self, serial: int) -> Callable[[Any], None]:
        if not serial:
            return _ignore
        return lambda answer: self._events.put(Answered(serial, answer))


def _ignore(answer: Any) -> None:
    pass
