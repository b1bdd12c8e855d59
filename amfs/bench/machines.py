"""CPU time of each pure machine for each task: a whole run of pairs through submitter and node, with nothing real behind them.

A third small shell beside ``node`` and ``sim``: tasks end as soon as they are launched, and only time spent in ``handle`` counts.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from typing import Any

from amfs.bench.process import Failed
from amfs.engine.machine import Machine
from amfs.engine.submitter import Submitter
from amfs.node.core import NodeCore
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Effect, Ended, Event, Launch, Received, RunOver, Send, SetTimer, TasksExited, TimerFired
from amfs.vocabulary.paths import scope_of
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.checks import check
from amfs.workflow.specs import SpecMaker
from amfs.workflow.workflow import Task, Workflow

_SLOTS = 2
_SERIAL_AT, _OUTPUTS_AT = 8, 52  # in the packed record, see vocabulary.records
_CLIENT = m.CLIENT_ID_MIN


class _Clocked:
    """Stands before a machine's ``handle`` and adds up the time spent in it."""

    def __init__(self, machine: Machine) -> None:
        self.seconds = 0.0
        self._handle = machine.handle
        machine.handle = self.handle  # type: ignore[method-assign]

    def handle(self, event: Event, now: float) -> list[Effect]:
        started = time.perf_counter()
        effects = self._handle(event, now)
        self.seconds += time.perf_counter() - started
        return effects


def machine_seconds(pairs: int) -> dict[str, float]:
    """Seconds in "submitter", "dispatcher", "worker" and "fls" for a run of ``pairs`` times two tasks. Raises Failed."""
    tasks = []
    for i in range(pairs):
        tasks.append(Task(f"p{i}", ("/bin/produce", f"f{i}"), outputs=(f"f{i}",)))
        tasks.append(Task(f"c{i}", ("/bin/consume", f"f{i}"), inputs=(f"f{i}",)))
    plan = check(Workflow(tasks), AnyPlace("/bench"))
    core = NodeCore(m.Member(0, 1, (), _SLOTS), "/store")
    info = m.RunInfo(scope_of(1), "/bench", ("PATH=/bin",))
    submitter = Submitter(_CLIENT, 1, info, tasks, plan, maker=SpecMaker(scope_of(1), plan))
    clocks = {name: _Clocked(machine) for name, machine in (*core.machines.items(), ("submitter", submitter)) if name != "member"}
    ended, over = _drive(core, submitter)
    if ended != len(tasks) or not over:
        raise Failed(f"only {ended} of {len(tasks)} tasks ended while the machines were measured")
    return {name: clock.seconds for name, clock in clocks.items()}


def _drive(core: NodeCore, submitter: Submitter) -> tuple[int, bool]:
    """Run to the end; (tasks that ended, whether the run is over)."""
    effects: deque[tuple[int, Effect]] = deque()  # (who wants it, what)
    launched: deque[bytes] = deque()
    timers: dict[tuple[int, Any], float] = {}
    ended, over = 0, False

    def tell(who: int, event: Event) -> None:
        machine = core if who == 0 else submitter
        effects.extend((who, effect) for effect in machine.handle(event, time.monotonic()))

    effects.extend((0, effect) for effect in core.start(time.monotonic()))
    assert core.membership.view is not None
    tell(_CLIENT, Received(0, core.membership.view))
    while not over:
        while effects:
            who, effect = effects.popleft()
            if isinstance(effect, Send):
                if effect.to in (0, _CLIENT):
                    tell(effect.to, Received(who, effect.message))
            elif isinstance(effect, Launch):
                launched.extend(effect.records)
            elif isinstance(effect, SetTimer):
                timers[who, effect.key] = effect.at
            elif isinstance(effect, Ended):
                ended += sum(not result.outcome for result in effect.results)
            elif isinstance(effect, RunOver):
                over = True
        if launched:
            done = [_completion(launched.popleft()) for _ in range(min(_SLOTS, len(launched)))]
            tell(0, TasksExited(done))
        elif not over and timers:
            (who, key), _ = min(timers.items(), key=lambda item: item[1])
            del timers[who, key]
            tell(who, TimerFired(key))
        elif not over:
            return ended, False
    return ended, over


def _completion(record: bytes) -> tuple[Any, ...]:
    """The launcher's completion of a task that succeeded."""
    (serial,) = struct.unpack_from("<Q", record, _SERIAL_AT)
    (outputs,) = struct.unpack_from("<I", record, _OUTPUTS_AT)
    now_us = time.time_ns() // 1000
    return (serial, 0, 0, 0, now_us, now_us, 0, 0, ((10, 1),) * outputs, b"", b"", "", None)
