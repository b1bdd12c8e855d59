"""Memory cgroups for tests: real ones, below that of the test."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from amfs.host import memory


class Cgroup:
    def __init__(self, directory: Path, version: int) -> None:
        self.directory = directory
        self.version = version

    @property
    def name(self) -> str:
        return self.directory.name

    def command(self, *words: str) -> list[str]:
        """Such that it runs in here."""
        return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.directory), *words]

    def amfs(self, *args: str, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        words = self.command(sys.executable, "-m", "amfs", *args)
        return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)


@contextlib.contextmanager
def limited(limit: int) -> Iterator[Cgroup]:
    """A memory cgroup with that limit; skips the test where none can be made."""
    found = memory.directories("memory")
    if not found:
        pytest.skip("no memory cgroups here")
    own, _, version = found[0]
    directory = Path(own) / f"amfs-test-{os.getpid()}-{limit}"
    try:
        directory.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made: {error}")
    try:
        try:
            (directory / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"a memory cgroup cannot be limited here: {error}")
        yield Cgroup(directory, version)
    finally:
        until(lambda: not (directory / "cgroup.procs").read_text(), "processes are left in the cgroup")
        directory.rmdir()
