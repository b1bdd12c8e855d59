"""Blind tasks under faults: a sample of the seeds in every run, 2,000 of each kind when asked for."""

from __future__ import annotations

import pytest
from fuzz.blind import draw_blind
from fuzz.hunt import hunt
from fuzz.seeds import Finding, run_seed


@pytest.mark.parametrize("quiet", [False, True], ids=["faults", "quiet"])
def test_every_task_whose_files_can_be_made_ends_well(quiet: bool) -> None:
    for seed in range(15):
        try:
            run_seed(seed, quiet=quiet, kind="blind")
        except Finding as finding:
            pytest.fail(finding.report, pytrace=False)


def test_seeds_reach_all_kinds_of_endings() -> None:
    verdicts = [run_seed(seed, quiet=True, kind="blind") for seed in range(20)]
    assert any(verdict.failed and verdict.finished for verdict in verdicts)
    blind = [one.blind for seed in range(40) for one in draw_blind(seed, quiet=True).tasks if one.blind is not None]
    assert any("/never" in one.reads for one in blind) and any(one.noise for one in blind)
    assert any(draw_blind(seed, quiet=True).tasks[0].blind is None for seed in range(40)), "no seed has other tasks besides"


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("quiet", [False, True], ids=["faults", "quiet"])
def test_soak(quiet: bool) -> None:
    said: list[str] = []
    assert hunt(range(2000), quiet=quiet, kind="blind", say=said.append) == 0, said[0]
