"""The mounts of one node: takes them over from the commands that made them, serves them, ends them. I/O.

Owns a Unix socket in the directory of the session (``host.fusemounts`` is the other side), the native mounts and their numbers. Everything
here is watched through one descriptor (``fd``), so that the poll loop need not follow mounts that come and go. Belongs to the loop's
thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from typing import Any, Protocol

import msgspec

from amfs._native import Fuse, Io, Meta
from amfs.errors import SystemSetupError, UsageError
from amfs.fs.fuse_native import NativeEndpoint
from amfs.host import fusemounts
from amfs.host.fusemounts import Answer, ListMounts, MountFacts, MountWithFusepy, MountWithin, Serve
from amfs.node.aborter import Aborter
from amfs.node.keeper import Keeper
from amfs.node.mount_maker import Made, MountMaker, Refused, Settled
from amfs.vocabulary.events import Event, FsReplied

log = logging.getLogger("amfs.fs")

_HELLO_S = 10.0  # for the kernel to say hello on a fresh mount
_END_S = 5.0  # for libfuse to end after its mount has
_LINES_MAX = 64
_TRY_AGAIN_S = 10.0  # after a mount for tasks that could not be made


class Mount(Protocol):
    """One mount, in any adapter to the kernel."""

    number: int
    path: str
    device: str  # "major:minor"; "": not known
    fd: int
    endpoint: object

    def requests(self) -> list[Any]: ...
    def reply(self, effect: FsReplied) -> None: ...
    def forget(self, inodes: tuple[int, ...], entries: tuple[tuple[int, bytes], ...], gone: int) -> list[int]: ...
    def await_forgotten(self, number: int) -> None: ...
    def keep(self, ino: int) -> bool: ...
    def set_alone(self, alone: bool) -> None: ...
    def defer(self) -> int: ...
    def is_started(self) -> bool: ...
    def is_ended(self) -> bool: ...
    def why(self) -> str: ...
    def facts(self) -> MountFacts: ...
    def unmount(self) -> None: ...
    def stop(self) -> None: ...


class Native:
    """A mount that the C side serves."""

    def __init__(self, number: int, path: str, device: str, fuse: Fuse, *, for_tasks: bool = False, keeper: Keeper | None = None) -> None:
        """``for_tasks``: blind tasks use it. ``keeper``: it is in whose namespaces; None: elsewhere."""
        self.for_tasks = for_tasks
        self.keeper = keeper
        self.number = number
        self.path = path
        self.device = device
        self.fuse = fuse
        self.fd = fuse.fd
        self.endpoint: object = ("fuse", number)
        self._native = NativeEndpoint(number, fuse)
        self.requests = self._native.requests
        self.reply = self._native.reply
        self.await_forgotten = fuse.await_invalidated
        self.keep = fuse.keep
        self.set_alone = fuse.set_alone
        self.defer = fuse.defer
        self.stop = fuse.stop

    def forget(self, inodes: tuple[int, ...], entries: tuple[tuple[int, bytes], ...], gone: int) -> list[int]:
        numbers = [self.fuse.invalidate_entry(directory, name, gone) for directory, name in entries]
        return [number for number in (*numbers, *map(self.fuse.stale, inodes)) if number]

    def is_started(self) -> bool:
        return bool(self.fuse.active()["started"])

    def is_ended(self) -> bool:
        return self.fuse.ended

    def why(self) -> str:
        return "the mount ended at once"

    def facts(self) -> MountFacts:
        return MountFacts(self.path, "native", self.device, self.fuse.active())

    def unmount(self) -> None:
        if self.keeper is not None:
            self.keeper.unmount(self.path)
        else:
            fusemounts.unmount_anywhere(self.device, self.path)


class FusepyMount:
    """A mount that libfuse serves in a thread."""

    def __init__(self, adapter: Any) -> None:
        self.number: int = adapter.number
        self.path: str = adapter.path
        self.device = ""
        self.fd: int = adapter.fd
        self.endpoint: object = ("fusepy", self.number)
        self.adapter = adapter
        self.requests = adapter.requests
        self.reply = adapter.reply

    def forget(self, inodes: tuple[int, ...], entries: tuple[tuple[int, bytes], ...], gone: int) -> list[int]:
        if entries:
            self.adapter.forget()
        return []

    def await_forgotten(self, number: int) -> None:
        """Nothing to wait for."""

    def keep(self, ino: int) -> bool:
        return False  # Io knows its handles

    def set_alone(self, alone: bool) -> None:
        """Nothing hangs on it."""

    def defer(self) -> int:
        return 0  # the machine decides all of its openings

    def is_started(self) -> bool:
        return bool(self.adapter.started)

    def is_ended(self) -> bool:
        return bool(self.adapter.ended)

    def why(self) -> str:
        return str(self.adapter.failure) or "the mount ended at once"

    def facts(self) -> MountFacts:
        made = fusemounts.at(self.path)
        active = {"library": self.adapter.library, "requests": self.adapter.served}
        return MountFacts(self.path, "fusepy", made.device if made is not None else "", active)

    def unmount(self) -> None:
        with contextlib.suppress(UsageError, SystemSetupError):
            fusemounts.unmount(self.path, lazy=True)

    def stop(self) -> None:
        if not self.adapter.join(_END_S):
            log.warning("the thread of the mount at %s does not end", self.path)


class _Job:
    """A mount that the maker makes: for blind tasks, or (``line``) for a command that waits for it."""

    def __init__(self, path: str, line: socket.socket | None) -> None:
        self.path = path
        self.line = line
        self.mount: Native | None = None  # once it is served


def _peer(line: socket.socket) -> tuple[int, int, int]:
    """The process, user and group at the other end."""
    pid, uid, gid = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid, gid


class Mounts:
    """All mounts of node ``node``."""

    def __init__(self, node: int, meta: Meta, io: Io, run_dir: str, session: str) -> None:
        self.node = node
        self.meta = meta
        self.io = io
        self.session = session
        self.alone = False
        self._defers = False  # the node drains
        self.keep_dead = True  # at the end mounts stay, dead: but where somebody ends the session
        self._serial = 0
        self._mounts: dict[int, Mount] = {}  # by number
        self._by_fd: dict[int, Mount] = {}
        self._lines: dict[int, socket.socket] = {}  # commands that have not said yet what they want
        self._waiting: list[tuple[Mount, socket.socket, float]] = []  # commands that wait for the kernel's hello
        self._ending: dict[Mount, threading.Thread] = {}
        self._ended: deque[Mount] = deque()  # have come to their end in those threads
        self.tasks_dir = fusemounts.tasks_dir(run_dir, node)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._maker = MountMaker(session, lambda: os.eventfd_write(self._wake, 1))
        self._aborter = Aborter()
        self._keepers: dict[int, Keeper] = {}  # those that have made mounts and live, by their pidfds
        self._jobs: dict[int, _Job] = {}  # of the maker, by their numbers
        self._tasks: Native | None = None  # the mount for blind tasks, once they may use it
        self._tasks_job = 0  # by which it is being made; 0: it is not
        self._tasks_fault = ""
        self._tasks_again = 0.0  # when to try again
        self._poll = select.epoll()
        self._socket_path = fusemounts.control_socket(run_dir, node)
        self._door = self._listen()
        self._poll.register(self._wake, select.EPOLLIN)

    def _listen(self) -> socket.socket:
        door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._socket_path)
        door.bind(self._socket_path)
        os.chmod(self._socket_path, 0o600)  # the directory is closed to others, and a client is asked for its user
        door.listen(16)
        self._poll.register(door, select.EPOLLIN)
        return door

    def listen_again(self) -> None:
        """The directory of the session was removed. Raises OSError."""
        before, self._door = self._door, self._listen()
        self._poll.unregister(before)
        before.close()

    @property
    def fd(self) -> int:
        return self._poll.fileno()

    def set_alone(self, alone: bool) -> None:
        """Whether this node is the whole session: then directories are listed and links made without asking anybody."""
        self.alone = alone
        for mount in self._mounts.values():
            mount.set_alone(alone)

    def facts(self) -> tuple[MountFacts, ...]:
        ours = [mount for mount in self._mounts.values() if isinstance(mount, Native) and mount.for_tasks]
        return tuple(mount.facts() for mount in self._mounts.values() if not mount.is_ended() and mount not in ours)

    def overdue(self, longer_s: float) -> list[tuple[str, float]]:
        """Requests that have not been answered for longer. For any thread."""
        return [
            (f"a request ({op}) of mount {mount.path} about file {ino:#x}", ms / 1000)
            for mount in tuple(self._mounts.values()) if isinstance(mount, Native)
            for op, ino, ms in mount.fuse.overdue(int(longer_s * 1000))
        ]  # fmt: skip

    # ── events and effects ─────────────────────────────────────────────────────────────────────────

    def collect(self) -> list[Event]:
        """Requests of mounts. Never blocks."""
        events: list[Event] = []
        for fd, _ in self._poll.poll(0):
            mount = self._by_fd.get(fd)
            if mount is not None:
                events.extend(mount.requests())
                if mount.is_ended():
                    self._end(mount)
            elif fd == self._wake:
                os.eventfd_read(self._wake)
                while self._ended:
                    events.extend(self._drop(self._ended.popleft()))
                for news in self._maker.take():
                    self._hear(news)
            elif fd == self._door.fileno():
                self._open_line()
            elif fd in self._lines:
                self._read_line(fd)
            elif fd in self._keepers:
                self._lose(fd)
        if self._waiting:
            self._greet()
        return events

    def reply(self, effect: FsReplied) -> None:
        """Answer a request of a mount."""
        assert isinstance(effect.token, tuple)
        mount = self._mounts.get(effect.token[1])
        if mount is not None:
            mount.reply(effect)

    def forget(
        self, inodes: tuple[int, ...], entries: tuple[tuple[int, bytes], ...], but: object = None, gone: int = 0
    ) -> list[tuple[Mount, int]]:
        """Have the kernel forget, in every mount but one (an endpoint), old names. Returns at once what ``await_forgotten`` waits for."""
        mounts = [mount for mount in self._mounts.values() if but != mount.endpoint and not mount.is_ended()]
        return [(mount, number) for mount in mounts for number in mount.forget(inodes, entries, gone)]

    def await_forgotten(self, begun: list[tuple[Mount, int]]) -> None:
        """Wait until the kernel has. Any thread may call this."""
        for mount, number in begun:
            mount.await_forgotten(number)

    def keep(self, ino: int) -> bool:
        """Is it in use here, so that its closing will be told?"""
        return any(mount.keep(ino) for mount in self._mounts.values())

    def defer(self) -> int:
        """The node drains: the machine is to know of each opening to write, also in mounts that are made later. How many files are open and
        written to this node or to stripes, or are being made."""
        self._defers = True
        return max((mount.defer() for mount in self._mounts.values()), default=0)  # each answers for the node

    # ── commands ───────────────────────────────────────────────────────────────────────────────────

    def _open_line(self) -> None:
        with contextlib.suppress(OSError):
            line, _ = self._door.accept()
            line.setblocking(False)
            _, uid, _ = _peer(line)
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
        elif isinstance(order, MountWithin):
            self._mount_within(line, order)
        elif isinstance(order, MountWithFusepy):
            self._mount_with_fusepy(line, order)
        else:
            self._answer(line, Answer("this node does not do that"))
        if descriptor >= 0:
            os.close(descriptor)

    def _answer(self, line: socket.socket, answer: Answer, descriptor: int = -1) -> None:
        with line, contextlib.suppress(OSError):
            socket.send_fds(line, [msgspec.json.encode(answer)], [descriptor] if descriptor >= 0 else [])

    def _serve(self, line: socket.socket, order: Serve, descriptor: int) -> None:
        try:
            fuse = Fuse(descriptor, self.meta, self.io, self.node, passthrough=order.passthrough, no_open=order.no_open)
        except OSError as error:
            self._answer(line, Answer(f"cannot serve it: {error}"))
            return
        fuse.set_alone(self.alone)
        self._serial += 1
        self._add(Native(self._serial, order.path, order.device, fuse), line)

    # ── mounts that the node makes: for blind tasks, and for shells in the namespaces of its keeper ─────

    def ready_for_tasks(self) -> str | None:
        """'' if blind tasks can be started; None: not yet, ask again after the next ``collect``; else why not. Has the mount made when
        there is none."""
        if self._tasks is not None and not self._tasks.is_ended():
            return ""
        if self._tasks_job == 0:
            if self._tasks_fault and time.monotonic() < self._tasks_again:
                return self._tasks_fault
            self._tasks_job = self._maker.order(self.tasks_dir, within=False)
            self._jobs[self._tasks_job] = _Job(self.tasks_dir, None)
        return None

    @property
    def keeper_of_tasks(self) -> int:
        """The process whose namespaces blind tasks have to enter, when they can be started; 0: they stay in ours."""
        return self._tasks.keeper.pid if self._tasks is not None and self._tasks.keeper is not None else 0

    def _mount_within(self, line: socket.socket, order: MountWithin) -> None:
        if _peer(line)[1:] != (os.geteuid(), os.getegid()):
            self._answer(line, Answer("its namespaces have a number only for the user and the group that it runs as"))
            return
        self._jobs[self._maker.order(order.path, within=True)] = _Job(order.path, line)

    def _hear(self, news: Made | Settled | Refused) -> None:
        job = self._jobs[news.job]
        if isinstance(news, Refused):
            self._refuse(news.job, news.why)
        elif isinstance(news, Made):
            try:
                fuse = Fuse(news.descriptor, self.meta, self.io, self.node, tasks=job.line is None)
            except OSError as error:
                self._refuse(news.job, f"cannot serve it: {error}")
                return
            self._serial += 1
            here = fusemounts.at(job.path) if news.keeper is None else None
            device = here.device if here is not None else ""
            job.mount = Native(self._serial, job.path, device, fuse, for_tasks=job.line is None, keeper=news.keeper)
            self._add(job.mount)
            if news.keeper is not None and news.keeper.pidfd not in self._keepers:
                self._keepers[news.keeper.pidfd] = news.keeper
                self._poll.register(news.keeper.pidfd, select.EPOLLIN)
        elif job.mount is not None:
            job.mount.device = news.device or job.mount.device
            self._aborter.add(job.mount.device)
            self._settle(news.job, job.mount)

    def _settle(self, number: int, mount: Native) -> None:
        """Programs may use it."""
        line = self._jobs.pop(number).line
        if line is None:
            self._tasks, self._tasks_job = mount, 0
        elif mount.keeper is not None:
            within = mount.keeper.within
            self._answer(line, Answer("", (mount.facts(),), within.namespace), within.keeper)

    def _refuse(self, number: int, why: str) -> None:
        line = self._jobs.pop(number).line
        if line is not None:
            self._answer(line, Answer(why))
            return
        self._tasks_job = 0
        self._tasks_fault = f"a blind task runs in a mount that its node makes: {why}; else declare its files"
        self._tasks_again = time.monotonic() + _TRY_AGAIN_S

    def _lose(self, fd: int) -> None:
        """A keeper has ended by itself. Processes in its namespaces go on; no other can enter them."""
        keeper = self._keepers.pop(fd)
        self._poll.unregister(fd)
        log.warning("the process that keeps mounts (%d) has ended", keeper.pid)
        self._maker.forget(keeper)
        if self._tasks is not None and self._tasks.keeper is keeper:
            self._tasks = None

    def _mount_with_fusepy(self, line: socket.socket, order: MountWithFusepy) -> None:
        from amfs.fs import fusepy_calls  # only where it is asked for: libfuse need not be there
        from amfs.fs.fusepy_adapter import FusepyAdapter

        self._serial += 1
        try:
            adapter = FusepyAdapter(
                self._serial, order.path, self.session, self.meta, self.io, self.alone, fusepy_calls.serve
            )
        except SystemSetupError as error:
            self._answer(line, Answer(str(error)))
            return
        self._add(FusepyMount(adapter), line)

    def _add(self, mount: Mount, line: socket.socket | None = None) -> None:
        self._mounts[mount.number] = mount
        self._by_fd[mount.fd] = mount
        self._poll.register(mount.fd, select.EPOLLIN)
        self._share()
        self._aborter.add(mount.device)
        log.info("mount %d at %s", mount.number, mount.path)
        if line is not None:
            self._waiting.append((mount, line, time.monotonic() + _HELLO_S))

    def _share(self) -> None:
        """Those that change things by themselves must know whether others keep caches, and so must other nodes."""
        self.io.set_shy(any(isinstance(mount, FusepyMount) for mount in self._mounts.values()))
        for mount in self._mounts.values():
            mount.set_alone(self.alone)
        if self._defers:
            self.defer()

    def _greet(self) -> None:
        """Answer the commands whose mounts the kernel has greeted."""
        left = []
        for mount, line, until in self._waiting:
            if mount.number not in self._mounts or mount.is_ended():
                self._answer(line, Answer(mount.why()))
            elif mount.is_started():
                self._answer(line, Answer("", (mount.facts(),)))
            elif time.monotonic() > until:
                self._answer(line, Answer("the kernel does not speak to this mount"))
            else:
                left.append((mount, line, until))
        self._waiting = left

    # ── ends ───────────────────────────────────────────────────────────────────────────────────────

    def _end(self, mount: Mount) -> None:
        """It was unmounted: close what it had open, which may have to wait for other nodes. The poll loop goes on meanwhile."""
        self._poll.unregister(mount.fd)
        del self._by_fd[mount.fd]

        def stop() -> None:
            mount.stop()
            self._ended.append(mount)
            os.eventfd_write(self._wake, 1)

        thread = self._ending[mount] = threading.Thread(target=stop, name="amfs-unmount", daemon=True)
        thread.start()

    def _drop(self, mount: Mount) -> list[Event]:
        """It has ended. Returns what it tells at the end."""
        self._ending.pop(mount).join()
        del self._mounts[mount.number]
        self._aborter.remove(mount.device)
        self._share()
        log.info("mount %d at %s has ended", mount.number, mount.path)
        return list(mount.requests())

    def _take_away(self, mount: Mount) -> None:
        """Unmount; or, where nobody has ended the session, leave the mount dead, as a node that was killed does. Programs are told
        ENOTCONN there. In the bare directory they would find no file, and write new ones to it. (libfuse ends by unmounting only.)"""
        if not (self.keep_dead and isinstance(mount, Native) and not mount.for_tasks):
            mount.unmount()

    def stop(self) -> None:
        """Unmount everything, wherever it is, and end. Repeatable."""
        if self._poll.closed:
            return
        for mount in self._mounts.values():
            if isinstance(mount, Native) and mount.keeper is not None:
                self._take_away(mount)  # while its keeper listens
        for made in self._maker.stop():
            os.close(made.descriptor)
            if made.keeper is None:
                with contextlib.suppress(UsageError, SystemSetupError):
                    fusemounts.unmount(self._jobs[made.job].path, lazy=True)
        for mount in list(self._mounts.values()):
            if not mount.is_ended():
                self._take_away(mount)
            if mount not in self._ending:
                self._end(mount)
            self._drop(mount)
        self._maker.close()
        self._aborter.close()
        asking = [job.line for job in self._jobs.values() if job.line is not None]
        for line in [*self._lines.values(), *(line for _, line, _ in self._waiting), *asking]:
            line.close()
        self._lines.clear()
        self._waiting.clear()
        self._door.close()
        with contextlib.suppress(OSError):
            os.unlink(self._socket_path)
        with contextlib.suppress(OSError):
            os.rmdir(self.tasks_dir)
        self._poll.close()
        os.close(self._wake)
