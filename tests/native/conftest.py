"""Directories in memory where there is memory; a launcher in them that must leave nothing behind; nodes of this process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsio_nodes import Nodes
from launching import World
from peer_meta_nodes import Cluster, Line


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


@pytest.fixture
def nodes(root: Path) -> Iterator[Nodes]:
    it = Nodes(root, 3)
    yield it
    it.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    it = Cluster(tmp_path)
    yield it
    it.stop()


@pytest.fixture
def line(cluster: Cluster) -> Iterator[Line]:
    """Node 1 asks node 0."""
    it = Line(cluster.nodes[0].io.port, 1)
    assert it.status == 0
    yield it
    it.close()
