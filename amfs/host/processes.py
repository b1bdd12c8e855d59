"""Names of this host and of its processes that are never used twice. Reads /proc; must not know: sessions."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from amfs.host import memory


def boot() -> str:
    """Names this machine from one start of it to the next, the same in all of its containers; "" where that cannot be known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return ""


def host_id() -> str:
    """Names this machine, its boot and its set of processes: two processes with the same can see each other's pids."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()}/{boot()}-{space}"


def same_machine(one: str, other: str) -> bool:
    """Do two ``host_id`` name the same machine, whichever namespaces their processes are in?"""
    boots = [name.rpartition("/")[2].partition("-")[0] for name in (one, other) if "/" in name]
    return one == other or (len(boots) == 2 and boots[0] == boots[1] != "")


def start_time(pid: int) -> int:
    """Start of a process in clock ticks since boot; 0 if there is no such process or it is a zombie.

    A killed process whose first thread is gone while others still end is no zombie yet: it holds its locks and mounts until the last has.
    """
    try:
        # The command's name (field 2) is in parentheses and may itself contain some, and spaces.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    threads = int(fields[17])
    return 0 if fields[0] in "ZX" and threads <= 1 else int(fields[19])


def is_running(pid: int, started: int) -> bool:
    """Whether the process with that pid is still the one that started then."""
    return pid > 0 and started > 0 and start_time(pid) == started


def job_end(environ: Mapping[str, str] = os.environ) -> int:
    """When the batch system ends the job that we are in, in seconds since 1970; 0: it does not say, or was wrong."""
    said = environ.get("AMFS_JOB_END") or environ.get("SLURM_JOB_END_TIME", "")
    return int(said) if said.isascii() and said.isdigit() and int(said) > time.time() else 0


def usable_cpus() -> int:
    """CPUs that this process may run on; fewer, if the quota of its cgroups amounts to fewer or its Slurm job was given fewer here."""
    given = os.environ.get("SLURM_CPUS_ON_NODE", "")  # some sites do not bind jobs to their CPUs
    most = int(given) if given.isdecimal() else 1 << 20
    return max(1, min(len(os.sched_getaffinity(0)), math.ceil(min(memory.cpu_quota(), most))))


_TREE_MAX = 64  # processes of one task that are looked at


def resident_of_tree(pid: int) -> int:
    """Bytes of memory that a process and its descendants have; -1 if it is gone. Of more than 64 processes it is that of the first."""
    page = os.sysconf("SC_PAGESIZE")
    pages, waiting, seen = 0, [pid], 0
    while waiting and seen < _TREE_MAX:
        one = waiting.pop()
        seen += 1
        try:
            with open(f"/proc/{one}/statm", "rb") as file:
                pages += int(file.read().split()[1])
            with open(f"/proc/{one}/task/{one}/children", "rb") as file:
                waiting += map(int, file.read().split())
        except (OSError, IndexError):
            if one == pid and not pages:
                return -1
    return pages * page
