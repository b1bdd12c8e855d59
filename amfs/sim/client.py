"""The simulated submitter process: the real Submitter, driven as ``amfs.runs.driver`` drives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amfs.engine.submitter import Submitter
from amfs.engine.views import overtakes
from amfs.net.link import Limits as LinkLimits
from amfs.sim import session_files
from amfs.sim.node import items_in
from amfs.sim.process import Process
from amfs.sim.settings import Limits
from amfs.sim.workload import Workload
from amfs.sim.world import World
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    AddTasks,
    CancelTimer,
    CloseList,
    Effect,
    Ended,
    Event,
    FilesFlushed,
    FilesLost,
    FilesSeen,
    FindLost,
    ForgetFiles,
    Log,
    LookFor,
    Received,
    RunOver,
    Send,
    SetTimer,
    StopRun,
)
from amfs.vocabulary.paths import scope_of
from amfs.vocabulary.states import FINISHED
from amfs.workflow.specs import SpecMaker

_NO_VIEW = "no view"
VIEW_PATIENCE_S = 15.0


class SimClient(Process):
    """One run. ``ended`` maps tasks to the results they ended with, in the order told."""

    def __init__(
        self,
        world: World,
        workload: Workload,
        contacts: Sequence[int],
        *,
        run: int = 1,
        number: int = m.CLIENT_ID_MIN,
        info: m.RunInfo | None = None,
        limits: Limits | None = None,
        links: LinkLimits | None = None,
        fail_fast: bool = False,
        keep_all: bool = False,
    ) -> None:
        super().__init__(world, number, 1, links=links)
        self.workload = workload
        self.contacts = contacts
        scope = scope_of(run)
        self.info = info or m.RunInfo(scope, workload.plan.base, ())
        open_ended = workload.open_ended
        self.tasks = list(workload.tasks[: workload.first])
        self.maker = SpecMaker(scope, workload.plan, open_ended=open_ended, keep_all=keep_all)
        self.submitter = Submitter(
            number, run, self.info, self.tasks, workload.plan,
            maker=self.maker, open_ended=open_ended, fail_fast=fail_fast, limits=(limits or Limits()).submitter,
        )  # fmt: skip
        self.ended: dict[int, list[m.Result]] = {}
        self.flushed: list[tuple[str, int, str]] = []
        self.forgotten: set[str] = set()  # files of a list that grows that were let go
        self.over: RunOver | None = None
        self.looked_at: set[int] | None = None  # nodes that lived when the session was last asked what it has lost
        self.ended_with: set[int] = set()  # nodes that lived when the end of the run was announced
        self.knew_all_deaths = False  # then, and until the run was over
        self.view: m.View | None = None  # that the submitter goes by
        self.held_s = 0.0
        self.before_end: Callable[[], None] | None = None
        self.ended_at = 0.0  # when the last task was heard to have ended

    def start(self) -> None:
        for node in self.contacts:
            self.transport.queue(node, m.ClientHello(self.id))
        self.transport.flush(self.world.now)
        if self.workload.open_ended:
            self.world.at(self.world.now + 0.01, self.arrive, ("grow",))
        self.set_timer(_NO_VIEW, self.world.now + VIEW_PATIENCE_S)

    def hold_end(self, seconds: float, look: Callable[[], None]) -> None:
        """Tell the nodes of a good end only so long after it, and ``look`` at what they keep just before."""
        self.held_s, self.before_end = seconds, look

    def stop(self, reason: str) -> None:
        """As if Ctrl-C had been pressed."""
        if self.alive:
            self.arrive(("event", StopRun(reason)))

    def on_item(self, item: tuple[Any, ...]) -> None:
        """An open list grows by some tasks, or is closed; or the end is no longer held back."""
        if item[0] == "end":
            if self.before_end is not None:
                look, self.before_end = self.before_end, None
                look()
            for node, message in item[1]:
                self.transport.queue(node, message)
            return
        assert item[0] == "grow"
        self._forget()
        left = self.workload.tasks[len(self.tasks) :]
        if not left:
            self.tell(CloseList())
            return
        more = left[: self.world.rng.randint(1, 5)]
        self.tasks.extend(more)
        self.tell(AddTasks(len(self.tasks)))
        self.world.at(self.world.now + self.world.rng.uniform(0, 0.5), lambda: self.arrive(item) if self.alive else None)

    def _forget(self) -> None:
        """Let go of files between tasks whose readers have ended, all those that the list will ever have."""
        plan, state = self.workload.plan, self.submitter.state
        named = plan.aliases.get
        kept = {named(name, name) for task in self.workload.tasks for name in task.keep}
        wanted = {
            named(name, name) for tid, task in enumerate(self.workload.tasks) if tid >= len(state) or not state[tid] for name in task.inputs
        }
        names = [name for name in plan.readers if name not in kept and name not in wanted and name not in self.forgotten]
        over = [name for name in names if (tid := plan.writers.get(name, len(state))) < len(state) and state[tid] == FINISHED]
        self.forgotten.update(over)
        if over:
            self.tell(ForgetFiles(tuple(over)))

    def tell(self, event: Event) -> None:
        world, submitter = self.world, self.submitter
        if getattr(event, "key", None) == _NO_VIEW:
            self.act([RunOver("the session does not answer", {})])
            return
        if type(event) is Received:
            if type(event.message) not in submitter.on_message:
                return
            if type(event.message) is m.Results:
                self.cost_us += len(event.message.results) * world.costs.task_us_submitter / 2
            elif type(event.message) is m.View:
                self.transport.set_members(event.message.members)
                self.cancel_timer(_NO_VIEW)
        effects = submitter.handle(event, world.now)
        if world.watched:
            submitter.check_invariants()
            old, view = self.view, submitter.view
            forward = old is None or view is old or (view is not None and overtakes(view, old))
            assert forward, f"the submitter goes back from {old} to {view}"
            self.view = view
        self.act(effects)

    def act(self, effects: list[Effect]) -> None:
        world = self.world
        held: list[tuple[int, m.Message]] = []
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                message = effect.message  # type: ignore[union-attr]
                if type(message) is m.RunEnd and not self.ended_with:
                    self.ended_with = self._living()
                    self.knew_all_deaths = self.submitter.members.keys() <= self.ended_with
                if self.before_end is not None and type(message) is m.RunEnd and not message.kill:
                    held.append((effect.to, message))  # type: ignore[union-attr]
                    continue
                items = items_in(message)
                self.cost_us += items * world.costs.message_us
                if type(message) is m.Submit:
                    self.cost_us += items * world.costs.task_us_submitter / 2
                self.transport.queue(effect.to, message)  # type: ignore[union-attr]
            elif kind is SetTimer:
                self.set_timer(effect.key, effect.at)  # type: ignore[union-attr]
            elif kind is CancelTimer:
                self.cancel_timer(effect.key)  # type: ignore[union-attr]
            elif kind is Ended:
                self._note_ended(effect)  # type: ignore[arg-type]
            elif kind is FilesFlushed:
                self.flushed.extend(effect.files)  # type: ignore[union-attr]
            elif kind is LookFor:
                world.at(world.now + world.costs.latency_s, self._look, effect)
            elif kind is FindLost:
                world.at(world.now + world.costs.latency_s, self._find_lost, effect)
            elif kind is RunOver:
                self.over = effect  # type: ignore[assignment]
                self.knew_all_deaths = self.knew_all_deaths and (self.looked_at or self.ended_with) == self.ended_with == self._living()
                world.note(self.id, "run over", effect)
                self.cancel_timer(_NO_VIEW)
            elif kind is Log:
                world.note(self.id, "says", effect.text)  # type: ignore[union-attr]
            else:
                self.unknown(effect)
        if held:
            world.at(world.now + self.held_s, self.arrive, ("end", held))

    def _look(self, effect: LookFor) -> None:
        there = tuple([name for name in effect.names if name in self.world.names])
        self.world.at(self.world.now + self.world.costs.latency_s, self.arrive_alive, ("event", FilesSeen(effect.serial, there)))

    def _find_lost(self, effect: FindLost) -> None:
        """Nodes answer when they know who has which partition."""
        world = self.world
        living = self._living()
        view = self.submitter.members.keys()
        try:
            found = session_files.lost_of(world, effect.names) if view <= living else None
        except session_files.Elsewhere:
            found = None
        if found is None and self.alive:
            world.at(world.now + 0.5, self._find_lost, effect)
        elif found is not None:
            self.looked_at = living
            world.at(world.now + world.costs.latency_s, self.arrive_alive, ("event", FilesLost(found)))

    def _living(self) -> set[int]:
        return {number for number, process in self.world.processes.items() if process.alive and number < m.CLIENT_ID_MIN}

    def arrive_alive(self, item: tuple[Any, ...]) -> None:
        """Take this in, unless we are no more."""
        if self.alive:
            self.arrive(item)

    def _note_ended(self, effect: Ended) -> None:
        self.ended_at = self.world.now
        for result in effect.results:
            self.ended.setdefault(result.tid, []).append(result)
