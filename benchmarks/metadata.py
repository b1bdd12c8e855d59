"""``benchmarks metadata``: the steps of mdtest, and two programs, by one client on a mount, beside the same on tmpfs.

Owns the rows and their targets. Sessions of local nodes are started and ended; files are read through the mount of another node than the
one that made them.
"""

from __future__ import annotations

import random
import shutil
import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec

from amfs.bench import process
from amfs.bench.dispatch import machine
from amfs.bench.process import Failed
from amfs.errors import AmfsError
from benchmarks import programs
from benchmarks.directories import memory_directory, workplace
from benchmarks.mounts import Session

#: Session -> (nodes, options of amfs up, how many times the time on tmpfs a step may take).
SESSIONS: dict[str, tuple[int, tuple[str, ...], dict[str, float]]] = {
    "1 node": (1, (), {}),
    "4 nodes": (4, (), {"create": 25, "read": 60, "mkdir": 60, "rename": 80, "remove": 80, "git clone": 6, "rm -rf": 8}),
    "4 nodes, 2 replicas": (4, ("--replicas", "2"), {"create": 60}),
}


class Row(msgspec.Struct, frozen=True):
    """Medians of microseconds for one of each step (a file, of the programs); ``times``: of the same step on tmpfs in the same turn."""

    session: str
    step: str
    tmpfs_us: float
    amfs_us: float
    times: float
    target: float | None


class Report(msgspec.Struct, frozen=True):
    machine: str
    files: int
    repeat: int
    rows: list[Row]
    errors: dict[str, str]


def clone_and_remove(repository: Path, place: Path, files: int) -> dict[str, float]:
    """Microseconds a file of ``git clone``, and of ``rm -rf`` on a tree of empty files. The repository is on tmpfs, to which git would make
    hard links from there, and none from elsewhere: it is told to copy, so that both do the same."""
    clone, tree = place / "clone", place / "tree"
    cloned = process.run(["git", "clone", "-q", "--no-hardlinks", str(repository), str(clone)], "/", hang_seconds=300.0).seconds
    for directory in range(20):
        (tree / str(directory)).mkdir(parents=True)
        for number in range(files // 20):
            (tree / str(directory) / str(number)).touch()
    removed = process.run(["rm", "-rf", str(tree)], "/", hang_seconds=300.0).seconds
    process.run(["rm", "-rf", str(clone)], "/", hang_seconds=300.0)
    return {"git clone": cloned / files * 1e6, "rm -rf": removed / (files // 20 * 20) * 1e6}


def make_repository(place: Path, files: int) -> Path | None:
    """One of so many files of 2 KiB; None where there is no git."""
    if shutil.which("git") is None:
        return None
    for number in range(files):
        file = place / "repository" / str(number % 20) / str(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(random.Random(number).randbytes(2048))
    git = ["git", "-C", str(place / "repository"), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        process.run([*git, *command], "/")
    return place / "repository"


def measure(*, files: int, repeat: int, say: Callable[[str], None]) -> Report:
    """Raises SystemSetupError where there is no compiler or no tmpfs. A session that cannot be measured is reported as such."""
    program = str(programs.build()["metadata"])
    rows: list[Row] = []
    errors: dict[str, str] = {}

    def run(*places: Path) -> dict[str, float]:
        lines = process.run([program, str(files), *map(str, places)], "/", hang_seconds=300.0).stdout.splitlines()
        return {step: float(us) for step, us in map(str.split, lines)}

    for name, (nodes, options, targets) in SESSIONS.items():
        say(f"{name} ...")
        theirs, ours = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
        try:
            with Session(nodes, options=options) as session, workplace(memory_directory()) as plain, workplace(memory_directory()) as kept:
                mounts = [session.mount(0), session.mount(nodes - 1)]
                repository = make_repository(kept, files)
                for _ in range(repeat):
                    for places, times in (([plain], theirs), (mounts, ours)):
                        found = run(*places)
                        if repository is not None:
                            found |= clone_and_remove(repository, places[0], files)
                        for step, us in found.items():
                            times[step].append(us)
        except (Failed, AmfsError) as error:
            errors[name] = str(error)
            continue
        for step, taken in ours.items():
            ratio = statistics.median(mine / other for mine, other in zip(taken, theirs[step], strict=True))
            rows.append(Row(name, step, statistics.median(theirs[step]), statistics.median(taken), ratio, targets.get(step)))
    return Report(machine(), files, repeat, rows, errors)
