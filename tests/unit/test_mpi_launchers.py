"""An MPI launcher that is not of mpi4py's MPI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from amfs.errors import SystemSetupError
from amfs.provision import launchers, mpi

pytest.importorskip("mpi4py")


@pytest.mark.parametrize("environment", [
    {"PMI_SIZE": "4"}, {"OMPI_COMM_WORLD_SIZE": "4"}, {"MV2_COMM_WORLD_SIZE": "4"}, {"PMIX_RANK": "1", "SLURM_STEP_NUM_TASKS": "4"},
])  # fmt: skip
def test_it_is_refused(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemSetupError, match="the MPI launcher started 4 processes, but mpi4py does not see them"):
        mpi._refuse_strangers(1)
    mpi._refuse_strangers(4)


@pytest.mark.parametrize("environment", [
    {}, {"PMI_SIZE": "1", "SLURM_STEP_NUM_TASKS": "4", "PMIX_RANK": "0"}, {"SLURM_STEP_NUM_TASKS": "4"},
])  # fmt: skip
def test_a_session_of_one_rank_is_not(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    mpi._refuse_strangers(1)


@pytest.mark.parametrize("environment, words", [
    ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "started this command 2 times.*mpiexec -n 2 amfs up.*env -u PMI_SIZE amfs run"),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}, "3 times.*mpiexec -n 3 amfs up"),
    ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, "4 times.*in the job type 'amfs up' once"),
])  # fmt: skip
def test_a_run_that_is_started_several_times_is_refused(environment: dict[str, str], words: str, tmp_path: Path) -> None:
    def run(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "amfs", "run", "-"]
        return subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **more}, input="touch made\n", capture_output=True, text=True, timeout=60, check=False
        )

    first = run(**environment)
    assert first.returncode == 2 and re.search(words, first.stderr) and first.stderr.count("\n") == 1, first.stderr
    rank = next(iter(environment))
    other = run(**{**environment, rank: "1"})
    assert other.returncode == 2 and not other.stderr, other.stderr
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("environment", [
    {"PMI_RANK": "0", "PMI_SIZE": "1"}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
])  # fmt: skip
def test_a_run_that_is_started_once_goes_on(environment: dict[str, str]) -> None:
    assert not launchers.why_not_to_run(environment)
