"""The C programs of all benchmarks: those of ``amfs bench dispatch``, and those that only this folder needs."""

from __future__ import annotations

from pathlib import Path

from amfs.bench import programs

PROGRAMS: programs.Programs = {**programs.PROGRAMS, "envelope": (("-pthread",),), "filecopy": ((),), "metadata": ((),)}


def build() -> dict[str, Path]:
    """Path of each program, compiled if it is not there yet. Raises SystemSetupError."""
    return programs.build(PROGRAMS)
