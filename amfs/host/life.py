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


def is_held(path: Path) -> bool | None:
    """Whether the owner lives. None: that is not known here, or there is no such file."""
    held, descriptor = _look(path, fcntl.LOCK_SH)
    if descriptor >= 0:
        os.close(descriptor)
    return held


def take(path: Path) -> int:
    """Lock the file of an owner that is dead; returns the descriptor that holds the lock, or -1 if it lives, or that is not known."""
    held, descriptor = _look(path, fcntl.LOCK_EX)
    if descriptor >= 0 and (held is not False or not path.exists()):  # whoever had the lock before us may have removed it
        os.close(descriptor)
        return -1
    return descriptor


def _look(path: Path, kind: int) -> tuple[bool | None, int]:
    """What ``is_held`` says, and a descriptor (with the lock, unless that is True), or -1."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None, -1
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        lines = os.read(descriptor, 4096).decode(errors="replace").split("\n")
        return (False if lines[1:2] == [boot()] or is_local(str(path)) else None), descriptor
    except BlockingIOError:
        return True, descriptor
    except OSError:
        return None, descriptor


def text(path: Path) -> str:
    """What the owner has written; "" if there is no such file."""
    try:
        return path.read_text(errors="replace").partition("\n")[0]
    except OSError:
        return ""
