"""``amfs up``: start a session. Owns the options and the output; a provisioner starts the nodes."""

from __future__ import annotations

from typing import Any

import click

from amfs.cli.session_options import chosen_options, chosen_provisioner, job_options, node_options
from amfs.net.records import SessionRecord
from amfs.vocabulary.attr import COPIES_MAX


@click.command()
@click.argument("more", nargs=-1, metavar="[-- OPTIONS OF THE BATCH SYSTEM]", type=click.UNPROCESSED)
@job_options
@click.option("--name", metavar="NAME", default=None, help="Name of the session (default: a random one).")
@click.option("--unit-size", type=click.IntRange(min=0), default=0, metavar="U", help="Nodes served by one dispatcher; 0: all (default).")
@click.option(
    "--replicas", type=click.IntRange(1, COPIES_MAX), default=1, metavar="K",
    help="Nodes that have the content of each file of amfs:/ before its close is answered (default 1).",
)  # fmt: skip
@click.option("--expect", type=click.IntRange(1, 65536), metavar="N", help="Nodes that it is to grow to (default: those that it starts).")
@node_options
@click.option("--dry-run", is_flag=True, help="Of jobs: print the script and the command that submits it; do nothing.")
def up(name: str | None, unit_size: int, replicas: int, expect: int | None, dry_run: bool, more: tuple[str, ...], **given: Any) -> int:
    """Start a session: node servers on this machine, on all hosts of the batch job around it, or one per rank under mpiexec; or, with
    --on SYSTEM outside a job, one job of a batch system for each node, or one on each host of a file or worker of a cluster.

    Prints the session's name when all nodes (of "A..B": A of them) are members. The servers go on by themselves until "amfs down".

    \b
      amfs up --nodes 4 --slots 2
      amfs up --nodes 3 --replicas 2
      amfs up --on slurm --nodes 1..16 --time 2h -- --partition=short
      amfs up --on ssh --hosts hosts.txt
      sbatch -N 16 --wrap 'amfs up; amfs run workflow.txt; amfs down'
      mpiexec -n 16 amfs up
    """
    from amfs.errors import AmfsError, UsageError
    from amfs.provision.submission import Submission
    from amfs.runs import leftovers

    provisioner = chosen_provisioner(given, more)
    options = chosen_options(given, unit_size, replicas, expect or 1)
    if dry_run:
        if not isinstance(provisioner, Submission):
            raise UsageError("--dry-run is for jobs that --on SYSTEM submits")
        click.echo(provisioner.dry_run(name, options))
        return 0
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
