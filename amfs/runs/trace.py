"""The trace of a run as a file in the trace format of Chrome, which Perfetto and ``amfs report`` read.

Owns the file's layout, both ways. One process per node, one thread per slot, one complete event (``"ph": "X"``) per attempt at a task,
counters for tasks finished and bytes moved under a process named "run", for bytes spilled under their node. The file is a JSON array with
one event a line; the format allows the closing bracket to be missing, so a run that was cut off leaves a trace that can be read up to
its last whole line.
Knows nothing of sockets or machines; takes ``Result`` values as they arrive. Not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from amfs.display.summary import json_safe
from amfs.errors import AmfsError, UsageError
from amfs.runs.tally import told
from amfs.vocabulary.messages import Result
from amfs.vocabulary.states import Outcome

RUN_PID = 1 << 30
"""Process id under which the counters of the whole run stand; nodes count from 0."""

_FLUSH_BYTES = 1 << 16
_FLUSH_SECONDS = 1.0
_COUNTER_US = 20_000  # at most 50 counter points a second: enough for any screen, little against the tasks

FORMAT = 1


class TraceWriter:
    """Streams a trace to ``path``; at most a second of events is in memory.

    Raises UsageError if the file cannot be made, AmfsError if it cannot be written later (a full disk).
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str = "",
        nodes: int = 1,
        slots: int = 1,
        started_us: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``slots`` of the whole run; ``started_us``: microseconds since the epoch that the trace calls 0 (default: now)."""
        self.path = str(path)
        self._encode = msgspec.json.Encoder().encode
        self._started_us = time.time_ns() // 1000 if started_us is None else started_us
        self._clock = clock
        self._separator = b"\n"
        self._parts: list[bytes] = []
        self._pending = 0
        self._flushed_at = clock()
        self._threads: set[tuple[int, int]] = set()
        self._nodes: set[int] = set()
        self._finished = self._failed = self._moved = 0
        self._now_us = 0
        self._counted_us = -_COUNTER_US
        try:
            self._file: IO[bytes] | None = open(path, "wb")  # noqa: SIM115  (closed by close)
        except OSError as error:
            raise UsageError(f"cannot write the trace to {self.path}: {error.strerror}") from None
        self._write(b"[")
        self._event({"ph": "M", "name": "process_name", "pid": RUN_PID, "args": {"name": "run"}})
        facts = {"format": FORMAT, "name": name, "nodes": nodes, "slots": slots, "started_us": self._started_us}
        self._event({"ph": "M", "name": "amfs_run", "pid": RUN_PID, "args": facts})

    def add(self, task: str, label: str, result: Result, after: str = "") -> None:
        """Record how one attempt at ``task`` ended. One that never started (upstream failed, cancelled) has no times and no bar.
        ``after``: the task that made the last of its inputs."""
        ok = result.outcome == Outcome.OK
        self._finished += ok
        self._failed += not ok
        self._moved += result.bytes_fetched
        args: dict[str, object] = {"id": task, "outcome": _outcome_name(result.outcome)}
        args.update(read=result.bytes_in, fetched=result.bytes_fetched, written=result.bytes_out)
        if not ok:
            args["code"] = result.code
            args["detail"] = told(result)
            if result.stderr:
                args["stderr"] = result.stderr[-2000:].decode("utf-8", "replace")
        if result.left:
            args["left_processes"] = result.left
        if after:
            args["after"] = after
        if result.attempt:
            args["attempt"] = result.attempt
        if result.cpu_us:
            args["cpu_us"] = result.cpu_us
        if result.maxrss_kib:
            args["maxrss_kib"] = result.maxrss_kib
        if not result.start_us:
            event = {"ph": "i", "s": "g", "name": label, "cat": "task", "pid": RUN_PID, "tid": 0, "ts": self._now_us, "args": args}
            self._event(event)
            return
        place = (result.node, result.slot)
        if place not in self._threads:
            self._introduce(*place)
        start = result.start_us - self._started_us
        end = max(start, result.end_us - self._started_us)
        self._event(
            {
                "ph": "X", "name": label, "cat": "task", "pid": result.node, "tid": result.slot, "ts": start, "dur": end - start,
                "args": args,
            }
        )  # fmt: skip
        self._now_us = max(self._now_us, end)
        if self._now_us - self._counted_us >= _COUNTER_US:
            self._counters()

    def spilled(self, node: int, on_disk: int, spilled: int, returned: int) -> None:
        """Record how much a node has in its spill directory now, and has copied to it and back so far."""
        at = max(self._now_us, int(time.time() * 1e6) - self._started_us)
        counts = {"in the spill directory": on_disk, "spilled": spilled, "brought back": returned}
        self._event({"ph": "C", "name": "bytes spilled", "pid": node, "ts": at, "args": counts})

    def close(self, summary: Mapping[str, object] | None = None) -> None:
        """Write the last counters, ``summary`` (plain values, shown by ``amfs report``) and the closing bracket. Repeatable."""
        if self._file is None:
            return
        self._counters()
        if summary is not None:
            self._event({"ph": "M", "name": "amfs_summary", "pid": RUN_PID, "args": dict(summary)})
        self._write(b"\n]\n")
        self.flush()
        self._file.close()
        self._file = None

    def _introduce(self, node: int, slot: int) -> None:
        self._threads.add((node, slot))
        if node not in self._nodes:
            self._nodes.add(node)
            self._event({"ph": "M", "name": "process_name", "pid": node, "args": {"name": f"node {node}"}})
        self._event({"ph": "M", "name": "thread_name", "pid": node, "tid": slot, "args": {"name": f"slot {slot}"}})

    def _counters(self) -> None:
        self._counted_us = self._now_us
        counts = {"finished": self._finished, "failed": self._failed}
        self._event({"ph": "C", "name": "tasks", "pid": RUN_PID, "ts": self._now_us, "args": counts})
        self._event({"ph": "C", "name": "bytes moved", "pid": RUN_PID, "ts": self._now_us, "args": {"bytes": self._moved}})

    def _event(self, event: Mapping[str, object]) -> None:
        try:
            line = self._encode(event)
        except UnicodeEncodeError:  # a name that is not UTF-8
            line = self._encode(json_safe(event))
        self._write(self._separator + line)
        self._separator = b",\n"
        if self._pending >= _FLUSH_BYTES or self._clock() - self._flushed_at >= _FLUSH_SECONDS:
            self.flush()

    def _write(self, data: bytes) -> None:
        self._parts.append(data)
        self._pending += len(data)

    def flush(self) -> None:
        """Write what is in memory."""
        if self._file is None:
            return
        try:
            self._file.write(b"".join(self._parts))
            self._file.flush()
        except OSError as error:
            self._file = None  # a broken trace must not be complained about twice
            raise AmfsError(f"cannot write the trace to {self.path}: {error.strerror}") from None
        self._parts.clear()
        self._pending = 0
        self._flushed_at = self._clock()


def _outcome_name(outcome: int) -> str:
    try:
        return Outcome(outcome).name
    except ValueError:
        return str(outcome)


class Trace:
    """A trace read back, in columns: entry i of each list belongs to the i-th attempt that ran. Times in microseconds since the start."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.summary: dict[str, Any] | None = None
        self.complete = False  # the closing bracket was there
        self.label_names: list[str] = []
        self.label: list[int] = []
        self.node: list[int] = []
        self.slot: list[int] = []
        self.start: list[int] = []
        self.end: list[int] = []
        self.ok: list[bool] = []
        self.read: list[int] = []  # bytes of inputs
        self.fetched: list[int] = []  # of these, bytes that had to come from another node for this task
        self.written: list[int] = []
        self.cpu: list[int] = []  # microseconds of a processor; 0: not known
        self.task: list[str] = []
        self.after: list[str] = []  # the task that made the last input of this one; "": there is none, or it is not known
        self.failures: list[dict[str, Any]] = []  # the args of what failed by itself, with "label", "node" and "ts" added
        self.never_ran: dict[str, dict[str, int]] = {}  # label -> outcome -> count
        self.begin_us = 0  # when the run began, or its first task where clocks disagree
        self.end_us = 0

    def __len__(self) -> int:
        return len(self.start)


def read_trace(path: str | Path) -> Trace:
    """Read what TraceWriter wrote, as far as it goes. Raises UsageError if ``path`` cannot be read or is no trace of amfs."""
    trace = Trace()
    labels: dict[str, int] = {}
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    try:
        with open(path, "rb") as file:
            if file.read(1) != b"[":
                raise UsageError(f"{path} is not a trace of amfs: make one with 'amfs run --trace FILE'")
            for raw in file:
                line = raw.strip().rstrip(b",")
                if not line:
                    continue
                if line == b"]":
                    trace.complete = True
                    break
                try:
                    event = decode(line)
                except msgspec.DecodeError:
                    break  # cut off here
                try:
                    _take(trace, labels, event)
                except (KeyError, TypeError):
                    break  # some other program's trace
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if trace.facts.get("format") != FORMAT:
        raise UsageError(f"{path} is not a trace of amfs that this version reads: make one with 'amfs run --trace FILE'")
    trace.label_names = list(labels)
    trace.begin_us = min(0, min(trace.start, default=0))
    trace.end_us = max(trace.end, default=0)
    return trace


def _take(trace: Trace, labels: dict[str, int], event: dict[str, Any]) -> None:
    phase, args = event.get("ph"), event.get("args", {})
    if phase == "X":
        name = event["name"]
        trace.label.append(labels.setdefault(name, len(labels)))
        trace.node.append(event["pid"])
        trace.slot.append(event["tid"])
        trace.start.append(event["ts"])
        trace.end.append(event["ts"] + event["dur"])
        ok = args["outcome"] == Outcome.OK.name
        trace.ok.append(ok)
        trace.read.append(args["read"])
        trace.fetched.append(args["fetched"])
        trace.written.append(args["written"])
        trace.cpu.append(args.get("cpu_us", 0))
        trace.task.append(args["id"])
        trace.after.append(args.get("after", ""))
        if not ok:
            trace.failures.append({**args, "label": name, "node": event["pid"], "ts": event["ts"] + event["dur"]})
    elif phase == "i":
        counts = trace.never_ran.setdefault(event["name"], {})
        counts[args["outcome"]] = counts.get(args["outcome"], 0) + 1
        if args["outcome"] not in (Outcome.UPSTREAM_FAILED.name, Outcome.CANCELLED.name):
            trace.failures.append({**args, "label": event["name"], "node": -1, "ts": event["ts"]})
    elif phase == "M" and event["name"] == "amfs_run":
        trace.facts = args
    elif phase == "M" and event["name"] == "amfs_summary":
        trace.summary = args
