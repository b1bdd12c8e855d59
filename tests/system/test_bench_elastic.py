"""The benchmark of elastic sessions: its workflows run, simulated and on nodes that a policy starts, and what it says adds up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amfs.engine.policy import parse
from amfs.provision import policies
from benchmarks.elastic import PAPER, Settings, chosen, scaled
from benchmarks.elastic_workloads import MEMORY, SHAPES, SLOTS, TILE_MIB, TILES

Benchmark = Callable[..., subprocess.CompletedProcess[str]]


def _rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def test_simulated(benchmark: Benchmark) -> None:
    rows = _rows(benchmark("elastic", "--simulate", "--nodes", "8", "--policy", "paper-2", "--policy", "default", "--output", "json"))
    assert [(row["workload"], row["policy"]) for row in rows] == [
        (name, policy) for name in ("Montage-like", "BLAST-like") for policy in ("", "paper-2", "default")
    ]
    for row in rows:
        assert 0 < row["first"] <= row["most"] <= 8
        if row["policy"]:
            assert row["changes"] > 0
        else:
            assert row["node_s"] == 8 * row["seconds"]


def test_real_nodes(benchmark: Benchmark) -> None:
    """A session begins with one node; files are more than its memory, so the policy adds others while tasks run."""
    done = benchmark("elastic", "--only", "blast", "--nodes", "4", "--time-scale", "0.05", "--policy", "default", "--output", "json")
    static, elastic = _rows(done)
    assert (static["first"], static["most"], static["changes"], static["said"]) == (4, 4, 0, [])
    assert abs(static["node_s"] - 4 * static["seconds"]) < static["node_s"] / 2
    assert elastic["first"] == 1 < elastic["most"] <= 4
    assert elastic["changes"] >= 1 and any(" to " in line for line in elastic["said"])
    assert 0 < elastic["node_s"] <= 4 * (elastic["seconds"] + 10)
    for row in (static, elastic):  # how much an elastic session saves is a matter of speed, and no test's
        assert 0 < row["unused"] < row["node_s"] * MEMORY


def test_the_papers_policies_keep_their_shares_of_the_cluster(tmp_path: Path) -> None:
    for name in PAPER:
        whole, quarter = policies.load(name), parse(scaled(policies.load(name).text, 16), name)
        assert (quarter.least * 4, quarter.most * 4, quarter.start * 4) == (whole.least, whole.most, whole.start)
        assert [rule.action.step * 4 for rule in quarter.rules] == [rule.action.step for rule in whole.rules]
        assert [rule.when for rule in quarter.rules] == [rule.when for rule in whole.rules]
    found = chosen(Settings(nodes=16, least=2), tmp_path)
    assert [(name, policy.least, policy.most) for name, _, policy in found] == [("paper-1", 8, 16), ("paper-2", 4, 16), ("default", 2, 16)]


def test_montage_has_the_widths_and_the_memory_that_it_says() -> None:
    shape = SHAPES["montage"](16)
    stages: dict[str, int] = {}
    for task in shape.tasks:
        stages[task.label] = stages.get(task.label, 0) + 1
    images = stages["mProjectPP"]
    assert images == stages["mBackground"] == round(2102 / 8)
    assert abs(stages["mDiffFit"] / images - 6172 / 2102) < 0.2
    assert stages["mConcatFit"] == stages["mBgModel"] == stages["mJPEG"] == 1
    assert stages["mAdd"] == stages["mShrink"] == stages["mImgtbl"] == TILES * 16 < 16 * SLOTS
    last = sum(shape.sizes[f"c{i}"] for i in range(images)) + TILES * 16 * TILE_MIB * (1 << 20)
    assert 0.6 < last / (16 * MEMORY) < 0.7
    used = {name for task in shape.tasks for name in task.inputs}
    assert {f"c{i}" for i in range(images)} <= used
