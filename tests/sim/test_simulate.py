"""Simulating for numbers: the ideal cases are known, and the costs must show where they are put."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from amfs.engine.policy import parse
from amfs.errors import UsageError
from amfs.node.url_threads import THREADS
from amfs.provision import policies
from amfs.sim import figures
from amfs.sim.node_io import URLS_AT_ONCE
from amfs.sim.settings import Costs, Faults, Storage
from amfs.sim.simulate import Report, simulate
from amfs.sim.svg import Axis, chart
from amfs.sim.workload import Workload, bag, from_workflow, pairs
from amfs.sim.world import OutOfEvents, Stuck, World
from amfs.translate.detect import load
from amfs.workflow.workflow import Task, Workflow

FREE = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, latency_s=1e-6, bandwidth_bytes_s=1e12, spawn_us=0.0, file_us=0.0)
AT_ONCE = Storage(1e15, 0.0)
Amfs = Callable[..., CompletedProcess[str]]


def run(workload: Workload, nodes: int = 4, slots: int = 2, **more: object) -> Report:
    return simulate(workload, nodes=nodes, slots=slots, **{"costs": FREE, "storage": AT_ONCE, **more})  # type: ignore[arg-type]


def test_a_bag_takes_as_long_as_its_tasks_when_nothing_costs_anything() -> None:
    report = run(bag(8, 16, 2.0))
    assert report.finished == report.tasks == 128
    assert report.makespan_s == pytest.approx(32.0, rel=1e-3)
    assert report.utilisation == pytest.approx(1.0, rel=1e-3)
    assert report.dispatch_rate == pytest.approx(4.0, rel=1e-3)
    assert report.bytes_between_nodes == report.bytes_to_shared == 0


def test_a_chain_has_no_use_for_a_second_slot() -> None:
    tasks = [Task(f"t{i}", ("x",), inputs=(f"f{i}",), outputs=(f"f{i + 1}",)) for i in range(10)]
    report = run(Workload(tasks, seconds=1.0))
    assert report.makespan_s == pytest.approx(10.0, rel=1e-2)
    assert report.utilisation == pytest.approx(1 / 8, rel=1e-2)


def test_a_task_with_more_cores_than_a_node_takes_all_of_the_node_and_no_more() -> None:
    report = run(Workload([Task(f"t{i}", ("x",), cores=256) for i in range(8)], seconds=1.0))
    assert report.makespan_s == pytest.approx(2.0, rel=1e-2)
    assert report.utilisation == pytest.approx(1.0, rel=1e-2)
    assert Workload([Task("t", ("x",), cores=256)], seconds=1.0).work_s(2) == 2.0


def test_every_pair_moves_its_file_once_and_writes_nothing_out() -> None:
    report = run(pairs(4, 2, 8, 1.0, 1000), data_aware=False)
    assert report.bytes_between_nodes == 4 * 2 * 8 * 1000
    assert report.finished == 2 * 4 * 2 * 8


def test_a_final_output_goes_to_shared_storage_and_takes_its_time() -> None:
    tasks = [Task("t", ("x",), inputs=("given",), outputs=("out",))]
    report = run(Workload(tasks, seconds=1.0, bytes_each=1000), storage=Storage(1000.0, 0.0))
    assert report.bytes_to_shared == 1000
    assert report.bytes_from_shared == 1000
    assert report.makespan_s == pytest.approx(3.0, rel=0.5)
    assert report.makespan_s > 2.0


def test_shared_storage_takes_requests_one_after_the_other() -> None:
    tasks = [Task(f"t{number}", ("x",), outputs=(f"out{number}",)) for number in range(40)]
    seconds = [run(Workload(tasks, seconds=1.0), nodes=40, storage=Storage(1e15, 0.0, request)).makespan_s for request in (0.0, 0.5)]
    assert seconds[1] - seconds[0] == pytest.approx(40 * 0.5, rel=0.02)


def test_what_a_node_has_brought_from_a_url_is_not_read_there_again() -> None:
    tasks = [Task(f"t{number}", ("x",), inputs=("s3:/b/in",), outputs=(f"out{number}",)) for number in range(20)]
    for nodes in (1, 4):
        assert run(Workload(tasks, bytes_each=1000), nodes=nodes).bytes_from_shared == nodes * 1000


def test_copies_from_urls_are_as_many_at_a_time_as_on_a_real_node() -> None:
    assert URLS_AT_ONCE == THREADS
    tasks = [Task(f"t{number}", ("x",), inputs=(f"s3:/b/{number}",), outputs=(f"out{number}",)) for number in range(64)]
    report = run(Workload(tasks, seconds=0.0), nodes=1, slots=64, storage=Storage(1e15, 1.0))
    assert report.makespan_s == pytest.approx(64 / THREADS + 1.0, rel=0.02)  # and the outputs, which go to no URL


@pytest.mark.parametrize("stealing", [False, True])
def test_tasks_that_wait_for_slow_shared_storage_are_dealt_evenly(stealing: bool) -> None:
    """They are load of their node, unlike tasks that wait for other tasks."""
    tasks = [Task(f"t{number}", ("x",), inputs=(f"s3:/b/{number}",), outputs=(f"s3:/b/o{number}",)) for number in range(1000)]
    report = run(Workload(tasks, seconds=0.2), nodes=4, slots=1, storage=Storage(1e15, 0.0, 0.016), stealing=stealing)
    assert report.makespan_s < 1.1 * 50.0 + 1.0


def test_bandwidth_and_latency_are_paid() -> None:
    big = Workload([Task("a", ("x",), outputs=("f",), node=0), Task("b", ("x",), inputs=("f",), node=1)], seconds=0.0, bytes_each=10**9)
    slow = run(big, nodes=2, costs=Costs(bandwidth_bytes_s=1e8)).makespan_s
    assert slow == pytest.approx(10.0, rel=0.05)
    far = run(bag(2, 1, 0.0), nodes=1, costs=Costs(latency_s=0.1)).makespan_s
    assert far > 0.4


def test_one_dispatcher_for_all_is_the_bottleneck_that_units_remove() -> None:
    slow = Costs(task_us_dispatcher=2000.0)
    central = simulate(bag(512, 8, 0.25), nodes=128, slots=4, unit_size=0, costs=slow, stealing=False)
    units = simulate(bag(512, 8, 0.25), nodes=128, slots=4, unit_size=16, costs=slow, stealing=False)
    assert central.dispatch_rate < 600
    assert units.dispatch_rate > 2 * central.dispatch_rate
    assert units.utilisation > 2 * central.utilisation


def test_the_same_simulation_gives_the_same_numbers() -> None:
    first, second = (run(pairs(4, 2, 4, 0.3)) for _ in range(2))
    assert first.makespan_s == second.makespan_s and first.events == second.events


def test_faults_can_be_asked_for_and_are_survived() -> None:
    workload = bag(8, 16, 2.0)
    report = simulate(workload, nodes=4, slots=2, faults=Faults(loss=0.02, crashes=1), seed=5)
    assert report.finished == 128 and not report.stopped
    assert report.makespan_s > 32.0


def test_broken_tasks_fail() -> None:
    workload = bag(8, 2, 1.0)
    workload.broken[3] = None
    assert run(workload).failed == 1


def test_what_does_not_end_is_said_to_be_stuck() -> None:
    with pytest.raises(Stuck, match="not done by 5 s"):
        run(bag(8, 16, 2.0), latest_s=5.0)


def test_the_event_budget_ends_a_world_that_feeds_on_itself() -> None:
    world = World(event_budget=1000)

    def again() -> None:
        world.at(world.now, again)

    again()
    with pytest.raises(OutOfEvents):
        world.run(lambda: False, 1.0)
    empty = World()
    with pytest.raises(Stuck, match="nothing more"):
        empty.run(lambda: False, 1.0)


def test_a_workflow_needs_neither_its_programs_nor_its_inputs() -> None:
    workflow = Workflow([Task("a", ("./nowhere", "1"), inputs=("missing",), outputs=("o",)), Task("b", ("nothing",), inputs=("o",))])
    assert run(from_workflow(workflow, seconds=1.0, bytes_each=5)).finished == 2


RECORDED = """<adag name="two">
<job id="a" name="p" runtime="40"><uses name="in" link="input" size="3000"/>
    <uses name="mid" link="output" size="1000" transfer="false"/></job>
<job id="b" name="q"><uses name="mid" link="input"/><uses name="end" link="output" size="5000"/></job>
</adag>"""


def test_recorded_run_times_and_sizes_are_those_of_the_simulation(tmp_path: Path) -> None:
    path = tmp_path / "two.dax"
    path.write_text(RECORDED)
    workload = from_workflow(load(path), seconds=7.0, bytes_each=1, time_scale=0.5, size_scale=2.0)
    assert workload.seconds == {0: 20.0}  # task b has none recorded: --task-time as it is
    report = run(workload, nodes=1, slots=1)
    assert (report.timed, report.tasks) == (1, 2)
    assert report.makespan_s == pytest.approx(27.0, abs=0.01)
    assert (report.bytes_from_shared, report.bytes_to_shared) == (6000, 10_000)


def test_a_recorded_time_of_zero_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "two.dax"
    path.write_text(RECORDED.replace('runtime="40"', 'runtime="0"'))
    assert run(from_workflow(load(path), seconds=7.0, bytes_each=1), nodes=1, slots=1).makespan_s == pytest.approx(7.0, abs=0.01)


# ── the command ────────────────────────────────────────────────────────────────────────────────────


def test_the_command_prints_a_table_and_json(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a -b no-such-program -o x\nb -b no-such-program -i x -o y\n")
    shown = amfs("simulate", "list", "--nodes", "3", "--task-time", "250ms", "--file-size", "1k", "--latency", "50us")
    assert shown.returncode == 0, shown.stderr
    assert "2 of 2 finished" in shown.stdout and "makespan" in shown.stdout
    told = amfs("simulate", "list", "--nodes", "3", "--task-time", "250ms", "--output", "json")
    facts = json.loads(told.stdout)
    assert facts["finished"] == 2 and facts["slots"] == 12 and 0.5 <= facts["makespan_s"] < 1.0


def test_the_command_simulates_the_papers_workloads_with_faults(amfs: Amfs) -> None:
    bagged = amfs("simulate", "--bag", "4", "--nodes", "8", "--unit-size", "4", "--output", "json")
    assert json.loads(bagged.stdout)["tasks"] == 8 * 4 * 4
    paired = amfs("simulate", "--pairs", "2", "--nodes", "4", "--faults", "loss=0.01,crashes=1", "--seed", "3", "--output", "json")
    facts = json.loads(paired.stdout)
    assert facts["finished"] + facts["failed"] == 4 * 4 * 2 * 2


def test_the_hunt_runs_as_a_program() -> None:
    def hunt(*words: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
        ran = subprocess.run([sys.executable, "-m", "fuzz", "--seeds", *words], env=env, capture_output=True, text=True, check=True)
        return ran.stdout

    assert "5 seeds in quiet mode found nothing" in hunt("0-4", "--quiet-mode")
    assert "1 seeds with faults found nothing" in hunt("7")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say what to simulate"),
        (("list", "--bag", "1"), "only one of them"),
        (("cycle",), "amfs: cycle:2: cycle of tasks"),
        (("--bag", "1", "--faults", "gremlins"), "no fault 'gremlins'"),
        (("--bag", "1", "--time-scale", "2"), "--time-scale goes with a WORKFLOW"),
        (("--bag", "1", "--faults", "loss=2"), "out of range"),
        (("--bag", "1", "--faults", "loss=x"), "is no number"),
        (("--bag", "1", "--task-time", "soon"), "'soon' is not a time"),
        (("--bag", "1", "--bandwidth", "0"), "more than nothing"),
        (("--pairs", "1", "--nodes", "1"), "at least two nodes"),
    ],
)
def test_the_command_says_what_is_wrong(amfs: Amfs, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    (tmp_path / "list").write_text("a -b x\n")
    (tmp_path / "cycle").write_text("#amfs workflow round\na -b x -i f -o g\nb -b x -i g -o f\n")
    refused = amfs("simulate", *arguments)
    assert refused.returncode == 2
    assert words in refused.stderr and refused.stderr.count("\n") == 1


def test_times_are_read() -> None:
    from amfs.cli.simulate import parse_time

    told = [parse_time(text) for text in ("4s", "250ms", "50us", "2m", "1.5", "1h")]
    assert told == pytest.approx([4.0, 0.25, 50e-6, 120.0, 1.5, 3600.0])
    with pytest.raises(UsageError):
        parse_time("-1s")


# ── figures ────────────────────────────────────────────────────────────────────────────────────────


def test_figures_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "CORES", (64, 512))
    assert figures.command(["--out", str(tmp_path), "--cores-max", "64"]) == 0
    assert "figure 6/8: 64 cores" in capsys.readouterr().out
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"fig{n}-{m}.svg" for n in (6, 7, 8, 9, 11) for m in ("today", "ame2011")} | {"README.md"}
    for path in tmp_path.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert (tmp_path / "README.md").read_text().count("\n| costs as of 2011 |") == 14


def test_a_chart_has_its_lines_inside_its_frame() -> None:
    text = chart("a < b", Axis("cores", 2), Axis("rate", 10), {"0 s": [(256, 10.0), (512, 1000.0)], "1 s": [(256, 1.0), (512, 2.0)]})
    root = ElementTree.fromstring(text)
    lines = [element.get("points", "") for element in root if element.tag.endswith("polyline")]
    assert len(lines) == 2
    points = [tuple(map(float, point.split(","))) for line in lines for point in line.split()]
    assert all(0 <= x <= 640 and 0 <= y <= 400 for x, y in points)
    assert points[1][1] < points[0][1], "more is higher up"


def test_a_policy_adds_nodes_while_tasks_wait_and_says_why(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("".join(f"echo {number}\n" for number in range(600)))
    words = ["simulate", "list", "--task-time", "5s", "--policy", "default", "--policy-nodes", "1..4", "--output", "json"]
    found = json.loads(amfs(*words).stdout)
    elastic, fewest, most = found["policy"], found["fewest"], found["most"]
    assert elastic["finished"] == fewest["finished"] == most["finished"] == 600
    assert (fewest["nodes"], most["nodes"], elastic["nodes"], elastic["nodes_most"]) == (1, 4, 1, 4)
    assert most["makespan_s"] < elastic["makespan_s"] < fewest["makespan_s"]
    assert [one["nodes"] for one in elastic["decisions"] if one["nodes"]] == [4]
    assert elastic["decisions"][-1]["reason"].endswith("max is 4") or "no rule holds" in elastic["decisions"][-1]["reason"]
    assert 0.9 * 3000 / 4 < elastic["node_s"] < elastic["makespan_s"] * 4


def test_a_policy_removes_nodes_that_have_little_to_do() -> None:
    """One long task is left after many short ones: nodes without files drain, and the run goes on."""
    policy = parse((policies.HERE / "default.toml").read_text(), "default").within(1, 4)
    workload = bag(1, 60, 4.0)
    workload.seconds[0] = 900.0
    report = simulate(workload, nodes=4, slots=4, policy=policy, memory=1 << 30)
    assert (report.finished, report.failed) == (60, 0)
    assert [one.nodes for one in report.decisions if one.nodes][-1] == 1
    assert report.node_s < 2 * report.makespan_s


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "none"], "there is no policy 'none'"),
        (["--policy", "default", "--policy-nodes", "4..1"], "--policy-nodes 4..1"),
        (["--policy-nodes", "1..4"], "goes with --policy"),
    ],
)
def test_wrong_words_about_policies(words: list[str], said: str, amfs: Amfs) -> None:
    done = amfs("simulate", "--bag", "1", *words)
    assert done.returncode == 2 and said in done.stderr
