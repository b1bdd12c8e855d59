"""The part that all clients of a session share: a transport with the session's keys; it greets nodes, follows views, takes leave.

Owns the transport. Must not know: when it is driven (a poll loop, a blocking question and the threads of a program do it differently).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from amfs.engine.views import overtakes
from amfs.net.records import SessionRecord
from amfs.net.transport import Transport, random_client_id
from amfs.vocabulary.messages import ClientHello, Leave, View


class Attachment:
    """A client of ``session``; nothing is sent before ``greet``."""

    def __init__(self, session: SessionRecord) -> None:
        self.session = session
        self.transport = Transport(random_client_id(), session.keys)
        self.id = self.transport.own_id
        self.view: View | None = None
        self._greeted: set[int] = set()
        for entry in session.nodes:
            self.transport.connect(entry.node, entry.endpoints, entry.host)

    def greet(self, nodes: Iterable[int]) -> None:
        """Ask these nodes for the view, and be told of its changes from then on."""
        for node in nodes:
            self._greeted.add(node)
            self.transport.queue(node, ClientHello(self.id))

    def adopt(self, view: View) -> bool:
        """Go by this view if it is newer; returns whether it is. All of its members can be reached afterwards."""
        if self.view is not None and not overtakes(view, self.view):
            return False
        self.view = view
        self.transport.set_members(view.members, time.monotonic())
        return True

    def refusals(self) -> str:
        """Why nodes and this process did not understand each other lately, in words; '' if they did."""
        return "; ".join(dict.fromkeys(self.transport.refusals.recent))

    def leave(self, others: Iterable[int] = (), *, drain_s: float = 0.0) -> None:
        """Say goodbye to the nodes that were greeted, and to ``others`` that know of this client, so that none waits for it; close.
        ``drain_s``: how long to wait until it is acknowledged."""
        nodes = self._greeted.union(others)
        for node in nodes:
            self.transport.queue(node, Leave(-1))
        self.transport.flush(time.monotonic())
        if drain_s:
            self.transport.drain(drain_s, nodes)
        self.transport.close()
