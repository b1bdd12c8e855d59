"""The drain of a node that is told to end: it asks the manager to take it off, has others take what only it has, and leaves. Pure.

Decides when the node leaves, and with which words. When it is cleared it leaves in order (``farewell``), if that takes no longer than
``PATIENCE_S``. Must not know how files move: it asks for that (``MoveAway``) again and again, as tasks
that end meanwhile make files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set

from amfs.display.progress import size_text
from amfs.engine.farewell import Asking, Rest
from amfs.engine.machine import Machine
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import DrainOrdered, Kept, Leaving, MembersChanged, MoveAway, MovedAway, TimerFired
from amfs.vocabulary.states import DRAIN_NEXT, DrainEvent, DrainState, illegal

LAST_OF_TIME = 0.9  # of its time: from then on nobody begins to write on the node, so that files closed there are moved
BEFORE_END_S, PART_OF_JOB = 60.0, 0.1  # it drains so long before its job ends, but not for more than that part of the job
PATIENCE_S = 3.0  # so long it asks whether all is heard
AGAIN_S = 0.25  # after what could not be moved, or while tasks run; after the manager has not answered
ALONE = "no other node is there that could take what this one has"
CLEARED = "all that it had is on other nodes"
NAMED = 20  # of what stays, in the log


class Drain(Machine):
    """``running``: how many tasks the launcher of the node has. ``rest``: its part in runs; None: no run ever."""

    def __init__(self, node: int, running: Callable[[], int], rest: Rest | None = None) -> None:
        super().__init__(node)
        self.state = DrainState.SERVING
        self.reason = ""
        self.limit_s, self._until = 0.0, 0.0
        self._signalled = False  # its host has told it to end
        self.kept: tuple[Kept, ...] = ()
        self.manager = node
        self.others: Set[int] = frozenset()  # that could take what this node has
        self._running = running
        self._moving = False  # a MoveAway is not answered yet
        self._ahead_s = -1.0  # so long before the job of the node ends it drains; below 0: nobody knows when that is
        self._last = False  # nobody begins to write here any more
        self._asking = Asking(rest or Rest(dict, lambda: True, lambda: 0))
        self._asks_until = -1.0  # below 0: it has not begun to ask whether all is heard
        self._members: Set[int] = frozenset()
        self._leads = False  # it is the manager, or a dispatcher: no other node has its tables as such
        self.on_message = {m.DrainNode: self.on_drain_node, m.Farewell: self.on_farewell}
        self.on_event = {
            DrainOrdered: self.on_ordered, MembersChanged: self.on_members_changed, MovedAway: self.on_moved, TimerFired: self.on_timer,
        }  # fmt: skip

    def status(self) -> str:
        """For people: empty, unless it drains."""
        if self.state == DrainState.SERVING:
            return ""
        left = f"{len(self.kept)} files, {size_text(sum(kept.size for kept in self.kept))} to move" if self.kept else "moves what it has"
        return f"drains ({self.reason}): {self._running()} tasks run, {left}"

    def move(self, event: DrainEvent) -> None:
        state = DRAIN_NEXT[self.state][event]
        if state is None:
            raise illegal("drain of node", self.node, self.state, event)
        self.state = state

    def on_drain_node(self, peer: int, message: m.DrainNode) -> None:
        if peer >= m.CLIENT_ID_MIN:
            self.on_ordered(DrainOrdered("amfs node --drain", message.limit_ms / 1000, again=False))

    def on_ordered(self, event: DrainOrdered) -> None:
        if self.state == DrainState.SERVING:
            self.move(DrainEvent.ORDERED)
            self._signalled = event.again
            self._set_limit(event)
            if not self.others:
                self._leave(DrainEvent.ALONE, ALONE)
                return
            self._ask()
        elif event.again and self._signalled and self.state != DrainState.LEAVING:
            self._leave(DrainEvent.ORDERED_AGAIN, "told again to end")
        elif self.state != DrainState.LEAVING:
            self._signalled |= event.again
            if self.now + event.limit_s < self._until:
                self._set_limit(event)

    def _set_limit(self, event: DrainOrdered) -> None:
        self.reason, self.limit_s, self._until = event.reason, event.limit_s, self.now + event.limit_s
        self.log(f"{event.reason}: this node drains, within {event.limit_s:g} s")
        self.set_timer("late", event.limit_s)
        self.set_timer("last", LAST_OF_TIME * event.limit_s)

    def _ask(self) -> None:
        self.send(self.manager, m.Withdraw())
        self.set_timer("again", AGAIN_S)

    def on_members_changed(self, event: MembersChanged) -> None:
        self.manager, self.others = event.manager, event.slots.keys() - event.draining - {self.node}
        self._members, self._leads = event.slots.keys() - {self.node}, event.manager == self.node or bool(event.unit)
        if self.node in event.ends and self._ahead_s < 0:
            left = event.ends[self.node] - self.now
            self._ahead_s = min(BEFORE_END_S, PART_OF_JOB * left)
            self.set_timer("end", left - self._ahead_s)
        if self.state not in (DrainState.ASKED, DrainState.MOVING, DrainState.PARTING):
            return
        if not self.others:
            self._leave(DrainEvent.ALONE, ALONE)
        elif self.state == DrainState.ASKED and self.node in event.draining:
            self.move(DrainEvent.WITHDRAWN)
            self._go_on()
        elif self.state == DrainState.PARTING:
            self._ask_anew()

    def _go_on(self) -> None:
        if not self._moving:
            self._moving = True
            self.out.append(MoveAway(self._last))

    def on_moved(self, event: MovedAway) -> None:
        self._moving = False
        self.kept = event.kept
        if self.state == DrainState.PARTING and (self.kept or self._running()):
            self.move(DrainEvent.MORE)
        if self.state == DrainState.PARTING:
            self._go_if_heard()
        if self.state != DrainState.MOVING:
            return
        if not self.kept and not self._running():
            self._part()
        elif event.changed and not self._running():
            self._last = True  # else this would go on for as long as programs write one file after the other
            self._go_on()
        else:
            self.set_timer("again", AGAIN_S)

    # ── in order ───────────────────────────────────────────────────────────────────────────────────

    def _part(self) -> None:
        """Nothing is here that others do not have. Where runs are at work, the others are to have heard all that is to be heard."""
        if self._asks_until < 0:
            self._asks_until = self.now + PATIENCE_S
            self.set_timer("unheard", PATIENCE_S)
        self.move(DrainEvent.CLEARED)
        if self._leads or self.now >= self._asks_until or not self._asking.rest.runs():
            self._leave(DrainEvent.UNHEARD, CLEARED)
        else:
            self._ask_anew()
            self.set_timer("again", AGAIN_S)

    def _ask_anew(self) -> None:
        self._asking.begin(self._members)
        self._ask_again()

    def _ask_again(self) -> None:
        for to, question in self._asking.to_ask():
            self.send(to, question)

    def on_farewell(self, peer: int, message: m.Farewell) -> None:
        if not message.heard or self.state != DrainState.PARTING or not self._asking.answered(peer, message.number):
            return
        if self._asking.heard(patient=True) is not None:
            self._go_on()

    def _go_if_heard(self) -> None:
        """Called at the end of a look that has found nothing here. Work that began here since an earlier look would be lost."""
        late = self.now >= self._asks_until
        runs = None if self._leads else self._asking.heard(patient=not late)
        if runs is not None:
            self._leave(DrainEvent.HEARD, CLEARED, runs)
        elif late:
            self._leave(DrainEvent.UNHEARD, CLEARED)
        else:
            self.set_timer("again", AGAIN_S)

    def on_timer(self, event: TimerFired) -> None:
        if self.state == DrainState.LEAVING:
            return
        if event.key == "unheard":
            if self.state == DrainState.PARTING:
                self._go_on()
            return
        if event.key == "end":
            if self.others:  # else it serves as long as it can
                self.on_ordered(DrainOrdered("its job is about to end", round(LAST_OF_TIME * self._ahead_s, 1), again=False))
        elif event.key == "late":
            self._leave(DrainEvent.LATE, f"its {self.limit_s:g} s are over")
        elif event.key == "last":
            self._last = True
        elif self.state == DrainState.ASKED:
            self._ask()
        else:
            if self.state == DrainState.PARTING and self._asking.is_old():
                self._ask_anew()
            elif self.state == DrainState.PARTING:
                self._ask_again()
            self._go_on()

    def _leave(self, event: DrainEvent, why: str, runs: tuple[int, ...] = ()) -> None:
        self.move(event)
        words = f"{self.reason}: {why}"
        if event in (DrainEvent.HEARD, DrainEvent.UNHEARD):
            self.out.append(Leaving(words, runs))
            return
        if running := self._running():
            words += f"; {running} tasks run elsewhere from the beginning"
        if self.kept:
            words += f"; {len(self.kept)} files ({size_text(sum(kept.size for kept in self.kept))}) stay here, and are lost"
        for kept in self.kept[:NAMED]:
            self.log(f"not moved: {kept.what} ({size_text(kept.size)}): {kept.why}", logging.ERROR)
        self.log(words, logging.WARNING)
        self.out.append(Leaving(words))
