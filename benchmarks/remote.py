"""Files that were written on another node: ``benchmarks envelope``'s last rows. Large ones beside raw TCP, small ones in round trips.

Owns the rows. Everything goes through mounts of two nodes of one session: the first node writes and closes a file, the second opens it.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from amfs.bench import process
from amfs.bench.dispatch import Line, Result, Sample, both, summarise
from amfs.bench.echo import round_trip_seconds
from amfs.errors import AmfsError
from benchmarks import programs
from benchmarks.clients import Client
from benchmarks.mounts import NAME, Session

NODES = 4
NO_TARGET = 0.0  # of a row that is there to be read: the questions count, whatever else the kernel does in that time
_MIB = 1 << 20
_SMALL_FILES = 300
_MANY_FILES = 500  # of each client
_DIRECTORIES = 50
_ROUND_TRIPS = 300
_LOOKS = 20

T = TypeVar("T")

LINES = (
    Line("striped", "striped file over 4 nodes, read from another", "GB/s", "raw TCP loopback in C", True, 0.6),
    Line("striped-again", "  read again", "GB/s", "raw TCP loopback in C", True, 0.6),
    Line("whole", "whole file, read from another node", "GB/s", "raw TCP loopback in C", True, 0.6),
    Line("whole-again", "  read again", "GB/s", "raw TCP loopback in C", True, 0.6),
    Line("small", "1 KiB file of another node, open and read", "µs", "one ZeroMQ round trip", True, NO_TARGET),
    Line("small-again", "  again", "µs", "one ZeroMQ round trip", True, NO_TARGET),
    Line("small-asked", "  questions to other nodes, first", "a file", "", False, 3.0),
    Line("small-asked-again", "  questions to other nodes, again", "a file", "", False, 0.0),
    Line("many", "1 KiB files of the next of 4 nodes, a client each", "files/s", "files of each node itself", True, 0.2),
    Line("mkdir", "directories made in one, a client on each of 4 nodes", "a second", "", True, NO_TARGET),
    Line("rmdir", "  removed", "a second", "", True, NO_TARGET),
)


class Remote:
    """A session of NODES nodes, mounted on each."""

    def __init__(self, session: Session, options: tuple[str, ...] = ()) -> None:
        self.session = session
        self.programs = programs.build()
        self.mounts = [session.mount(node, *options) for node in range(NODES)]
        self.here, self.there = self.mounts[:2]
        self._count = itertools.count()
        for layout in ("striped", "whole"):
            place = self.here / layout
            place.mkdir()
            os.setxattr(place, "user.amfs.layout", layout.encode())

    def pair(self, layout: str) -> tuple[Client, Client]:
        """One client on each of the two nodes, for files that both know by the same name."""
        name = f"remote{next(self._count)}"
        first = Client(self.programs["envelope"], 1, name, [self.here / layout])
        try:
            return first, Client(self.programs["envelope"], 1, name, [self.there / layout])
        except BaseException:
            first.close()
            raise

    def large(self, layout: str, mib: int) -> tuple[float, float]:
        """Bytes a second of the first and of the second reading of a file from another node; one file goes before without being counted,
        so that the memory is warm. Raises Failed."""
        first = again = 0.0
        for _ in range(2):
            writer, reader = self.pair(layout)
            with writer, reader:
                writer.phase("bigwrite", count=mib)
                reader.phase("havebig", count=mib)
                first, again = reader.phase("bigread").rate, reader.phase("bigread").rate
                writer.phase("clean")
        return first * _MIB, again * _MIB

    def small(self) -> list[tuple[float, float | None]]:
        """To open, read and close a small file of another node: the first time, and once more. Each in seconds, and in questions that the
        reader's node put to others, if it tells. Raises Failed."""
        found: list[tuple[float, float | None]] = []
        writer, reader = self.pair("whole")
        with writer, reader:
            writer.phase("write", count=_SMALL_FILES)
            self.settled(self.unfinished)
            reader.phase("havesmall", count=_SMALL_FILES)
            for _ in range(2):
                before = self.settled(self.asked)
                seconds = 1 / reader.phase("once").rate
                after = self.settled(self.asked)
                found.append((seconds, None if before is None or after is None else (after - before) / _SMALL_FILES))
            writer.phase("clean")
        return found

    def many(self) -> tuple[float, float]:
        """Files a second that a client on each node opens, reads and closes: those of the next node's, the first time, and its own.

        Raises Failed."""
        name, places = f"remote{next(self._count)}", [mount / "whole" for mount in self.mounts]
        with Client(self.programs["envelope"], NODES, name, places) as clients:
            clients.phase("write", count=_MANY_FILES)
            self.settled(self.unfinished)
            elsewhere, own = clients.phase("once", shift=1).rate, clients.phase("once").rate
            clients.phase("clean")
        return elsewhere, own

    def directories(self) -> tuple[float, float]:
        """Directories a second that a client on each node makes and removes, all in the same one. Raises Failed."""
        with Client(self.programs["envelope"], NODES, f"remote{next(self._count)}", self.mounts) as clients:
            return clients.phase("mkdir", count=_DIRECTORIES).rate, clients.phase("rmdir").rate

    def settled(self, look: Callable[[], T]) -> T:
        """What ``look`` finds once it finds the same again: a mount is told of a closing after close(2) has returned."""
        found = look()
        for _ in range(_LOOKS):
            if (again := look()) == found:
                break
            found = again
        return found

    def unfinished(self) -> str:
        """Small files whose writer's closing has not been told, a line each. Raises Failed."""
        return str(self.session.amfs("find", "/whole", "--unfinished").stdout)

    def asked(self) -> int | None:
        """Questions that the file system of the reader's node has put to other nodes so far. Raises Failed."""
        status = msgspec.json.decode(self.session.amfs("status", NAME, "--output", "json").stdout)
        node = next(node for node in status["sessions"][0]["nodes"] if node["node"] == 1)
        return int(node["fs_asked"]) if "fs_asked" in node else None

    def tcp(self, mib: int) -> float:
        """Bytes a second of raw TCP over loopback, memory to memory. Raises Failed."""
        ran = process.run([str(self.programs["tcploop"]), str(mib * _MIB), "3"], "/")
        return mib * _MIB / statistics.median(map(float, ran.stdout.split()))

    def round_trip(self) -> float:
        """Seconds of one small message there and back between two processes. Raises Failed."""
        with tempfile.TemporaryDirectory(prefix="amfs-bench-", dir="/tmp") as place:
            return statistics.median(round_trip_seconds(Path(place), "ipc", _ROUND_TRIPS))

    def turn(self, mib: int, turn: int) -> dict[str, Sample]:
        """All rows once, each beside what it is compared with. Raises Failed."""
        found = {}
        for layout in ("striped", "whole"):
            (first, again), tcp = both(turn, lambda layout=layout: self.large(layout, mib), lambda: self.tcp(mib))  # type: ignore[misc]
            found[layout] = Sample(first / 1e9, tcp / 1e9)
            found[f"{layout}-again"] = Sample(again / 1e9, tcp / 1e9)
        small, trip = both(turn, self.small, self.round_trip)
        for key, key_asked, (seconds, asked) in zip(("small", "small-again"), ("small-asked", "small-asked-again"), small, strict=True):
            found[key] = Sample(seconds * 1e6, trip * 1e6)
            if asked is not None:
                found[key_asked] = Sample(asked)
        found["many"] = Sample(*self.many())
        made, removed = self.directories()
        found["mkdir"], found["rmdir"] = Sample(made), Sample(removed)
        return found


def run_remote(remote: Remote, repeat: int, mib: int, say: Callable[[str], None] = lambda text: None) -> list[Result]:
    """Measure all rows ``repeat`` times. A failure is in every row."""
    turns: list[dict[str, Sample]] = []
    error = ""
    for turn in range(repeat):
        say(f"from another node, {turn + 1} of {repeat}")
        try:
            turns.append(remote.turn(mib, turn))
        except AmfsError as problem:
            error = str(problem)
            say(f"from another node failed: {error}")
            break
    known = {line.key: [found[line.key] for found in turns if line.key in found] for line in LINES}
    return [summarise(line, known[line.key], error) for line in LINES if known[line.key] or error]


def failed_rows(error: str) -> list[Result]:
    return [summarise(line, [], error) for line in LINES]
