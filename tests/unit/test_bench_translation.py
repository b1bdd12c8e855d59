"""The benchmark of the translators measures what it says: one workflow in every format, read whole."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from amfs.bench.process import Failed
from amfs.translate.detect import load
from amfs.translate.shape import Graph
from benchmarks.commands.translation import FORMATS
from benchmarks.translation import WIDTH, WRITERS, measure, read_here

COUNT = WIDTH + 30


def test_every_format_says_the_same_workflow() -> None:
    assert tuple(WRITERS) == FORMATS
    found = {}
    for format, write in WRITERS.items():
        text = io.StringIO()
        write(text, COUNT)
        workflow = load(io.BytesIO(text.getvalue().encode()))
        graph = Graph(workflow)
        assert not any(graph.ordered)
        found[format] = [(task.argv, frozenset(task.inputs), task.outputs, graph.parents[at]) for at, task in enumerate(workflow.tasks)]
    assert len(found["tasklist"]) == COUNT
    assert sum(len(parents) for _, _, _, parents in found["tasklist"]) == COUNT - WIDTH
    for format in FORMATS:
        assert found[format] == found["tasklist"], format


def test_the_command(benchmark: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    count = 5000  # kernels count the memory of a process in portions of each CPU: with 300 tasks it may seem not to grow
    result = benchmark("translate", "--only", "dax", "--only", "jsonl", "--tasks", str(count), "--repeat", "1", "--output", "json")
    assert result.returncode == 0, result.stderr
    points = json.loads(result.stdout)["points"]
    assert [(point["format"], point["tasks"]) for point in points] == [("dax", count), ("jsonl", count)]
    assert all(0 < point["seconds"] < 60 and 0 < point["peak_bytes"] < 1 << 30 for point in points)


def test_the_simulator_is_compared_with_real_replays(benchmark: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    (tmp_path / "w.dax").write_text(
        '<adag name="w"><job id="a" name="p" runtime="20"><uses name="f" link="output" size="1000"/></job>'
        '<job id="b" name="q" runtime="10"><uses name="f" link="input"/></job></adag>'
    )
    result = benchmark("simulate", "w.dax", "--nodes", "1", "--time-scale", "0.02", "--repeat", "1", "--output", "json")
    assert result.returncode == 0, result.stderr
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["workflow"], row["tasks"], row["nodes"], row["failed"]) == ("w.dax", 2, 1, "")
    assert row["real_s"] >= 0.6 and 0.6 <= row["simulated_s"] < 0.7


def test_a_document_that_is_not_read_whole_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WRITERS, "jsonl", lambda file, count: WRITERS["tasklist"](file, count - 1))
    with pytest.raises(Failed, match="9 tasks were read of 10"):
        measure(["jsonl"], [10], repeat=1, say=lambda text: None)


def test_reading_here(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with open(tmp_path / "w", "w") as file:
        WRITERS["makeflow"](file, 20)
    point = read_here(str(tmp_path / "w"), "makeflow")
    assert (point.tasks, point.document_bytes) == (20, (tmp_path / "w").stat().st_size)
