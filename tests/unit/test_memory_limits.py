"""Limits of cgroups on memory and CPUs, from files as the kernel has them; real ones are in ``tests/system/test_memory_cgroup.py``."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from amfs.host import memory, processes

MIB = 1 << 20
V2 = "35 22 0:30 {root} {place} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "36 22 0:31 {root} {place} rw - cgroup cgroup rw,memory\n36 22 0:32 {root} {place} rw - cgroup cgroup rw,cpu,cpuacct\n"


def proc(tmp_path: Path, mounts: str, groups: str, root: str = "/") -> str:
    place = tmp_path / "cgroup"
    place.mkdir(exist_ok=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mountinfo").write_text("22 1 0:5 / /proc rw - proc proc rw\n" + mounts.format(root=root, place=place))
    (tmp_path / "proc/cgroup").write_text(groups)
    return str(tmp_path / "proc")


def group(tmp_path: Path, path: str, **files: object) -> None:
    directory = tmp_path / "cgroup" / path
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name.replace("__", ".")).write_text(f"{content}\n")


def test_version_2_the_least_of_all_ancestors(tmp_path: Path) -> None:
    group(tmp_path, "job", memory__max=1000 * MIB, memory__high="max", memory__current=700 * MIB, memory__stat="inactive_file 0")
    group(tmp_path, "job/step", memory__max="max", memory__high="max", memory__current=10 * MIB)
    group(tmp_path, "job/step/task", memory__max=500 * MIB, memory__high="max", memory__current=20 * MIB)
    found = memory.groups(proc(tmp_path, V2, "0::/job/step/task\n"))
    assert [one.name for one in found] == ["/job/step/task", "/job"]
    assert memory.left(found) == (300 * MIB, "memory cgroup /job")


def test_version_2_cached_files_are_no_use_and_memory_high_is_a_limit(tmp_path: Path) -> None:
    stat = f"anon 1\nfile {300 * MIB}\nshmem {100 * MIB}\ninactive_file {150 * MIB}\nactive_file {50 * MIB}"
    group(tmp_path, "a", memory__max=900 * MIB, memory__high=600 * MIB, memory__current=400 * MIB, memory__stat=stat)
    (one,) = memory.groups(proc(tmp_path, V2, "0::/a\n"))
    assert one.left() == 400 * MIB


def test_version_1(tmp_path: Path) -> None:
    stat = f"inactive_file 0\ntotal_inactive_file {30 * MIB}\ntotal_active_file {20 * MIB}"
    usual = {"memory__limit_in_bytes": 2**63 - 4096, "memory__usage_in_bytes": MIB}
    group(tmp_path, ".", **usual)
    group(tmp_path, "slurm", memory__limit_in_bytes=200 * MIB, memory__usage_in_bytes=150 * MIB, memory__stat=stat)
    group(tmp_path, "slurm/step", **usual)
    found = memory.groups(proc(tmp_path, V1, "7:cpu,cpuacct:/else\n4:memory:/slurm/step\n0::/unified\n"))
    assert memory.left(found) == (100 * MIB, "memory cgroup /slurm")


def test_a_container_sees_its_own_group_only(tmp_path: Path) -> None:
    """Without a namespace of cgroups the paths are those of the host, and what is mounted is our own group."""
    group(tmp_path, ".", memory__limit_in_bytes=64 * MIB, memory__usage_in_bytes=MIB)
    found = memory.groups(proc(tmp_path, V1, "4:memory:/docker/0123\n", root="/docker/0123"))
    assert [(one.name, one.left()) for one in found] == [("/docker/0123", 63 * MIB)]


def test_a_path_outside_of_what_is_mounted(tmp_path: Path) -> None:
    group(tmp_path, ".", memory__max=64 * MIB, memory__current=MIB)
    assert [one.left() for one in memory.groups(proc(tmp_path, V2, "0::/../elsewhere\n"))] == [63 * MIB]


def test_more_used_than_there_is_leaves_nothing(tmp_path: Path) -> None:
    group(tmp_path, "a", memory__max=MIB, memory__current=2 * MIB)
    assert memory.left(memory.groups(proc(tmp_path, V2, "0::/a\n")))[0] == 0


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    assert memory.groups(str(tmp_path / "none")) == []
    assert memory.left([])[1] == "memory of this machine"
    assert memory.cpu_quota(str(tmp_path / "none")) == math.inf


def test_the_quota_of_cpus(tmp_path: Path) -> None:
    group(tmp_path, "a", cpu__max="150000 100000")
    group(tmp_path, "a/b", cpu__max="max 100000")
    assert memory.cpu_quota(proc(tmp_path, V2, "0::/a/b\n")) == 1.5


def test_the_quota_of_cpus_of_version_1(tmp_path: Path) -> None:
    group(tmp_path, "a", cpu__cfs_quota_us=50000, cpu__cfs_period_us=100000)
    group(tmp_path, ".", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000)
    assert memory.cpu_quota(proc(tmp_path, V1, "7:cpu,cpuacct:/a\n")) == 0.5
    assert 1 <= processes.usable_cpus() <= len(os.sched_getaffinity(0))


def test_what_a_slurm_job_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    before = processes.usable_cpus()
    for given, found in (("1", 1), ("many", before), ("100000", before)):
        monkeypatch.setenv("SLURM_CPUS_ON_NODE", given)
        assert processes.usable_cpus() == found


def test_kills_are_counted_in_the_own_group(tmp_path: Path) -> None:
    group(tmp_path, "a", memory__events="low 0\nhigh 3\nmax 10\noom 1\noom_kill 1\noom_group_kill 0")
    kills = memory.Kills(proc(tmp_path, V2, "0::/a\n"))
    assert kills.more() == 0
    group(tmp_path, "a", memory__events="oom_kill 3")
    assert (kills.more(), kills.more()) == (2, 0)
