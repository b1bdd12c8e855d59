"""Progress and summary: the stream of each, and the words."""

from __future__ import annotations

import base64
import io
import json
import os
import pty
import re
from itertools import pairwise
from typing import Any

import pytest

from amfs.display.choice import make_progress
from amfs.display.progress import (
    Failure,
    JsonProgress,
    Meter,
    PlainProgress,
    QuietProgress,
    Snapshot,
    Stage,
    Summary,
    TerminalProgress,
    printable,
    progress_line,
    size_text,
    stage_table,
    summary_text,
    time_text,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Stream(io.TextIOWrapper):
    """A text stream with bytes underneath, as sys.stdout is."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def bytes(self) -> bytes:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue()


FAILED = Summary(
    outcome="failed",
    exit_code=1,
    wall_seconds=2.5,
    stages=[
        Stage("mProject", ok=10, failed=1, busy_seconds=3.0, from_shared_bytes=24_000_000, without_bytes=48_000_000),
        Stage("mAdd", upstream_failed=1),
    ],
    failures=[Failure("p3", "exit status 1", "one\ntwo\x1b[31m red\x1b[0m\n\n", "tasks.txt:4", 0)],
    failures_omitted=2,
    nodes=1,
    slots=2,
    engine_cpu_seconds=0.001,
    notes=["the journal is kept: --resume continues"],
)


def test_sizes_and_times() -> None:
    assert [size_text(n) for n in (0, 999, 1000, 1536, 99_950, 123_456, 45.6e9, 2e15)] == [
        "0 B", "999 B", "1.0 kB", "1.5 kB", "100 kB", "123 kB", "45.6 GB", "2.0 PB",
    ]  # fmt: skip
    assert [time_text(s) for s in (0.123, 9.5, 12.3, 75, 3675)] == ["0.12 s", "9.50 s", "12 s", "1:15", "1:01:15"]


def test_program_output_cannot_upset_a_terminal() -> None:
    assert printable(b"a\x1b[31mb\x07c\r\nd\xff\x1b]0;title\x07") == "abc\nd\\xff]0;title"


def test_progress_line_tells_what_is_known() -> None:
    assert progress_line(Snapshot(total=5000, finished=1234, running=2, rate=812.4, eta_seconds=4.2)) == (
        "1,234/5,000 done, 2 running, 812/s, about 4.20 s left"
    )
    assert progress_line(Snapshot(finished=7, failed=1, running=2, waiting=3, rate=1.25, bytes_moved=1500)) == (
        "7 done, 1 failed, 2 running, 3 waiting, 1.2/s, 1.5 kB moved"
    )


def test_meter_measures_the_last_seconds() -> None:
    clock = Clock()
    meter = Meter(clock, window=10)
    assert meter.measure(0, 100) == (0.0, None)
    done = 0
    for _ in range(20):
        clock.now += 1
        done += 1
        meter.measure(done, None)
    for _ in range(20):
        clock.now += 1
        done += 5
        rate, eta = meter.measure(done, done + 10)
    assert rate == pytest.approx(5)
    assert eta == pytest.approx(2)


def test_the_summary_says_what_failed_where_and_why() -> None:
    text = summary_text(FAILED)
    assert text.startswith("task p3 (tasks.txt:4) failed on node 0: exit status 1\n    | one\n    | two red\nand 2 more failed tasks\n")
    assert "10 tasks finished, 1 failed, 1 could not run because of that in 2.50 s on 1 node, 2 slots" in text
    assert "engine" not in text  # with ten tasks it would be the cost of starting
    assert text.endswith("\nthe journal is kept: --resume continues")
    assert "shared storage carried 24.0 MB instead of 48.0 MB (50% less)" in text


def test_the_table_aligns_and_leaves_out_what_is_zero() -> None:
    lines = stage_table(FAILED).splitlines()
    assert lines[0].split() == ["stage", "ok", "failed", "upstream", "busy", "without", "amfs", "from", "shared"]
    assert lines[1].split() == ["mProject", "10", "1", "0", "3.00", "s", "48.0", "MB", "24.0", "MB"]
    assert lines[3].startswith("total")
    assert len({len(line) for line in lines[:4]}) == 1
    assert stage_table(Summary("finished", 0, 1.0, [Stage("true", ok=5)])) == ""


def test_the_engine_s_cost_is_told_when_it_means_something() -> None:
    text = summary_text(Summary("finished", 0, 2.0, [Stage("x", ok=5000)], engine_cpu_seconds=0.5))
    assert text == "5,000 tasks finished in 2.00 s on 1 node, 1 slot (2,500/s, engine 100 µs of CPU a task)"


@pytest.mark.parametrize(
    ("outcome", "words"),
    [("interrupted", "interrupted: 1 task finished, 4 not run"), ("stopped", "stopped before the end: 1 task finished, 4 not run")],
)
def test_a_run_cut_short_says_so(outcome: str, words: str) -> None:
    assert words in summary_text(Summary(outcome, 130, 1.0, [Stage("x", ok=1, not_run=4)]))


def test_plain_lines_come_seldom_and_seldomer() -> None:
    clock, err = Clock(), io.StringIO()
    progress = PlainProgress(io.StringIO(), err, clock)
    progress.start(1000, 1, 2)
    moments = []
    for _ in range(3000):
        before = err.tell()
        progress.update(Snapshot(total=1000, finished=1))
        if err.tell() > before:
            moments.append(clock.now - 100)
        clock.now += 0.1
    gaps = [after - before for before, after in pairwise(moments)]
    assert moments[0] == pytest.approx(2.0, abs=0.2)
    assert all(later >= earlier - 0.2 for earlier, later in pairwise(gaps))
    assert max(gaps) <= 60.2
    assert len(moments) < 20


def test_task_output_is_passed_on_byte_by_byte_in_one_piece() -> None:
    out, err = Stream(), Stream()
    progress = PlainProgress(out, err)
    progress.task_output("a", b"\x00\xff\n", b"warning\n")
    progress.task_output("b", b"second", b"")
    assert out.bytes() == b"\x00\xff\nsecond"
    assert err.bytes() == b"warning\n"


def test_task_output_survives_a_stream_that_takes_a_part_at_a_time() -> None:
    """As sys.stdout does with PYTHONUNBUFFERED when a signal comes in between."""

    class Reluctant(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(data[:7])

    out = io.TextIOWrapper(Reluctant(), encoding="utf-8", write_through=True)
    PlainProgress(out, Stream()).task_output("a", bytes(range(100)), b"")
    assert out.buffer.getvalue() == bytes(range(100))  # type: ignore[attr-defined]


def test_quiet_is_quiet_until_something_failed() -> None:
    err = io.StringIO()
    progress = QuietProgress(io.StringIO(), err)
    progress.start(1, 1, 1)
    progress.update(Snapshot())
    progress.message("x")
    progress.finish(Summary("finished", 0, 1.0, [Stage("x", ok=1)]))
    assert err.getvalue() == ""
    progress.finish(FAILED)
    assert "p3 (tasks.txt:4) failed" in err.getvalue()
    assert "busy" not in err.getvalue()


def test_json_is_one_object_a_line_and_loses_nothing() -> None:
    out, err = io.StringIO(), io.StringIO()
    progress = JsonProgress(out, err)
    progress.start(2, 1, 4)
    progress.update(Snapshot(total=2, finished=1))
    progress.message("hello")
    progress.task_output("a", "grün".encode(), b"\xff\x00")
    progress.task_failed("bad\udcff", "exit status 1", b"why")
    progress.finish(FAILED)
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["start", "progress", "message", "output", "task_failed", "summary"]
    assert events[3]["stdout"] == "grün"
    assert base64.b64decode(events[3]["stderr_base64"]) == b"\xff\x00"
    assert events[4]["stderr"] == "why"
    assert events[5]["totals"]["ok"] == 10
    assert events[5]["failures"][0]["id"] == "p3"
    assert events[5]["exit_code"] == 1
    assert err.getvalue() == ""


def test_the_right_one_is_chosen() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert type(make_progress(output="json")) is JsonProgress
    assert type(make_progress(quiet=True, stderr=Terminal())) is QuietProgress
    assert type(make_progress(stderr=Terminal())) is TerminalProgress
    assert type(make_progress(stderr=io.StringIO())) is PlainProgress


def test_the_terminal_shows_a_bar_and_takes_it_away() -> None:
    """On a real pseudo-terminal: the bar appears, task output scrolls above it, and nothing of it is left at the end."""
    leader, follower = pty.openpty()
    try:
        with os.fdopen(follower, "w", encoding="utf-8") as terminal:
            clock = Clock()
            progress = TerminalProgress(terminal, terminal, clock)
            progress.start(100, 1, 2)
            progress.update(Snapshot(total=100, finished=1))  # too early: short runs show no bar
            clock.now += 1
            progress.update(Snapshot(total=100, finished=50, failed=3, running=2, rate=40, eta_seconds=1.0))
            progress.update(Snapshot(total=100, finished=51))  # within a tenth of a second: not painted
            progress.task_output("a", b"said without newline", b"")
            progress.finish(Summary("finished", 0, 2.0, [Stage("x", ok=100)]))
        data = b""
        try:
            while chunk := os.read(leader, 1 << 16):
                data += chunk
        except OSError:  # EIO: the other side is closed and all is read
            pass
        text = data.decode()
    finally:
        os.close(leader)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "50/100 done" in plain
    assert "3 failed" in plain
    assert not re.search(r"\b(1|51)/100", plain)
    assert "said without newline\r\n" in plain
    assert plain.endswith("100 tasks finished in 2.00 s on 1 node, 1 slot (50/s)\r\n")
    assert text.index("\x1b[2K", text.index("50/100 done")) < text.index("said without newline")  # the bar's line was erased first
