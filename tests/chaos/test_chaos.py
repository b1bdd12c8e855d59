"""Chaos runs under pytest: two short ones each time, one of each kind when asked for (``-m chaos``); ``make chaos`` makes many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos import runs
from chaos.disturbances import KINDS

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]


def check(seed: int, load: str, kind: str, tmp_path: Path) -> None:
    outcome = runs.run(runs.Plan(seed, load, kind), tmp_path / "kept", runs.Baselines(tmp_path / "baselines"))
    print(*outcome.row(), outcome.remarks)
    assert not outcome.findings, outcome.findings


@pytest.mark.parametrize("seed", [1, 2])
def test_a_plan_is_drawn_from_its_seed_alone(seed: int) -> None:
    one, other = runs.Plan(seed), runs.Plan(seed)
    assert (one.load, one.kind, one.moment, one.disturbance.victim) == (other.load, other.kind, other.moment, other.disturbance.victim)
    again = runs.Plan(seed, one.load, one.kind)
    assert f"SEED={seed} LOAD={one.load} KIND={one.kind}" in again.command


@pytest.mark.chaos
def test_a_killed_node_loses_no_name_and_no_file_of_another(tmp_path: Path) -> None:
    check(3, "fs", "kill", tmp_path)


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("load", ["montage", "layers", "session", "dax", "fs"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_each_kind(load: str, kind: str, tmp_path: Path) -> None:
    if runs.fits(load, kind):
        check(1, load, kind, tmp_path)
