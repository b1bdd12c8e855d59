"""Carries the changes of partitions to their backups in the simulator. The counterpart of csrc/metadata/peer_meta_backup.c."""

from __future__ import annotations

import errno

from amfs.sim.file_backend import Contents, SimFileBackend
from amfs.sim.process import Process
from amfs.vocabulary.attr import META_BUSY, META_NOT_MINE
from amfs.vocabulary.events import FsWork, FsWorked
from amfs.vocabulary.fs_works import AwaitBackup

AGAIN_S = 0.01  # after a batch that did not come, came to another table, or was refused


class BackupSender:
    """Sends the batches of one node."""

    def __init__(self, process: Process, contents: Contents, files: SimFileBackend) -> None:
        self._process = process
        self._contents = contents
        self._files = files
        self._waiting: list[tuple[int, int]] = []  # (ticket, serial of the work)
        self._pausing: set[int] = set()

    def wait(self, effect: FsWork) -> None:
        assert isinstance(effect.order, AwaitBackup)
        self._waiting.append((effect.order.ticket, effect.serial))

    def look(self, live: frozenset[int]) -> None:
        """Something may have changed."""
        for node in sorted(live - {self._files.number} - self._pausing):
            batch = self._files.meta.backup_next(node)
            if batch is not None:
                self._later(self._process.world.costs.latency_s, self._arrives, node, batch)
        if self._waiting:
            known = self._files.meta.backed_up()
            done = [each for each in self._waiting if each[0] <= known]
            self._waiting = [each for each in self._waiting if each[0] > known]
            for _, serial in done:
                self._process.arrive(("event", FsWorked(serial, 0, None)))

    def _later(self, seconds: float, do: object, *args: object) -> None:
        world = self._process.world
        world.at(world.now + seconds, do, *args)  # type: ignore[arg-type]

    def _arrives(self, node: int, batch: bytes) -> None:
        there = self._contents.nodes.get(node)
        error, answer = errno.EIO, b""
        if there is not None and self._contents.reachable(self._files.number, node):
            try:
                error, answer = 0, there.meta.backup_take(self._files.number, batch)
            except OSError as wrong:
                assert wrong.errno in (META_NOT_MINE, META_BUSY), wrong
                error = wrong.errno
        self._later(self._process.world.costs.latency_s, self._answered, node, error, answer)

    def _answered(self, node: int, error: int, answer: bytes) -> None:
        if not self._process.alive:
            return
        if not self._files.meta.backup_answered(node, error, answer):
            self._pausing.add(node)
            self._later(AGAIN_S, self._again, node)
        else:
            self.look(frozenset((node,)))

    def _again(self, node: int) -> None:
        self._pausing.discard(node)
        if self._process.alive:
            self.look(frozenset((node,)))
