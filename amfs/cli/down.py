"""``amfs down``: end sessions and remove what they left behind."""

from __future__ import annotations

import click

from amfs.cli.completion import session_names


@click.command()
@click.argument("name", required=False, shell_complete=session_names)
@click.option("--all", "everything", is_flag=True, help="End all sessions of this user on this host.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=10.0, metavar="SECONDS",
    help="Before nodes are killed that have not begun to end (default 10); six times as long for those that have.",
)  # fmt: skip
def down(name: str | None, everything: bool, timeout: float) -> int:
    """Stop a session and remove what it left behind.

    NAME is the name of a session or the path of a session file; without it, $AMFS_SESSION or the newest session.
    """
    from amfs.client import discovery
    from amfs.errors import UsageError
    from amfs.host import orphans
    from amfs.net import records
    from amfs.provision import ledger, submission
    from amfs.runs import leftovers, watched

    if everything and name:
        raise UsageError("give the name of one session, or --all")
    sessions = records.list_all() if everything else [discovery.find(name, ending=True)]
    sure = True
    for session in sessions:
        for remark in submission.end(session, ledger.load(session), timeout):
            click.echo(f"amfs: {session.name}: {remark}", err=True)
        if session.path.exists():
            said = f"{session.name} is not known to be down"
        elif ledger.load(session) is not None:
            said = f"{session.name} is down, but jobs of it may be left; 'amfs down {session.name}' tries again"
        else:
            said = ""
        click.echo(said or f"{session.name} is down")
        sure = sure and not said
    discovery.clean()
    for path in orphans.sweep():
        click.echo(f"removed {path}, left by a node that died", err=True)
    if everything:
        watched.sweep()
        for words in leftovers.in_words(leftovers.sweep()):
            click.echo(f"amfs: {words}", err=True)
        if not sessions:
            click.echo("no session is running", err=True)
    return 0 if sure else 1
