"""The two trees of every suite here: one that is tested, and a tmpfs that knows how it should be.

Without root or /dev/fuse these tests fail and say so, unless ``AMFS_TESTS_NO_FUSE=1`` says that this is known. Soak tests run when asked
for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import mounting
import pytest
from comparing import Pair

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    if os.environ.get(mounting.NO_FUSE) == "1":
        for item in here:
            item.add_marker(pytest.mark.skip(reason=f"{mounting.NO_FUSE}=1"))
    if "soak" not in (config.option.markexpr or ""):
        left_out = [item for item in here if item.get_closest_marker("soak") or not _is_ordinary(item)]
    else:
        left_out = [item for item in here if _group_on_two_mounts(item) in OF_SET_ID_BITS]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


#: Areas that run on two mounts ordinarily, besides real programs: those that take seconds.
ON_TWO_MOUNTS = frozenset(
    ("attributes", "locks", "maps", "open_on_one_node", "reading_and_writing", "rename", "seen_by_the_other_node", "space", "unlink")
)


#: About two nodes: on one mount they are for soak runs.
OF_TWO_NODES = frozenset(("open_on_one_node", "seen_by_the_other_node"))


#: Never on two mounts: a kernel clears set-id bits by the mode that it remembers, which another mount may have changed (docs/promises.md).
OF_SET_ID_BITS = frozenset(("bits_lost_by_writing", "chown", "group_of_new_files"))


def _group_on_two_mounts(item: pytest.Item) -> str | None:
    spec = getattr(item, "callspec", None)
    return spec.params.get("group") if spec is not None and spec.params.get("mounts") == 2 else None


def _is_ordinary(item: pytest.Item) -> bool:
    """Between two nodes every call waits for messages, and all suites take minutes: ordinarily only the areas above run there."""
    spec = getattr(item, "callspec", None)
    if spec is None or spec.params.get("mounts") != 2:
        return spec is None or spec.params.get("group") not in OF_TWO_NODES
    if item.path.name == "test_posix_programs.py":
        return "montage" not in item.name  # on several nodes: tests/e2e/test_montage.py
    return spec.params.get("group") in ON_TWO_MOUNTS


@pytest.fixture(scope="module", params=[1, 2], ids=["one-mount", "two-mounts"])
def mounts(request: pytest.FixtureRequest) -> Iterator[list[Path]]:
    """The tops of the mounts: one node and its mount, or two nodes with a mount each."""
    try:
        with mounting.mounted(request.param) as directories:
            yield directories
    except mounting.NotHere as missing:
        pytest.fail(f"{missing} (or set {mounting.NO_FUSE}=1 to leave them out)", pytrace=False)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Path]:
    """A fresh directory on a tmpfs."""
    try:
        with mounting.on_tmpfs() as directory:
            yield directory
    except mounting.NotHere as missing:
        pytest.fail(f"{missing} (or set {mounting.NO_FUSE}=1 to leave them out)", pytrace=False)


@pytest.fixture(scope="module")
def pair(mounts: list[Path], oracle: Path) -> Iterator[Pair]:
    """Both trees with a process each that makes calls in them."""
    it = Pair(oracle, mounts)
    yield it
    it.stop()
