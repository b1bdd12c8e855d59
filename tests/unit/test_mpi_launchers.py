"""An MPI launcher that is not of mpi4py's MPI."""

from __future__ import annotations

import pytest

from amfs.errors import SystemSetupError
from amfs.provision import mpi

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
