"""The I/O of a node: acts on the effects of its machines with the launcher, the copier and the store.

Decides nothing. ``collect`` returns what has ended, as events; the poll loop watches ``fds``.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import struct
import time
from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from amfs._native import Copier, Launcher, check_file
from amfs.config import MemoryLimits
from amfs.host import memory
from amfs.host.digests import CHECKED_DAMAGED
from amfs.host.processes import resident_of_tree
from amfs.host.shared_storage import LocalPaths, SharedStorage
from amfs.libexec import program
from amfs.node.spill_directory import SpillDirectory
from amfs.node.store import Store, mode_left
from amfs.node.url_copier import UrlCopier
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    AttemptEnded,
    BringBack,
    CloseRun,
    CopyOut,
    Delete,
    DropSpilled,
    Event,
    Evict,
    FetchData,
    FileDamaged,
    FsReplied,
    FsWork,
    FsWorked,
    JobDone,
    Kill,
    Launch,
    OpenRun,
    ReadRoom,
    ReadStore,
    Restore,
    RoomRead,
    RoomTaken,
    Send,
    SpillOut,
    StageIn,
    StoreFailed,
    StoreInline,
    TasksExited,
    TellAtWork,
)
from amfs.vocabulary.paths import scope_in
from amfs.vocabulary.records import BLIND
from amfs.vocabulary.states import Outcome

if TYPE_CHECKING:  # a node without a file system, as an embedded one, starts without them
    from amfs.node.file_backend import FileBackend
    from amfs.node.mounts import Mounts

log = logging.getLogger("amfs.node")

INLINE_BYTES_MAX = 1 << 16
CONTENT_BYTES_MAX = 8 << 20  # of file content in one message
ROOM_EVERY_S = 0.05  # how often is looked how full the memory is
#: Faults of the place where a file was to be written, not of where it came from.
_OWN_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.EFBIG, errno.EROFS)
_SERIAL = struct.Struct("<8xQ")
_FLAGS = struct.Struct("<4xI")
KILLS_TOGETHER_S = 2.0  # tasks that are killed so shortly after the kernel killed some are taken for those
_KILLED = (9, 128 + 9)  # the signal, and how a shell says that its child got it
_DETAIL = 11  # where a completion of the launcher has its words,
_TRACES = 13  # and where the traces of a blind task


def _job_done(serial: int, error: str, size: int, code: int, directory: bool = False) -> JobDone:
    return JobDone(serial, error, size, code in _OWN_FAULTS, damaged=code == errno.EBADMSG, directory=directory)


def _serial_of(record: bytes) -> int:
    return int(_SERIAL.unpack_from(record)[0])


def _flags_of(record: bytes) -> int:
    return int(_FLAGS.unpack_from(record)[0])


class NodeIO:
    """Launcher, copier and store of one node."""

    def __init__(
        self, store: Store, slots: int, *, memory_for_tasks: int = 0,
        files: FileBackend | None = None, mounts: Mounts | None = None, shared: SharedStorage | None = None,
        limits: MemoryLimits | None = None,
    ) -> None:
        self.shared = shared or LocalPaths()
        self.store = store
        self.files = files
        self.mounts = mounts
        place = {"mount_dir": mounts.tasks_dir} if mounts is not None else {}
        self.limits = limits or MemoryLimits()
        self._bounds = memory.groups()
        self._kills = memory.Kills()
        self._kills_at = -KILLS_TOGETHER_S
        last_words = (
            f"amfs: process {os.getpid()} is gone, and the kernel has killed processes because memory had run out: "
            f"{self._memory_in_words()}. 'amfs clean' frees what it left in {store.path.parent}\n"
        )
        self.launcher = Launcher(
            slots, memory=memory_for_tasks, sandbox_dir=store.sandboxes, log_dir=store.logs, watcher=program("amfs-watcher"),
            kills=self._kills.file, last_words=last_words, **place,
        )  # fmt: skip
        self._before_mount: list[bytes] = []  # records that wait for the mount for blind tasks
        self._keeper = 0  # the process whose namespaces blind tasks enter, as the launcher knows it
        self._copier: Copier | None = None
        self.urls = UrlCopier()
        self.grown = False  # there is more to watch; the loop clears it
        self.umasks: dict[str, int] = {}  # scope -> that of its run
        if files is not None:
            files.umasks = self.umasks
        self.keep_files = False  # an interrupted run that is to be resumed: its files are set aside before the store ends
        self.immediate: list[Event] = []  # of works that ended at once
        self.spilled = SpillDirectory(store, self.limits.spill)
        self.spilled.on_start(lambda: setattr(self, "grown", True))
        self._room_read_at = 0.0
        self.acts: dict[type, Callable[[Any], Send | None]] = {
            Launch: self.launch,
            Kill: self.kill,
            OpenRun: self.open_run,
            CloseRun: self.close_run,
            Delete: self.delete,
            StoreInline: self.store_inline,
            ReadStore: self.read_store,
            StageIn: self.stage_in,
            CopyOut: self.copy_out,
            SpillOut: self.spilled.spill_out,
            BringBack: self.spilled.bring_back,
            Evict: self.spilled.evict,
            Restore: self.spilled.restore,
            DropSpilled: self.drop_spilled,
            ReadRoom: lambda effect: self.immediate.append(self._read_room()),
            TellAtWork: self.tell_at_work,
            RoomTaken: lambda effect: None,  # of nobody's limit but the worker's
        }
        if files is not None:
            self.acts[FsWork] = files.act
            self.acts[FetchData] = self.fetch_data
            self.acts[RoomTaken] = lambda effect: files.account.hold(effect.bytes, effect.spilled)
            files.heard = lambda event: self.immediate.append(event)
        if mounts is not None:
            self.acts[FsReplied] = mounts.reply

    @property
    def copier(self) -> Copier:
        """Started when first needed: a run without final outputs needs no such threads."""
        if self._copier is None:
            self._copier = Copier(2)
            self.grown = True
        return self._copier

    def fds(self) -> list[int]:
        """Descriptors to watch; may grow when the copier starts."""
        fds = [self.launcher.fd] if self._copier is None else [self.launcher.fd, self._copier.fd]
        fds += [fd for fd in (self.spilled.fd, self.urls.fd) if fd >= 0]
        if self.files is not None:
            fds += self.files.fds()
        return fds if self.mounts is None else [*fds, self.mounts.fd]

    def take_immediate(self) -> list[Event]:
        """Events of works that ended at once, since the last call."""
        events, self.immediate = self.immediate, []
        return events

    def collect(self) -> list[Event]:
        """Events since the last call. Never blocks."""
        events = self.take_immediate()
        done = self.launcher.completions()
        if done:
            if any(completion[1] and completion[2] in _KILLED for completion in done):
                self._explain_kills(done)
            blind = [completion for completion in done if len(completion) > _TRACES]
            if blind:
                done = [completion for completion in done if len(completion) <= _TRACES]
                events.extend(AttemptEnded(completion[:_TRACES], *completion[_TRACES]) for completion in blind)
            events.append(TasksExited(done))
        if self._copier is not None:
            events.extend(_job_done(*each) for each in self._copier.completions())
        events.extend(_job_done(*each) for each in self.spilled.completions())
        events.extend(_job_done(*each) for each in self.urls.completions())
        if self.files is not None:
            events.extend(self.files.collect())
        if self.mounts is not None:
            events.extend(self.mounts.collect())
            if self._before_mount:
                self._launch_blind()
                events.extend(self.take_immediate())
        if events and self.limits.limit and time.monotonic() - self._room_read_at > ROOM_EVERY_S:
            events.insert(0, self._read_room())
        return events

    def _explain_kills(self, done: list[Any]) -> None:
        """Add to what is said of killed tasks that the kernel has killed some because memory had run out."""
        if self._kills.more():
            self._kills_at = time.monotonic()
        if time.monotonic() - self._kills_at > KILLS_TOGETHER_S:
            return
        for number, completion in enumerate(done):
            if completion[1] in (Outcome.SIGNAL, Outcome.EXIT) and completion[2] in _KILLED:
                why = f"{completion[_DETAIL]}; memory had run out, and the kernel killed processes: {self._memory_in_words()}"
                done[number] = (*completion[:_DETAIL], why, *completion[_DETAIL + 1 :])

    def _memory_in_words(self) -> str:
        from amfs.display.progress import size_text

        least = min(self._bounds, key=lambda group: group.left(), default=None)
        what = "that of this machine" if least is None else f"memory cgroup {least.name} has {size_text(least.limit())}"
        return f"{what}, for programs and for files in {self.store.path.parent}" if self.store.in_memory else what

    def _read_room(self) -> RoomRead:
        """How full the memory is, by files of all owners."""
        self._room_read_at = time.monotonic()
        facts = os.statvfs(self.store.root)
        free, others, parts = facts.f_bavail * facts.f_frsize, 0, False
        if self.store.in_memory:
            free = min(free, memory.machine_left(), *(group.left() // self.limits.sharing for group in self._bounds))
        if self.store.own_mount:  # all that is there counts
            taken = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
            free = min(free, max(0, self.limits.limit - taken))
            parts = self.files is not None and self.files.io.usage()[2] > 0
        elif self.files is not None:
            others = self.files.account.others()
        return RoomRead(free, others, self.files.io.spilled if self.files is not None else 0, parts or others > 0)

    # ── acts ───────────────────────────────────────────────────────────────────────────────────────

    def failed(self, effect: Any, error: Exception) -> Send | None:
        """An act raised an error; its waiter hears of it. It must not end the node, which serves others as well."""
        log.error("%s: %s: %s", type(effect).__name__, type(error).__name__, error)
        text = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        if isinstance(effect, (FetchData, StageIn, CopyOut, SpillOut, BringBack)):
            self.immediate.append(JobDone(effect.serial, text, 0, True))
        elif isinstance(effect, StoreInline):
            self.immediate.append(StoreFailed(effect.name, text))
        elif isinstance(effect, FsWork) and effect.serial:
            self.immediate.append(FsWorked(effect.serial, errno.EIO, None))
        elif isinstance(effect, ReadStore):
            return Send(effect.to, m.Content(effect.run, tuple(m.Blob(name, 0, missing=True) for name in effect.names)))
        return None

    def launch(self, effect: Launch) -> None:
        records = effect.records
        if effect.blind and self.mounts is not None:
            self._before_mount += [record for record in records if _flags_of(record) & BLIND]
            records = [record for record in records if not _flags_of(record) & BLIND]
            self._launch_blind()
        self._submit(records)

    def _launch_blind(self) -> None:
        """Start the blind tasks if the mount for them is there."""
        assert self.mounts is not None
        why = self.mounts.ready_for_tasks()
        if why is None:
            return
        records, self._before_mount = self._before_mount, []
        if why:
            for record in records:
                self._not_started(record, Outcome.SETUP, why)
        else:
            if (keeper := self.mounts.keeper_of_tasks) != self._keeper:
                self.launcher.enter(keeper)
                self._keeper = keeper
            self._submit(records)

    def _submit(self, records: list[bytes]) -> None:
        try:
            self.launcher.submit(records)
        except ValueError:  # one of them is malformed, and none has been taken
            for record in records:
                try:
                    self.launcher.submit([record])
                except ValueError as error:
                    self._not_started(record, Outcome.SETUP, f"cannot be started: {error}")

    def _not_started(self, record: bytes, outcome: Outcome, why: str) -> None:
        ended = (_serial_of(record), int(outcome), 0, -1, 0, 0, 0, 0, (), b"", b"", why, None)
        self.immediate.append(TasksExited([ended]))

    def kill(self, effect: Kill) -> None:
        if self._before_mount:
            killed = [record for record in self._before_mount if _serial_of(record) in effect.serials]
            self._before_mount = [record for record in self._before_mount if record not in killed]
            for record in killed:
                self._not_started(record, Outcome.CANCELLED, "cancelled")
        self.launcher.kill(effect.serials)

    def open_run(self, effect: OpenRun) -> None:
        info = effect.info
        nice = None if info.nice == m.AS_NODE else info.nice
        self.launcher.set_context(effect.run, info.base, info.env, info.umask, nice, info.limits)
        self.umasks[info.scope] = info.umask
        if info.storage:
            self.urls.open(info.scope, info.storage)
            self.grown = True

    def close_run(self, effect: CloseRun) -> None:
        self.launcher.drop_context(effect.run)
        self.umasks.pop(effect.scope, None)
        self.urls.close(effect.scope)
        if not self.keep_files:
            self.store.drop_scope(effect.scope)
        if self.files is not None:
            self.files.account.forget_below(f"{self.store.root}/{effect.scope}")

    def drop_spilled(self, effect: DropSpilled) -> None:
        if not self.keep_files:
            self.spilled.drop(effect)

    def delete(self, effect: Delete) -> None:
        self.store.delete(effect.names)
        if self.files is not None:
            self.files.account.forget(map(self.store.path_of, effect.names))

    def store_inline(self, effect: StoreInline) -> None:
        self.store.write(effect)

    def fetch_data(self, effect: FetchData) -> None:
        assert self.files is not None
        destination = self.spilled.destination(effect.serial) if effect.spill else self.store.path_of(effect.name)
        self.files.fetch_data(effect, destination)

    def stage_in(self, effect: StageIn) -> None:
        if "://" in effect.path:
            into = self.store.path_of(effect.name)
            self.urls.fetch(effect.serial, scope_in(effect.name), effect.path, into, effect.listing, effect.version)
            return
        try:
            self.shared.fetch(self.copier, effect.serial, effect.path, self.store.path_of(effect.name))
        except OSError as error:
            self.immediate.append(JobDone(effect.serial, f"{effect.path}: {error.strerror}", 0))

    def copy_out(self, effect: CopyOut) -> None:
        source = self.store.path_of(effect.name)
        try:
            mode = mode_left(os.stat(source).st_mode)
        except OSError as error:
            self.immediate.append(JobDone(effect.serial, f"{effect.name}: {error.strerror}", 0))
            return
        if "://" in effect.path:
            self.urls.store(effect.serial, scope_in(effect.name), source, effect.path)
            return
        self.shared.store(self.copier, effect.serial, source, effect.path, mode & ~self.umasks.get(scope_in(effect.name), 0o022))

    def at_work(self, tasks: Mapping[int, tuple[int, int]], most: int) -> tuple[int, list[tuple[int, int, int, int, int, int]]]:
        """How many of ``tasks`` run, and the ``most`` that run longest: (run, number, start in microseconds since 1970, slot, process,
        bytes of memory or -1)."""
        running = [task for task in self.launcher.at_work() if task[0] in tasks]
        longest = nsmallest(most, running, key=lambda task: task[1])
        return len(running), [(*tasks[serial], start, slot, pid, resident_of_tree(pid)) for serial, start, slot, pid in longest]

    def tell_at_work(self, effect: TellAtWork) -> Send:
        total, tasks = self.at_work(effect.tasks, effect.most)
        status = effect.status
        used = self.files.io.usage()[0] if self.files is not None else 0
        runs = status.data["memory"]
        parts = max(0, used - (runs if isinstance(runs, int) else 0))  # bytes of amfs:/ in memory
        data = {**status.data, "at_work": tasks, "at_work_total": total, "fs_memory": parts}
        return Send(effect.to, m.Status(status.node, status.epoch, data))

    def read_store(self, effect: ReadStore) -> Send:
        """Answer a fetch: small files inside the message as far as it stays short, only the size of the others."""
        blobs, room = [], CONTENT_BYTES_MAX
        for name in effect.names:
            blobs.append(self._blob(name, min(room, INLINE_BYTES_MAX)))
            room -= len(blobs[-1].data or b"")
        return Send(effect.to, m.Content(effect.run, tuple(blobs)))

    def _blob(self, name: str, inline: int) -> m.Blob:
        path = self.store.path_of(name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            return self._spilled_blob(name) if error.errno == errno.ELOOP else m.Blob(name, 0, missing=True)
        try:
            facts = os.fstat(fd)
            mode = stat.S_IMODE(facts.st_mode)
            if facts.st_size <= inline and check_file(fd) == CHECKED_DAMAGED:
                self.immediate.append(FileDamaged(name))
                return m.Blob(name, 0, missing=True)
            if facts.st_size <= inline:
                return m.Blob(name, facts.st_size, os.read(fd, INLINE_BYTES_MAX), mode=mode, mtime_ns=facts.st_mtime_ns)
        finally:
            os.close(fd)
        return m.Blob(name, facts.st_size, mode=mode, mtime_ns=facts.st_mtime_ns)

    def _spilled_blob(self, name: str) -> m.Blob:
        """Of a file that was spilled only the size is said, since the poll loop does not wait for a disk: the data server sends it."""
        try:
            facts = os.stat(self.store.path_of(name))
        except OSError:
            return m.Blob(name, 0, missing=True)
        return m.Blob(name, facts.st_size, mode=stat.S_IMODE(facts.st_mode), mtime_ns=facts.st_mtime_ns)

    def close(self) -> None:
        """Kill what runs, end the threads. The store is its owner's."""
        if self.mounts is not None:
            self.mounts.stop()  # first: a task that waits for an answer of this node cannot be killed before it has one
        self.launcher.stop()
        if self.files is not None:
            self.files.stop()
        if self._copier is not None:
            self._copier.stop()
        self.urls.stop()
        if not self.keep_files:
            self.spilled.close()
