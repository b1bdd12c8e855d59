"""Files that are locked as long as their owner lives: the proof that somebody lives, or has died.

A lock, unlike a pid, is right in every PID, mount and network namespace, after pids are used again and after kill -9. It says nothing of
another machine where the file system does not carry locks between machines; then nothing is said. Must not know: what the owner owns.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from amfs.host.file_systems import is_local
from amfs.host.processes import boot

_ENDS = "ends"  # the third line, after a text of the owner and the boot


def hold(path: Path, text: str = "") -> int:
    """Make the file and lock it; returns the descriptor that holds the lock. Raises OSError.

    The file gets its name only when it is locked, so that nobody sees it unlocked while its owner lives.
    """
    temporary = path.with_name(f"{path.name}-{os.getpid()}")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, f"{text}\n{boot()}\n".encode())
        os.rename(temporary, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def say_end(descriptor: int) -> None:
    """The owner has begun to end, which may take a while: ``is_ending``."""
    os.write(descriptor, f"{_ENDS}\n".encode())


def is_ending(path: Path) -> bool:
    """Has the owner said that it has begun to end?"""
    try:
        return path.read_text(errors="replace").split("\n")[2:3] == [_ENDS]
    except OSError:
        return False


def is_held(path: Path) -> bool | None:
    """Whether the owner lives. None: that is not known here, or there is no such file."""
    return _look(path, fcntl.LOCK_SH)[0]


def take(path: Path) -> int:
    """Lock what a dead owner has left: the descriptor that holds the lock, or -1 if its death is not proved, or somebody was quicker."""
    held, descriptor = _look(path, fcntl.LOCK_EX, keep=True)
    if held is False and os.path.lexists(path):  # the owner before us may have removed it
        return descriptor
    if descriptor >= 0:
        os.close(descriptor)
    return -1


def _look(path: Path, kind: int, keep: bool = False) -> tuple[bool | None, int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None, -1
    held: bool | None = None
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        lines = os.read(descriptor, 4096).decode(errors="replace").split("\n")
        held = False if lines[1:2] == [boot()] or is_local(str(path)) else None
    except BlockingIOError:
        held = True
    except OSError:
        pass
    if keep and held is False:
        return held, descriptor
    os.close(descriptor)
    return held, -1


def text(path: Path) -> str:
    """The text that the owner has written; "" if there is no such file."""
    try:
        return path.read_text(errors="replace").partition("\n")[0]
    except OSError:
        return ""
