"""The queue server of a session: one process on each host where somebody executes what was queued there.

Owns the lock that makes it the only one, its socket, the order of the batches, its own end with the session. It takes tasks from the spool
when it is asked to, writes them down as a batch, and runs the batches one after the other. Started again after it was killed, it goes on
with the batches that had not ended. Must not know: the meaning of words, how tasks run (``queueing.batch``).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import msgspec

from amfs.client import discovery
from amfs.errors import AmfsError, SessionError
from amfs.host import processes
from amfs.net import records
from amfs.queueing import batch as batches
from amfs.queueing import messages as q
from amfs.queueing import spool
from amfs.queueing.batch import QUEUE, Batch, Head
from amfs.runs import watched
from amfs.workflow.workflow import printable

LOOK_S = 0.5  # between two looks whether the session is still there
PROBE_EVERY = 10  # of these looks, one asks whether a node lives
ENDED_KEPT = 20  # batches whose end can be told to a command that lost the server
FORGET_S = 3600.0  # nothing was queued by a shell that is not seen here; it may live in another PID namespace
HELD_MAX = 2000  # events that wait for a slow command; events merely shown are left out beyond

log = logging.getLogger("amfs.queue")


class Listener:
    """A command that waits for a batch: its events until it takes them."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.events: queue.Queue[q.Event] = queue.Queue()

    def put(self, event: q.Event) -> None:
        if self.events.qsize() < HELD_MAX or isinstance(event, q.Over | q.TaskOutput):
            self.events.put(event)


class Server:
    """The queue of the session whose directory is ``session``."""

    def __init__(self, name: str, session: Path) -> None:
        self.name = name
        self.session = session
        self.spool = spool.make(session)
        self.directory = session / QUEUE
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self.changed = threading.Condition()
        self.batches: dict[int, Batch] = {}  # in order; those that have ended, too
        self.waiting: list[int] = []  # batches that have not ended; the first runs
        self.listeners: list[Listener] = []
        self.offsets: dict[str, int] = {}
        self.tasks = 0
        self.standing: q.Standing | None = None
        self.ending = False
        for head, found in batches.read_all(self.directory):
            self.offsets = head.offsets
            self.tasks = head.first + head.count - 1
            self._add(head, found)

    def _add(self, head: Head, found: list[spool.Record]) -> None:
        self.batches[head.number] = Batch(self.name, self.directory, head, found, lambda event: self._tell(head.number, event))
        if head.code is None:
            self.waiting.append(head.number)

    # ── what commands ask ──────────────────────────────────────────────────────────────────────────

    def execute(self, wanted: int) -> tuple[q.Event, Listener | None]:
        """Take in what is queued; the answer, and whose events follow."""
        with self.changed:
            if wanted and wanted not in self.batches:
                return q.Refused(f"there is no batch {wanted}"), None
            number = wanted or self._take_in() or (self.waiting[-1] if self.waiting else 0)
            if not number:
                return q.Accepted(0), None
            listener = Listener(number)
            head = self.batches[number].head
            if head.code is not None and head.summary is not None:
                listener.put(q.Over(head.code, head.summary))
            self.listeners.append(listener)
            return q.Accepted(number, head.count), listener

    def _take_in(self) -> int:
        """Make a batch of what was queued since the last; its number, 0 if there is nothing."""
        found, offsets = spool.collect(self.spool, self.offsets)
        if not found:
            return 0
        number = max(self.batches, default=0) + 1
        head = Head(number, self.tasks + 1, len(found), offsets)
        batches.write(self.directory, head, found)
        self.offsets = offsets
        self.tasks += len(found)
        self._add(head, found)
        self.changed.notify_all()
        with contextlib.suppress(OSError):  # the tasks are taken in, whatever becomes of old files
            self._forget()
        return number

    def _forget(self) -> None:
        """Remove the files of batches that ended long ago, and of shells that are gone."""
        ended = [number for number, batch in self.batches.items() if batch.head.code is not None]
        for number in ended[:-ENDED_KEPT]:
            del self.batches[number]
            (self.directory / f"batch-{number}").unlink(missing_ok=True)
        for name, offset in list(self.offsets.items()):
            path = self.spool / name
            facts = path.stat()
            if not spool.writer_lives(name) and facts.st_size == offset and time.time() - facts.st_mtime > FORGET_S:
                path.unlink()
                del self.offsets[name]  # the pid may come back, but not with the same time

    def cancel(self) -> None:
        with self.changed:
            for number in self.waiting:
                self.batches[number].cancel("cancelled")

    def state(self) -> q.State:
        with self.changed:
            found, _ = spool.collect(self.spool, self.offsets)
            return q.State(len(found), len(self.waiting), self.standing.snapshot if self.standing is not None else None)

    # ── batches ────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, number: int, event: q.Event) -> None:
        with self.changed:
            if isinstance(event, q.Standing):
                self.standing = event
            for listener in self.listeners:
                if listener.batch == number:
                    listener.put(event)

    def run_batches(self) -> None:
        """In a thread of its own: one batch after the other, to the end of the process."""
        while True:
            with self.changed:
                while not self.waiting:
                    self.changed.wait()
                batch = self.batches[self.waiting[0]]
            log.info("batch %d: %d tasks", batch.head.number, batch.head.count)
            try:
                batch.run()
            except OSError as error:  # its end cannot be written; it is told all the same
                log.error("batch %d: %s", batch.head.number, error)
            assert batch.head.code is not None and batch.head.summary is not None
            log.info("batch %d ended with %d", batch.head.number, batch.head.code)
            with self.changed:
                self.waiting.pop(0)
                self.standing = None
            self._tell(batch.head.number, q.Over(batch.head.code, batch.head.summary))

    # ── the socket ─────────────────────────────────────────────────────────────────────────────────

    def serve(self, line: socket.socket) -> None:
        """One command, in a thread of its own."""
        listener: Listener | None = None
        try:
            with line, line.makefile("rb") as stream:
                first = True
                for text in stream:
                    answer: q.Event
                    try:
                        request = msgspec.json.decode(text, type=q.Request)
                    except msgspec.MsgspecError as error:
                        answer = q.Refused(f"a request that cannot be understood: {error}")
                    else:
                        if isinstance(request, q.Execute) and first:
                            answer, listener = self._execute(request)
                        elif isinstance(request, q.Cancel):
                            self.cancel()
                            continue
                        else:
                            answer = self.state() if isinstance(request, q.Ask) else q.Refused("one line executes once")
                    first = False
                    _send(line, answer)
                    if listener is not None and isinstance(answer, q.Accepted):
                        threading.Thread(target=self._pass_on, args=(line, listener), name="events", daemon=True).start()
        except (OSError, ValueError):
            pass  # it has gone; its batch goes on
        finally:
            if listener is not None:
                with self.changed:
                    if listener in self.listeners:
                        self.listeners.remove(listener)
                listener.events.put(q.Refused("gone"))

    def _execute(self, request: q.Execute) -> tuple[q.Event, Listener | None]:
        try:
            return self.execute(request.batch)
        except (OSError, AmfsError) as error:
            return q.Refused(f"the queue cannot be taken in: {error}", getattr(error, "exit_code", 1)), None

    def _pass_on(self, line: socket.socket, listener: Listener) -> None:
        with contextlib.suppress(OSError):
            while not isinstance(event := listener.events.get(), q.Refused):
                _send(line, event)

    def accept(self, door: socket.socket) -> None:
        while True:
            line, _ = door.accept()
            threading.Thread(target=self.serve, args=(line,), name="command", daemon=True).start()


def _send(line: socket.socket, event: q.Event) -> None:
    line.sendall(msgspec.json.encode(event) + b"\n")


# ── the process ────────────────────────────────────────────────────────────────────────────────────


def _lock(session: Path) -> int:
    """The lock of the only server; -1 if there is one already."""
    descriptor = os.open(session / records.QUEUE_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()} {processes.start_time(os.getpid())}".encode())
    return descriptor


def _watch(name: str, session: Path, inode: int) -> None:
    """Until the session has ended."""
    looks = 0
    while True:
        time.sleep(LOOK_S)
        looks += 1
        try:
            if os.stat(session).st_ino != inode or not (session / "session.json").exists():
                return
            if looks % PROBE_EVERY == 0 and not discovery.is_live(records.load(session / "session.json"), probe_s=2.0):
                return
        except (OSError, SessionError):
            return


def _end() -> None:
    """At once: the nodes end the tasks that run, and no command waits for an answer any more."""
    watched.sweep(also_mine=True)
    os._exit(0)


def main(argv: list[str]) -> int:
    """``python -m amfs.queueing.server SESSION``, detached: serve until the session ends."""
    record = discovery.find(argv[0])
    session = record.directory
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s queue %(levelname)s: %(message)s")
    if _lock(session) < 0:
        return 0
    inode = os.stat(session).st_ino
    path = session / q.SOCKET
    path.unlink(missing_ok=True)
    try:
        server = Server(record.name, session)
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        door.bind(str(path))
        door.listen(64)
    except (OSError, AmfsError, msgspec.MsgspecError) as error:
        log.error("the queue cannot be served: %s", printable(str(error)))
        return 1
    signal.signal(signal.SIGTERM, lambda number, frame: _end())
    threading.Thread(target=server.run_batches, name="batches", daemon=True).start()
    threading.Thread(target=server.accept, args=(door,), name="door", daemon=True).start()
    _watch(record.name, session, inode)
    _end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
