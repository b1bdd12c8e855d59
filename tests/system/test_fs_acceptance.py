"""Large things on four nodes and two mounts: a million files in one directory, a file larger than any node; afterwards nothing is left."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from amfs.client import discovery

pytestmark = [pytest.mark.soak, pytest.mark.root, pytest.mark.timeout(3000)]

FILES = int(os.environ.get("AMFS_MANY_FILES", "1000000"))
MIB = 1 << 20


def amfs(*args: str) -> str:
    done = subprocess.run([sys.executable, "-m", "amfs", *args], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout


class Cluster(NamedTuple):
    name: str
    pids: list[int]
    mounts: list[Path]

    def descriptors(self) -> list[int]:
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in self.pids]

    def resident_mib(self) -> list[int]:
        """Private memory of the node processes: files in tmpfs do not count."""
        return [int(Path(f"/proc/{pid}/status").read_text().split("RssAnon:")[1].split()[0]) // 1024 for pid in self.pids]

    def used(self) -> int:
        return sum(node["used"] for node in json.loads(amfs("df", "--session", self.name, "--output", "json")))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    name = f"accept-{os.getpid()}"
    amfs("up", "--nodes", "4", "--slots", "1", "--name", name, "--store-limit", "1.5G")
    mounts = [tmp_path / "m0", tmp_path / "m1"]
    for node, mount in enumerate(mounts):
        mount.mkdir()
        amfs("mount", str(mount), "--session", name, "--node", str(node))
    yield Cluster(name, [entry.pid for entry in discovery.find(name).nodes], mounts)
    for mount in mounts:
        amfs("umount", str(mount))
    amfs("down", name)


def at_once(act: Callable[[int], object]) -> None:
    """For every file, in eight processes: one at a time waits for the other nodes most of the time."""
    children = []
    for first in range(8):
        child = os.fork()
        if not child:
            try:
                for i in range(first, FILES, 8):
                    act(i)
                os._exit(0)
            except BaseException as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(1)
        children.append(child)
    assert not any(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def settle(cluster: Cluster, bound: int) -> None:
    """Wait for deletions in the background."""
    end = time.monotonic() + 60
    while cluster.used() > bound and time.monotonic() < end:
        time.sleep(0.5)


def test_a_million_files_in_one_directory(cluster: Cluster) -> None:
    before, memory = cluster.descriptors(), cluster.resident_mib()
    many = cluster.mounts[0] / "many"
    many.mkdir()
    at_once(lambda i: os.close(os.open(many / f"f{i:07}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
    listed = {entry.name for entry in os.scandir(cluster.mounts[1] / "many")}
    assert listed == {f"f{i:07}" for i in range(FILES)}
    at_once(lambda i: os.unlink(many / f"f{i:07}"))
    assert not os.listdir(many) and not os.listdir(cluster.mounts[1] / "many")
    os.rmdir(cluster.mounts[1] / "many")
    settle(cluster, 64 * MIB)
    assert all(now <= then + 16 for then, now in zip(before, cluster.descriptors(), strict=True)), (before, cluster.descriptors())
    assert all(now <= then + 100 for then, now in zip(memory, cluster.resident_mib(), strict=True)), (memory, cluster.resident_mib())


@pytest.mark.parametrize("layout", ["striped", "whole"])
def test_a_file_larger_than_any_node(cluster: Cluster, layout: str) -> None:
    before = cluster.descriptors()
    used = cluster.used()
    directory = cluster.mounts[0] / "large"
    directory.mkdir()
    os.setxattr(directory, "user.amfs.layout", layout.encode())  # "whole" goes on in stripes when its node is full
    block = random.Random(1).randbytes(4 * MIB)
    written = hashlib.sha256()
    with open(directory / "4GiB", "wb", buffering=0) as file:
        for i in range(1024):
            data = block[i:] + block[:i]
            written.update(data)
            assert file.write(data) == len(data)
    read = hashlib.sha256()
    with open(cluster.mounts[1] / "large" / "4GiB", "rb", buffering=0) as file:
        while data := file.read(4 * MIB):
            read.update(data)
    assert read.hexdigest() == written.hexdigest()
    assert os.stat(cluster.mounts[1] / "large" / "4GiB").st_size == 4 << 30
    os.unlink(cluster.mounts[1] / "large" / "4GiB")
    settle(cluster, used + 64 * MIB)
    assert cluster.used() <= used + 64 * MIB
    assert all(now <= then + 40 for then, now in zip(before, cluster.descriptors(), strict=True)), (before, cluster.descriptors())
