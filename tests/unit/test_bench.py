"""Foundations of the benchmarks: the arithmetic of a row, CPU accounting, the programs, the record of costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from amfs.bench import dispatch, process, programs
from amfs.bench.costs import Costs, load_costs, save_costs
from amfs.bench.dispatch import Line, Report, Sample, both, summarise
from amfs.bench.echo import round_trip_seconds
from amfs.bench.loading import measure
from amfs.bench.machines import machine_seconds
from amfs.bench.transfer import fetch_seconds
from amfs.cli.bench import ROW_KEYS, bench, dispatch_table
from amfs.errors import AmfsError, SystemSetupError, UsageError
from amfs.host.processes import start_time

FASTER = Line("k", "what", "tasks/s", "peer", True, 1.2)
SHORTER = Line("k", "what", "s", "", False, 0.2)


# ── rows ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_ratio_is_the_median_of_the_ratios_of_the_turns() -> None:
    result = summarise(FASTER, [Sample(100, 50, 10), Sample(10, 10, 30), Sample(500, 400, 20)])
    assert (result.value, result.reference, result.ratio, result.engine_us) == (100, 50, 1.25, 20)
    assert result.passed
    assert not summarise(FASTER, [Sample(119, 100)]).passed


def test_a_row_without_reference_is_judged_by_its_value() -> None:
    assert summarise(SHORTER, [Sample(0.2)]).passed
    assert not summarise(SHORTER, [Sample(0.21)]).passed
    assert summarise(SHORTER, [Sample(0.2)]).ratio is None


def test_a_row_that_failed_says_why_and_does_not_pass() -> None:
    result = summarise(SHORTER, [], "no such thing")
    assert (result.passed, result.error, result.value) == (False, "no such thing", None)
    text = dispatch_table(Report("m", 3, False, [result, summarise(FASTER, [Sample(150, 100, 12)])]))
    assert "what: not measured: no such thing" in text
    assert "PASS" in text
    assert "1.50" in text


def test_reference_and_measured_run_change_their_order() -> None:
    order: list[str] = []
    for turn in range(2):
        both(turn, lambda: order.append("ours"), lambda: order.append("reference") or 1.0)
    assert order == ["reference", "ours", "ours", "reference"]


@pytest.mark.parametrize("nodes", [2, 3, 4, 7])
def test_pairs_over_nodes_are_always_on_two_and_on_all(nodes: int, tmp_path: Path) -> None:
    lines = list(dispatch.pair_lines(dispatch.Bench(tmp_path, True), 200, nodes))
    placed = [int(line.split(" -node ")[1].split()[0]) for line in lines]
    assert all(a != b for a, b in zip(placed[::2], placed[1::2], strict=True))
    assert set(placed) == set(range(nodes))


def test_rows_and_the_command_line_agree() -> None:
    assert tuple(row.key for row in dispatch.ROWS) == ROW_KEYS
    keys = [line.key for row in dispatch.ROWS for line in row.lines]
    assert len(set(keys)) == len(keys)


def test_a_row_that_cannot_run_is_reported_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bench: dispatch.Bench, turn: int) -> dict[str, Sample]:
        raise process.Failed("broken on purpose")

    first = next(row for row in dispatch.ROWS if row.key == "first")
    monkeypatch.setattr(dispatch, "ROWS", (dispatch.Row("a", (SHORTER._replace(key="a"),), broken), first))
    report = dispatch.run_rows(repeat=2, quick=True)
    assert [(row.key, row.error, len(row.samples)) for row in report.rows] == [("a", "broken on purpose", 0), ("first", "", 2)]
    assert report.rows[1].value is not None
    assert report.rows[1].value > 0


@pytest.mark.slow
def test_the_command_gives_json() -> None:
    result = CliRunner().invoke(bench, ["dispatch", "--quick", "--repeat", "1", "--only", "chain", "--output", "json"])
    assert result.exit_code == 0, result.output
    report = msgspec.json.decode(result.stdout, type=Report)
    assert [row.key for row in report.rows] == ["chain"]
    assert report.rows[0].ratio == report.rows[0].samples[0].judged
    assert report.rows[0].engine_us is not None


# ── processes ──────────────────────────────────────────────────────────────────────────────────────

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_cpu_of_a_process_and_of_its_children_stand_apart(tmp_path: Path) -> None:
    ran = process.run([sys.executable, "-c", BURN], tmp_path)
    assert ran.cpu_s >= 0.28
    assert ran.children_cpu_s == 0
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}]); print('done')"
    ran = process.run([sys.executable, "-c", code], tmp_path)
    assert ran.children_cpu_s >= 0.28
    assert ran.cpu_s < ran.children_cpu_s
    assert ran.stdout == "done\n"
    assert ran.seconds >= 0.28


def test_commands_that_fail_or_hang(tmp_path: Path) -> None:
    with pytest.raises(process.Failed, match=r"ended with status 3: why"):
        process.run(["sh", "-c", "echo first >&2; echo why >&2; exit 3"], tmp_path)
    with pytest.raises(process.Failed, match="cannot run /nonexistent"):
        process.run(["/nonexistent"], tmp_path)
    with pytest.raises(process.Failed, match="did not end"):
        process.run(["sh", "-c", "sleep 60 & echo $! > pid; wait"], tmp_path, hang_seconds=0.5)
    child = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 60
    while start_time(child):  # killed, it takes the kernel a moment
        assert time.monotonic() < end, "a child of what hung goes on"
        time.sleep(0.01)


def test_cpu_of_nobody_is_nothing() -> None:
    assert process.cpu_of(2**22 + 1) == (0.0, 0.0)
    assert process.cpu_of(os.getpid())[0] > 0


# ── programs ───────────────────────────────────────────────────────────────────────────────────────


def test_programs_are_compiled_once_and_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = programs.build()
    stamps = {name: path.stat().st_mtime_ns for name, path in made.items()}
    assert programs.build() == made
    assert {name: path.stat().st_mtime_ns for name, path in made.items()} == stamps
    assert subprocess.run([made["noop"]], check=False).returncode == 0
    a, b = tmp_path / "a", tmp_path / "b"
    assert subprocess.run([made["produce"], b, a], check=False, capture_output=True).returncode == 1
    for command in ([made["produce"], a], [made["produce"], b, a], [made["consume"], b]):
        subprocess.run(command, check=True)
    b.write_bytes(b"something else")
    assert subprocess.run([made["consume"], b], check=False, capture_output=True).returncode == 1
    ran = process.run([str(made["vforkloop"]), "20", "3", str(made["noop"])], tmp_path)
    assert float(ran.stdout.split()[0]) > 0
    with pytest.raises(process.Failed, match="20 of 20 runs of /bin/false failed"):
        process.run([str(made["vforkloop"]), "20", "3", "/bin/false"], tmp_path)
    assert len(process.run([str(made["tcploop"]), "3000001", "4"], tmp_path).stdout.split()) == 4


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(SystemSetupError, match="no C compiler"):
        programs.build()
    (tmp_path / "cc").write_text("#!/bin/sh\necho 'it is broken' >&2\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(SystemSetupError, match="it is broken"):
        programs.build()


# ── parts that are measured ────────────────────────────────────────────────────────────────────────


def test_loading_counts_tasks_time_and_memory(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text("".join(f"t{i} -b /bin/true\n" for i in range(2_000)))
    seconds, grown, tasks = measure(str(path))
    assert tasks == 2_000
    assert seconds > 0
    assert grown >= 0


def test_transfer_moves_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    seconds = fetch_seconds(str(tmp_path), 3_000_001, 3)
    assert len(seconds) == 3
    assert all(each > 0 for each in seconds)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["ipc", "tcp"])
def test_messages_go_round(tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    import shutil
    import tempfile

    place = Path(tempfile.mkdtemp(prefix="amfs-t", dir="/tmp"))
    try:
        assert all(each > 0 for each in round_trip_seconds(place, kind, 10))
    finally:
        shutil.rmtree(place)


def test_every_machine_is_clocked() -> None:
    seconds = machine_seconds(100)
    assert set(seconds) == {"submitter", "dispatcher", "worker", "fls", "drain"}
    assert all(each > 0 for each in seconds.values())


# ── costs ──────────────────────────────────────────────────────────────────────────────────────────


def test_costs_round_trip_and_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_costs() == Costs()
    mine = Costs(latency_s=1e-6, spawn_us=17.5)
    save_costs(mine, tmp_path / "deep" / "costs.json")
    assert load_costs(tmp_path / "deep" / "costs.json") == mine
    save_costs(mine, tmp_path / "amfs" / "costs.json")
    assert load_costs() == mine
    assert os.listdir(tmp_path / "deep") == ["costs.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"spawn_us": -1}', '{"spawn_us": "x"}', '{"unknown": 1}', '{"latency_s": 0}'])
def test_costs_that_are_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="does not hold costs"):
        load_costs(path)


def test_costs_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load_costs(tmp_path / "absent")
    with pytest.raises(UsageError, match="Is a directory"):
        load_costs(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(AmfsError, match="cannot write"):
        save_costs(Costs(), tmp_path / "file" / "costs.json")


def test_the_table_of_functions_says_how_many_times_better() -> None:
    from benchmarks.commands.functions import function_table
    from benchmarks.functions import FunctionReport

    ours = {"start": 0.5, "calls": 30_000.0, "chunks": 90_000.0, "trip": 100.0}
    ray = {"start": 2.0, "calls": 1_500.0, "trip": 500.0}
    missing = {"dask": "distributed is not installed"}
    text = function_table(FunctionReport("a machine", 3, 20_000, 2, {"amfs": ours, "ray": ray}, missing, {}))
    rows = [line.split() for line in text.splitlines()]
    assert ["calls/s", "30,000", "1,500", "(20.0", "×)"] in [row[-5:] for row in rows]
    assert ["s", "0.50", "2.00", "(4.0", "×)"] in [row[-5:] for row in rows]
    assert ["µs", "100", "500", "(5.0", "×)"] in [row[-5:] for row in rows]
    assert "10 MB" not in text
    assert text.endswith("Dask is left out: distributed is not installed")


@pytest.mark.slow
def test_bench_functions_measures(benchmark: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    ran = benchmark("functions", "--quick", "--repeat", "1", "--only", "amfs", "--output", "json")
    assert ran.returncode == 0, ran.stderr
    assert set(json.loads(ran.stdout)["values"]["amfs"]) == {"start", "calls", "chunks", "trip", "arrays"}
