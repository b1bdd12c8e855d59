"""The tasks of a program without a run, if nothing in it depends on what a task makes. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amfs.errors import Fault, WorkflowError
from amfs.swift.depth import deep
from amfs.swift.evaluate.effects import Answered, Ask, Begin, Effect, Finished, Limits, Submit
from amfs.swift.evaluate.machine import Machine
from amfs.swift.evaluate.statements import compile_program
from amfs.swift.requests import Print, Refused, Request, WriteFile
from amfs.swift.source import At, Mistake, refuse
from amfs.swift.tree import Program
from amfs.swift.values import UNSET, FileCell, Made
from amfs.workflow.workflow import Task

#: Places that are named when a program needs a run.
SHOWN = 5

#: Bytes that a task can write which has them as an argument.
_WRITTEN_MAX = 100_000


def tasks_of(program: Program, answer: Callable[[Request], Any]) -> list[Task]:
    """In the order in which a run would submit them. ``answer`` carries out requests, or returns ``Refused``. Raises ``WorkflowError``: the
    program is wrong, or needs a run, with the places of the expressions that do."""
    return deep(lambda: _tasks_of(program, answer))


def _tasks_of(program: Program, answer: Callable[[Request], Any]) -> list[Task]:
    machine = compile_program(program, Limits(static=True))
    tasks: list[Task] = []
    effects: list[Effect] = machine.handle(Begin())
    while effects:
        following: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Submit):
                tasks += effect.tasks
            elif isinstance(effect, Finished):
                if effect.error is not None:
                    raise effect.error
            elif isinstance(effect, Ask) and not isinstance(effect.request, Print):
                following += machine.handle(Answered(effect.serial, _answered(effect, tasks, machine, answer)))
        effects = following
    if machine.waiting:
        raise _needs_a_run(machine)
    return tasks


def _answered(ask: Ask, tasks: list[Task], machine: Machine, answer: Callable[[Request], Any]) -> Any:
    request = ask.request
    if not isinstance(request, WriteFile) or request.append:
        return answer(request)
    if len(request.data) > _WRITTEN_MAX or b"\0" in request.data:
        return Refused(f"{request.name} is too large or not text, so no task list can hold it; run the script")
    text = request.data.decode(errors="surrogateescape")
    id = f"write:{request.name}"
    keep = () if request.name.startswith("_swift/") else (request.name,)
    tasks.append(Task(id, ("printf", "%s", text), (), (request.name,), stdout=request.name, keep=keep, label="write"))
    machine.makers[request.name] = id
    return None


def _needs_a_run(machine: Machine) -> WorkflowError:
    """Something waits for what a task makes, or for what nobody makes."""
    if not any(_is_promised(waiting.on) for waiting in machine.waiting):
        return machine.stuck()
    places: dict[tuple[str, int], tuple[At, Any]] = {}
    for waiting in machine.waiting:
        if _is_promised(waiting.on):
            source, offset = waiting.at.source.origin(waiting.at.start)
            places.setdefault((source.name, offset), (waiting.at, waiting.on))
    mistakes = []
    for at, on in places.values():
        what = f"the content of {on.promise.value.name}" if isinstance(on, FileCell) else "the end of a task"
        mistakes.append(Mistake(at, f"this needs a run: it depends on {what}, which a task makes"))
    shown = refuse(mistakes).faults
    more = [Fault(machine.program, 0, f"{len(shown) - SHOWN} more expressions need a run")] if len(shown) > SHOWN else []
    return WorkflowError([*shown[:SHOWN], *more])


def _is_promised(on: Any) -> bool:
    return isinstance(on, FileCell | Made) and on.promise.value is not UNSET
