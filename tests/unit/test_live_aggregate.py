"""Frames from readings: rates, time left, ends, decisions; whatever the readings are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amfs.live.aggregate import DECISIONS, ENDED_S, TRANSFERS, Aggregator, Rates, Reading
from amfs.vocabulary.live import Node, Run, Session, Stage


def run(name: str = "1.1", finished: int = 0, total: int = 100, **more: object) -> Run:
    stages = [Stage("sort", total, finished)]
    return Run(name, 1, name, 1, "list", "/", 0.0, total, finished, stages=stages, **more)  # type: ignore[arg-type]


def node(number: int, place: str = "lab", state: str = "up", **more: object) -> Node:
    return Node(place, number, state, "host", 2, **more)  # type: ignore[arg-type]


def test_rate_and_time_left_follow_the_last_seconds() -> None:
    watch = Aggregator()
    first = watch.take(Reading([run(finished=10)]), 0.0).runs[0]
    assert (first.rate, first.eta_s) == (0.0, -1.0)
    second = watch.take(Reading([run(finished=30)]), 2.0).runs[0]
    assert (second.rate, second.eta_s, second.stages[0].rate) == (10.0, 7.0, 10.0)
    for second_s in range(3, 40):
        told = watch.take(Reading([run(finished=30)]), float(second_s)).runs[0]
    assert (told.rate, told.eta_s) == (0.0, -1.0)  # nothing ends any more


def test_a_list_that_grows_has_no_time_left() -> None:
    watch = Aggregator()
    watch.take(Reading([run(finished=1, total=-1)]), 0.0)
    told = watch.take(Reading([run(finished=5, total=-1)]), 1.0).runs[0]
    assert told.rate == 4.0 and told.eta_s == -1.0


def test_a_busy_run_stays_and_a_run_that_is_gone_is_told_for_a_while() -> None:
    watch = Aggregator()
    watch.take(Reading([run("a", 5), run("b", 7), run("c", 9)]), 0.0)
    frame = watch.take(Reading([], ended=[run("b", 100, over="ended")], busy=["a"]), 1.0)
    assert [(each.id, each.finished, each.silent, each.over) for each in frame.runs] == [
        ("a", 5, True, ""), ("b", 100, False, "ended"), ("c", 9, False, "gone"),
    ]  # fmt: skip
    assert [each.id for each in watch.take(Reading([run("a", 6)]), ENDED_S).runs] == ["a", "b", "c"]
    assert [each.id for each in watch.take(Reading([run("a", 6)]), ENDED_S + 1.5).runs] == ["a"]


def test_what_becomes_of_nodes_is_a_decision_that_is_told() -> None:
    watch = Aggregator()
    lab = Session("lab", 0.0, decisions=["10:00:00 asked for 2 nodes"])
    assert watch.take(Reading(nodes=[node(0), node(1)], sessions=[lab]), 0.0, "10:00:01").sessions[0].decisions == lab.decisions
    watch.take(Reading(nodes=[node(0, state="silent"), node(2)], sessions=[lab]), 1.0, "10:00:02")
    frame = watch.take(Reading(sessions=[Session("lab", 0.0, error="does not answer")]), 2.0, "10:00:03")
    assert frame.sessions[0].decisions == [
        "10:00:02 node 0 was up, is silent", "10:00:02 node 1 was up, is gone", "10:00:02 node 2 joined",
    ]  # fmt: skip


def test_a_frame_is_bounded_and_nothing_is_kept_of_what_is_gone() -> None:
    watch = Aggregator()
    pairs = {other: 1000 + other for other in range(16)}
    nodes = [node(number, fetched_from=pairs) for number in range(1000)]
    frame = watch.take(Reading(nodes=nodes, sessions=[Session("lab", 0.0)]), 0.0)
    assert len(frame.transfers) == TRANSFERS and frame.transfers[0].total == 1015
    for second in range(1, 60):
        watch.take(Reading(nodes=[node(second)], sessions=[Session("lab", 0.0)]), float(second))
    told = watch.take(Reading(sessions=[Session("lab", 0.0)]), 60.0)
    assert len(told.sessions[0].decisions) == DECISIONS
    watch.take(Reading(), 61.0)
    assert not watch._rates and not watch._states and not watch._decisions


@given(st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(0, 10**9)), min_size=1, max_size=60))
def test_rates_are_never_below_zero_nor_above_what_was_counted(steps: list[tuple[float, int]]) -> None:
    rates, now, highest = Rates(), 0.0, 0
    for pause, count in steps:  # counters may begin anew at any moment
        now += pause
        rate = rates.of("key", count, now)
        highest = max(highest, count)
        assert rate >= 0.0
        if pause > 0:
            assert rate <= highest / pause + 1e-6
        rates.forget()
    assert len(rates) == 1
    rates.forget()
    assert len(rates) == 0
