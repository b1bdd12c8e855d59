"""This node in the directory of its session: the lock that says that it lives, and the directory itself, should it go. I/O.

A session can be reached only through its directory. So a node looks every second whether it is there, and makes it again. Must not know:
sockets; ``again`` makes those again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from amfs.client import discovery
from amfs.errors import AmfsError, SessionError, SystemSetupError
from amfs.host import life, processes
from amfs.net import records
from amfs.net.records import NodeConfig, NodeEntry, SessionRecord

LOOK_S = 1.0

log = logging.getLogger("amfs.node")


class Presence:
    """Of the node with this configuration. ``abandoned``: the process that was starting the session was ended before."""

    def __init__(self, config: NodeConfig) -> None:
        """Raises SystemSetupError if no file can be locked there."""
        self.config = config
        self.directory = Path(config.run_dir)
        self.abandoned = False
        self.again: Callable[[], None] = lambda: None
        self.endpoints: tuple[str, ...] = config.listen
        self._path = self.directory / records.life_file(config.node)
        self._record: SessionRecord | None = None
        self._due = 0.0
        self._trouble = ""
        try:
            self._lock = life.hold(self._path)
        except OSError as error:
            raise SystemSetupError(
                f"cannot lock {self._path} ({error.strerror}); set AMFS_RUN_DIR to a directory on a local disk"
            ) from None

    def look(self) -> None:
        """To be called at least once a second or so."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + LOOK_S
        try:
            if self._is_ours():
                if self._record is None:
                    self._learn()
            else:
                self._make_again()
        except (OSError, AmfsError) as error:
            self._say(f"cannot make {self.directory} again: {error}")

    def over(self) -> None:
        """The whole session ends: a process that looks later, on this host, need not ask the nodes on others."""
        with contextlib.suppress(OSError):
            if self._is_ours():
                (self.directory / records.OVER).touch(mode=0o600)

    def ending(self) -> None:
        """This node has begun to end: it has tasks to end, mounts and a store to remove."""
        with contextlib.suppress(OSError):
            life.say_end(self._lock)

    def _is_ours(self) -> bool:
        """Is our lock where others look for it?"""
        try:
            there, ours = os.stat(self._path), os.fstat(self._lock)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def _learn(self) -> None:
        path = self.directory / "session.json"
        if path.exists():
            self._record = records.load(path)
        else:
            starting = self.directory / records.STARTING
            # A file that is there and free: a start that was complete takes it away.
            self.abandoned = life.is_held(starting) is False and not path.exists() and starting.exists()

    def _make_again(self) -> None:
        path = self.directory / "session.json"
        if (self.directory / records.STARTING).exists() or (path.exists() and records.load(path).keys != self.config.keys):
            self._say(f"{self.directory} now belongs to another session: nobody can reach this node from here")
            return
        config = self.config
        known = self._record or SessionRecord(
            name=config.session, keys=config.keys, created=time.time(), host=processes.host_id(), unit_size=config.unit_size
        )
        self.directory.parent.mkdir(mode=0o700, exist_ok=True)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        before, self._lock = self._lock, life.hold(self._path)
        os.close(before)
        pid = os.getpid()
        entry = NodeEntry(config.node, self.endpoints, processes.host_id(), pid, processes.start_time(pid))
        records.add_node(known, entry, self.directory)
        if config.log_file:
            output = os.open(config.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
        self.again()
        self._trouble = ""
        log.warning("%s was removed; it is made again", self.directory)

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            log.error("%s", trouble)

    def close(self) -> None:
        """This node is no more."""
        os.close(self._lock)
        if self.abandoned:
            with contextlib.suppress(OSError, SessionError):
                discovery.clean()
