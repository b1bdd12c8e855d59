"""What all tests share: the command run as a person would, and a check that nothing is left behind.

Tests marked ``root`` or ``mpi`` need these; where they are missing the test is skipped with the reason, except when CI is set, where a
missing MPI is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def amfs(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``amfs ARGS…`` in the test's own directory; the limit only turns a hang into a failure."""

    def run(
        *args: str, input: str | None = None, cwd: Path | None = None, env: dict[str, str] | None = None, timeout: float = 100
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "amfs", *args],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            cwd=cwd or tmp_path,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs to be root"))
        if item.get_closest_marker("mpi") and not os.environ.get("CI") and mpiexec() is None:
            item.add_marker(pytest.mark.skip(reason="needs mpiexec: pip install 'amfs[mpi]'"))


def mpiexec() -> str | None:
    """The mpiexec of this environment (the mpich wheel's), else the one on PATH."""
    own = Path(sys.executable).with_name("mpiexec")
    return str(own) if own.exists() else shutil.which("mpiexec")
