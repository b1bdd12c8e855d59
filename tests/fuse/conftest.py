"""One node behind real mounts. Needs root and /dev/fuse; fails, and says so, where they are missing, unless AMFS_TESTS_NO_FUSE=1."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from onenode import OneNode

from amfs._native import Fuse, fuse_mount, fuse_unmount


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("AMFS_TESTS_NO_FUSE") == "1":
        for item in items:
            if "tests/fuse" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="AMFS_TESTS_NO_FUSE=1"))


class Served:
    """A node whose mounts are served by a thread of this process."""

    def __init__(self, top: Path, limit: int = 0) -> None:
        self.top = top
        store = Path(tempfile.mkdtemp(prefix="amfs-fuse-t-", dir="/dev/shm"))
        self.store = store
        self.node = OneNode(str(store), limit)
        self.paths: list[str] = []
        self.ending = False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while not self.ending:
            self.node.turn(0.05)

    def mount(self, **options: Any) -> tuple[Path, Fuse]:
        path = self.top / f"mount{len(self.paths)}"
        path.mkdir()
        fd = fuse_mount(str(path), "amfs:test", True)
        fuse = self.node.mount(fd, **options)
        self.paths.append(str(path))
        path.stat()  # the kernel has said hello when this is answered
        return path, fuse

    def end(self) -> None:
        for path in self.paths:
            fuse_unmount(path, 2)
        self.ending = True
        self.thread.join()
        self.node.stop()
        shutil.rmtree(self.store)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.fail("these tests mount: run them as root with /dev/fuse, or set AMFS_TESTS_NO_FUSE=1", pytrace=False)
    top = Path(tempfile.mkdtemp(prefix="amfs-fuse-m-", dir="/tmp"))
    made: list[Served] = []

    def start(**options: Any) -> Served:
        made.append(Served(top, **options))
        return made[-1]

    try:
        yield start
    finally:
        for served in made:
            served.end()
        shutil.rmtree(top)
