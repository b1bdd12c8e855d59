"""Putting a finished file in the place of another."""

from __future__ import annotations

import errno
import os
import stat


def is_special(path: str | bytes) -> bool:
    """Is there a device, a pipe or a socket? Root could replace it by a file without being told."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode))


def put_in_place(temporary: str | bytes, target: str | bytes) -> None:
    """``os.replace``, but not of a device, a pipe or a socket. Raises OSError (EEXIST: there is one)."""
    if is_special(target):
        raise FileExistsError(errno.EEXIST, "there is a device, a pipe or a socket", target)
    os.replace(temporary, target)
