"""``benchmarks staging --simulate``: the model of tasks that stage, the costs of stores, and predictions beside runs that are known."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from amfs.errors import UsageError
from benchmarks import makespan_prediction as prediction
from benchmarks.commands.staging import staging as command
from benchmarks.makespan_model import Machines, StagedTask, makespan_s
from benchmarks.staging import Head, Report, Run, Shape, ShapeStep, Span, read_samples
from benchmarks.storage import Place
from benchmarks.storage_clients import Spot
from benchmarks.store_costs import AT_ONCE, Access, Point, StoreCosts, measure_store

FREE = Access(0.0, 0.0, 1e18)


def computing(seconds: float, *predecessors: int) -> StagedTask:
    return StagedTask(0.0, seconds, 0.0, (), (), predecessors)


# ── the model ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        (Machines(1, 1, 1), 8.0), (Machines(2, 1, 1), 4.0), (Machines(3, 1, 2), 4.0), (Machines(8, 1, 1), 2.0),
        (Machines(1, 4, 1), 8.0), (Machines(1, 4, 2), 4.0),  # four slots share the processors of their host
        (Machines(4, 1, 2, one_host=True), 4.0), (Machines(4, 1, 2, one_host=True, others=4), 8.0), (Machines(1, 1, 2, True, 3.0), 16.0),
    ],
)  # fmt: skip
def test_processors_are_shared(machines: Machines, expected: float) -> None:
    """Four tasks of two seconds each."""
    assert makespan_s([computing(2.0)] * 4, machines, FREE, FREE) == pytest.approx(expected)


def test_a_task_begins_when_those_before_it_have_ended() -> None:
    tasks = [computing(1.0), computing(3.0), computing(1.0, 0, 1), computing(1.0, 2)]
    assert makespan_s(tasks, Machines(4, 1, 1), FREE, FREE) == pytest.approx(5.0)
    assert makespan_s([], Machines(4, 1, 1), FREE, FREE) == 0.0


def test_the_store_has_one_speed_for_all() -> None:
    get, put = Access(0.5, 0.1, 1000.0), Access(0.25, 0.0, 500.0)
    task = StagedTask(1.0, 2.0, 3.0, (900, 0), (1000,))
    alone = 1.0 + (0.5 + 0.1 + 0.9) + (0.5 + 0.1) + 2.0 + (0.25 + 2.0) + 3.0
    assert makespan_s([task], Machines(1, 1, 1), get, put) == pytest.approx(alone)
    together = 1.0 + (0.5 + 4 * 1.0) + (0.5 + 4 * 0.1) + 2.0 + (0.25 + 4 * 2.0) + 3.0
    assert makespan_s([task] * 4, Machines(4, 1, 1), get, put) == pytest.approx(together)
    many = [makespan_s([task] * 400, Machines(nodes, 1, 1), get, put) for nodes in (50, 100, 400)]
    assert min(many) > 400 * 3.1 and max(many) < 400 * 3.1 + alone + 50, "more nodes gain nothing when the store is busy all the time"


# ── the costs of a store ───────────────────────────────────────────────────────────────────────────


def test_costs_are_taken_from_what_was_measured() -> None:
    points = [Point(1000, 1, 0.010, 0.020), Point(1000, 8, 0.004, 0.005), Point(5_004_000, 1, 1.004, 0.5), Point(5_004_000, 4, 0.504, 0.5)]
    costs = StoreCosts("S3", 1.0, points)
    assert costs.put() == pytest.approx((0.006, 0.004, 5_004_000 / 0.5))
    assert costs.get() == pytest.approx((0.015, 0.005, 5_004_000 / 0.495))


def test_a_store_is_measured(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    costs = measure_store(Place("directory", (Spot("directory", str(tmp_path / "store")),)), tmp_path / "local")
    assert {(point.size, point.at_once) for point in costs.points} == {(size, count) for size, some in AT_ONCE.items() for count in some}
    assert all(point.put_s > 0 and point.get_s > 0 for point in costs.points)
    assert not list((tmp_path / "store").iterdir())
    assert costs.get().bytes_s > 1e6


# ── predictions ────────────────────────────────────────────────────────────────────────────────────


def known(way: str, nodes: int, busy_s: float) -> list[Run | Span]:
    """A run of eight tasks that take half a second of a processor each, and last ``busy_s``; one second goes by before and after them."""
    spans: list[Run | Span] = []
    for number in range(8):
        begun = 1.0 + number // nodes * busy_s
        ended = begun + busy_s
        marks = [begun, begun, ended, ended] if way == "staged" else []
        spans.append(Span("lmps", way, "directory", nodes, 0, f"t{number}", "solve", number % nodes, 0, begun, ended, marks, 0.5))
    return [Run("lmps", way, "directory", nodes, 0, 8, 2.0 + 8 / nodes * busy_s, "right", {f"out{n}": 10 for n in range(8)}), *spans]


def lines() -> list[object]:
    steps = [ShapeStep(f"t{number}", "solve", {"common": 10, f"in{number}": 10}, {f"out{number}": 0}) for number in range(8)]
    costs = StoreCosts("directory", 0.0, [Point(1000, 1, 1e-6, 1e-6), Point(10**6, 1, 2e-6, 2e-6)])
    runs = [*known("staged", 1, 1.0), *known("staged", 4, 1.5), *known("shared", 1, 1.0), *known("shared", 4, 1.5)]
    return [Head("a machine", "2026-11-28", 1, 1, {"lmps": 8}, 3.0, 2), Shape("lmps", steps), costs, *runs]


def report_of(path: Path, some: list[object]) -> Report:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in some))
    return read_samples(path)


def test_runs_that_follow_the_model_are_foretold(tmp_path: Path) -> None:
    rows = prediction.predict(report_of(tmp_path / "samples", lines()), (1, 8, 80), {"lmps": 80})
    here = [row for row in rows if not row.hosts]
    assert [(row.series, row.nodes, row.base) for row in here] == [
        ("staged, directory", 1, True), ("staged, directory", 4, False), ("shared, directory", 1, True), ("shared, directory", 4, False),
    ]  # fmt: skip
    for row in here:
        assert row.ratio == pytest.approx(1.0, abs=0.1), row
    hosts = {(row.series, row.nodes): row for row in rows if row.hosts}
    for series in ("staged, directory", "shared, directory"):
        # A host with two processors, of which others took half: the run's own second before and after takes as much less.
        assert hosts[series, 1].tasks == 80 and hosts[series, 1].predicted_s == pytest.approx(80 * 0.5 + 1.0, rel=0.05)
        assert hosts[series, 8].predicted_s == pytest.approx(10 * 0.5 + 1.0, rel=0.1)
        assert hosts[series, 80].predicted_s == pytest.approx(0.5 + 1.0, rel=0.1)


def test_a_larger_ensemble_reads_what_is_common_once() -> None:
    steps = [ShapeStep("split", "s", {"all": 9}, {"p0": 1, "p1": 1})]
    steps += [ShapeStep(f"b{n}", "b", {f"p{n}": 1, "database": 5}, {f"o{n}": 1}) for n in range(2)]
    more = prediction.scaled(Shape("blast", steps), 6)
    assert [step.id for step in more] == ["split.0", "b0.0", "b1.0", "split.1", "b0.1", "b1.1"]
    assert more[4].inputs == {"1/p0": 1, "database": 5} and more[4].outputs == {"1/o0": 1} and more[3].outputs == {"1/p0": 1, "1/p1": 1}


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    without = [line for line in lines() if not isinstance(line, StoreCosts)]
    with pytest.raises(ValueError, match="what the store costs"):
        prediction.predict(report_of(tmp_path / "no-costs", without), (2,), {})
    old = [msgspec.structs.replace(line, cpu=0.0) if isinstance(line, Span) else line for line in lines()]
    with pytest.raises(ValueError, match="how much of a processor"):
        prediction.predict(report_of(tmp_path / "old", old), (2,), {})


def test_the_command_tells_the_check_and_the_simulation_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report_of(tmp_path / "samples", lines())
    command.main(["--draw", str(tmp_path / "samples"), "--simulate", "16,32", "--simulate-size", "64"], standalone_mode=False)
    told = capsys.readouterr().out
    assert "predicted / measured" in told and "simulated, each node a host" in told and "(costs are from here)" in told
    assert "16 nodes  32 nodes" in told and "lmps, staged, directory" in told
    report_of(tmp_path / "without", [line for line in lines() if not isinstance(line, StoreCosts)])
    with pytest.raises(UsageError, match="what the store costs"):
        command.main(["--draw", str(tmp_path / "without"), "--simulate", "16"], standalone_mode=False)
