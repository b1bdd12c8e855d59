"""Sessions of local nodes with mounts, started and ended by a benchmark.

Sessions are driven by the commands of a user: amfs up, mount, umount, down. Each has a session directory of its own, so that no other
command takes it for the default session.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from amfs.bench import process
from amfs.bench.process import Failed
from benchmarks.directories import file_system

NAME = "bench"
_MOUNT_SECONDS = 20.0
AMFS = (sys.executable, "-m", "amfs.cli.main")


class Session:
    """A session of local nodes. ``directory`` is on a disk and holds the mount points; all paths in it are short. Raises Failed."""

    def __init__(self, nodes: int, slots: int = 1, options: tuple[str, ...] = ()) -> None:
        self.nodes = nodes
        self.directory = Path(tempfile.mkdtemp(prefix="amfs-bench-", dir="/tmp"))
        self.env: Mapping[str, str] = {**os.environ, "AMFS_RUN_DIR": str(self.directory / "run")}
        self.features: dict[Path, str] = {}  # as amfs mount told for each mount
        self._mounts: list[Path] = []
        (self.directory / "run").mkdir(mode=0o700)
        try:
            self.amfs("up", "--nodes", str(nodes), "--slots", str(slots), "--name", NAME, *options)
        except BaseException:
            self.close()
            raise

    @property
    def file(self) -> str:
        """The session file, which amfs takes as the session's name in any environment."""
        return str(self.directory / "run" / NAME / "session.json")

    def amfs(self, *words: str, cwd: str | Path = "/", hang_seconds: float = 60.0) -> process.Ran:
        """``amfs WORDS`` with this session's environment. Raises Failed."""
        return process.run([*AMFS, *words], cwd, env=self.env, hang_seconds=hang_seconds)

    def mount(self, node: int = 0, *options: str) -> Path:
        """The file system as ``node`` shows it. Raises Failed."""
        place = self.directory / f"m{len(self._mounts)}"
        place.mkdir()
        self._mounts.append(place)
        self.features[place] = self.amfs("mount", str(place), "--session", NAME, "--node", str(node), "--verbose", *options).stdout
        if not os.path.ismount(place):
            raise Failed(f"amfs mount {' '.join(options)} said nothing, but nothing is mounted")
        return place

    def run_as_task(self, words: list[str]) -> list[str]:
        """The command that runs ``words`` as a task of this session; its working directory is the task's sandbox."""
        number, path = tempfile.mkstemp(prefix="tasks-", suffix=".jsonl", dir=self.directory)
        import msgspec

        with os.fdopen(number, "wb") as file:
            file.write(msgspec.json.encode({"type": "task", "id": "client", "argv": words}) + b"\n")
        where = f"AMFS_RUN_DIR={self.env['AMFS_RUN_DIR']}"
        return ["env", where, *AMFS, "run", path, "--session", NAME, "--quiet", "--no-journal", "-C", str(self.directory)]

    def close(self) -> None:
        """Unmount and end everything, whatever state it is in."""
        for place in reversed(self._mounts):
            if os.path.ismount(place):
                with contextlib.suppress(Failed):
                    self.amfs("umount", str(place))
            if os.path.ismount(place):
                with contextlib.suppress(Failed):
                    self.amfs("umount", "--force", str(place))
        if Path(self.file).exists():
            with contextlib.suppress(Failed):  # if it is gone already, a command run in it has said so
                self.amfs("down", NAME)
        if not any(os.path.ismount(place) for place in self._mounts):
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _until(true: Callable[[], bool]) -> bool:
    limit = time.monotonic() + _MOUNT_SECONDS
    while not true():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def _unmount(place: Path) -> None:
    """Lazily: processes that still use it must not keep us."""
    for command in (["umount", "-l"], ["fusermount", "-uz"], ["fusermount3", "-uz"]):
        if os.path.ismount(place) and shutil.which(command[0]):
            subprocess.run([*command, str(place)], capture_output=True, check=False, timeout=20)


def store_has_huge_pages(session: Session) -> bool:
    """Whether the nodes' stores are on a tmpfs of their own, by the working directory that a task sees."""
    with tempfile.NamedTemporaryFile("r", dir=session.directory, prefix="where-") as file:
        words = ["sh", "-c", f"pwd >{file.name}"]
        process.run(session.run_as_task(words), "/")
        sandbox = file.read().strip()
    return file_system(sandbox) == "tmpfs" and "/mem/" in sandbox
