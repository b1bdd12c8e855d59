"""A running session gets more or fewer nodes: processes here, jobs, drains. For ``amfs scale``, and for a policy that is applied.

Owns the order of the steps. Must not know: who wants the number, and why; which nodes drain (``engine.scaling``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from amfs.client.control import Client
from amfs.engine.jobs import Order, Target, Told
from amfs.engine.scaling import Standing, plan, to_drain
from amfs.errors import SessionError, UsageError
from amfs.host import processes
from amfs.net.records import SessionRecord
from amfs.provision import ledger
from amfs.provision.ledger import Ledger
from amfs.provision.local import LocalProcesses
from amfs.provision.provisioner import NodeOptions
from amfs.vocabulary.messages import DrainNode, Member, Status, StatusAsk, View

SLACK_S = 30.0  # for a node that has drained to be gone
LAST_S = 5.0  # for nodes to answer
UNHURRIED_S = 300.0  # that nodes may take that leave because of a policy: tasks that run there need not begin anew elsewhere


class Nodes(NamedTuple):
    """Members with slots that do not drain, what each says of itself, and jobs that may still become nodes. ``book`` None: no jobs."""

    view: View
    members: list[Member]
    says: Mapping[int, Mapping[str, Any]]
    waiting: int
    book: Ledger | None


def look(session: SessionRecord) -> Nodes:
    """Raises SessionError."""
    book = ledger.load(session)
    with Client(session) as client:
        view = client.view()
        members = [member for member in view.members if member.slots > 0 and not member.draining]
        asked = client.ask({member.node: StatusAsk(1) for member in members}, Status, LAST_S)
    return Nodes(view, members, {node: status.data for node, status in asked.items()}, book.open_jobs() if book is not None else 0, book)


def held(data: Mapping[str, Any]) -> int:
    """Bytes that a node would have to hand over, or that would have to be made again."""
    return int(sum(data.get(name, 0) for name in ("memory", "fs_memory", "spilled", "fs_spilled")) - data.get("memory_spare", 0))


def resize(
    session: SessionRecord, wanted: int, options: NodeOptions, tell: Callable[[str], None], *, by_policy: bool = False, wait: bool = True
) -> list[int]:
    """Bring the session to ``wanted`` nodes; where they are jobs, have it stay so. ``by_policy``: a pause after jobs that came to nothing
    is kept; ``wait``: until those that drain have left. Returns these. Raises SessionError,
    UsageError."""
    nodes = look(session)
    change = plan(wanted, len(nodes.members), nodes.waiting)
    leave = _leaving(session, nodes, change.drain) if change.drain else []
    if nodes.book is not None:
        _order(nodes.book, Target(wanted, again=not by_policy), bool(change.start or change.cancel), tell)
        if change.start and by_policy and (paused := nodes.book.paused()):
            raise SessionError(paused)
    if change.start and nodes.book is not None:
        words = "jobs are" if change.start > 1 else "job is"
        tell(f"{change.start} more {words} submitted to {nodes.book.system.name}")
    elif change.start:
        _grow(session, change.start, options, tell)
    elif change.cancel:
        tell("jobs that wait are cancelled")
    elif not leave:
        tell(f"{session.name} has {wanted} nodes" + (f", {nodes.waiting} of them jobs that wait" if nodes.waiting else ""))
    if leave:
        limit_s = max(options.drain_s, UNHURRIED_S) if by_policy else options.drain_s
        _shrink(session, leave, len(nodes.members) - len(leave), limit_s, tell, wait=wait)
    return leave


def _order(book: Ledger, order: Order, is_needed: bool, tell: Callable[[str], None]) -> None:
    """To the keeper of the jobs. If it has ended, nodes can still drain: nobody replaces them."""
    try:
        book.order(order)
    except SessionError as error:
        if is_needed:
            raise
        tell(str(error))


def before_drain(session: SessionRecord, node: int, tell: Callable[[str], None]) -> None:
    """A person is about to tell this node to leave: no job is to take its place."""
    if (book := ledger.load(session)) is not None:
        _order(book, Told((node,)), False, tell)


def _grow(session: SessionRecord, count: int, options: NodeOptions, tell: Callable[[str], None]) -> None:
    if any(not processes.same_machine(entry.host, processes.host_id()) for entry in session.nodes):
        raise UsageError(f"the nodes of {session.name} are on several hosts: on the one that is to have another, type: amfs node --join")
    for ready in LocalProcesses().add_all(session, options, count):
        tell(f"node {ready.node} joined {session.name}")


def _leaving(session: SessionRecord, nodes: Nodes, count: int) -> list[int]:
    """Which nodes drain. Raises SessionError if so many cannot."""
    manager = nodes.view.manager
    standing = [Standing(node, held(says), says.get("running", 0), node == manager) for node, says in nodes.says.items()]
    leave = to_drain(standing, len(standing))  # all but one, in order
    if len(leave) < count:
        raise SessionError(f"only {len(nodes.says)} of {len(nodes.members)} nodes of {session.name} answer: nothing was done")
    return leave[:count]


def _shrink(session: SessionRecord, leave: list[int], left: int, limit_s: float, tell: Callable[[str], None], *, wait: bool) -> None:
    """``left`` nodes stay."""
    tell(f"node{'s' if len(leave) > 1 else ''} {', '.join(map(str, leave))} to drain")
    with Client(session) as client:
        client.view()
        client.tell(leave, DrainNode(int(limit_s * 1000)))
        if wait:
            client.view(limit_s + SLACK_S, lambda view: not {member.node for member in view.members} & set(leave))
    if wait:
        words = "node" if left == 1 else "nodes"
        tell(f"{session.name} has {left} {words}; the logs of those that left say what could not be moved, if anything")
