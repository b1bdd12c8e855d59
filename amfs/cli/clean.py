"""``amfs clean``: free what dead processes left. ``runs.leftovers`` finds it."""

from __future__ import annotations

import click


@click.command()
@click.argument("directories", nargs=-1, metavar="[DIR]...", type=click.Path(file_okay=False))
@click.option("--dry-run", "-n", is_flag=True, help="Say what there is, and remove nothing.")
def clean(directories: tuple[str, ...], dry_run: bool) -> int:
    """Free what processes of yours that died have left on this host: their files in memory and on disks, directories of sessions, mounts.

    It looks in /dev/shm, /tmp and $TMPDIR, and in each DIR: name those that you have given with --store or --spill. Nothing is removed
    whose owner may live. Files that a killed run has left are removed, too: with --resume the tasks that made them are run again.
    """
    from amfs.client import discovery
    from amfs.display.progress import size_text
    from amfs.net import records
    from amfs.provision.local import sweep_mounts
    from amfs.runs import leftovers, watched

    done = "would remove" if dry_run else "removed"
    count = freed = 0
    for one in leftovers.find(leftovers.places(directories)):
        size = one.size()
        if not dry_run:
            leftovers.free([one])
        count, freed = count + 1, freed + size
        click.echo(f"{done} {one.path}, {size_text(size)}" + (f", of a killed run of {one.file}" if one.file else ""))
    if not dry_run:
        sweep_mounts()
        watched.sweep()
    for session in records.list_all():
        state = discovery.state_of(session)
        if state is discovery.State.UNKNOWN:
            click.echo(f"amfs: {discovery.unknown(session)}", err=True)
        if state is not discovery.State.DEAD:
            continue
        if not dry_run:
            records.remove_directory(session.directory)
        count += 1
        click.echo(f"{done} {session.directory}, of a session without nodes")
    for path in discovery.clean(remove=not dry_run):
        count += 1
        click.echo(f"{done} {path}, of a session whose start was ended midway")
    click.echo(f"{'would free' if dry_run else 'freed'} {size_text(freed)}" if count else "nothing was left behind")
    return 0
