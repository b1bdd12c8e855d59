"""``amfs mount``: the files of a session as a directory. ``host.fusemounts`` and ``node.mounts`` do the work."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import click

from amfs.cli.completion import session_names

if TYPE_CHECKING:
    from amfs.host import fusemounts


@click.command()
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--session", "name", metavar="NAME", shell_complete=session_names, help="Session (default: $AMFS_SESSION, else the newest).")
@click.option("--node", type=click.IntRange(min=0), default=None, metavar="N", help="Node that serves it (default: the first here).")
@click.option("--fuse", "adapter", type=click.Choice(["auto", "native", "fusepy"]), default="auto", help="Adapter (default: auto).")
@click.option("--cache", type=click.Choice(["data", "open"]), default="data", help="What the kernel does by itself (default: data).")
@click.option("--no-passthrough", is_flag=True, help="Bytes go through the node, even where the kernel could do without it.")
@click.option("--verbose", "-v", is_flag=True, help="Say which features are active.")
def mount(directory: str, name: str | None, node: int | None, adapter: str, cache: str, no_passthrough: bool, verbose: bool) -> int:
    """Mount the file system of a session at DIRECTORY, which must exist.

    Any number of mounts may show it, on any node of the session; each is served by one node, which should be on this host. It ends with
    "amfs umount DIRECTORY" or with the session.

    \b
      --cache data   open asks the node; bytes pass by it (as root) or through it. Suits files that are written and changed.
      --cache open   finished files are opened and read from the kernel's caches without asking: many small files, read again and again.
    """
    from amfs.client import discovery
    from amfs.errors import SessionError, UsageError
    from amfs.host import fusemounts

    path = os.path.realpath(directory)
    if not os.path.isdir(path):
        raise UsageError(f"{directory} is not a directory: make it first")
    if (there := fusemounts.at(path)) is not None:
        state = "a mount that nobody serves any more" if fusemounts.is_dead(there) else f"session {there.session} is mounted there already"
        raise UsageError(f"{directory}: {state}; amfs umount {directory} ends it")
    session = discovery.find(name)
    local = [entry.node for entry in discovery.held(session)]
    if not local:
        raise SessionError(f"no node of session {session.name} runs on this host; one can join: amfs node --join {session.name}")
    if node is not None and node not in local:
        raise UsageError(f"node {node} does not run on this host; those that do: {', '.join(map(str, sorted(local)))}")
    server = min(local) if node is None else node
    run_dir = str(session.directory)
    fusemounts.ask(run_dir, server, fusemounts.ListMounts())  # before anything is mounted: is anybody there
    if adapter == "fusepy":
        facts = fusemounts.ask(run_dir, server, fusemounts.MountWithFusepy(path)).mounts[0]
    else:
        order = fusemounts.Serve(path, "", not no_passthrough, cache == "open")
        facts = _mount_native(session.name, run_dir, server, order)
    if verbose:
        for line in describe(facts):
            click.echo(line)
    return 0


def _mount_native(session: str, run_dir: str, node: int, order: fusemounts.Serve) -> fusemounts.MountFacts:
    import msgspec

    from amfs.errors import AmfsError, SessionError
    from amfs.host import fusemounts

    path = order.path
    descriptor = fusemounts.mount_here(path, session)
    try:
        made = fusemounts.at(path)
        if made is None:
            raise SessionError(f"{path} was unmounted at once by somebody else")
        facts = fusemounts.ask(run_dir, node, msgspec.structs.replace(order, device=made.device), descriptor).mounts[0]
    except AmfsError:
        os.close(descriptor)
        fusemounts.unmount(path, lazy=True)
        raise
    os.close(descriptor)
    if os.geteuid() != 0:
        with contextlib.suppress(OSError):  # in a user namespace the kernel takes the topmost directory for root's until it has asked
            os.stat(path)
    facts.active["read_ahead"] = fusemounts.READ_AHEAD_KIB if fusemounts.read_ahead(made.device) else 128
    return facts


def describe(facts: fusemounts.MountFacts) -> list[str]:
    """Active features, for people."""
    active = facts.active
    if facts.adapter != "native":
        return [f"{facts.path}: {facts.adapter}, through {active.get('library', 'libfuse')}; every read and write passes through the node"]
    lines = [f"{facts.path}: native, kernel FUSE 7.{active['minor']}"]
    if active["passthrough"]:
        lines.append("  passthrough: the kernel reads and writes the files of the store itself")
    else:
        lines.append(f"  no passthrough: bytes go through the node, {int(active['max_write']) >> 10} KiB at a time")
    if active["no_open"]:
        lines.append("  open: not asked; files are opened and read from the kernel's caches, and invalidated when another changes them")
    if "read_ahead" in active:
        lines.append(f"  read-ahead: {active['read_ahead']} KiB")
    words = {"readdirplus": "attributes with listings", "parallel_dirops": "parallel lookups", "cache_symlinks": "symbolic links kept",
             "killpriv": "set-uid bits cleared by the node"}  # fmt: skip
    lines.append("  " + ", ".join(text for key, text in words.items() if active.get(key)))
    return lines
