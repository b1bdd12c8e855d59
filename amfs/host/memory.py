"""How much memory this process and its files may still take, and what says so: the machine, or a memory cgroup. Reads /proc and cgroupfs.

The pages of a file in a tmpfs are charged to the cgroup of the process that wrote them, so its limit bounds a store, too. Must not know:
stores, nodes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_NONE = 1 << 60  # a number above is no limit; cgroup v1 says so with almost 2**63


class Group(NamedTuple):
    """A memory cgroup with a limit: one that this process is in, or an ancestor of that."""

    directory: str  # where its files are
    name: str  # its path, as far as this process can see it
    version: int

    def limit(self) -> int:
        """Bytes; above ``memory.high`` the kernel slows everything down, so that counts like ``memory.max``."""
        names = ("memory.max", "memory.high") if self.version == 2 else ("memory.limit_in_bytes",)
        return min(_number(f"{self.directory}/{name}") for name in names)

    def left(self) -> int:
        """Bytes that may be taken yet. Cached files of disks do not count: the kernel gives them up first."""
        used = _number(f"{self.directory}/{'memory.current' if self.version == 2 else 'memory.usage_in_bytes'}")
        prefix = "" if self.version == 2 else "total_"
        cached = sum(_counters(f"{self.directory}/memory.stat").get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
        return max(0, self.limit() - max(0, used - cached))


def _number(path: str) -> int:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return _NONE if not path.endswith(("current", "usage_in_bytes")) else 0
    return min(_NONE, int(text)) if text.isdecimal() else _NONE


def _counters(path: str) -> dict[str, int]:
    try:
        lines = [line.split() for line in Path(path).read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdecimal()}


def directories(controller: str, proc: str = "/proc/self") -> list[tuple[str, str, int]]:
    """(directory, path, version) of the cgroup of this process that has ``controller``, and of its ancestors as far as they can be seen."""
    found = []
    try:
        mounts = [line.split() for line in Path(f"{proc}/mountinfo").read_text(errors="replace").splitlines()]
        groups = [line.split(":", 2) for line in Path(f"{proc}/cgroup").read_text(errors="replace").splitlines()]
    except OSError:
        return []
    for _, names, path in groups:
        version = 1 if names else 2
        if names and controller not in names.split(","):
            continue
        for fields in mounts:
            kind = fields[fields.index("-") + 1 :]
            if kind[0] != ("cgroup" if names else "cgroup2") or (names and controller not in kind[2].split(",")):
                continue
            root, place = fields[3], fields[4]
            # In a container without a cgroup namespace, our own group is mounted; a path outside of the mounted part says nothing.
            below = os.path.relpath(path, root) if path.startswith(root.rstrip("/") + "/") or path == root else "."
            if not os.path.isdir(f"{place}/{below}"):
                below = "."
            while True:
                found.append((os.path.normpath(f"{place}/{below}"), os.path.normpath(f"{root.rstrip('/')}/{below}"), version))
                if below == ".":
                    break
                below = os.path.dirname(below) or "."
            break
    return found


def groups(proc: str = "/proc/self") -> list[Group]:
    """The memory cgroups that bound this process: its own first."""
    all_ = (Group(*one) for one in directories("memory", proc))
    return [group for group in all_ if group.limit() < _NONE]


def machine_left() -> int:
    """Bytes that this machine has yet, without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return _NONE


def left(bounds: Sequence[Group]) -> tuple[int, str]:
    """Bytes that may be taken yet, and what sets that limit, in words."""
    least, why = machine_left(), "memory of this machine"
    for group in bounds:
        if (room := group.left()) < least:
            least, why = room, f"memory cgroup {group.name}"
    return least, why


def cpu_quota(proc: str = "/proc/self") -> float:
    """CPUs that the cgroups of this process let it use at a time; infinite if they set no quota."""
    least = float("inf")
    for directory, _, version in directories("cpu", proc):
        if version == 2:
            try:
                quota, period = Path(f"{directory}/cpu.max").read_text().split()
            except (OSError, ValueError):
                continue
        else:
            quota, period = str(_number(f"{directory}/cpu.cfs_quota_us")), str(_number(f"{directory}/cpu.cfs_period_us"))
        if quota.isdecimal() and period.isdecimal() and 0 < int(quota) < _NONE and int(period) > 0:
            least = min(least, int(quota) / int(period))
    return least


class Kills:
    """Processes that the kernel has killed because memory had run out: in the cgroup of this process, else on this machine."""

    def __init__(self, proc: str = "/proc/self") -> None:
        directory, _, version = next(iter(directories("memory", proc)), ("", "", 0))
        files = {0: "/proc/vmstat", 1: f"{directory}/memory.oom_control", 2: f"{directory}/memory.events"}
        own = files[version]
        self.file = own if "oom_kill" in _counters(own) else files[0]  # the root has no such file
        self._before = self.count()

    def count(self) -> int:
        return _counters(self.file).get("oom_kill", 0)

    def more(self) -> int:
        """Since the last call."""
        before, self._before = self._before, self.count()
        return self._before - before
