"""``amfs node``: one more node for a running session."""

from __future__ import annotations

import os
from typing import Any

import click

from amfs.cli.session_options import chosen_options, node_options
from amfs.errors import UsageError


@click.command()
@click.option("--join", "session_name", metavar="SESSION", help="Name of a session, or the path of a (copied) session file.")
@click.option("--found", is_flag=True, hidden=True)  # what 'amfs up' starts on the first host of a job
@click.option("--tell", hidden=True, type=click.Path())  # which node a job becomes, for the keeper of its session
@click.option("--detach", is_flag=True, help="Return when the node is a member; it goes on by itself.")
@node_options
def node(session_name: str | None, found: bool, tell: str | None, detach: bool, **given: Any) -> int:
    """Run one node server that joins a running session, from this or any other host.

    Runs in the foreground until the session ends or Ctrl-C. To join from another host, the session must listen on TCP ("amfs up --tcp
    ADDRESS"); copy its session file there (it holds keys: mode 600) and give the path.
    """
    from amfs.client import discovery
    from amfs.provision import local

    if found:
        from amfs.provision.allocation import found_here

        return found_here()
    if session_name is None:
        raise UsageError("say which session to join: amfs node --join SESSION")
    session = discovery.find(session_name)
    options = chosen_options(given)
    if detach:
        ready = local.LocalProcesses().add(session, options)
        click.echo(f"node {ready.node} joined {session.name}; log in {session.directory}/node-{ready.node}.log", err=True)
        return 0
    config = local.prepare_join(session, options)
    click.echo(f"node {config.node} joins {session.name}", err=True)
    if tell:
        with open(f"{tell}.new", "w") as out:
            out.write(str(config.node))
        os.replace(f"{tell}.new", tell)
    return local.join_here(session, config)
