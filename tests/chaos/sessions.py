"""A session of the chaos runs: nodes on their hosts, started, looked at and ended by the command ``amfs``, as a person would.

Owns its processes, and the search for leftovers. Must not know loads or disturbances.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from chaos.hosts import Host, Hosts

AMFS = (sys.executable, "-m", "amfs")
START_S = 60.0
SHM = Path("/dev/shm")


class Finding(Exception):
    """Something that amfs promises and did not keep."""


class Node:
    def __init__(self, number: int, place: int, host: Host, pid: int) -> None:
        self.number, self.place, self.host, self.pid = number, place, host, pid
        self.started = start_of(pid)

    def lives(self) -> bool:
        return self.started != "" and start_of(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def start_of(pid: int) -> str:
    """When a process began, in the kernel's words; "": there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


class Session:
    """``home`` is outside amfs: logs and results of one run. ``replicas``: of files of amfs:/."""

    def __init__(self, name: str, hosts: Hosts, home: Path, replicas: int) -> None:
        self.name, self.hosts, self.home, self.replicas = name, hosts, home, replicas
        self.nodes: list[Node] = []

    # ── start ──────────────────────────────────────────────────────────────────────────────────────

    def run(self, host: Host, *arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            host.command([*AMFS, *arguments]), env=host.environment(self.name), capture_output=True, text=True, timeout=timeout_s,
            stdin=subprocess.DEVNULL, cwd=self.home,
        )  # fmt: skip

    def start(self) -> None:
        first = self.hosts.nodes[0]
        common = ("--slots", "1")
        up = ("up", "--name", self.name, "--replicas", str(self.replicas), *common)
        if not self.hosts.isolated:
            self.ok(*up, "--nodes", str(len(self.hosts.nodes)))
        else:
            self.ok(*up, "--tcp", first.address)
            file = str(first.run_dir / self.name / "session.json")
            joining = [
                subprocess.Popen(
                    host.command([*AMFS, "node", "--join", file, "--detach", "--tcp", host.address, *common]),
                    env=host.environment(""), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.home,
                )
                for host in self.hosts.nodes[1:]
            ]  # fmt: skip
            for process in joining:
                said, _ = process.communicate(timeout=START_S)
                if process.returncode:
                    raise Finding(f"a node does not join: {said}")
        self._tell_everybody()

    def _tell_everybody(self) -> None:
        """All nodes in the session file of each host: a client finds the session when the first node is dead."""
        entries = {}
        for host in {host.name: host for host in self.hosts.nodes}.values():
            record = json.loads((host.run_dir / self.name / "session.json").read_text())
            entries.update({entry["node"]: entry for entry in record["nodes"]})
        for number in sorted(entries):
            here = [at for at, host in enumerate(self.hosts.nodes) if host.address and f"tcp://{host.address}:" in str(entries[number])]
            place = here[0] if here else number
            self.nodes.append(Node(number, place, self.hosts.all[place], entries[number]["pid"]))
        for host in {host.name: host for host in self.hosts.all}.values():
            directory = host.run_dir / self.name
            directory.mkdir(mode=0o700, exist_ok=True)
            file = directory / "session.json"
            file.touch(0o600)
            file.write_text(json.dumps({**record, "nodes": [entries[number] for number in sorted(entries)]}))

    def ok(self, *arguments: str, host: Host | None = None) -> None:
        """A command, on the first host if not said, that must not fail."""
        done = self.run(host or self.hosts.nodes[0], *arguments)
        if done.returncode:
            raise Finding(f"amfs {' '.join(arguments)}: {done.stdout}{done.stderr}")

    def mounts(self) -> dict[int, Path]:
        """A mount of each node."""
        made = {}
        for node in self.nodes:
            place = self.home / f"mount-{node.number}"
            place.mkdir()
            self.ok("mount", str(place), "--node", str(node.number), host=node.host)
            made[node.number] = place
        return made

    # ── what goes on ───────────────────────────────────────────────────────────────────────────────

    def members(self, host: Host) -> tuple[int, list[int]]:
        """The manager and the members that answer, as a person on that host is told."""
        done = self.run(host, "status", self.name, "--output", "json")
        if done.returncode:
            return -1, []
        fact = json.loads(done.stdout)["sessions"][0]
        return fact["manager"], [node["node"] for node in fact["nodes"] if node["state"] == "up"]

    def settle(self, within_s: float) -> list[Node]:
        """Wait until each living node is a member, and every host of one says so. The nodes."""
        end = time.monotonic() + within_s
        while True:
            living = [node for node in self.nodes if node.lives()]
            if not living:
                raise Finding("no node of the session is left")
            numbers = [node.number for node in living]
            told = {node.number: self.members(node.host)[1] for node in living[:1] + living[-1:]}
            if all(seen == numbers for seen in told.values()):
                return living
            if time.monotonic() > end:
                raise Finding(f"nodes {numbers} live, and after {within_s:g} s are told to be members: {told}")
            time.sleep(0.3)

    # ── end ────────────────────────────────────────────────────────────────────────────────────────

    def down(self) -> None:
        host = next((node.host for node in self.nodes if node.lives()), self.hosts.nodes[0])
        done = self.run(host, "down", self.name, "--timeout", "20")
        end = time.monotonic() + 20
        while left := [node.number for node in self.nodes if node.lives()]:
            if time.monotonic() > end:
                raise Finding(f"amfs down left nodes {left} running: {done.stdout}{done.stderr}")
            time.sleep(0.05)
        if "killed process" in done.stderr and not self.hosts.isolated:
            raise Finding(f"amfs down had to kill: {done.stderr}")
        for other in {node.host.name: node.host for node in self.nodes}.values():  # as the next start on each host does
            self.run(other, "status", self.name)

    def leftovers(self) -> list[str]:
        """Remains of the session on this machine."""
        found = [f"process {pid}: {what}" for pid, what in self.processes()]
        found += [f"store {path}" for path in SHM.glob(f"amfs-{os.getuid()}-{self.name}-*")]
        with open("/proc/self/mounts") as mounts:
            found += [f"mount {line.split()[1]}" for line in mounts if str(self.home) in line or f"-{self.name}-" in line]
        return found

    def processes(self) -> Iterator[tuple[int, str]]:
        """Processes that were started for this session: their environment says so."""
        mark = f"AMFS_RUN_DIR={self.home}/".encode()
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in Path(f"/proc/{entry}/environ").read_bytes():
                        yield int(entry), Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]

    def abandon(self) -> None:
        """Take away by force whatever is left."""
        for _ in range(5):
            left = [pid for pid, _ in self.processes()]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.2)
        for place in [*self.home.glob("mount-*"), *(path / "huge" for path in SHM.glob(f"amfs-{os.getuid()}-{self.name}-*"))]:
            subprocess.run(["umount", "-l", str(place)], capture_output=True)
        from amfs.host import orphans

        orphans.sweep(self.name)


@contextlib.contextmanager
def running(session: Session) -> Iterator[Session]:
    try:
        session.start()
        yield session
    finally:
        session.abandon()
