"""``amfs scale``: more or fewer nodes for a running session. Owns the options and what is said; decisions are in ``engine.scaling``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from amfs.cli.completion import session_names
from amfs.cli.session_options import chosen_options, node_options
from amfs.errors import SessionError, UsageError

if TYPE_CHECKING:
    from amfs.net.records import SessionRecord
    from amfs.vocabulary.messages import Member

_SLACK_S = 30.0  # for a node that has drained to be gone


@click.command()
@click.argument("nodes", metavar="N", type=click.IntRange(min=1))
@click.option("--session", "name", metavar="SESSION", shell_complete=session_names, help="Default: $AMFS_SESSION, else the newest.")
@node_options
def scale(nodes: int, name: str | None, **given: Any) -> int:
    """Have N nodes in a running session: more of them, or fewer.

    More: processes on this host, or jobs as 'amfs up --on' submitted them; tasks that wait go to new nodes at once. The options
    say what new nodes on this host are like. Fewer: jobs that still wait are cancelled, then the nodes that hold the least drain, as with
    'amfs node --drain', so no file is lost. Nodes without slots do not count.
    """
    from amfs.client import discovery
    from amfs.client.control import Client
    from amfs.engine.scaling import plan
    from amfs.provision import ledger

    session = discovery.find(name)
    with Client(session) as client:
        members = [member for member in client.view().members if member.slots > 0 and not member.draining]
    book = ledger.load(session)
    waiting = book.open_jobs() if book is not None else 0
    order, start, drain = plan(nodes, len(members), waiting, book is not None)
    if not (order or start or drain):
        click.echo(f"{session.name} has {nodes} nodes" + (f", {waiting} of them jobs that wait" if waiting else ""), err=True)
    if order and book is not None:
        book.order(nodes)
        click.echo(f"{start} more jobs are submitted to {book.system.name}" if start else "jobs that wait are cancelled", err=True)
    elif start:
        _grow(session, start, given)
    if drain:
        _shrink(session, members, drain, given["drain_time"])
    return 0


def _grow(session: SessionRecord, count: int, given: dict[str, Any]) -> None:
    from amfs.host import processes
    from amfs.provision.local import LocalProcesses

    if any(not processes.same_machine(entry.host, processes.host_id()) for entry in session.nodes):
        raise UsageError(f"the nodes of {session.name} are on several hosts: on the one that is to have another, type: amfs node --join")
    options = chosen_options(given)
    for _ in range(count):
        ready = LocalProcesses().add(session, options)
        click.echo(f"node {ready.node} joined {session.name}", err=True)


def _shrink(session: SessionRecord, members: list[Member], count: int, limit_s: float) -> None:
    from amfs.client.control import Client
    from amfs.engine.scaling import Standing, to_drain
    from amfs.vocabulary.messages import DrainNode, Status, StatusAsk

    with Client(session) as client:
        manager = client.view().manager
        asked = client.ask({member.node: StatusAsk() for member in members}, Status)
        standing = [Standing(node, _held(status.data), _number(status.data, "running"), node == manager) for node, status in asked.items()]
        leave = to_drain(standing, count)
        if len(leave) < count:
            raise SessionError(f"only {len(asked)} of {len(members)} nodes of {session.name} answer: nothing was done")
        click.echo(f"node{'s' if len(leave) > 1 else ''} {', '.join(map(str, leave))} to drain", err=True)
        client.tell(leave, DrainNode(int(limit_s * 1000)))
        client.view(limit_s + _SLACK_S, lambda view: not {member.node for member in view.members} & set(leave))
    left = len(members) - count
    words = "node" if left == 1 else "nodes"
    click.echo(f"{session.name} has {left} {words}; the logs of those that left say what could not be moved, if anything", err=True)


def _held(data: dict[str, object]) -> int:
    return sum(_number(data, name) for name in ("memory", "spilled", "fs_spilled"))


def _number(data: dict[str, object], name: str) -> int:
    value = data.get(name, 0)
    return value if isinstance(value, int) else 0
