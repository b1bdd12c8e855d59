"""Questions to a running session from a process that is no node. Owns its attachment for as long as it asks.

Blocking, with a time-out on every wait. Must not know: the meaning of the answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from amfs.client.attachment import Attachment
from amfs.errors import SessionError
from amfs.host.processes import host_id
from amfs.net.addresses import pick
from amfs.net.records import SessionRecord
from amfs.vocabulary.messages import CLIENT_ID_MIN, IdAssigned, Join, Member, Message, View

M = TypeVar("M", bound=Message)
_ASKED_FIRST = 8  # nodes asked for the view; any one that answers will do


class Client:
    """Talks to the nodes of ``session``. Use as a context manager."""

    def __init__(self, session: SessionRecord) -> None:
        self.session = session
        self.attachment = Attachment(session)
        self.transport = self.attachment.transport

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Take leave of the nodes, so that none waits to hear from us, and close."""
        self.attachment.leave()

    def view(self, timeout_s: float = 5.0, until: Callable[[View], bool] = lambda view: True) -> View:
        """The members as the session sees them now; the first view that satisfies ``until``. Raises SessionError on time-out.

        Afterwards all of them can be asked.
        """
        self._need_a_way([entry.node for entry in self.session.nodes])
        end = time.monotonic() + timeout_s
        self.attachment.view = None  # one that was heard before may be old
        asked = [entry.node for entry in self.session.nodes]
        while time.monotonic() < end:
            self.attachment.greet(asked[:_ASKED_FIRST])
            pause = min(end, time.monotonic() + 0.5)
            while time.monotonic() < pause:
                for _, message in self._turn(pause):
                    if isinstance(message, View):
                        self.attachment.adopt(message)
                if self.attachment.view is not None and until(self.attachment.view):
                    return self.attachment.view
                if not asked:
                    break
        raise SessionError(self._why_not(timeout_s))

    def _need_a_way(self, nodes: Iterable[int]) -> None:
        """Raise SessionError if none of these nodes, as the session file has them, listens where it can be reached from this host."""
        here, chosen = host_id(), set(nodes)
        entries = [entry for entry in self.session.nodes if entry.node in chosen]
        if entries and not any(pick(entry.endpoints, entry.host, here) for entry in entries):
            where = ", ".join(dict.fromkeys(entry.host.partition("/")[0] for entry in entries))
            raise SessionError(f"session {self.session.name} can be reached only from {where}: it was started without --tcp")

    def _why_not(self, timeout_s: float) -> str:
        if (view := self.attachment.view) is not None:
            nodes = ", ".join(str(member.node) for member in view.members)
            return f"session {self.session.name} is not complete after {timeout_s:g} s: only nodes {nodes} are in"
        refused = self.attachment.refusals()
        return f"session {self.session.name} does not answer within {timeout_s:g} s" + (f"; {refused}" if refused else "")

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
