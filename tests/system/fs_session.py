"""A session of real nodes for the tests of the file system's faces: started once for a module, its end checked."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import commands
import pytest

from amfs.client.files import Files
from amfs.host import orphans
from amfs.host.processes import is_running
from amfs.net.records import SessionRecord, load

PATIENCE_S = 60.0  # only turns a hang into a failure
LOG_SHOWN = 5000  # characters


def amfs(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command, with more in its environment."""
    return commands.run(*arguments, env=environment)


def fine(*arguments: str, **environment: str) -> str:
    """The output of a command that must succeed and tell nothing."""
    done = amfs(*arguments, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def refused(status: int, words: str, *arguments: str, **environment: str) -> None:
    """The command ends with ``status`` and tells one line, which says ``words``."""
    done = amfs(*arguments, **environment)
    assert done.returncode == status and words in done.stderr and done.stderr.count("\n") == 1, (done.returncode, done.stderr)


def about(session: str, told: str) -> str:
    """The output of a command, without the stores of dead nodes of other sessions that it removed: tests beside this one kill nodes."""
    lines = told.splitlines(keepends=True)
    return "".join(line for line in lines if f"-{session}-n" in line or not line.endswith(", left by a node that died\n"))


@contextmanager
def running(nodes: int, *options: str) -> Iterator[SessionRecord]:
    """A session of ``nodes`` nodes in a place of its own; $AMFS_RUN_DIR and $AMFS_SESSION lead to it meanwhile."""
    home = Path(tempfile.mkdtemp(prefix="amfs-t-", dir="/tmp"))  # short: sockets lie in it
    name = f"fs-{os.getpid()}-{time.monotonic_ns() % 100000}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMFS_RUN_DIR", str(home))
        patch.setenv("AMFS_SESSION", name)
        up = commands.run("up", "--nodes", str(nodes), "--slots", "1", "--name", name, *options, timeout=60)
        assert up.returncode == 0, up.stderr
        session = load(home / name / "session.json")
        try:
            yield session
        except Exception:  # pytest shows with the failure what the nodes have to say of it
            for log in sorted(session.directory.glob("node-*.log")):
                print(f"── the end of {log.name}", log.read_text(errors="replace")[-LOG_SHOWN:], sep="\n")
            raise
        finally:
            down = commands.run("down", name, "--timeout", "30", timeout=60)
            left = [entry for entry in session.nodes if is_running(entry.pid, entry.started)]
            for entry in left:
                os.kill(entry.pid, signal.SIGKILL)
            shutil.rmtree(home, ignore_errors=True)
            assert not left, "nodes were left running"
            assert "killed process" not in down.stderr, down.stderr
            end = time.monotonic() + PATIENCE_S
            while list(orphans.SHM.glob(f"amfs-{os.getuid()}-{name}-*")):  # another session that starts may be just removing it
                assert time.monotonic() < end, "stores were left behind"
                time.sleep(0.05)


def two_nodes() -> Iterator[SessionRecord]:
    """A fixture: a session of two nodes."""
    with running(2) as session:
        yield session


def files_of_session(session: SessionRecord) -> Iterator[Files]:
    """A fixture: the files of the fixture ``session``."""
    with Files() as files:
        yield files


def kill(session: SessionRecord, node: int) -> None:
    """End a node the hard way, and wait until it is no more."""
    entry = next(entry for entry in session.nodes if entry.node == node)
    os.kill(entry.pid, signal.SIGKILL)
    end = time.monotonic() + PATIENCE_S
    while is_running(entry.pid, entry.started):
        assert time.monotonic() < end, "a killed node does not end"
        time.sleep(0.01)
