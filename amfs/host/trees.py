"""Directories made and removed without recursion, because a tree may be deeper than the stack of Python. I/O."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator


def make_directories(path: str, mode: int = 0o700) -> None:
    """Make ``path`` and missing directories above it. Raises OSError."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        above = os.path.dirname(path)
        if above == path:
            break
        path = above
    for each in reversed(missing):
        try:
            os.mkdir(each, mode)
        except FileExistsError:
            if not os.path.isdir(each):
                raise


def files_below(top: str, enter: Callable[[os.DirEntry[str]], bool] = lambda directory: True) -> Iterator[tuple[str, str]]:
    """(directory, name) of everything below ``top`` that is no directory; nothing where nothing can be read. ``enter``: look into it?"""
    directories = [top]
    for directory in directories:  # grows while it is walked through
        try:
            with os.scandir(directory) as entries:
                here = list(entries)
        except OSError:
            continue
        for entry in here:
            if entry.is_dir(follow_symlinks=False):
                if enter(entry):
                    directories.append(entry.path)
            else:
                yield directory, entry.name


def remove_tree(top: str) -> None:
    """Remove a directory with all that is in it; entries that cannot be removed stay."""
    directories = [top]
    for directory in directories:  # grows while it is walked through
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
                    else:
                        _quietly(os.unlink, entry.path)
        except OSError:
            continue
    for directory in reversed(directories):
        _quietly(os.rmdir, directory)


def _quietly(call: Callable[[str], None], path: str) -> None:
    try:
        call(path)
    except OSError:
        return
