"""``amfs umount``: end mounts, also those whose server is gone or stuck."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from amfs.cli.completion import session_names

if TYPE_CHECKING:
    from amfs.host import fusemounts


@click.command()
@click.argument("directories", nargs=-1)  # no click.Path: that would look at them, and wait for what is stuck
@click.option("--all", "everything", is_flag=True, help="All mounts of amfs that can be seen here (of --session, if given).")
@click.option("--session", "name", metavar="NAME", shell_complete=session_names, help="With --all: only the mounts of this session.")
@click.option("--lazy", is_flag=True, help="Take it out of sight now; it ends when the last process has left it.")
@click.option("--force", is_flag=True, help="End it whatever its server does: for mounts that are stuck. Programs that use it get errors.")
def umount(directories: tuple[str, ...], everything: bool, name: str | None, lazy: bool, force: bool) -> int:
    """Unmount DIRECTORIES.

    Mounts that a killed node left behind are unmounted without --force. A mount that hangs (its node is stopped or stuck) needs --force.
    """
    from amfs.errors import UsageError
    from amfs.host import fusemounts

    if bool(directories) == everything:
        raise UsageError("name the directories to unmount, or --all")
    if everything:
        mine = [mount for mount in fusemounts.mounted(name) if os.geteuid() in (0, mount.user)]  # an ordinary user ends only his own
        chosen = [mount for mount in reversed(mine) if not fusemounts.is_for_tasks(mount.path)]  # those are the nodes' own
        if not chosen:
            click.echo("nothing is mounted", err=True)
    else:
        chosen = [_find(directory) for directory in directories]
    failed: list[str] = []
    for mount in chosen:
        try:
            if force:
                fusemounts.force(mount)
            else:
                fusemounts.unmount(mount.path, lazy=lazy or fusemounts.is_dead(mount))
        except UsageError as error:
            failed.append(str(error))
    if failed:
        raise UsageError("\n".join(failed))
    return 0


def _find(directory: str) -> fusemounts.Mounted:
    """The mount at a directory, found without touching it: it may be stuck."""
    from amfs.errors import UsageError
    from amfs.host import fusemounts

    above, last = os.path.split(os.path.abspath(directory))
    path = os.path.join(os.path.realpath(above), last)
    mount = fusemounts.at(path) or fusemounts.at(os.path.abspath(directory))
    if mount is None:
        raise UsageError(f"{directory} is no mount of amfs")
    return mount
