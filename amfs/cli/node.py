"""``amfs node``: one more node for a running session."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from amfs.cli.session_options import chosen_options, node_options
from amfs.errors import UsageError

if TYPE_CHECKING:
    from amfs.net.records import SessionRecord


@click.command()
@click.option(
    "--join", "session_name", metavar="SESSION",
    help="Name of a session, or the path of a (copied) session file; '-': it is standard input.",
)  # fmt: skip
@click.option("--drain", "drained", type=int, metavar="N", help="Have node N hand over what only it has, and leave; wait for that.")
@click.option("--session", "of", metavar="SESSION", help="With --drain: the session of the node (default: the one that runs).")
@click.option("--found", is_flag=True, hidden=True)  # set by 'amfs up' on the first host of a job
@click.option("--tell", hidden=True, type=click.Path())  # which node a job becomes, for the keeper of its session
@click.option("--log-here", is_flag=True, hidden=True)  # set by 'amfs up' on hosts that this one has only a connection to
@click.option("--detach", is_flag=True, help="Return when the node is a member; it goes on by itself.")
@node_options
def node(
    session_name: str | None, drained: int | None, of: str | None, found: bool, tell: str | None, log_here: bool, detach: bool,
    **given: Any,
) -> int:
    """Run one node server that joins a running session, from this or any other host.

    Runs in the foreground until the session ends or Ctrl-C. To join from another host, the session must listen on TCP ("amfs up --tcp
    ADDRESS"); copy its session file there (it holds keys: mode 600) and give the path.

    A node that gets SIGTERM, or Ctrl-C here, hands over what only it has before it leaves; told twice, it ends at once.
    """
    from amfs.client import discovery
    from amfs.provision import daemon, local

    if found:
        from amfs.provision.allocation import found_here

        return found_here()
    if drained is not None:
        _drain(discovery.find(of), drained, given["drain_time"])
        return 0
    if session_name is None:
        raise UsageError("say which session to join: amfs node --join SESSION")
    if not detach:
        daemon.end_cleanly_on_sigterm()
    session = local.from_stdin() if session_name == "-" else discovery.find(session_name)
    options = chosen_options(given)
    if detach:
        ready = local.LocalProcesses().add(session, options)
        click.echo(f"node {ready.node} joined {session.name}; log in {session.directory}/node-{ready.node}.log", err=True)
        return 0
    if log_here:
        with daemon.while_awaited():
            config = local.prepare_join(session, options)
        return local.join_here(session, config, daemon.log_to(config.log_file))
    config = local.prepare_join(session, options)
    click.echo(f"node {config.node} joins {session.name}", err=True)
    if tell:
        with open(f"{tell}.new", "w") as out:
            out.write(str(config.node))
        os.replace(f"{tell}.new", tell)
    return local.join_here(session, config)


def _drain(session: SessionRecord, node: int, limit_s: float) -> None:
    """Have a node drain, and wait until it has left. Raises SessionError if it does not, UsageError if it cannot."""
    from amfs.client.control import Client
    from amfs.provision.resizing import before_drain
    from amfs.vocabulary.messages import DrainNode

    with Client(session) as client:
        members = {member.node: member for member in client.view().members}
        if node not in members:
            raise UsageError(f"session {session.name} has no node {node}: its nodes are {', '.join(map(str, members))}")
        if all(member.draining for member in members.values() if member.node != node):
            raise UsageError(f"node {node} is the last one of session {session.name}, which ends with it: amfs down {session.name}")
        before_drain(session, node, lambda text: click.echo(f"amfs: {text}", err=True))
        client.tell([node], DrainNode(int(limit_s * 1000)))
        client.view(limit_s + 30.0, lambda view: all(member.node != node for member in view.members))
    click.echo(f"node {node} has left {session.name}; its log says what could not be moved, if anything", err=True)
