"""The program that started this process, by the environment: a launcher of MPI, or of a batch system's step. Pure."""

from __future__ import annotations

from collections.abc import Mapping

MPI_MARKS = ("PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "PALS_RANKID")
MPI_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
STEP_SIZE = "SLURM_STEP_NUM_TASKS"  # srun sets it; the script of a job does not have it, or has 1
_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID")


def rank(environ: Mapping[str, str], *, of_step: bool = False) -> int:
    """The number of this copy, if the environment tells it without starting MPI; else 0. ``of_step``: also that of a step of Slurm."""
    ranks = (environ.get(name, "") for name in (*_RANKS, *(("SLURM_PROCID",) if of_step else ())))
    return next((int(text) for text in ranks if text.isdecimal()), 0)


def sizes(environ: Mapping[str, str]) -> dict[str, int]:
    """The variables by which a launcher says that it started several copies of this command, and how many."""
    told = {name: environ.get(name, "") for name in (*MPI_SIZES, STEP_SIZE)}
    return {name: int(text) for name, text in told.items() if text.isdecimal() and int(text) > 1}


def why_not_to_run(environ: Mapping[str, str]) -> str:
    """Why ``amfs run`` must not go on: every copy of it would run the whole list, over the same outputs. '' if it is the only one."""
    found = sizes(environ)
    if not found:
        return ""
    copies = max(found.values())
    step = list(found) == [STEP_SIZE]
    type_this = "in the job type 'amfs up' once" if step else f"type 'mpiexec -n {copies} amfs up'"
    own = " ".join(f"-u {name}" for name in found)
    return (
        f"a launcher started this command {copies} times, and each would run the whole list: {type_this}, then 'amfs run' once, without a "
        f"launcher (if each has a list of its own: 'env {own} amfs run …')"
    )
