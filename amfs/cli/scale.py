"""``amfs scale``: more or fewer nodes for a running session. Owns the options and what is said; decisions are in ``engine``."""

from __future__ import annotations

from typing import Any

import click

from amfs.cli.completion import session_names
from amfs.cli.session_options import chosen_options, node_options
from amfs.errors import UsageError


def _number(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """0: as a policy says."""
    if value == "auto":
        return 0
    if not value.isdecimal() or not 0 < int(value) <= 65536:
        raise click.BadParameter(f"'{value}' is neither a number of nodes, 1 to 65536, nor 'auto'", ctx, param)
    return int(value)


@click.command()
@click.argument("nodes", metavar="N|auto", callback=_number)
@click.option("--policy", metavar="FILE", help="With auto: a file of rules, or default, lean, paper-1 or paper-2 (default: default).")
@click.option("--nodes", "bounds", metavar="MIN..MAX", help="With auto: never fewer or more nodes (default: as the policy says).")
@click.option("--session", "name", metavar="SESSION", shell_complete=session_names, help="Default: $AMFS_SESSION, else the newest.")
@node_options
def scale(nodes: int, policy: str | None, bounds: str | None, name: str | None, **given: Any) -> int:
    """Have N nodes in a running session: more of them, or fewer. With 'auto', as many as a policy says, from now on.

    More: processes on this host, or jobs as 'amfs up --on' submitted them; tasks that wait go to new nodes at once. The options
    say what new nodes on this host are like. Fewer: jobs that still wait are cancelled, then the nodes that hold the least drain, as with
    'amfs node --drain', so no file is lost. Nodes without slots do not count. 'amfs scale N' ends 'amfs scale auto'.
    """
    from amfs.client import discovery
    from amfs.provision import autoscale, keeper, policies
    from amfs.provision.resizing import resize
    from amfs.provision.submission import parse_nodes

    if nodes and (policy or bounds):
        raise UsageError("--policy and --nodes go with 'amfs scale auto'")
    options = chosen_options(given)
    session = discovery.find(name)
    if keeper.revive(session):
        click.echo(f"the process that kept the jobs of {session.name} had ended; another one was started", err=True)
    if not nodes:
        chosen = policies.load(policy or "default", *(parse_nodes(bounds) if bounds else ()))
        autoscale.start(session, chosen, options)
        bounds = f"{chosen.least}..{chosen.most}"
        click.echo(f"{session.name}: policy {chosen.source} is applied, {bounds} nodes; amfs status shows it", err=True)
        return 0
    if autoscale.end(session, f"by 'amfs scale {nodes}'"):
        click.echo("the policy is applied no more", err=True)
    resize(session, nodes, options, lambda text: click.echo(text, err=True))
    return 0
