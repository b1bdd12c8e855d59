"""Questions to a running session from a process that is no node. Owns a transport of its own for as long as it asks.

Blocking, with a time-out on every wait. Must not know: the meaning of the answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from amfs.engine.messages import CLIENT_ID_MIN, ClientHello, IdAssigned, Join, Leave, Member, Message, View
from amfs.engine.views import overtakes
from amfs.errors import SessionError
from amfs.host.processes import host_id
from amfs.net.addresses import pick
from amfs.net.records import SessionRecord
from amfs.net.transport import Transport, random_client_id

M = TypeVar("M", bound=Message)
_ASKED_FIRST = 8  # nodes asked for the view; any one that answers will do


class Client:
    """Talks to the nodes of ``session``. Use as a context manager."""

    def __init__(self, session: SessionRecord) -> None:
        self.session = session
        self.transport = Transport(random_client_id(), session.keys)
        self.id = self.transport.own_id
        self._greeted: set[int] = set()
        for entry in session.nodes:
            self.transport.connect(entry.node, entry.endpoints, entry.host)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Take leave of the nodes, so that none waits to hear from us, and close."""
        for node in self._greeted:
            self.transport.queue(node, Leave(-1))
        self.transport.flush(time.monotonic())
        self.transport.close()

    def view(self, timeout_s: float = 5.0, until: Callable[[View], bool] = lambda view: True) -> View:
        """The members as the session sees them now; the first view that satisfies ``until``. Raises SessionError on time-out.

        Afterwards all of them can be asked.
        """
        self._need_a_way([entry.node for entry in self.session.nodes])
        end = time.monotonic() + timeout_s
        best: View | None = None
        asked = [entry.node for entry in self.session.nodes]
        while time.monotonic() < end:
            for node in asked[:_ASKED_FIRST]:
                self._greeted.add(node)
                self.transport.queue(node, ClientHello(self.id))
            pause = min(end, time.monotonic() + 0.5)
            while time.monotonic() < pause:
                for _, message in self._turn(pause):
                    if isinstance(message, View) and (best is None or overtakes(message, best)):
                        best = message
                if best is not None and until(best):
                    self.transport.set_members(best.members, time.monotonic())
                    return best
                if not asked:
                    break
        raise SessionError(self._why_not(best, timeout_s))

    def _need_a_way(self, nodes: Iterable[int]) -> None:
        """Raise SessionError if none of these nodes, as the session file has them, listens where it can be reached from this host."""
        here, chosen = host_id(), set(nodes)
        entries = [entry for entry in self.session.nodes if entry.node in chosen]
        if entries and not any(pick(entry.endpoints, entry.host, here) for entry in entries):
            where = ", ".join(dict.fromkeys(entry.host.partition("/")[0] for entry in entries))
            raise SessionError(f"session {self.session.name} can be reached only from {where}: it was started without --tcp")

    def _why_not(self, view: View | None, timeout_s: float) -> str:
        if view is not None:
            nodes = ", ".join(str(member.node) for member in view.members)
            return f"session {self.session.name} is not complete after {timeout_s:g} s: only nodes {nodes} are in"
        text = f"session {self.session.name} does not answer within {timeout_s:g} s"
        if self.transport.refusals.recent:
            text += "; " + "; ".join(dict.fromkeys(self.transport.refusals.recent))
        return text

    def ask(self, questions: Mapping[int, Message], kind: type[M], timeout_s: float = 2.0) -> dict[int, M]:
        """Ask each node its question; returns the answers of type ``kind`` that came in time, by node."""
        answers: dict[int, M] = {}
        for node, question in questions.items():
            self.transport.queue(node, question)
        end = time.monotonic() + timeout_s
        while len(answers) < len(questions) and time.monotonic() < end:
            for node, message in self._turn(end):
                if isinstance(message, kind) and node in questions:
                    answers[node] = message
        return answers

    def tell(self, nodes: Iterable[int], message: Message, timeout_s: float = 2.0) -> bool:
        """Send to all of ``nodes``; returns whether all acknowledged in time."""
        chosen = list(nodes)
        for node in chosen:
            self.transport.queue(node, message)
        self.transport.drain(timeout_s, chosen)
        return not any(self.transport.backlog(node) for node in chosen)

    def number(self, member: Member, manager: int, timeout_s: float = 10.0) -> int:
        """A number from the manager for a node that wants to join. Raises SessionError if it does not answer."""
        self._need_a_way([manager])
        answers = self.ask({manager: Join(member)}, IdAssigned, timeout_s)
        if manager not in answers:
            raise SessionError(f"the manager (node {manager}) of session {self.session.name} does not answer within {timeout_s:g} s")
        return answers[manager].node

    def _turn(self, end: float) -> list[tuple[int, Message]]:
        transport = self.transport
        now = time.monotonic()
        transport.flush(now)
        due = transport.next_timer()
        transport.poll(min(end, due if due is not None else end) - now)
        now = time.monotonic()
        got = transport.receive(now)
        transport.on_timer(now)
        transport.flush(now)
        return [(sender, message) for sender, message in got if sender < CLIENT_ID_MIN]


def answers(session: SessionRecord, timeout_s: float) -> bool:
    """Whether any node of the session answers within ``timeout_s`` seconds."""
    try:
        with Client(session) as client:
            client.view(timeout_s)
    except SessionError:
        return False
    return True
