"""One disturbed session of jobs on a real Slurm, so that the soak of it works when it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster.conftest import needed
from cluster.slurm import why_no_slurm

from chaos import slurm


@pytest.mark.root
@pytest.mark.slow
def test_a_job_is_cancelled_while_its_session_works(tmp_path: Path) -> None:
    needed(why_no_slurm())
    with slurm.opened() as made:
        outcome = slurm.one(made, "scancel", 0, 1, tmp_path)
    print(outcome.line)
    assert not outcome.findings, outcome.findings


def test_the_table_counts_what_was_found() -> None:
    outcomes = [slurm.Outcome("scancel", 0, [], ""), slurm.Outcome("scancel", 1, ["a file is missing", "another"], "")]
    assert slurm.table(["scancel"], outcomes).splitlines()[1].split() == ["scancel", "2", "1", "1"]
