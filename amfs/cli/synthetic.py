"""``amfs run --synthetic``: the directory of a replay, and the files that must be there when it begins.

Owns a scratch directory and removes it, unless the user named the directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from amfs.errors import UsageError
from amfs.host import orphans


@contextmanager
def stage(directory: str) -> Iterator[str]:
    """The directory of a replay: ``directory``, which must be empty or new, or ('') a scratch directory that goes when it is over."""
    if not directory:
        scratch = orphans.make(orphans.EMBEDDED, "synthetic", Path(tempfile.gettempdir()))  # found by the next run if we are killed
        try:
            yield str(scratch.path)
        finally:
            scratch.remove()
        return
    try:
        os.makedirs(directory, exist_ok=True)
        if os.listdir(directory):
            raise UsageError(f"{directory} is not empty; a replay makes its own files and overwrites none: name a new directory with -C")
    except OSError as error:
        raise UsageError(f"cannot use {directory} for a replay: {error.strerror or error}") from None
    yield os.path.abspath(directory)


def make_given(program: str, given: Mapping[str, int], directory: str) -> None:
    """Make the files that no task makes. Raises UsageError when there is no room for them, or they cannot be made."""
    room = shutil.disk_usage(directory).free
    needed = sum(given.values())
    if needed > room:
        raise UsageError(
            f"the files to begin with take {needed} bytes, and {directory} has {room}: use a smaller --size-scale, or another place (-C)"
        )
    files = list(given.items())
    for at in range(0, len(files), 500):
        words = [word for name, size in files[at : at + 500] for word in ("-o", name, str(size))]
        done = subprocess.run([program, "0", *words], cwd=directory, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise UsageError(f"cannot make the files to begin with: {done.stderr.strip()}")
