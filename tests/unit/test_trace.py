"""Traces: written as they happen, read back whole or cut off, and shown as a page."""

from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.cli.main import main
from amfs.cli.report import make_page
from amfs.errors import UsageError
from amfs.runs.timeline import ROWS_MAX, TASKS_DRAWN_MAX, shares, timeline_rows
from amfs.runs.trace import RUN_PID, Trace, TraceWriter, read_trace
from amfs.vocabulary.messages import Result
from amfs.vocabulary.states import Outcome

START = 1_000_000_000_000_000


def result(i: int, node: int = 0, slot: int = 0, start: int = 0, length: int = 1000, **more: object) -> Result:
    return Result(tid=i, node=node, slot=slot, start_us=START + start, end_us=START + start + length, **more)  # type: ignore[arg-type]


def write(path: Path, tasks: int = 20, nodes: int = 2, slots: int = 2) -> None:
    writer = TraceWriter(path, name="list <1>", nodes=nodes, slots=nodes * slots, started_us=START)
    for i in range(tasks):
        place = {"node": i % nodes, "slot": i // nodes % slots}
        label = "even" if i % 2 == 0 else "odd"
        writer.add(f"t{i}", label, result(i, **place, start=i // (nodes * slots) * 1100, bytes_in=10, bytes_fetched=6, bytes_out=7))
    failed: dict[str, Any] = {"outcome": int(Outcome.EXIT), "code": 3, "detail": "exit status 3", "stderr": b"no </script> luck\n"}
    writer.add("bad", "odd", result(tasks, start=900_000, **failed))
    writer.add("never", "last", Result(tid=tasks + 1, outcome=int(Outcome.UPSTREAM_FAILED), detail="input x will never be made"))
    writer.close({"stages": [], "engine_cpu_seconds": 0.5})


def test_it_is_the_format_that_chrome_and_perfetto_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write(path)
    events = json.loads(path.read_text())
    for event in events:
        assert event["ph"] in "MXCi"
        assert isinstance(event["pid"], int)
    bars = [event for event in events if event["ph"] == "X"]
    assert len(bars) == 21
    assert bars[0] == {
        "ph": "X", "name": "even", "cat": "task", "pid": 0, "tid": 0, "ts": 0, "dur": 1000,
        "args": {"id": "t0", "outcome": "OK", "read": 10, "fetched": 6, "written": 7},
    }  # fmt: skip
    names = {(e["pid"], e.get("tid"), e["args"]["name"]) for e in events if e["name"] in ("process_name", "thread_name")}
    assert {(0, None, "node 0"), (1, None, "node 1"), (0, 1, "slot 1"), (RUN_PID, None, "run")} <= names
    counters = [event for event in events if event["ph"] == "C"]
    finished = [event["args"]["finished"] for event in counters if event["name"] == "tasks"]
    assert finished == sorted(finished)
    assert finished[-1] == 20
    assert [event["args"]["bytes"] for event in counters if event["name"] == "bytes moved"][-1] == 120
    times = [event["ts"] for event in counters]
    assert times == sorted(times)


def test_it_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write(path)
    trace = read_trace(path)
    assert trace.complete
    assert trace.facts["name"] == "list <1>"
    assert trace.label_names == ["even", "odd"]
    assert len(trace) == 21
    assert (trace.node[3], trace.slot[3], trace.start[4], trace.end[4]) == (1, 1, 1100, 2100)
    assert sum(trace.ok) == 20
    assert [failure["id"] for failure in trace.failures] == ["bad"]
    assert trace.failures[0]["stderr"] == "no </script> luck\n"
    assert trace.never_ran == {"last": {"UPSTREAM_FAILED": 1}}
    assert trace.summary == {"stages": [], "engine_cpu_seconds": 0.5}


def test_a_trace_cut_off_anywhere_is_read_up_to_there(tmp_path: Path) -> None:
    path, cut = tmp_path / "run.json", tmp_path / "cut.json"
    write(path)
    whole = path.read_bytes()
    facts_end = whole.index(b"started_us") + 40
    counts = []
    for length in range(facts_end, len(whole), 37):
        cut.write_bytes(whole[:length])
        trace = read_trace(cut)
        assert not trace.complete or length >= len(whole) - 1
        counts.append(len(trace))
    assert counts == sorted(counts)
    assert counts[-1] == 21


def test_it_streams(tmp_path: Path) -> None:
    now = [0.0]
    writer = TraceWriter(tmp_path / "t.json", started_us=START, clock=lambda: now[0])
    writer.add("a", "x", result(0))
    now[0] = 2.0
    writer.add("b", "x", result(1, start=5000))
    trace = read_trace(tmp_path / "t.json")
    assert trace.task == ["a", "b"]
    writer.close()
    writer.close()


def test_names_that_are_not_utf8_do_not_stop_a_trace(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t.json", started_us=START)
    writer.add("file\udcff", "x\udc80", result(0))
    writer.close()
    assert read_trace(tmp_path / "t.json").task == ["file\ufffd"]


FOREIGN = '[\n{"ph":"X","name":"a","pid":1,"tid":1,"ts":0,"dur":1,"args":{}}\n]'


@pytest.mark.parametrize("content", ["", "{}", "[\n]\n", "[1,\n2]", FOREIGN, "hello", "\x00\x01"])
def test_other_files_are_refused_in_one_line(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="not a trace of amfs"):
        read_trace(path)
    assert main(["report", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*missing\.json: No such file"):
        read_trace(tmp_path / "missing.json")
    with pytest.raises(UsageError, match=r"cannot write the trace to .*: No such file"):
        TraceWriter(tmp_path / "missing" / "t.json")


# ── the page ───────────────────────────────────────────────────────────────────────────────────────


class Checker(html.parser.HTMLParser):
    """Every tag is closed in order, and nothing is loaded from anywhere."""

    VOID = frozenset({"meta", "br", "link", "img", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {name for name, _ in attrs} & {"src", "href", "xlink:href"}, f"<{tag}> loads something"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(page: str) -> None:
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert "http:" not in page
    assert "https:" not in page


def test_the_page_is_whole_and_says_it_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    write(path)
    assert main(["report", str(path), "-o", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    check(page)
    assert "list &lt;1&gt;" in page
    assert "<list <1>" not in page
    parts = ("Slots over time", "busy and idle", "Tasks finished", "Tasks at work", "Stages", "Bytes moved", "Failures")
    for words in (*parts, "exit status 3"):
        assert words in page
    assert "no &lt;/script&gt; luck" in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert sum(len(row["tasks"]) for row in data["rows"]) == 21
    assert [row["name"] for row in data["rows"]] == ["0.0", "0.1", "1.0", "1.1"]


def test_an_empty_run_has_a_page_too(tmp_path: Path) -> None:
    TraceWriter(tmp_path / "t.json", name="nothing").close()
    check(make_page(read_trace(tmp_path / "t.json"), "t.json"))


def test_the_default_name_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "run.json")
    assert main(["report", str(tmp_path / "run.json")]) == 0
    assert (tmp_path / "run.html").exists()
    assert main(["report", str(tmp_path / "run.json"), "-o", "-"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("</html>")
    assert main(["report", str(tmp_path / "run.json"), "-o", str(tmp_path / "no" / "x.html")]) == 2


def synthetic(tasks: int, places: int) -> Trace:
    trace = Trace()
    trace.facts = {"format": 1, "name": "big", "nodes": places, "slots": places}
    trace.label_names = ["x"]
    for i in range(tasks):
        trace.label.append(0)
        trace.node.append(i % places)
        trace.slot.append(0)
        trace.start.append(i // places * 100)
        trace.end.append(i // places * 100 + 90)
        trace.ok.append(True)
        trace.read.append(0)
        trace.fetched.append(0)
        trace.written.append(0)
        trace.task.append(str(i))
        trace.after.append("")
    trace.end_us = max(trace.end)
    return trace


def test_large_runs_are_shown_as_shares() -> None:
    many_tasks = make_page(synthetic(TASKS_DRAWN_MAX + 1, 8), "x")
    check(many_tasks)
    assert len(many_tasks) < 1_000_000
    assert "height of a bar is the share busy" in many_tasks
    many_slots = synthetic(3 * ROWS_MAX, 3 * ROWS_MAX)
    assert len(timeline_rows(many_slots)) == ROWS_MAX
    check(make_page(many_slots, "x"))


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 5_000)), max_size=30),
    st.integers(1, 50),
)
def test_shares_add_up_to_the_time_busy(spans: list[tuple[int, int]], columns: int) -> None:
    trace = Trace()
    trace.start = [start for start, _ in spans]
    trace.end = [start + length for start, length in spans]
    cells = shares(trace, range(len(spans)), 0, 15_000, columns)
    assert sum(cells) * 15_000 / columns == pytest.approx(sum(length for _, length in spans), abs=1e-6)
    assert all(-1e-9 <= cell <= len(spans) + 1e-9 for cell in cells)
