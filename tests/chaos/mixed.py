"""Programs that make, cut, grow, append to, map, punch, rename and remove sparse files on the mounts of a session, and what must hold.

    python -m chaos.mixed --seconds 120 --seed 1 [--clients 4] [--nodes 3 5] [--replicas 1 2 3] [--layout whole striped grown]
                          [--kills no yes]

A cell is a session of its own for each combination. In each: no call takes longer than 60 s, no file has fewer copies than asked
a minute after the load, and every file reads on every mount as its writer left it. Each client makes the same calls on files of a tmpfs,
which say what must be there, and uses another mount for each: a file is closed on one node before it is opened on the next. With
kills, nodes are killed (-9) while it goes on; then a file whose call failed is not looked at again, and when as many nodes were killed
as there are copies, reading may be EIO.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

AMFS = (sys.executable, "-m", "amfs")
CALL_S = 60.0  # no call may take longer
COPIES_S = 60.0  # after which each file has its copies again
GROWN_MIB = 96  # the limit of a node's store where files outgrow it
LAYOUTS = {"whole": (), "striped": (), "grown": ("--store-limit", f"{GROWN_MIB}M", "--spill", "none")}


class Cell(NamedTuple):
    nodes: int
    replicas: int
    layout: str
    kills: bool

    @property
    def copies(self) -> int:
        """Of stripes there are two at most, however many are asked for; then status counts them as short."""
        return self.replicas if self.layout == "whole" else min(self.replicas, 2)

    @property
    def words(self) -> str:
        return f"{self.nodes} nodes, {self.replicas} copies, {self.layout}{', kills' if self.kills else ''}"


class Session:
    def __init__(self, cell: Cell, home: Path) -> None:
        self.cell, self.home, self.name = cell, home, f"mixed-{os.getpid()}"
        self.run_dir = home / "run"
        self.run_dir.mkdir(mode=0o700)
        self.environment = {**os.environ, "AMFS_RUN_DIR": str(self.run_dir), "PYTHONPATH": str(Path(__file__).parents[1])}
        self.mounts: dict[int, Path] = {}
        self.killed: list[int] = []

    def amfs(self, *words: str, timeout_s: float = 60.0) -> str:
        done = subprocess.run(
            [*AMFS, *words], env=self.environment, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            raise RuntimeError(f"amfs {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self) -> None:
        cell = self.cell
        options = ("--nodes", str(cell.nodes), "--replicas", str(cell.replicas), "--slots", "1", *LAYOUTS[cell.layout])
        self.amfs("up", "--name", self.name, *options)
        self.amfs("mkdir", *(("--layout", "striped") if cell.layout == "striped" else ()), "amfs:/files")
        for node in range(cell.nodes):
            self.mounts[node] = self.home / f"mount-{node}"
            self.mounts[node].mkdir()
            self.amfs("mount", str(self.mounts[node]), "--node", str(node))

    def kill(self, node: int) -> None:
        record = json.loads((self.run_dir / self.name / "session.json").read_text())
        os.kill(next(entry["pid"] for entry in record["nodes"] if entry["node"] == node), signal.SIGKILL)
        self.killed.append(node)

    def short(self) -> str:
        """The line of status about files with fewer copies than asked for, if there is room for those."""
        lines = [line for line in self.amfs("status", self.name).splitlines() if "fewer copies" in line]
        if not lines:
            return ""
        files = self.amfs("ls", "-l", "amfs:/files")
        living = self.cell.nodes - len(self.killed)
        kib = int(files.split("\n", 1)[0].removeprefix("total ")) * min(self.cell.replicas, living)
        full = self.cell.layout == "grown" and kib > 0.9 * living * GROWN_MIB * 1024
        return "" if full else f"{' '.join(lines).strip()}:\n{files}"

    def end(self) -> None:
        for place in self.mounts.values():
            subprocess.run(["umount", "-l", str(place)], capture_output=True)
        self.amfs("down", self.name)


class Client:
    """One of the programs, in the eyes of who watches it."""

    def __init__(self, session: Session, number: int, seed: int, seconds: float) -> None:
        self.base = session.home / f"client-{number}"
        argv = [sys.executable, "-m", "chaos.mixed_client", str(self.base), f"{seed} {session.cell} {number}", str(seconds)]
        with open(f"{self.base}.err", "wb") as errors:
            self.process = subprocess.Popen(
                [*argv, *map(str, session.mounts.values())], env=session.environment, stderr=errors, stdin=subprocess.DEVNULL
            )

    def under_way(self) -> tuple[str, float]:
        """The call that it is in, and for how long."""
        try:
            began, _, call = Path(f"{self.base}.call").read_text().partition(" ")
            return call, time.time() - float(began)
        except (OSError, ValueError):
            return "", 0.0

    def stuck(self) -> str:
        call, seconds = self.under_way()
        if self.process.poll() is not None or not call or seconds < CALL_S:
            return ""
        try:
            stack = Path(f"/proc/{self.process.pid}/stack").read_text()
        except OSError:
            stack = ""
        return f"{call} takes {seconds:.0f} s by now: {' '.join(line.split()[-1] for line in stack.splitlines()[:4])}"

    def result(self) -> dict:
        if self.process.returncode or not (file := Path(f"{self.base}.result")).exists():
            said = Path(f"{self.base}.err").read_text()[-800:]
            return {"calls": 0, "slowest": 0.0, "eio": [], "wrong": [f"{self.base.name}: ended so: {said}"]}
        return json.loads(file.read_text())


def abort(place: Path) -> None:
    """Let go of whoever waits for this mount."""
    try:
        lines = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
        minor = next(line[2].split(":")[1] for line in lines if line[4] == str(place))
        Path(f"/sys/fs/fuse/connections/{minor}/abort").write_text("1")
    except (StopIteration, OSError):
        return


def copies_are_there(session: Session) -> str:
    end = time.monotonic() + COPIES_S
    while short := session.short():
        if time.monotonic() > end:
            return f"after {COPIES_S:.0f} s {short.strip()}"
        time.sleep(0.5)
    return ""


def run_cell(cell: Cell, seed: int, seconds: float, clients: int, home: Path) -> tuple[list[str], str]:
    """The faults, and a line about them."""
    session = Session(cell, home)
    findings: list[str] = []
    programs: list[Client] = []
    session.start()
    try:
        programs = [Client(session, number, seed, seconds) for number in range(clients)]
        began = time.monotonic()
        kills = [(began + seconds * 0.4, cell.nodes - 1)] + ([(began + seconds * 0.7, 1)] if cell.nodes > 4 else [])
        while any(program.process.poll() is None for program in programs) and not findings:
            if cell.kills and kills and time.monotonic() > kills[0][0]:
                session.kill(kills.pop(0)[1])
            findings += [found for program in programs if (found := program.stuck())]
            if time.monotonic() > began + seconds + 3 * CALL_S:
                findings.append("the clients do not end")
            time.sleep(0.1)
        if findings:
            for place in session.mounts.values():
                abort(place)
            return findings, "stuck"
        if cell.copies == cell.replicas and (found := copies_are_there(session)):
            findings.append(found)
        results = [program.result() for program in programs]
        findings += [wrong for result in results for wrong in result["wrong"] + ([] if cell.kills else result["eio"])]
        findings += check(session, programs)
        calls, slowest = sum(result["calls"] for result in results), max(result["slowest"] for result in results)
        return findings, f"{calls} calls, the slowest {slowest:.1f} s"
    finally:
        for program in programs:
            program.process.kill()
        for log in session.run_dir.glob("*/node-*.log"):  # which go with the session
            shutil.copy(log, home / log.name)
        session.end()


def check(session: Session, programs: list[Client]) -> list[str]:
    """Read everything again, on each mount that is left, in a process that can be given up."""
    living = [str(place) for node, place in session.mounts.items() if node not in session.killed]
    may_be_lost = len(session.killed) >= session.cell.copies  # then EIO is honest
    findings = []
    for program in programs:
        done = subprocess.run(
            [sys.executable, "-m", "chaos.mixed_client", "--check", str(program.base), *living],
            env=session.environment, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        if done.returncode:
            findings.append(f"the check of {program.base.name}: {done.stderr[-500:]}")
        for line in done.stdout.splitlines():
            if not (may_be_lost and line.endswith(f"cannot be read: {os.strerror(errno.EIO)}")):
                findings.append(line)
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos.mixed", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="of load in each cell [120]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--nodes", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--layout", nargs="+", choices=list(LAYOUTS), default=["whole", "striped"])
    parser.add_argument("--kills", nargs="+", choices=["no", "yes"], default=["no", "yes"])
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "amfs-mixed", help="for what cells with findings leave")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # and the session is ended first
    bad = 0
    for nodes, replicas, layout, kills in itertools.product(options.nodes, options.replicas, options.layout, options.kills):
        cell = Cell(nodes, replicas, layout, kills == "yes")
        findings, line = one(cell, options.seed, options.seconds, options.clients, options.keep)
        print(f"{'FOUND ' if findings else 'fine  '} {cell.words}: {line}", *findings[:10], sep="\n    ", flush=True)
        bad += bool(findings)
    return 1 if bad else 0


def one(cell: Cell, seed: int, seconds: float, clients: int, keep: Path) -> tuple[list[str], str]:
    home = Path(tempfile.mkdtemp(prefix="amfs-mixed-", dir="/tmp"))  # short: sockets lie in it
    try:
        findings, line = run_cell(cell, seed, seconds, clients, home)
    except Exception as error:
        findings, line = [f"{type(error).__name__}: {error}"], "broke off"
    finally:
        for shadow in Path("/dev/shm").glob(f"amfs-{home.name}-client-*"):
            shutil.rmtree(shadow)
    if findings:
        keep.mkdir(parents=True, exist_ok=True)
        for log in (*home.glob("node-*.log"), *home.glob("client-*.*")):
            shutil.copy(log, keep / f"{'-'.join(map(str, cell))}-{log.name}")
    shutil.rmtree(home, ignore_errors=True)
    return findings, line


if __name__ == "__main__":
    sys.exit(main())
