"""A submitter with a run and short ways to tell it things, for the stories that are told of it."""

from __future__ import annotations

import math
from typing import Any, Self

from parts import BASE, CLIENT, RUN, info
from recorder import Recorder

from amfs.config import SubmitterLimits
from amfs.engine.submitter import Submitter
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import AddTasks, Ended, RunOver
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.checks import StreamChecker, check
from amfs.workflow.specs import SpecMaker
from amfs.workflow.workflow import Task, Workflow


def task(name: str, inputs: str = "", outputs: str = "", keep: str = "") -> Task:
    return Task(name, ("run", name), tuple(inputs.split()), tuple(outputs.split()), keep=tuple(keep.split()))


#: Without heartbeats, which have tests of their own.
SILENT = SubmitterLimits(heartbeat_s=math.inf)
SMALL = SubmitterLimits(heartbeat_s=math.inf, window=8, window_per_slot=1, batch=4)

CHAIN = (task("a", "", "x"), task("b", "x", "y"), task("c", "y", "z"))
MANY = [task(f"t{i}") for i in range(100)]


class Client(Recorder[Submitter]):
    """A submitter with a run. The records of all files are kept by the first node of the view."""

    def __init__(
        self, *tasks: Task, open_ended: bool = False, limits: SubmitterLimits | None = None, keep_all: bool = False, **more: Any
    ) -> None:
        self.tasks = list(tasks)
        self.checker = StreamChecker(AnyPlace(BASE))
        if open_ended:
            plan = self.checker.plan
        else:
            workflow = Workflow(self.tasks)
            plan = check(workflow, AnyPlace(BASE))
        maker = SpecMaker("7/", plan, open_ended=open_ended, keep_all=keep_all)
        limits = limits or SILENT
        super().__init__(Submitter(CLIENT, RUN, info(), self.tasks, plan, maker=maker, open_ended=open_ended, limits=limits, **more))
        self.epoch = 0
        self.manager = 0

    def view(self, *nodes: int, unit_size: int = 0, shard: int = -1) -> Self:
        """The manager says who is there; ``unit_size`` 1 makes every node a dispatcher; ``shard``: another node keeps the records."""
        self.epoch += 1
        members = tuple(m.Member(node, 1, (), 2) for node in nodes)
        owners = (shard,) if shard >= 0 else nodes[:1]
        manager = self.manager if self.manager in nodes else min(nodes, default=self.manager)
        return self.tell(manager, m.View(self.epoch, manager, members, owners, unit_size))

    def begun(self, *nodes: int, unit_size: int = 0, shard: int = -1) -> Self:
        """The first view, with the announcement of the run to its nodes."""
        self.view(*nodes, unit_size=unit_size, shard=shard)
        assert self.take_all(m.RunBegin) == [(node, m.RunBegin(RUN, CLIENT, info(), self.epoch, self.epoch)) for node in nodes]
        return self

    def submitted(self) -> dict[int, list[int]]:
        """dispatcher -> tasks given to it since last asked."""
        given: dict[int, list[int]] = {}
        for dispatcher, submit in self.take_all(m.Submit):
            for spec in submit.tasks:
                assert spec.origin == dispatcher
                given.setdefault(dispatcher, []).append(spec.tid)
        return given

    def ends(self, dispatcher: int, *results: m.Result, parked: int = 0) -> Self:
        return self.tell(dispatcher, m.Results(RUN, results, parked))

    def add(self, *tasks: Task) -> Self:
        """An open list grows."""
        for one in tasks:
            assert self.checker.add(one) == []
            self.tasks.append(one)
        return self.feed(AddTasks(len(self.tasks)))

    def run_ended(self, *nodes: int, reason: str = "") -> None:
        """The nodes are told to forget the run, they do, and it is over."""
        told = self.take_all(m.RunEnd)
        assert [(node, end.kill) for node, end in told] == [(node, bool(reason)) for node in nodes]
        for node in nodes:
            assert not self.effects_of(RunOver)
            self.tell(node, m.RunGone(RUN, node, {"fetched_bytes": 3}))
        assert self.effect(RunOver) == RunOver(reason, {"fetched_bytes": 3 * len(nodes)})
        assert not self.timers
        self.effects_of(Ended)
        self.nothing_left()
