"""Everything here needs the tools themselves: make plugs installs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import amfs


@pytest.fixture(scope="session")
def cluster() -> Iterator[amfs.Cluster]:
    with amfs.Cluster(nodes=2, slots=2) as cluster:
        yield cluster


@pytest.fixture
def session(cluster: amfs.Cluster) -> str:
    """The name of a session of two nodes."""
    return cluster.name
