"""The records of a worker: the files, tasks and runs of one node, and the queue of READY tasks. Pure.

Owns the data, and no decision: files are moved by ``worker_state`` and ``file_table``, tasks by ``worker_state``.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence

from amfs.engine.memory import Content
from amfs.vocabulary import messages as m
from amfs.vocabulary.object_versions import ObjectVersion
from amfs.vocabulary.records import KEEP_FAILED, WANT_OUTPUT
from amfs.vocabulary.states import FileState, TaskState


class File(Content):
    """One file as this node sees it."""

    __slots__ = ("dropped", "fetching", "holders", "leaver", "listing", "mtime_ns", "shared", "source", "staged", "state", "waiting")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.state = FileState.INVALID
        self.mtime_ns = 0  # of the copy in the store; 0: unknown
        self.holders: tuple[int, ...] = ()
        self.fetching = False  # REMOTE: a Fetch, FetchData or StageIn is out
        self.listing = 0  # of a directory that a task has made, and which is at a URL; else 0
        self.source = -1  # the holder that was last asked for it
        self.waiting: list[TaskEntry] = []  # tasks parked under this file
        self.shared = False  # it is on shared storage as well
        self.staged = False  # it comes from there: a task that waits for it waits for no other task
        self.leaver = -1  # the node that is to leave and has asked this one to take it
        self.dropped = False  # the FLS wants it gone: as soon as it has no users


class TaskEntry:
    """One task that this node has."""

    __slots__ = (
        "askers", "bytes_fetched", "bytes_in", "flushing", "given", "inputs", "missing", "moved", "parked", "result", "run", "serial",
        "spec", "staging", "state", "unlocated",
    )  # fmt: skip

    def __init__(self, run: Run, spec: m.TaskSpec, moved: bool = False) -> None:
        self.run = run
        self.spec = spec
        self.given: list[str] = []  # keys of the inputs as its record has them, while RUNNING
        self.inputs = spec.inputs  # a newer spec may name others when a reduction is planned anew
        self.moved = moved  # stolen, or forwarded to its data: stays here, or two nodes would pass it to and fro
        self.state = TaskState.INVALID
        self.missing = 0  # inputs that are not there
        self.staging = 0  # of these, such as are on their way from shared storage, whatever other tasks do
        self.parked = False  # it waits for others, and is counted in ``Run.parked``
        self.unlocated = 0  # inputs of which not even a holder is known
        self.serial = 0  # of the launcher, while RUNNING
        self.bytes_in = 0
        self.bytes_fetched = 0
        self.flushing = 0  # finals still on their way to shared storage
        self.result: m.Result | None = None
        self.askers: tuple[tuple[int, int], ...] = ()  # other dispatchers that gave it to this node -> their attempts

    def also_for(self, earlier: m.TaskSpec, askers: tuple[tuple[int, int], ...]) -> None:
        """Another dispatcher has given this node the task, too (each side of a cut network has one). Each is told of its end; it stays."""
        both = {**dict(askers), earlier.origin: earlier.attempt}
        both.pop(self.spec.origin, None)
        self.askers = tuple(both.items())
        self.moved = self.moved or bool(both)


class Run:
    """One run, as this node knows it."""

    __slots__ = (
        "closing", "counters", "ended", "files", "flags", "id", "in_launcher", "in_service", "info",
        "parked", "paths", "reported", "spilled_told_at", "spoilers", "submitter", "tasks", "unstored", "versions",
    )  # fmt: skip

    def __init__(self, run: int, submitter: int, info: m.RunInfo) -> None:
        self.id = run
        self.submitter = submitter
        self.info = info
        self.paths = dict(info.paths)  # grows with tasks that join the run later
        self.versions: dict[str, ObjectVersion] = {}  # of inputs at URLs, by name
        self.tasks: dict[int, TaskEntry] = {}
        self.files: dict[str, File] = {}
        self.parked: dict[int, int] = {}  # origin dispatcher -> tasks of its that wait here for what others make
        self.reported: dict[int, int] = {}  # the same as last told to the dispatcher
        self.in_launcher = 0
        self.spoilers: dict[str, list[tuple[int, int]]] = {}  # file -> tasks under whom it changed, and when each ended
        self.unstored: dict[str, str] = {}  # file that could not be written here -> why, in words
        self.ended = 0  # tasks that ended here
        self.spilled_told_at = 0.0  # when the submitter was told last what was spilled
        self.closing = False
        self.in_service = True  # else its tasks fail here, and this node asks nobody for more
        self.flags = (KEEP_FAILED if info.keep_sandbox else 0) | (WANT_OUTPUT if info.want_output else 0)
        self.counters = {
            "fetched_bytes": 0, "fetched_files": 0, "staged_bytes": 0, "staged_files": 0,
            "copied_out_bytes": 0, "copied_out_files": 0, "stolen": 0, "forwarded": 0,
            "spilled_bytes": 0, "spilled_files": 0, "returned_bytes": 0, "returned_files": 0,
        }  # fmt: skip


class ReadyQueue:
    """First READY, first run; higher priority before that. A plain deque until somebody uses priorities."""

    __slots__ = ("_fifo", "_front", "_heap", "_seq")

    def __init__(self) -> None:
        self._fifo: deque[TaskEntry] = deque()
        self._heap: list[tuple[int, int, TaskEntry]] = []
        self._seq = 0
        self._front = 0

    def push(self, entry: TaskEntry) -> None:
        options = entry.spec.options
        if options is not None and options.priority:
            self._seq += 1
            heapq.heappush(self._heap, (-options.priority, self._seq, entry))
        else:
            self._fifo.append(entry)

    def pop(self) -> TaskEntry:
        if self._heap and (self._heap[0][0] < 0 or not self._fifo):
            return heapq.heappop(self._heap)[2]
        return self._fifo.popleft()

    def put_back(self, entries: Sequence[TaskEntry]) -> None:
        """They were taken, in this order, and go before all others again."""
        for entry in reversed(entries):
            options = entry.spec.options
            if options is not None and options.priority:
                self._front -= 1
                heapq.heappush(self._heap, (-options.priority, self._front, entry))
            else:
                self._fifo.appendleft(entry)

    def __iter__(self) -> Iterator[TaskEntry]:
        """About in the order in which they are taken."""
        for _, _, entry in sorted(self._heap, key=lambda one: one[:2]):
            yield entry
        yield from self._fifo

    def take_back(self, want: int) -> list[TaskEntry]:
        """Up to ``want`` unpinned READY tasks from the end, for somebody else."""
        taken: list[TaskEntry] = []
        kept: list[TaskEntry] = []
        while self._fifo and len(taken) < want:
            entry = self._fifo.pop()
            options = entry.spec.options
            if entry.state != TaskState.READY:
                continue
            (kept if entry.askers or (options is not None and options.pin >= 0) else taken).append(entry)
        self._fifo.extend(reversed(kept))
        return taken

    def __len__(self) -> int:
        return len(self._fifo) + len(self._heap)
