"""``benchmarks joining --on slurm``: a job is added to a session on a real Slurm, beside a bare job."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cluster.slurm import Slurm

pytestmark = [pytest.mark.root, pytest.mark.slow]
ROOT = Path(__file__).parents[2]


def test_a_job_that_is_added_runs_its_first_task(slurm: Slurm) -> None:
    words = (sys.executable, "-m", "benchmarks", "joining", "--on", "slurm", "--repeat", "1", "--output", "json")
    said = slurm.hosts.login.run(*words, env={**slurm.env, "PYTHONPATH": str(ROOT)}, timeout=120)
    report = json.loads(said.stdout)
    (first,) = report["firsts"]
    assert report["pauses"] == [] and first["on"] == "slurm" and first["task_s"] > 0 and first["bare_s"] > 0
    assert [line for line in slurm.queue() if "|COMPLETING|" not in line] == []
