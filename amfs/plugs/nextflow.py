"""The process beside Nextflow through which its tasks run: ``python -m amfs.plugs.nextflow``. The plugin in ``plugins/nextflow`` starts it.

Owns the connection to amfs for one run of Nextflow, and the lines between the two, one JSON object each: wishes on standard input, what
became of tasks on standard output. When standard input ends, however Nextflow ended, its tasks are killed. Files are where Nextflow puts
them: in its work directory, on a file system that all nodes see. Must not know: Nextflow's scripts, its cache, its retries.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from amfs.errors import AmfsError
from amfs.live.reader import Reader, ask_run, run_sockets
from amfs.runs.api import Handle, Session
from amfs.vocabulary import live
from amfs.vocabulary.states import Outcome
from amfs.workflow.workflow import Task

VERSION = 1  # of the lines; the plugin knows the same
LOOK_S = 1.0  # how often it is looked which tasks run, while one waits
READ_BYTES = 1 << 20
WITHDRAWN = ".amfs.withdrawn"  # in the work directory of a task that must not start any more

#: Runs the script that Nextflow wrote into the work directory. Output goes where its local executor has it; earlier words of bash are told.
SCRIPT = f"[ ! -e {WITHDRAWN} ] || exit 143; exec /bin/bash .command.run >.command.log 2>&1"

# ── the lines ──────────────────────────────────────────────────────────────────────────────────────


class Submit(msgspec.Struct, tag="submit", tag_field="do"):
    """``time`` in seconds, ``memory`` in bytes; 0: not said."""

    key: int
    name: str
    label: str
    dir: str
    cpus: int = 1
    memory: int = 0
    time: float = 0.0


class Kill(msgspec.Struct, tag="kill", tag_field="do"):
    key: int


class Ready(msgspec.Struct, tag="ready", tag_field="tell"):
    where: str
    version: int = VERSION


class Refused(msgspec.Struct, tag="refused", tag_field="tell"):
    """Instead of ``Ready``: there is no session, or the like."""

    why: str


class Started(msgspec.Struct):
    key: int
    start: int  # milliseconds since 1970


class EndedTask(msgspec.Struct, omit_defaults=True):
    """``exit`` -1: there is no exit status. ``why``: of a failure that is not the program's own."""

    key: int
    exit: int
    start: int = 0
    why: str | None = None


class TellStarted(msgspec.Struct, tag="started", tag_field="tell"):
    tasks: list[Started]


class TellEnded(msgspec.Struct, tag="ended", tag_field="tell"):
    tasks: list[EndedTask]


class Over(msgspec.Struct, tag="over", tag_field="tell"):
    """The session has ended by itself."""

    why: str


class Note(msgspec.Struct, tag="note", tag_field="tell"):
    why: str


Wish = Submit | Kill
Told = Ready | Refused | TellStarted | TellEnded | Over | Note
_wish = msgspec.json.Decoder(Wish)
_encoder = msgspec.json.Encoder()


# ── what is known of the tasks: no I/O ─────────────────────────────────────────────────────────────


class Jobs:
    """The tasks that have not ended, by Nextflow's key, by the name that they have here, and by their index in the session."""

    def __init__(self) -> None:
        self._tries: Counter[str] = Counter()
        self._keys: dict[str, int] = {}  # name here -> key
        self._index: dict[int, int] = {}  # key -> index
        self._started: set[int] = set()  # keys
        self.folders: dict[int, str] = {}  # key -> work directory

    def task(self, wish: Submit) -> Task:
        """Nextflow gives a task that is tried again the name that it had; names here are unique."""
        self._tries[wish.name] += 1
        count = self._tries[wish.name]
        name = wish.name if count == 1 else f"{wish.name} try {count}"
        self._keys[name] = wish.key
        self.folders[wish.key] = wish.dir
        return Task(
            name,
            ("/bin/bash", "-c", SCRIPT),
            staged=False,
            cwd=wish.dir,
            cores=max(1, wish.cpus),
            memory=wish.memory,
            time_limit=wish.time,
            retries=0,  # Nextflow counts them
            label=wish.label,
        )

    def submitted(self, wish: Submit, index: int) -> None:
        if wish.key in self.folders:  # else it has ended already
            self._index[wish.key] = index

    def ended(self, name: str) -> int | None:
        """Its key; None if it is not one of ours."""
        key = self._keys.pop(name, None)
        if key is not None:
            self._index.pop(key, None)
            self._started.discard(key)
            del self.folders[key]
        return key

    def index(self, key: int) -> int | None:
        return self._index.get(key)

    @property
    def any_waits(self) -> bool:
        """Is there one that is not known to run?"""
        return len(self._index) > len(self._started)

    def at_work(self, tasks: Iterable[live.AtWork]) -> list[Started]:
        """Of tasks of this run that run, those of which that was not known."""
        keys = {index: key for key, index in self._index.items()}
        found = []
        for task in tasks:
            key = keys.get(task.number)
            if key is not None and key not in self._started:
                self._started.add(key)
                found.append(Started(key, int(task.since * 1000)))
        return found


def ended_task(key: int, handle: Handle) -> EndedTask:
    """How a task ended, for Nextflow."""
    result = handle.result
    if result is None:
        return EndedTask(key, 0)
    start = result.start_us // 1000
    own = result.stderr.decode("utf-8", "replace").strip().splitlines()  # of bash, before .command.run has all output
    if result.outcome == Outcome.OK:
        return EndedTask(key, 0, start)
    if result.outcome == Outcome.EXIT and not own:
        return EndedTask(key, result.code, start)
    if result.outcome == Outcome.EXIT:
        return EndedTask(key, result.code, start, "; ".join(own[-3:]))
    code = 128 + result.code if result.outcome == Outcome.SIGNAL else -1
    return EndedTask(key, code, start, result.detail or Outcome(result.outcome).name.lower().replace("_", " "))


# ── the world ──────────────────────────────────────────────────────────────────────────────────────


class Bridge:
    """Between the lines and the session. The session's thread tells ends, ours reads wishes, a third looks which tasks run."""

    def __init__(self, session: Session, where: str | None) -> None:
        self.session = session
        self.jobs = Jobs()
        self._where = where  # the session's name; None: this process
        self._lock = threading.Lock()  # of ``jobs``
        self._news: queue.SimpleQueue[EndedTask | None] = queue.SimpleQueue()
        self._out = threading.Lock()
        self._closed = threading.Event()
        session.on_ended = self._on_ended
        self._threads = [threading.Thread(target=work, name=f"amfs {work.__name__}", daemon=True) for work in (self._tell_ends, self._look)]
        for thread in self._threads:
            thread.start()

    def tell(self, told: Told) -> None:
        with self._out, contextlib.suppress(OSError):  # Nextflow is gone: standard input says so
            write_line(told)

    # ── wishes ─────────────────────────────────────────────────────────────────────────────────────

    def serve(self, fd: int) -> None:
        """Until there are no more wishes."""
        rest = b""
        while data := os.read(fd, READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for wish in map(_wish.decode, lines):
                if isinstance(wish, Submit):
                    self._submit(wish)
                else:
                    self._kill(wish.key)

    def _submit(self, wish: Submit) -> None:
        with self._lock:
            task = self.jobs.task(wish)
        try:
            handle = self.session.submit_tasks([task])[0]
        except AmfsError as error:
            with self._lock:
                self.jobs.ended(task.id)
            self._news.put(EndedTask(wish.key, -1, why=" ".join(str(error).split())))
            return
        with self._lock:
            self.jobs.submitted(wish, handle.index)

    def _kill(self, key: int) -> None:
        """One that waits does not start; one that runs on this host is told to end. Nextflow does so when a task has waited too long.
        At its own end all are killed."""
        with self._lock:
            folder, index = self.jobs.folders.get(key), self.jobs.index(key)
        if folder is None:
            return
        with contextlib.suppress(OSError):
            Path(folder, WITHDRAWN).touch()
        for task in self._at_work():
            if task.number == index:
                here = self._where is None or self.session.nodes()[task.node] == os.uname().nodename
                if here and task.pid > 0:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(task.pid, signal.SIGTERM)
                else:
                    self.tell(Note(f"the task in {folder} runs on node {task.node} and goes on to its end there"))

    # ── what becomes of them ───────────────────────────────────────────────────────────────────────

    def _on_ended(self, handle: Handle) -> None:
        """In the session's thread, which must not wait."""
        with self._lock:
            key = self.jobs.ended(handle.task.id)
        if key is not None:
            self._news.put(ended_task(key, handle))

    def _tell_ends(self) -> None:
        """All that are there at once."""
        while (first := self._news.get()) is not None:
            ended = [first]
            with contextlib.suppress(queue.Empty):
                while (more := self._news.get_nowait()) is not None:
                    ended.append(more)
            self.tell(TellEnded(ended))

    def _look(self) -> None:
        while not self._closed.wait(LOOK_S):
            if self.session.over:
                self.tell(Over(self.session.over))
                return
            if self.jobs.any_waits:
                tasks = self._at_work()
                with self._lock:
                    started = self.jobs.at_work(tasks)
                if started:
                    self.tell(TellStarted(started))

    def _at_work(self) -> list[live.AtWork]:
        """Our tasks that run; none when nobody answers."""
        if self._where is None:
            mine = f"{os.getpid()}."
            for run in run_sockets():
                if run.id.startswith(mine):
                    with contextlib.suppress(OSError):
                        return ask_run(run.path, live.Ask("tasks", count=live.PAGE_MAX)).at_work
            return []
        with contextlib.suppress(AmfsError), Reader(self._where) as reader:
            return [task for task in reader.page(at_work=live.PAGE_MAX, failed=0).at_work if task.run_number == self.session.number]
        return []

    def close(self) -> None:
        """Nextflow wants no more. Tasks that run are killed."""
        self._closed.set()
        try:
            if self.jobs.folders:
                self.session.stop("ended by Nextflow")
            else:
                self.session.close()
        finally:
            self._news.put(None)


def write_line(told: Told) -> None:
    data = _encoder.encode(told) + b"\n"
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m amfs.plugs.nextflow", description="Runs tasks of Nextflow, whose plugin starts this.")
    parser.add_argument("--run", default="run", help="Nextflow's name of its run")
    parser.add_argument("--session", help="session to run in (a name, or the path of a session file); default: this machine alone")
    parser.add_argument("--slots", type=int, help="tasks at a time on this machine, without a session; default: one for each usable CPU")
    options = parser.parse_args(words)
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to Nextflow too, and its end ends us; a task has them as usual
        signal.signal(number, lambda *of: None)
    try:
        if options.slots is not None and (options.slots < 1 or options.session is not None):
            raise AmfsError("amfs.slots is a number from 1, and is given without amfs.session")
        session = Session(slots=options.slots, session=options.session, source=f"nextflow {options.run}")
    except AmfsError as error:
        write_line(Refused(" ".join(str(error).split())))
        return 1
    bridge = Bridge(session, options.session)
    nodes = len(session.nodes())
    where = "on this machine" if options.session is None else f"in session {options.session} ({nodes} node{'s' * (nodes != 1)})"
    bridge.tell(Ready(where))
    try:
        bridge.serve(sys.stdin.fileno())
    finally:
        with contextlib.suppress(AmfsError):
            bridge.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
