"""Directories in memory where there is memory, and a launcher in them that must leave nothing behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import World


@pytest.fixture
def root() -> Iterator[Path]:
    shm = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="amfs-test-", dir=shm if os.access(shm, os.W_OK) else None))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def world(root: Path) -> Iterator[World]:
    it = World(root)
    yield it
    it.launcher.stop()
    it.assert_clean()
