"""Why a run was not faster, from its trace: the critical path, and what idle slots waited for."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from amfs.cli.main import main
from amfs.cli.report import make_page
from amfs.runs.critical import LastInput, critical_path, losses, waited_us
from amfs.runs.trace import Trace, TraceWriter, read_trace
from amfs.vocabulary.messages import Result
from amfs.vocabulary.states import Outcome


def trace_of(*tasks: tuple[str, int, int, str], fetched: int = 0) -> Trace:
    """Of (task, start, end, the task that came before), in microseconds."""
    trace = Trace()
    for name, start, end, after in tasks:
        trace.task.append(name)
        trace.after.append(after)
        trace.start.append(start)
        trace.end.append(end)
        for column, value in ((trace.ok, True), (trace.label, 0), (trace.node, 0), (trace.slot, 0), (trace.fetched, fetched)):
            column.append(value)  # type: ignore[attr-defined,arg-type]
    trace.end_us = max(trace.end, default=0)
    return trace


def test_the_path_goes_back_from_the_task_that_ended_last() -> None:
    trace = trace_of(("a", 0, 50, ""), ("b", 0, 90, ""), ("c", 100, 180, "b"), ("d", 60, 70, "a"), ("e", 200, 260, "c"))
    assert [trace.task[at] for at in critical_path(trace)] == ["b", "c", "e"]
    assert [waited_us(trace, at) for at in critical_path(trace)] == [0, 10, 20]
    assert critical_path(trace_of(("x", 0, 1, "x"))) == [0]  # a trace that somebody has written
    assert critical_path(Trace()) == []


def test_idle_slots_waited_for_inputs_or_for_the_dispatcher() -> None:
    chain = trace_of(("a", 0, 100, ""), ("b", 100, 200, "a"))
    assert losses(chain, 2) == (200, 200, 0, 0)
    late = (("a", 0, 100, ""), ("b", 150, 200, "a"))
    assert losses(trace_of(*late), 1) == (150, 0, 0, 50)
    assert losses(trace_of(*late, fetched=9), 1) == (150, 0, 50, 0)


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 100), st.integers(0, 40), st.booleans()), max_size=40), st.integers(1, 8))
def test_the_shares_are_all_of_the_time(tasks: list[tuple[int, int, int, bool]], slots: int) -> None:
    trace = Trace()
    for number, (start, lasts, before, fetched) in enumerate(tasks):
        one = trace_of((str(number), start, start + lasts, str(before) if before < number else ""), fetched=int(fetched))
        for column in ("task", "after", "start", "end", "ok", "label", "node", "slot", "fetched"):
            getattr(trace, column).extend(getattr(one, column))
    trace.end_us = max(trace.end, default=0)
    found = losses(trace, slots)
    assert min(found) >= 0 and abs(found.all - trace.end_us * slots) < 1e-3
    path = critical_path(trace)
    assert len(set(path)) == len(path) and (not path or trace.end[path[-1]] == trace.end_us)


def test_the_last_input_is_that_which_was_made_last() -> None:
    makers = {2: [0, 1], 3: [2, 7]}
    last = LastInput(lambda tid: makers.get(tid, []), "t{}".format)
    assert [last.ended(0, 50), last.ended(1, 40), last.ended(2, 90), last.ended(3, 95)] == ["", "", "t0", "t2"]


def test_the_page_says_it(tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = TraceWriter(path, slots=2, started_us=1_000_000)
    for name, start, end, after in (("make", 0, 100_000, ""), ("use<", 150_000, 400_000, "make")):
        result = Result(0, outcome=Outcome.OK, start_us=1_000_000 + start, end_us=1_000_000 + end)
        writer.add(name, "stage", result, after)
    writer.close()
    page = make_page(read_trace(path), "t")
    assert "Why it was not faster" in page and "Slowest tasks" in page and "use&lt;" in page
    assert "2 tasks: they ran 350 ms and waited 50 ms" in page
    assert "fills 88% of the time" not in page and "no task could start" in page


def test_spans_of_open_telemetry(tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = TraceWriter(path, name="list", started_us=1_000_000)
    bad = Result(1, outcome=Outcome.EXIT, code=3, detail="exit status 3", start_us=1_000_100, end_us=1_000_900)
    ends = [Result(0, start_us=1_000_000, end_us=1_000_500), bad]
    for name, result in zip("ab", ends, strict=True):
        writer.add(name, "stage", result)
    writer.close()
    assert main(["report", "--otlp", str(path)]) == 0
    [resource] = json.loads((tmp_path / "t.otlp.json").read_text())["resourceSpans"]
    run, good, wrong = resource["scopeSpans"][0]["spans"]
    assert (run["name"], run["startTimeUnixNano"], run["endTimeUnixNano"], run["status"]["code"]) == ("list", "1000000000", "1000900000", 2)
    assert good["parentSpanId"] == wrong["parentSpanId"] == run["spanId"] and {len(each["traceId"]) for each in (run, good, wrong)} == {32}
    assert (good["status"], wrong["status"]) == ({"code": 1}, {"code": 2, "message": "exit status 3"})
    assert len({run["spanId"], good["spanId"], wrong["spanId"]}) == 3
    assert {"key": "amfs.task", "value": {"stringValue": "b"}} in wrong["attributes"]
