"""``amfs up``: start a session. Owns the options and the output; a provisioner starts the nodes."""

from __future__ import annotations

from typing import Any

import click

from amfs.cli.session_options import chosen_options, node_options
from amfs.net.records import SessionRecord
from amfs.vocabulary.attr import COPIES_MAX


@click.command()
@click.option("--nodes", "-N", type=click.IntRange(min=1), default=None, help="Nodes (default: 1 on this machine; all hosts of a job).")
@click.option("--on", metavar="SYSTEM", help="By 'slurm', or as a file says, or 'local' (default: the job around this, if any).")
@click.option("--name", metavar="NAME", default=None, help="Name of the session (default: a random one).")
@click.option("--unit-size", type=click.IntRange(min=0), default=0, metavar="U", help="Nodes served by one dispatcher; 0: all (default).")
@click.option(
    "--replicas", type=click.IntRange(1, COPIES_MAX), default=1, metavar="K",
    help="Nodes that have the content of each file of amfs:/ before its close is answered (default 1).",
)  # fmt: skip
@click.option("--expect", type=click.IntRange(1, 65536), metavar="N", help="Nodes that it is to grow to (default: those that it starts).")
@node_options
def up(nodes: int | None, on: str | None, name: str | None, unit_size: int, replicas: int, expect: int | None, **given: Any) -> int:
    """Start a session: node servers on this machine, on all hosts of the batch job around it, or one per rank under mpiexec.

    Prints the session's name when all nodes are members. The servers go on by themselves until "amfs down".

    \b
      amfs up --nodes 4 --slots 2
      amfs up --nodes 3 --replicas 2
      sbatch -N 16 --wrap 'amfs up; amfs run workflow.txt; amfs down'
      mpiexec -n 16 amfs up
    """
    from amfs.errors import AmfsError
    from amfs.provision.choice import choose
    from amfs.runs import leftovers

    provisioner = choose(nodes, on)
    options = chosen_options(given, unit_size, replicas, expect or 1)
    for words in leftovers.in_words(leftovers.sweep(options.store_dir)):
        if provisioner.speaks:
            click.echo(f"amfs: {words}", err=True)
    try:
        session = provisioner.start(name, options)
    except AmfsError as error:
        if not provisioner.speaks:
            return error.exit_code
        raise
    if provisioner.speaks:
        _say(session)
    return 0


def _say(session: SessionRecord) -> None:
    hosts = {entry.host.partition("/")[0] for entry in session.nodes}
    where = f"on {next(iter(hosts))}" if len(hosts) == 1 else f"on {len(hosts)} hosts"
    count = len(session.nodes)
    click.echo(f"{count} node{'s' if count > 1 else ''} {where}; files and logs in {session.directory}", err=True)
    click.echo(session.name)
