"""A session of nodes that are started on places that are there: hosts that can be logged in to, workers of another cluster.

A node without slots here founds it, and one node on each place joins; the session file goes to them on the way by which they are started,
so these places need not share a directory. Owns the order of the steps, and the cleaning up when one of them fails. Every wait is bounded.
Must not know: any way of starting a node (``commands``, ``guests``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from amfs.client.control import Client
from amfs.errors import SessionError, UsageError
from amfs.host.signals import as_exits, postponed
from amfs.net import records
from amfs.net.records import NO_SLOTS, NodeEntry, Ready, SessionRecord
from amfs.provision.allocation import as_words
from amfs.provision.local import START_PER_NODE_S, LocalProcesses
from amfs.provision.provisioner import NodeOptions
from amfs.vocabulary.messages import View

_GATHER_S = 3.0  # for nodes to become members, when the session is to end
_NAMED = 3  # places of which it is said why they have no node


class Place(msgspec.Struct, frozen=True):
    """Where one node can be. ``slots`` are 0 where the node is to find out itself."""

    name: str
    slots: int = 0


class Way(Protocol):
    """Starts nodes. ``name`` is for people. ``patience_s``: for a node to be there."""

    name: str
    patience_s: float

    @property
    def begun(self) -> int:
        """How many nodes were begun."""

    def places(self, most: int | None) -> Sequence[Place]:
        """All places, or ``most`` of them. Raises UsageError or SessionError."""

    def begin(self, number: int, place: Place, session: SessionRecord, words: Sequence[str]) -> None:
        """Start ``amfs node`` with these words, and ``session`` on its standard input. Raises SessionError."""

    def ended(self) -> Mapping[int, str]:
        """Of the nodes that were begun, those that have ended, and why."""

    def leave(self) -> None:
        """All that are to come have come: they go on without this process."""

    def stop(self) -> None:
        """End what is known not to be a node yet."""

    def cancel(self) -> None:
        """The session has ended: wait a little for its nodes, and end what has not become one."""


class Joining:
    """``tell`` gets each line for people. ``least`` nodes at least (None: one on each place), ``most`` at most."""

    def __init__(
        self, way: Way, least: int | None, most: int | None, wait_s: float | None = None, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        self.way, self.least, self.most, self.wait_s, self.tell, self.speaks = way, least, most, wait_s, tell, True

    def start(self, name: str | None, options: NodeOptions) -> SessionRecord:
        """Raises SessionError when fewer than ``least`` nodes come; then nothing is left."""
        places = self.way.places(self.most)
        least = len(places) if self.least is None else self.least
        if not places or len(places) < least:
            raise UsageError(f"--nodes {least}: {self.way.name} has room for {len(places)}")
        options = msgspec.structs.replace(options, tcp=options.tcp or "0.0.0.0", expected=max(options.expected, len(places) + 1))
        with as_exits():
            session = LocalProcesses(1).start(name, msgspec.structs.replace(options, slots=NO_SLOTS))
            try:
                for number, place in enumerate(places, 1):
                    self.way.begin(number, place, session, as_words(msgspec.structs.replace(options, slots=options.slots or place.slots)))
                view = self._await(session, places, least)
                known = {entry.node: entry for entry in session.nodes}
                nodes = [known.get(one.node) or NodeEntry(one.node, one.endpoints, one.host, 0, 0) for one in view.members]
                session = msgspec.structs.replace(session, nodes=tuple(nodes))
                records.save(session)
                self.way.leave()
            except BaseException as error:
                with postponed():  # a second Ctrl-C would leave nodes on the hosts
                    if not isinstance(error, Exception):
                        self.tell("ends the session; another Ctrl-C does not stop that")
                    self._gather(session)
                    for remark in LocalProcesses().end(session):
                        self.tell(remark)
                    self.way.cancel()
                raise
        return session

    def add(self, session: SessionRecord, options: NodeOptions) -> Ready:
        raise UsageError("'amfs node --join' adds a node")

    def end(self, session: SessionRecord, timeout_s: float) -> list[str]:
        remarks = LocalProcesses().end(session, timeout_s)
        self.way.cancel()
        return remarks

    def _gather(self, session: SessionRecord) -> None:
        """Let nodes that are on their way become members, so that they hear of the end."""
        self.way.stop()
        with contextlib.suppress(SessionError), Client(session) as client:
            client.view(_GATHER_S, until=lambda view: len(view.members) > self.way.begun - len(self.way.ended()))

    def _await(self, session: SessionRecord, places: Sequence[Place], least: int) -> View:
        """The view when all nodes have come that can. Raises SessionError when fewer than ``least`` do."""
        patience = self.way.patience_s + START_PER_NODE_S * len(places) if self.wait_s is None else self.wait_s
        told: set[int] = set()
        end = time.monotonic() + patience
        with Client(session) as client:
            while True:
                lost = dict(self.way.ended())
                for number in lost.keys() - told:
                    told.add(number)
                    if len(places) - len(lost) >= least:
                        self.tell(f"no node on {places[number - 1].name}: {lost[number]}")
                possible = len(places) - len(lost)
                if possible < least:
                    few = f"{self.way.name} gives {'no node' if least == 1 else f'fewer than {least} nodes'}"
                    raise SessionError(f"{few}: {_reasons(places, lost)}")
                late = time.monotonic() >= end
                with contextlib.suppress(SessionError):  # not complete yet
                    return client.view(0.3, until=lambda view: len(view.members) > (least if late else possible))  # noqa: B023
                if late:
                    there = len(client.view(2.0).members) - 1
                    missing = f"; {_reasons(places, lost)}" if lost else ""
                    raise SessionError(f"{there} of {least} nodes have joined after {patience:.0f} s{missing}")


def _reasons(places: Sequence[Place], lost: Mapping[int, str]) -> str:
    said = [f"{places[number - 1].name}: {why}" for number, why in sorted(lost.items())]
    more = [f"and {len(said) - _NAMED} more"] if len(said) > _NAMED else []
    return "; ".join(said[:_NAMED] + more)
