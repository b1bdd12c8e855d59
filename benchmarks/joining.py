"""``benchmarks joining``: how long until a new node works, and how long others wait while its share of the data moves to it.

Owns the sessions, the clients that go on working meanwhile, and the table. Nodes come and go by ``amfs scale``, as for a user.
"""

from __future__ import annotations

import os
import random
import secrets
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from amfs.bench import process
from amfs.bench.dispatch import machine
from amfs.bench.process import Failed
from amfs.client.files import Files
from amfs.errors import AmfsError
from benchmarks import programs
from benchmarks.mounts import AMFS, Session

_MIB = 1 << 20
FILE_BYTES = 16 * _MIB
READ_BYTES = 64 << 10
WRITE_BYTES = 4096
NODES = 2  # before one more comes
BEFORE_S = 3.0  # that the clients work before anything changes
QUIET_S = 1.0  # so long nothing must have moved
END_S = 300.0
WAITING = 8  # tasks


class Pause(msgspec.Struct, frozen=True):
    """``change``: "joins", "leaves". ``moved``: bytes of files. ``command_s``: of ``amfs scale``; ``moving_s``: until nothing moved any
    more. ``tcp_s``: of raw TCP for as many bytes. ``longest_s``, ``before_s``: the longest operation of each kind meanwhile, and before."""

    change: str
    moved: int
    command_s: float
    moving_s: float
    tcp_s: float
    longest_s: dict[str, float]
    before_s: dict[str, float]


class First(msgspec.Struct, frozen=True):
    """``task_s``: from the start of ``amfs scale`` to the first task on the new node; ``bare_s``: of a bare job of the system to its first
    command, None where there is no such job."""

    on: str
    task_s: float
    bare_s: float | None


class Report(msgspec.Struct, frozen=True):
    machine: str
    load: float
    pauses: list[Pause]
    firsts: list[First]


# ── how long others wait ───────────────────────────────────────────────────────────────────────────


class Client(threading.Thread):
    """Does one operation again and again. ``longest``: seconds, since it was last taken."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.act, self.longest, self.error = act, 0.0, ""
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.001):  # an operation at a time, and not a whole CPU
            began = time.perf_counter()
            try:
                self.act()
            except OSError as error:
                self.error = f"{error.strerror}: {error.filename}"
                return
            except AmfsError as error:
                self.error = str(error)
                return
            self.longest = max(self.longest, time.perf_counter() - began)

    def take(self) -> float:
        found, self.longest = self.longest, 0.0
        return found


@contextmanager
def clients(session: str, paths: list[str]) -> Iterator[dict[str, Client]]:
    """One that reads stripes, one that asks for names, one that writes and removes files; each with a connection of its own."""
    chance = random.Random(1)
    reading, asking, writing = (Files(session) for _ in range(3))
    opened = [reading.open(path, "rb", buffering=0) for path in paths]

    def read() -> None:
        file = chance.choice(opened)
        file.seek(chance.randrange(FILE_BYTES - READ_BYTES))
        file.read(READ_BYTES)

    def write() -> None:
        name = f"/new-{secrets.token_hex(4)}"
        writing.write_bytes(name, bytes(WRITE_BYTES))
        writing.unlink(name)

    working = {"read": Client(read), "look": Client(lambda: asking.stat(chance.choice(paths))), "write": Client(write)}
    for client in working.values():
        client.start()
    try:
        yield working
    finally:
        for client in working.values():
            client.ended.set()
        for client in working.values():
            client.join(END_S)
        for file in opened:
            file.close()
        for files in (reading, asking, writing):
            files.close()


def settled(files: Files, total: int, nodes: int) -> float:
    """Wait until ``nodes`` nodes together have ``total`` bytes and none has changed for a while. When the last changed. Raises Failed."""
    last: list[int] = []
    changed = began = time.monotonic()
    while True:
        now = time.monotonic()
        used = [node.used for node in files.df()]
        if [each // _MIB for each in used] != last:
            last, changed = [each // _MIB for each in used], now
        if len(used) == nodes and abs(sum(used) - total) < _MIB and now - changed > QUIET_S:
            return changed
        if now - began > END_S:
            raise Failed(f"{nodes} nodes have {sum(used)} bytes of {total} after {END_S:.0f} s: {used}")
        time.sleep(0.05)


def tcp_seconds(size: int) -> float:
    """Of raw TCP for so many bytes. Raises Failed."""
    ran = process.run([str(programs.build()["tcploop"]), str(100 * _MIB), "5"], "/")
    return statistics.median(map(float, ran.stdout.split())) * size / (100 * _MIB)


def measure_pauses(mib: int, say: Callable[[str], None]) -> list[Pause]:
    """One node joins NODES nodes that hold ``mib`` MiB in stripes, and leaves again. Raises Failed."""
    say(f"{mib} MiB in stripes on {NODES} nodes; one more joins, and leaves again")
    found: list[Pause] = []
    with Session(NODES) as session, Files(session.file) as files:
        files.mkdir("/data")
        files.set_layout("/data", "striped")
        paths = [f"/data/{number}" for number in range(max(1, mib * _MIB // FILE_BYTES))]
        for path in paths:
            files.write_bytes(path, random.randbytes(FILE_BYTES))
        total = sum(node.used for node in files.df())
        with clients(session.file, paths) as working:
            time.sleep(BEFORE_S)
            for change, nodes in (("joins", NODES + 1), ("leaves", NODES)):
                before = {node.node: node.used for node in files.df()}
                usual = {kind: client.take() for kind, client in working.items()}
                began = time.monotonic()
                session.amfs("scale", str(nodes), "--session", session.file, "--slots", "1")
                command_s = time.monotonic() - began
                ended = settled(files, total, nodes)
                longest = {kind: client.take() for kind, client in working.items()}
                broken = [f"{kind}: {client.error}" for kind, client in working.items() if client.error]
                if broken:
                    raise Failed(f"while a node {change}: {'; '.join(broken)}")
                moved = sum(max(0, node.used - before.get(node.node, 0)) for node in files.df())
                found.append(Pause(change, moved, command_s, ended - began, tcp_seconds(moved), longest, usual))
    return found


# ── until a new node works ─────────────────────────────────────────────────────────────────────────


def first_task(on: str, options: tuple[str, ...], say: Callable[[str], None]) -> First:
    """The only slot of a session is taken and tasks wait when a node is added. ``on``: a system of ``amfs up --on``, or "" for processes of
    this host. Raises Failed."""
    say(f"a node is added to a session {'on ' + on if on else 'of this host'} in which tasks wait")
    with tempfile.TemporaryDirectory(prefix="amfs-bench-", dir=Path.home() if on else "/tmp") as name:
        place = Path(name)
        session = f"bench-{secrets.token_hex(3)}"
        hold = f"until test -e {place}/end; do sleep 0.1; done"
        tasks = [f"hold -b sh -a -c 'touch {place}/held; {hold}'\n"]
        tasks += [f"t{k} -b sh -o o{k} -a -c 'date +%s.%N > {place}/begun-{k}; touch o{k}; {hold}'\n" for k in range(WAITING)]
        (place / "list").write_text("".join(tasks))

        def amfs(*words: str) -> process.Ran:
            return process.run([*AMFS, *words], place)

        amfs("up", *(("--on", on) if on else ()), "--name", session, "--nodes", "1", "--slots", "1", *(("--", *options) if options else ()))
        run: subprocess.Popen[bytes] | None = None
        try:
            run = subprocess.Popen([*AMFS, "run", "--session", session, "--quiet", "list"], cwd=place)
            wait_for(lambda: (place / "held").exists())
            began = time.time()
            amfs("scale", "2", "--session", session)
            wait_for(lambda: any(path.stat().st_size for path in place.glob("begun-*")))
            task_s = min(float(path.read_text()) for path in place.glob("begun-*") if path.stat().st_size) - began
            (place / "end").touch()
            wait_for(lambda: run.poll() is not None)
            if run.returncode:
                raise Failed(f"amfs run ended with {run.returncode}")
        finally:
            (place / "end").touch()
            if run is not None and run.poll() is None:
                run.kill()
                run.wait()
            amfs("down", session)
        return First(on or "this host", task_s, bare_job(place, options) if on == "slurm" else None)


def bare_job(place: Path, options: tuple[str, ...]) -> float:
    """From the start of sbatch to the first command of its job. Raises Failed."""
    began = time.time()
    process.run(["sbatch", "--output=/dev/null", *options, "--wrap", f"date +%s.%N > {place}/bare"], place)
    wait_for(lambda: (place / "bare").exists() and (place / "bare").stat().st_size > 0)
    return float((place / "bare").read_text()) - began


def wait_for(true: Callable[[], bool]) -> None:
    """Raises Failed."""
    end = time.monotonic() + END_S
    while not true():
        if time.monotonic() > end:
            raise Failed(f"nothing has happened for {END_S:.0f} s")
        time.sleep(0.02)


def measure(mib: int, repeat: int, on: str, options: tuple[str, ...], say: Callable[[str], None]) -> Report:
    """Both measurements, ``repeat`` times; the first without ``on`` only, since it needs nodes that this host reaches. Raises Failed."""
    pauses = [] if on else [pause for _ in range(repeat) for pause in measure_pauses(mib, say)]
    firsts = [first_task(on, options, say) for _ in range(repeat)]
    return Report(machine(), os.getloadavg()[0], pauses, firsts)
