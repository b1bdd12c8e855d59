"""Output of a run for people and programs, while it goes on and at its end.

Owns the wording, the layout and the rate of progress output, for terminals, pipes, ``--quiet`` and ``--output json``. The driver of the run
gives ``Snapshot`` values and, at the end, one ``Summary``; nothing else is known of it. Progress goes to stderr, the tasks' own output to
stdout and stderr, JSON to stdout. Not thread-safe: one thread calls.

``rich`` is imported only on a terminal, and only once a run has lasted half a second, so that short runs do not pay for it.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol

import msgspec

from amfs.display.summary import Failure, Meter, Snapshot, Stage, Summary, json_safe
from amfs.errors import brief, readable

if TYPE_CHECKING:
    from rich.live import Live

__all__ = ["Failure", "Meter", "Progress", "Snapshot", "Stage", "Summary", "summary_fields", "summary_text"]


class Progress(Protocol):
    """Told by the driver of a run. ``interval``: seconds between the updates it wants (the driver need not build more snapshots)."""

    interval: float

    def start(self, total: int | None, nodes: int, slots: int) -> None: ...
    def update(self, snapshot: Snapshot) -> None: ...
    def message(self, text: str) -> None: ...
    def fault(self, text: str) -> None:
        """A faulty line of a list that runs already; not even ``--quiet`` hides it."""

    def task_output(self, task: str, stdout: bytes, stderr: bytes, whole: str = "") -> None:
        """The whole output of one task, passed on in one piece; all of stdout is in the file ``whole`` when that is given."""

    def task_failed(self, task: str, detail: str, stderr_tail: bytes) -> None: ...
    def finish(self, summary: Summary) -> None: ...


# ── words ──────────────────────────────────────────────────────────────────────────────────────────


def size_text(count: float) -> str:
    """``1536`` → ``'1.5 kB'``: decimal units, three significant digits."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or abs(count) >= 99.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} PB"


def time_text(seconds: float) -> str:
    """``0.1234`` → ``'0.12 s'``, ``75`` → ``'1:15'``, ``3675`` → ``'1:01:15'``."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def microseconds_text(microseconds: float) -> str:
    """``850`` → ``'850 µs'``, ``1234`` → ``'1.23 ms'``, beyond a second as ``time_text``."""
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    if microseconds < 1e6:
        return f"{microseconds / 1000:.3g} ms"
    return time_text(microseconds / 1e6)


def rate_text(rate: float) -> str:
    """Tasks per second, short."""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


def printable(data: bytes | str) -> str:
    """Text of a program without what could upset a terminal: escape sequences and control characters go, bytes outside UTF-8 show."""
    text = data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else readable(data)
    return _CONTROL.sub("", text.replace("\r\n", "\n")).expandtabs()


def tail_lines(data: bytes | str, lines: int = 5) -> list[str]:
    """The last ``lines`` lines of a program's stderr, printable, empty ones at the end left out."""
    return printable(data).rstrip().splitlines()[-lines:]


def progress_line(shot: Snapshot) -> str:
    """One line on where the run stands, for pipes and logs."""
    done = f"{shot.finished:,}" if shot.total is None else f"{shot.finished:,}/{shot.total:,}"
    parts = [f"{done} done"]
    if shot.failed:
        parts.append(f"{shot.failed:,} failed")
    parts.append(f"{shot.running:,} running")
    if shot.total is None and shot.waiting:
        parts.append(f"{shot.waiting:,} waiting")
    parts.append(rate_text(shot.rate))
    if shot.bytes_moved:
        parts.append(f"{size_text(shot.bytes_moved)} moved")
    if shot.eta_seconds is not None and shot.finished:
        parts.append(f"about {time_text(shot.eta_seconds)} left")
    return ", ".join(parts)


def failure_text(failure: Failure, lines: int = 5) -> str:
    """A failed task as people read it: id, place, reason, and its last words indented."""
    place = f" ({failure.where})" if failure.where else ""
    node = f" on node {failure.node}" if failure.node >= 0 else ""
    head = brief(f"task {printable(failure.id)}{place} failed{node}: {printable(failure.what)}")
    return "\n".join([head, *(f"    | {line}" for line in tail_lines(failure.stderr, lines))])


def summary_text(summary: Summary, *, stages: bool = True) -> str:
    """The end of a run as people read it, without trailing newline."""
    blocks = []
    if summary.failures:
        texts = [failure_text(failure) for failure in summary.failures]
        if summary.failures_omitted:
            texts.append(f"and {plural(summary.failures_omitted, 'more failed task')}")
        blocks.append("\n".join(texts))
    if stages and (table := stage_table(summary)):
        blocks.append(table)
    blocks.append(verdict(summary))
    if summary.notes:
        blocks[-1] += "".join(f"\n{note}" for note in summary.notes)
    return "\n\n".join(blocks)


def verdict(summary: Summary) -> str:
    """How it ended, in one sentence."""
    ok, failed, upstream = summary.count("ok"), summary.count("failed"), summary.count("upstream_failed")
    skipped, not_run = summary.count("skipped"), summary.count("not_run")
    parts = [f"{plural(ok, 'task')} finished"]
    if skipped:
        parts.append(f"{skipped:,} done before")
    if failed:
        parts.append(f"{failed:,} failed")
    if upstream:
        parts.append(f"{upstream:,} could not run because of that")
    if not_run:
        parts.append(f"{not_run:,} not run")
    lead = {"interrupted": "interrupted: ", "stopped": "stopped before the end: "}.get(summary.outcome, "")
    where = f"{plural(summary.nodes, 'node')}, {plural(summary.slots, 'slot')}"
    wall = summary.wall_seconds
    line = f"{lead}{', '.join(parts)} in {time_text(wall)} on {where}"
    if ok and wall > 0:
        line += f" ({rate_text(ok / wall)}"
        if summary.engine_cpu_seconds > 0 and ok >= 1000:  # with few tasks it would say what starting costs
            line += f", engine {summary.engine_cpu_seconds / ok * 1e6:,.0f} µs of CPU a task"
        line += ")"
    return line


_COUNTS = (("ok", "ok"), ("failed", "failed"), ("upstream_failed", "upstream"), ("skipped", "done before"), ("not_run", "not run"))
_BYTES = (
    ("without_bytes", "without amfs"),
    ("from_shared_bytes", "from shared"),
    ("to_shared_bytes", "to shared"),
    ("between_nodes_bytes", "between nodes"),
)


def stage_rows(summary: Summary) -> list[list[str]]:
    """Tasks and bytes by label (AME's Table 2): head, stages, total; empty when there is nothing to tell. Columns of zeros are left out."""
    rows = summary.stages
    counts = [(field, head) for field, head in _COUNTS if field == "ok" or summary.count(field)]
    sizes = [(field, head) for field, head in _BYTES if summary.count(field)]
    if not rows or (len(rows) == 1 and not sizes and len(counts) == 1):
        return []
    table = [["stage", *(head for _, head in counts), "busy", *(head for _, head in sizes)]]
    for stage in rows:
        table.append(
            [
                printable(stage.label),
                *(f"{getattr(stage, field):,}" for field, _ in counts),
                time_text(stage.busy_seconds),
                *(size_text(getattr(stage, field)) for field, _ in sizes),
            ]
        )
    if len(rows) > 1:
        table.append(
            [
                "total",
                *(f"{summary.count(field):,}" for field, _ in counts),
                time_text(summary.count("busy_seconds")),
                *(size_text(summary.count(field)) for field, _ in sizes),
            ]
        )
    return table


def stage_table(summary: Summary) -> str:
    """``stage_rows`` as text, and what was kept off shared storage; '' when there is nothing to tell."""
    table = stage_rows(summary)
    if not table:
        return ""
    lines = table_text(table)
    without = summary.count("without_bytes")
    through = summary.count("from_shared_bytes") + summary.count("to_shared_bytes")
    if without > through > 0:
        lines += (
            f"\nshared storage carried {size_text(through)} instead of {size_text(without)}"
            f" ({100 * (1 - through / without):.0f}% less)"
        )
    return lines


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned columns: the first to the left, the others to the right."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return "\n".join(
        "  ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))]).rstrip()
        for row in rows
    )


# ── the four ways to show it ───────────────────────────────────────────────────────────────────────


def _pass_on(stream: IO[str], data: bytes) -> None:
    """Write the bytes of a task to a text stream, unchanged where the stream has bytes underneath."""
    if not data:
        return
    binary = getattr(stream, "buffer", None)
    if binary is None:
        stream.write(data.decode("utf-8", "backslashreplace"))
    else:
        stream.flush()  # keeps the order with text written before
        rest = memoryview(data)
        while rest:  # with PYTHONUNBUFFERED it is the bare descriptor, which may take a part only
            rest = rest[binary.write(rest) :]
    stream.flush()


def _pass_file_on(stream: IO[str], path: str) -> None:
    """Write a file to a text stream, never all of it in memory."""
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            _pass_on(stream, piece)


def timed(shot: Snapshot, meter: Meter) -> Snapshot:
    """The snapshot with rate and remaining time, unless the driver knew better."""
    if shot.rate or shot.eta_seconds is not None:
        return shot
    rate, eta = meter.measure(shot.finished + shot.failed, shot.total)
    return msgspec.structs.replace(shot, rate=rate, eta_seconds=eta)


class QuietProgress:
    """``--quiet``: the output of tasks, failures, and nothing else."""

    interval = float("inf")

    def __init__(self, stdout: IO[str] | None = None, stderr: IO[str] | None = None) -> None:
        self.stdout = stdout or sys.stdout
        self.stderr = stderr or sys.stderr

    def start(self, total: int | None, nodes: int, slots: int) -> None:
        pass

    def update(self, snapshot: Snapshot) -> None:
        pass

    def message(self, text: str) -> None:
        pass

    def fault(self, text: str) -> None:
        self._line(f"amfs: {brief(text)}")

    def task_output(self, task: str, stdout: bytes, stderr: bytes, whole: str = "") -> None:
        if whole:
            _pass_file_on(self.stdout, whole)
        else:
            _pass_on(self.stdout, stdout)
        _pass_on(self.stderr, stderr)

    def task_failed(self, task: str, detail: str, stderr_tail: bytes) -> None:
        pass

    def finish(self, summary: Summary) -> None:
        if summary.exit_code:
            self._line(summary_text(summary, stages=False))

    def _line(self, text: str) -> None:
        self.stderr.write(text + "\n")
        self.stderr.flush()


class PlainProgress(QuietProgress):
    """Lines on stderr, for pipes and log files: the first after two seconds, then at growing intervals up to a minute."""

    interval = 0.5
    _FAILURES_SHOWN = 20  # as they happen; the summary has them again, with their last words

    def __init__(
        self,
        stdout: IO[str] | None = None,
        stderr: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stdout, stderr)
        self._clock = clock
        self._meter = Meter(clock)
        self._step = 2.0
        self._next = clock() + self._step
        self._failures = 0

    def start(self, total: int | None, nodes: int, slots: int) -> None:
        self._step = 2.0
        self._next = self._clock() + self._step

    def update(self, snapshot: Snapshot) -> None:
        now = self._clock()
        shot = timed(snapshot, self._meter)
        if now >= self._next:
            self._step = min(60.0, self._step * 1.5)
            self._next = now + self._step
            self._line(f"amfs: {progress_line(shot)}")

    def message(self, text: str) -> None:
        self._line(f"amfs: {brief(text)}")

    def task_failed(self, task: str, detail: str, stderr_tail: bytes) -> None:
        self._failures += 1
        if self._failures <= self._FAILURES_SHOWN:
            self._line(f"amfs: task {printable(task)} failed: {printable(detail)}")
        elif self._failures == self._FAILURES_SHOWN + 1:
            self._line("amfs: more tasks fail; see the summary")

    def finish(self, summary: Summary) -> None:
        self._line(summary_text(summary))


class TerminalProgress(PlainProgress):
    """A bar on the terminal's last line, repainted at most ten times a second; everything else scrolls above it."""

    interval = 0.1
    _QUIET_SECONDS = 0.5

    def __init__(
        self,
        stdout: IO[str] | None = None,
        stderr: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stdout, stderr, clock)
        self._live: Live | None = None
        self._bar: Any = None  # rich.progress_bar.ProgressBar
        self._next = clock() + self._QUIET_SECONDS

    def start(self, total: int | None, nodes: int, slots: int) -> None:
        self._next = self._clock() + self._QUIET_SECONDS

    def update(self, snapshot: Snapshot) -> None:
        now = self._clock()
        shot = timed(snapshot, self._meter)
        if now < self._next:
            return
        self._next = now + self.interval
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.stderr, force_terminal=True)
            self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
        self._live.update(self._render(shot), refresh=True)

    def _render(self, shot: Snapshot) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        done = f"{shot.finished:,}" if shot.total is None else f"{shot.finished:,}/{shot.total:,}"
        if self._bar is None:
            self._bar = ProgressBar(width=28)
        self._bar.pulse = shot.total is None
        self._bar.update(shot.finished + shot.failed, shot.total)
        words = Text(f"{done} done", no_wrap=True, overflow="ellipsis")
        if shot.failed:
            words.append("  ").append(f"{shot.failed:,} failed", "bold red")
        words.append(f"  {shot.running:,} running", "cyan").append(f"  {rate_text(shot.rate)}")
        if shot.eta_seconds is not None and shot.finished:
            words.append(f"  {time_text(shot.eta_seconds)} left", "dim")
        if shot.bytes_moved:
            words.append(f"  {size_text(shot.bytes_moved)} moved", "dim")
        line = Table.grid(padding=(0, 1), pad_edge=False)
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True, ratio=1)
        line.add_row(self._bar, words)
        return line

    def _above(self, write: Callable[[], None]) -> None:
        """Take the bar away, write, and let the next update bring it back."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._next = 0.0
        write()

    def _line(self, text: str) -> None:
        self._above(lambda: super(TerminalProgress, self)._line(text))

    def task_output(self, task: str, stdout: bytes, stderr: bytes, whole: str = "") -> None:
        self._above(lambda: super(TerminalProgress, self).task_output(task, stdout, stderr, whole))
        for stream, data in ((self.stdout, stdout), (self.stderr, stderr)):
            if data and not data.endswith(b"\n") and stream.isatty():
                stream.write("\n")  # the bar starts on a line of its own

    def task_failed(self, task: str, detail: str, stderr_tail: bytes) -> None:
        """Shown with its last words in the summary; on a terminal the count in the bar is enough until then."""


class JsonProgress(QuietProgress):
    """``--output json``: one JSON object a line on stdout, each with an ``event``; the last one is the ``summary``."""

    interval = 1.0

    def __init__(self, stdout: IO[str] | None = None, stderr: IO[str] | None = None) -> None:
        super().__init__(stdout, stderr)
        self._encoder = msgspec.json.Encoder()
        self._meter = Meter()

    def start(self, total: int | None, nodes: int, slots: int) -> None:
        self._event("start", total=total, nodes=nodes, slots=slots)

    def update(self, snapshot: Snapshot) -> None:
        self._event("progress", **msgspec.structs.asdict(timed(snapshot, self._meter)))

    def message(self, text: str) -> None:
        self._event("message", text=brief(text))

    def fault(self, text: str) -> None:
        self._event("fault", text=brief(text))

    def task_output(self, task: str, stdout: bytes, stderr: bytes, whole: str = "") -> None:
        if whole:
            with open(whole, "rb") as file:
                stdout = file.read()
        self._event("output", task=task, **_bytes_fields("stdout", stdout), **_bytes_fields("stderr", stderr))

    def task_ended(self, task: str, facts: dict[str, object]) -> None:
        """Any task, also one that failed. Only this kind of progress is told."""
        self._event("task", task=task, **facts)

    def task_failed(self, task: str, detail: str, stderr_tail: bytes) -> None:
        self._event("task_failed", task=task, detail=detail, **_bytes_fields("stderr", stderr_tail))

    def finish(self, summary: Summary) -> None:
        self._event("summary", **summary_fields(summary))

    def _event(self, event: str, **fields: object) -> None:
        record = {"event": event, **fields}
        try:
            line = self._encoder.encode(record)
        except UnicodeEncodeError:  # a name that is not UTF-8
            line = self._encoder.encode(json_safe(record))
        self.stdout.write(line.decode() + "\n")
        self.stdout.flush()


def _bytes_fields(name: str, data: bytes) -> dict[str, str]:
    """``{name: text}``, or ``{name_base64: …}`` when the bytes are not UTF-8, so that nothing is lost."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        import base64

        return {f"{name}_base64": base64.b64encode(data).decode()}


def summary_fields(summary: Summary) -> dict[str, object]:
    """The summary as plain values for JSON: its fields, and the totals over the stages."""
    fields: dict[str, object] = msgspec.to_builtins(summary)
    names = [field for field in Stage.__struct_fields__ if field != "label"]
    return {**fields, "totals": {name: summary.count(name) for name in names}}
