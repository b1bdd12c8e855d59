"""No byte is ever wrong, whichever way it was written and is read: one file and several, one node and two that take turns."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from fsx import Exerciser


@pytest.mark.slow
@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("seed", ["a", "b"])
def test_no_byte_is_wrong(mounts: list[Path], files: int, seed: str) -> None:
    with contextlib.closing(Exerciser(mounts, seed, files)) as it:
        assert it.run(ops=1500, seconds=60) >= 200


@pytest.mark.soak
@pytest.mark.timeout(12 * 3600)
@pytest.mark.parametrize("files", [1, 4])
def test_no_byte_is_wrong_for_hours(mounts: list[Path], files: int) -> None:
    """``AMFS_FSX_SECONDS`` each, an hour unless said otherwise: with one and two mounts, one and four files, that is four hours."""
    with contextlib.closing(Exerciser(mounts, f"soak {files}", files, size_max=8 << 20)) as it:
        assert it.run(ops=None, seconds=float(os.environ.get("AMFS_FSX_SECONDS", "3600"))) > 1000
