"""Sparse files, cut, mapped and renamed by several clients on several mounts: a short cell each time, all when asked for (``-m soak``)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from daily import daily

from chaos import mixed

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]


def check(cell: mixed.Cell, seconds: float, tmp_path: Path) -> None:
    findings, line = mixed.one(cell, 1, seconds, 3, tmp_path / "kept")
    print(cell.words, line)
    assert not findings, findings


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", daily(["whole", "striped"], "striped"))
def test_a_few_seconds_of_it(layout: str, tmp_path: Path) -> None:
    check(mixed.Cell(3, 2, layout, kills=False), 4.0, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("layout", ["whole", "striped", "grown"])
@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("nodes", [3, 5])
def test_every_cell(nodes: int, replicas: int, layout: str, kills: bool, tmp_path: Path) -> None:
    check(mixed.Cell(nodes, replicas, layout, kills), float(os.environ.get("AMFS_MIXED_SECONDS", "120")), tmp_path)
