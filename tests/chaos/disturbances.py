"""Disturbances of a session at a random moment: each draws its victim and its length from the seed, before anything starts.

``apply`` does it and returns when it is over. Must not know loads or checks.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

from chaos.sessions import SHM, Node, Session


class Disturbance:
    """``victim`` and ``seconds`` are drawn; ``told``: what was done, in words. ``at``: when it was done (``time.time``)."""

    name = ""
    loads: tuple[str, ...] = ("workflow", "fs")

    def __init__(self, rng: random.Random, nodes: int) -> None:
        self.victim = rng.randrange(nodes)
        self.seconds = round(rng.choice((rng.uniform(3, 7), rng.uniform(7, 20))), 1)
        self.choice = rng.random()
        self.told = ""
        self.at = 0.0

    def apply(self, session: Session, submitter: subprocess.Popen[bytes] | None) -> None:
        self.at = time.time()
        self.do(session, submitter)

    def do(self, session: Session, submitter: subprocess.Popen[bytes] | None) -> None:
        raise NotImplementedError


class Kill(Disturbance):
    """kill -9 of a node: the manager as often as any other."""

    name = "kill"

    def do(self, session: Session, submitter: subprocess.Popen[bytes] | None) -> None:
        session.nodes[self.victim].send(signal.SIGKILL)
        self.told = f"kill -9 of node {self.victim}"


class Hang(Disturbance):
    """A node that is stopped, and goes on later as if nothing had been."""

    name = "hang"

    def do(self, session: Session, submitter: subprocess.Popen[bytes] | None) -> None:
        node = session.nodes[self.victim]
        self.told = f"node {self.victim} stopped for {self.seconds} s"
        node.send(signal.SIGSTOP)
        try:
            time.sleep(self.seconds)
        finally:
            node.send(signal.SIGCONT)


class Cut(Disturbance):
    """The network between two parts of the hosts fails: one node or two against the others; the submitter is on the one side, on the
    other, or reaches both."""

    name = "cut"

    def do(self, session: Session, submitter: subprocess.Popen[bytes] | None) -> None:
        count = len(session.nodes)
        one = {self.victim} if self.choice < 0.5 else {self.victim, (self.victim + 1 + int(self.choice * 100) % (count - 1)) % count}
        other = set(range(count)) - one
        login = ("both", "with", "against")[int(self.choice * 1000) % 3]
        self.told = f"nodes {sorted(one)} cut from {sorted(other)} for {self.seconds} s, the submitter {login} the first"
        inside = {session.nodes[number].place for number in one} | ({count} if login == "with" else set())
        outside = {session.nodes[number].place for number in other} | ({count} if login == "against" else set())
        session.hosts.cut((a, b) for a in sorted(inside) for b in sorted(outside))
        try:
            time.sleep(self.seconds)
        finally:
            session.hosts.mend()


class KillSubmitter(Disturbance):
    """kill -9 of ``amfs run``; the run is resumed afterwards."""

    name = "submitter"
    loads = ("workflow",)

    def do(self, session: Session, submitter: subprocess.Popen[bytes] | None) -> None:
        assert submitter is not None
        self.told = "kill -9 of the submitter"
        submitter.kill()


class KillTask(Disturbance):
    """kill -9 of a process of some task. Its run has retries."""

    name = "task"
    loads = ("workflow",)

    def do(self, session: Session, submitter: subprocess.Popen[bytes] | None) -> None:
        stores = f"{SHM}/amfs-{os.getuid()}-{session.name}-"
        for _ in range(200):
            for entry in sorted(os.listdir("/proc")):
                try:
                    if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd").startswith(stores):
                        what = Path(f"/proc/{entry}/comm").read_text().strip()
                        os.kill(int(entry), signal.SIGKILL)
                        self.told = f"kill -9 of {what}, a task's process"
                        return
                except OSError:
                    continue
            time.sleep(0.01)
        self.told = "no task was running"


class KillMount(Disturbance):
    """A mount is aborted under its programs, as by ``echo 1 > /sys/fs/fuse/connections/N/abort``."""

    name = "mount"
    loads = ("fs",)

    def do(self, session: Session, submitter: subprocess.Popen[bytes] | None) -> None:
        place = session.home / f"mount-{session.nodes[self.victim].number}"
        with open("/proc/self/mountinfo") as lines:
            device = next(line.split()[2] for line in lines if line.split()[4] == str(place))
        control = session.home / "fusectl"
        control.mkdir()
        subprocess.run(["mount", "-t", "fusectl", "none", str(control)], check=True)
        try:
            (control / device.partition(":")[2] / "abort").write_text("1")
        finally:
            subprocess.run(["umount", str(control)], check=True)
        self.told = f"the mount of node {self.victim} aborted"


KINDS: dict[str, type[Disturbance]] = {kind.name: kind for kind in (Kill, Hang, Cut, KillSubmitter, KillTask, KillMount)}


def lost(session: Session, living: list[Node]) -> set[int]:
    return {node.number for node in session.nodes} - {node.number for node in living}
