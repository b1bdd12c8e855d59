"""The mounts of one node: takes them over from the commands that made them, serves them, ends them. I/O.

Owns a Unix socket in the session's directory (``net.fusemounts`` is the other side), the native mounts and their numbers. Everything here
is watched through one descriptor (``fd``), so that the poll loop need not follow mounts that come and go. Belongs to the loop's thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import struct
import time
from typing import Any, Protocol

import msgspec

from amfs._native import Fuse, Io, Meta
from amfs.engine.events import Event, FsReplied
from amfs.fs.fuse_native import NativeFace
from amfs.net import fusemounts
from amfs.net.fusemounts import Answer, ListMounts, MountFacts, Serve

log = logging.getLogger("amfs.fs")

_HELLO_S = 10.0  # for the kernel to say hello on a fresh mount
_LINES_MAX = 64


class Face(Protocol):
    """A way for programs to see the files, as the machine knows it: native or portable."""

    number: int

    def requests(self) -> list[Any]: ...
    def reply(self, effect: FsReplied) -> None: ...


class Native:
    """A mount that the C side serves."""

    adapter = "native"

    def __init__(self, number: int, path: str, device: str, fuse: Fuse) -> None:
        self.number = number
        self.path = path
        self.device = device
        self.fuse = fuse
        self.face = NativeFace(number, fuse)
        self.fd = fuse.fd

    def facts(self) -> MountFacts:
        return MountFacts(self.path, self.adapter, self.device, self.fuse.active())


class Mounts:
    """All mounts of node ``node``."""

    def __init__(self, node: int, meta: Meta, io: Io, run_dir: str) -> None:
        self.node = node
        self.meta = meta
        self.io = io
        self.alone = False
        self._serial = 0
        self._mounts: dict[int, Native] = {}  # by number
        self._by_fd: dict[int, Native] = {}
        self._lines: dict[int, socket.socket] = {}  # commands that have not said yet what they want
        self._waiting: list[tuple[Native, socket.socket, float]] = []  # commands that wait for the kernel's hello
        self._poll = select.epoll()
        self._door_path = fusemounts.door(run_dir, node)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._door_path)
        mask = os.umask(0o177)
        try:
            self._door.bind(self._door_path)
        finally:
            os.umask(mask)
        self._door.listen(16)
        self._poll.register(self._door, select.EPOLLIN)

    @property
    def fd(self) -> int:
        return self._poll.fileno()

    def set_alone(self, alone: bool) -> None:
        """Whether this node is the whole session: then directories are listed and links made without asking anybody."""
        self.alone = alone
        for mount in self._mounts.values():
            mount.fuse.set_alone(alone)

    def facts(self) -> tuple[MountFacts, ...]:
        return tuple(mount.facts() for mount in self._mounts.values())

    # ── events and effects ─────────────────────────────────────────────────────────────────────────

    def collect(self) -> list[Event]:
        """What mounts ask. Never blocks."""
        events: list[Event] = []
        for fd, _ in self._poll.poll(0):
            mount = self._by_fd.get(fd)
            if mount is not None:
                events.extend(mount.face.requests())
                if mount.fuse.ended:
                    events.extend(self._drop(mount))
            elif fd == self._door.fileno():
                self._open_line()
            elif fd in self._lines:
                self._read_line(fd)
        if self._waiting:
            self._greet()
        return events

    def reply(self, effect: FsReplied) -> None:
        """Answer a request of a mount."""
        assert isinstance(effect.token, tuple)
        mount = self._mounts.get(effect.token[1])
        if mount is not None:
            mount.face.reply(effect)

    def forget(
        self, inodes: tuple[int, ...], entries: tuple[tuple[int, bytes], ...], but: object = None
    ) -> list[tuple[Fuse, int]]:
        """Have the kernel forget, in every mount but one (a face), what is old. Returns at once what ``await_forgotten`` waits for."""
        begun = []
        for number, mount in list(self._mounts.items()):
            if but != ("fuse", number):
                numbers = [mount.fuse.invalidate_entry(directory, name) for directory, name in entries]
                numbers += [mount.fuse.invalidate_inode(ino, True) for ino in inodes]
                if last := max(numbers, default=0):
                    begun.append((mount.fuse, last))
        return begun

    def await_forgotten(self, begun: list[tuple[Fuse, int]]) -> None:
        """Wait until the kernel has, 50 ms at most. Any thread may call this."""
        for fuse, number in begun:
            fuse.await_invalidated(number)

    def invalidate(self, inodes: tuple[int, ...], entries: tuple[tuple[int, bytes], ...], but: object = None) -> None:
        """Both."""
        self.await_forgotten(self.forget(inodes, entries, but))

    def open_count(self, ino: int) -> tuple[int, int]:
        """(readers, writers) besides those that Io knows."""
        for mount in self._mounts.values():
            return mount.fuse.open_count(ino)  # each answers for the node
        return 0, 0

    # ── commands ───────────────────────────────────────────────────────────────────────────────────

    def _open_line(self) -> None:
        with contextlib.suppress(OSError):
            line, _ = self._door.accept()
            line.setblocking(False)
            _, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid not in (0, os.geteuid()) or len(self._lines) >= _LINES_MAX:
                line.close()
                return
            self._lines[line.fileno()] = line
            self._poll.register(line, select.EPOLLIN)

    def _read_line(self, fd: int) -> None:
        line = self._lines.pop(fd)
        self._poll.unregister(fd)
        try:
            order, descriptor = fusemounts.take_order(line)
        except (OSError, ValueError) as error:
            self._answer(line, Answer(str(error)))
            return
        if isinstance(order, ListMounts):
            self._answer(line, Answer("", self.facts()))
        elif isinstance(order, Serve) and descriptor >= 0:
            self._serve(line, order, descriptor)
            return
        else:
            self._answer(line, Answer("this node does not do that"))
        if descriptor >= 0:
            os.close(descriptor)

    def _answer(self, line: socket.socket, answer: Answer) -> None:
        with line, contextlib.suppress(OSError):
            line.send(msgspec.json.encode(answer))

    def _serve(self, line: socket.socket, order: Serve, descriptor: int) -> None:
        try:
            fuse = Fuse(descriptor, self.meta, self.io, self.node, passthrough=order.passthrough, no_open=order.no_open)
        except OSError as error:
            self._answer(line, Answer(f"cannot serve it: {error}"))
            return
        fuse.set_alone(self.alone)
        self._serial += 1
        mount = Native(self._serial, order.path, order.device, fuse)
        self._mounts[mount.number] = mount
        self._by_fd[mount.fd] = mount
        self._poll.register(mount.fd, select.EPOLLIN)
        log.info("mount %d at %s", mount.number, order.path)
        self._waiting.append((mount, line, time.monotonic() + _HELLO_S))

    def _greet(self) -> None:
        """Answer the commands whose mounts the kernel has greeted."""
        left = []
        for mount, line, until in self._waiting:
            if mount.number not in self._mounts:
                self._answer(line, Answer("the mount ended at once"))
            elif mount.fuse.active()["started"]:
                self._answer(line, Answer("", (mount.facts(),)))
            elif time.monotonic() > until:
                self._answer(line, Answer("the kernel does not speak to this mount"))
            else:
                left.append((mount, line, until))
        self._waiting = left

    # ── ends ───────────────────────────────────────────────────────────────────────────────────────

    def _drop(self, mount: Native) -> list[Event]:
        """It was unmounted: close what it had open. Returns what it tells at the end."""
        self._poll.unregister(mount.fd)
        del self._by_fd[mount.fd]
        mount.fuse.stop()
        del self._mounts[mount.number]
        log.info("mount %d at %s has ended", mount.number, mount.path)
        return list(mount.face.requests())

    def stop(self) -> None:
        """Unmount everything, wherever it is, and end. Repeatable."""
        if self._poll.closed:
            return
        for mount in list(self._mounts.values()):
            if not mount.fuse.ended:
                fusemounts.unmount_anywhere(mount.device, mount.path)
            self._drop(mount)
        for line in [*self._lines.values(), *(line for _, line, _ in self._waiting)]:
            line.close()
        self._lines.clear()
        self._waiting.clear()
        self._door.close()
        with contextlib.suppress(OSError):
            os.unlink(self._door_path)
        self._poll.close()
