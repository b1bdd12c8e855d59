"""``amfs shell``: bash in the file system of a session. ``queueing.shell`` does the work; owns the session that it starts."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from amfs.cli.completion import local_files, session_names
from amfs.errors import AmfsError, SessionError, SystemSetupError, UsageError

if TYPE_CHECKING:
    from amfs.net.records import SessionRecord
    from amfs.queueing.shell import Mount


@click.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@click.option("--session", metavar="NAME", shell_complete=session_names, help="Join it (default: $AMFS_SESSION, else the newest).")
@click.option("--nodes", "-N", type=click.IntRange(min=1), help="Start a session of so many nodes, which ends with the shell.")
@click.option("--slots", "-s", type=click.IntRange(min=1), help="Start one with so many tasks at a time on each node.")
@click.option("--directory", "-C", metavar="DIR", default="/", help="Stand in this directory of the session (default: its top).")
@click.option("--command", "-c", metavar="TEXT", help="Run this instead of a script.")
@click.argument("script", required=False, shell_complete=local_files)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def shell(
    session: str | None, nodes: int | None, slots: int | None, directory: str, command: str | None, script: str | None,
    args: tuple[str, ...],
) -> int:  # fmt: skip
    """Run bash, or SCRIPT with bash, in the file system of a session, with the commands AMFS_queue, AMFS_execute and the others.

    Joins the session that is up, or starts one of one node, which ends with the shell. SCRIPT is a local file; "-" is standard input. The
    exit status is that of the shell.

    \b
      amfs shell                       a prompt
      amfs shell -N 4 pagerank.sh      a script, in a session of its own
    """
    from amfs.queueing.shell import Mount, bash

    words, interactive = _words(command, script, args)
    record, ours = _session(session, nodes, slots)
    mount = None
    status = 1
    try:
        try:
            mount = Mount(record)
        except SystemSetupError as error:
            click.echo(f"amfs: no mount: {error}", err=True)
            click.echo("amfs: tasks must declare their files (-if, -of) and their directory (-C amfs:/DIR)", err=True)
        where = _enter(mount, directory) if mount is not None else os.getcwd()
        status = bash(
            record, mount, where, words, interactive=interactive,
            completion=_completion() if interactive else "",
        )  # fmt: skip
    finally:
        if mount is not None:
            mount.close()
        if ours:
            _end(record, status)
    return status


def _words(command: str | None, script: str | None, args: tuple[str, ...]) -> tuple[list[str], bool]:
    """The words of bash, and whether it is to be a prompt."""
    if command is not None:
        return ["-c", command, "bash", *([script] if script is not None else []), *args], False
    if script is None:
        return ([], True) if sys.stdin is not None and sys.stdin.isatty() else (["-s"], False)
    if script == "-":
        return ["-s", "--", *args], False
    path = os.path.abspath(script)
    if not os.path.isfile(path):
        raise UsageError(f"there is no script {script}")
    return ["--", path, *args], False


def _session(name: str | None, nodes: int | None, slots: int | None) -> tuple[SessionRecord, bool]:
    """The session, and whether it was started here."""
    from amfs.client import discovery
    from amfs.provision.local import LocalProcesses
    from amfs.provision.provisioner import NodeOptions

    if nodes is None and slots is None:
        try:
            return discovery.find(name), False
        except SessionError:
            if name or os.environ.get("AMFS_SESSION"):
                raise
    elif name:
        raise UsageError("--session joins a session that is up; --nodes and --slots are for a new one")
    return LocalProcesses(nodes or 1).start(None, NodeOptions(slots=slots or 0)), True


def _enter(mount: Mount, directory: str) -> str:
    from amfs.vocabulary.paths import in_namespace, namespace_path

    inside = os.fsdecode(namespace_path(directory)) if in_namespace(directory) else directory
    path = os.path.normpath(f"{mount.path}/{inside}")
    if not mount.is_directory(path):
        raise UsageError(f"there is no directory {directory} in the session")
    return path


def _end(record: SessionRecord, status: int) -> None:
    """End the session that was started here; but not if the shell was killed while its tasks run."""
    from amfs.provision.local import LocalProcesses
    from amfs.queueing.client import Queue

    if status == 128 + 9:
        try:
            left = Queue(record.name).ask()
        except AmfsError:
            left = None
        if left is not None and (left.batches or left.queued):
            name = record.name
            click.echo(
                f"amfs: the shell was killed; its tasks are still in session {name}: 'amfs execute --session {name}' runs them and waits, "
                f"'amfs down {name}' ends it", err=True,
            )  # fmt: skip
            return
    for remark in LocalProcesses().end(record, 10.0):
        click.echo(f"amfs: {record.name}: {remark}", err=True)


def _completion() -> str:
    from click.shell_completion import get_completion_class

    from amfs.cli.main import COMPLETE_VARIABLE, group

    made = get_completion_class("bash")
    assert made is not None
    return made(group(), {}, "amfs", COMPLETE_VARIABLE).source()
