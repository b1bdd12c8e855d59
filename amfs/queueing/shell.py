"""A shell in the file system of a session: its mount, the commands on its PATH, its end.

Owns what ``amfs shell`` and ``amfs shell-init`` have in common, and the life of the mount and of the shell's process. Must not know:
options of commands, how a session is started.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from amfs.client import discovery
from amfs.errors import AmfsError, SystemSetupError, UsageError
from amfs.host import fusemounts
from amfs.libexec import program
from amfs.net.records import SessionRecord
from amfs.queueing import shell_functions, spool

#: AMFS_NAME runs ``amfs name``.
COMMANDS = (
    "execute", "load", "dump", "shuffle", "diff", "multicast", "gather", "allgather", "scatter", "reduce",
)  # fmt: skip
BIN = "bin"


def commands(record: SessionRecord) -> Path:
    """The directory with the commands for PATH, made if need be."""
    place = record.directory / BIN
    place.mkdir(mode=0o700, exist_ok=True)
    home = Path(__file__).resolve().parent.parent.parent
    path = "" if home.name in ("site-packages", "dist-packages") else f'PYTHONPATH="{home}${{PYTHONPATH:+:$PYTHONPATH}}" '
    for name, words in [("amfs", ""), *((f"AMFS_{each}", f" {each}") for each in COMMANDS)]:
        if not (place / name).exists():
            half = place / f".{name}-{os.getpid()}"
            half.write_text(f'#!/bin/sh\n{path}exec "{sys.executable}" -P -m amfs{words} "$@"\n')
            half.chmod(0o700)
            half.rename(place / name)
    with contextlib.suppress(FileExistsError):
        (place / "AMFS_queue").symlink_to(program("AMFS_queue"))
    return place


def variables(record: SessionRecord, mount: str) -> dict[str, str]:
    """The variables that tell the commands their session and mount."""
    found = {"AMFS_SESSION": record.name, "AMFS_SPOOL": str(spool.make(record.directory))}
    return {**found, "AMFS_MOUNT": mount} if mount else found


def script(shell: str, record: SessionRecord, mount: str) -> str:
    """The text that a shell evaluates to use the session."""
    return shell_functions.script(shell, program("AMFS_queue"), variables(record, mount), str(commands(record)))


class Mount:
    """A mount of the session for one shell, served by a node of this host. Raises SystemSetupError, SessionError."""

    def __init__(self, record: SessionRecord) -> None:
        local = [entry.node for entry in discovery.held(record)]
        if not local:
            raise SystemSetupError(f"no node of session {record.name} runs on this host; one can join: amfs node --join {record.name}")
        place = record.directory / f"mount-{os.getpid()}"
        place.mkdir(mode=0o700, exist_ok=True)
        self.path = os.path.realpath(place)
        self.within: fusemounts.Within | None = None  # the namespaces that a program has to enter to see it; None: ours
        node = min(local)
        try:
            _, made = fusemounts.mount(self.path, record.name, lambda: fusemounts.ask_within(str(record.directory), node, self.path))
            if isinstance(made, fusemounts.Within):
                self.within = made
            else:
                self._have_served(record, node, made)
        except AmfsError:
            os.rmdir(self.path)
            raise

    def _have_served(self, record: SessionRecord, node: int, descriptor: int) -> None:
        """Hand it to the node."""
        try:
            made = fusemounts.at(self.path)
            fusemounts.ask(str(record.directory), node, fusemounts.Serve(self.path, made.device if made is not None else ""), descriptor)
        except AmfsError:
            fusemounts.unmount(self.path, lazy=True)
            raise
        finally:
            os.close(descriptor)
        if made is not None:
            fusemounts.read_ahead(made.device)

    def is_directory(self, path: str) -> bool:
        """Whether ``path`` is a directory for those who see the mount."""
        if self.within is None:
            return os.path.isdir(path)
        tried = subprocess.run(self.entering(path), pass_fds=(self.within.keeper,), stderr=subprocess.DEVNULL, check=False)
        return tried.returncode == 0

    def entering(self, directory: str, *words: str) -> list[str]:
        """A command, as it has to be run to see the mount."""
        return self.within.entering(program("amfs-enter"), directory, *words) if self.within is not None else list(words)

    def close(self) -> None:
        """Unmount; processes still in it get errors when the session ends."""
        if self.within is None:
            with contextlib.suppress(UsageError, SystemSetupError, subprocess.TimeoutExpired):
                fusemounts.unmount(self.path, lazy=True)
        else:
            os.close(self.within.keeper)
        with contextlib.suppress(OSError):
            os.rmdir(self.path)  # that also unmounts what is mounted there in other namespaces


def bash(
    record: SessionRecord, mount: Mount | None, directory: str, words: Sequence[str], *, interactive: bool, completion: str = "",
) -> int:  # fmt: skip
    """Run bash with ``words`` in ``directory``, with the commands of the session; its exit status, as a shell gives it.

    ``interactive``: with the user's own ~/.bashrc, the name of the session in the prompt, and ``completion`` (a script).
    """
    found = shutil.which("bash")
    if found is None:
        raise SystemSetupError("amfs shell runs bash, which is not here; `amfs shell-init` makes other shells use a session")
    place = Path(tempfile.mkdtemp(prefix="shell-", dir=record.directory))
    try:
        init = place / "init"
        path = mount.path if mount is not None else ""
        environment = {**os.environ, **variables(record, path), "PATH": f"{commands(record)}:{os.environ.get('PATH', os.defpath)}"}
        if mount is None:
            environment.pop("AMFS_MOUNT", None)
        init.write_text(_before(os.environ, interactive) + script("bash", record, path) + _after(record.name, interactive, completion))
        command = [found, "--rcfile", str(init), "-i"] if interactive else [found, *words]
        if not interactive:
            environment["BASH_ENV"] = str(init)
        if mount is None or mount.within is None:
            return _wait(subprocess.Popen(command, cwd=directory, env=environment))
        command = mount.entering(directory, *command)
        return _wait(subprocess.Popen(command, cwd="/", env=environment, pass_fds=(mount.within.keeper,)))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _before(environ: Mapping[str, str], interactive: bool) -> str:
    """The user's own start of a shell comes first; the scripts that ours starts have theirs, not ours."""
    if interactive:
        return '[ -r ~/.bashrc ] && . ~/.bashrc\n'
    own = environ.get("BASH_ENV")
    if own is None:
        return "unset BASH_ENV\n"
    return f'BASH_ENV={shell_functions.quoted(own)}; [ -r "$BASH_ENV" ] && . "$BASH_ENV"\n'


def _after(name: str, interactive: bool, completion: str) -> str:
    return f'{completion}\nPS1="({name}) $PS1"\n' if interactive else ""


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Until the shell ends. Ctrl-C is its business; a signal that ends us ends it."""

    def pass_on(number: int, frame: object) -> None:
        child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        status = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status
