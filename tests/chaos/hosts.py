"""The hosts of a chaos run: network namespaces that can be cut from each other, or, without the rights for them, this machine.

Owns the namespaces. With a namespace a host also has a name of its own, so that amfs takes it for another machine and uses TCP. Must not
know amfs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

#: A network card that nobody has: packets to it are lost without a word, as on a broken path.
NOBODY = "02:00:00:00:00:01"
NETEM = ("delay", "1ms", "0.5ms", "loss", "0.2%")


class Host:
    """One machine, or what stands for it. ``run_dir``: its $AMFS_RUN_DIR."""

    def __init__(self, name: str, home: Path, address: str = "", namespace: str = "") -> None:
        self.name = name
        self.run_dir = home / name
        self.run_dir.mkdir(mode=0o700, exist_ok=True)
        self.address = address
        self.namespace = namespace

    def command(self, argv: Iterable[str]) -> list[str]:
        """``argv`` as it is to be started from here in order to run on this host."""
        if not self.namespace:
            return list(argv)
        rename = f"echo {self.name} > /proc/sys/kernel/hostname && exec \"$@\""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--uts", "sh", "-c", rename, "sh", *argv]

    def environment(self, session: str) -> dict[str, str]:
        state = self.run_dir.parent / "state"
        return {**os.environ, "AMFS_RUN_DIR": str(self.run_dir), "AMFS_SESSION": session, "XDG_STATE_HOME": str(state)}


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Hosts:
    """``count`` hosts for nodes, and one more, the last, for the submitter. ``remarks``: things that this machine does not allow."""

    def __init__(self, count: int, home: Path, mark: str, isolated: bool) -> None:
        self.remarks: list[str] = []
        self.isolated = isolated
        self._mark = mark
        self._cut: list[tuple[int, int]] = []
        if isolated:
            self.all = [Host(f"h{n}" if n < count else "login", home, f"10.77.0.{n + 1}", f"{mark}-{n}") for n in range(count + 1)]
        else:
            one = Host("h0", home)
            self.all = [one] * (count + 1)

    @property
    def nodes(self) -> list[Host]:
        return self.all[:-1]

    @property
    def login(self) -> Host:
        return self.all[-1]

    def _build(self) -> None:
        switch = f"{self._mark}-s"
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for number, host in enumerate(self.all):
            ip("netns", "add", host.namespace)
            ip("-n", host.namespace, "link", "set", "lo", "up")
            ip("-n", host.namespace, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{number}", "netns", switch)
            ip("-n", switch, "link", "set", f"p{number}", "master", "br0", "up")
            ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
            ip("-n", host.namespace, "link", "set", "eth0", "up")
            tc = subprocess.run(
                ["tc", "-n", host.namespace, "qdisc", "add", "dev", "eth0", "root", "netem", *NETEM], capture_output=True, text=True
            )
            if tc.returncode and not self.remarks:
                self.remarks.append(f"no delay and loss: {tc.stderr.strip()}")

    def cut(self, groups: Iterable[tuple[int, int]]) -> None:
        """Nothing passes between the two hosts of each pair, in either direction, until ``mend``."""
        for one, other in groups:
            for here, there in ((one, other), (other, one)):
                address = self.all[there].address
                ip("-n", self.all[here].namespace, "neigh", "replace", address, "lladdr", NOBODY, "nud", "permanent", "dev", "eth0")
                self._cut.append((here, there))

    def mend(self) -> None:
        for here, there in self._cut:
            ip("-n", self.all[here].namespace, "neigh", "del", self.all[there].address, "dev", "eth0")
        self._cut.clear()

    def remove(self) -> None:
        for name in (*(host.namespace for host in self.all), f"{self._mark}-s") if self.isolated else ():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def why_not_isolated() -> str:
    """Why this machine does not allow hosts of their own; "": it does."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc", "nsenter", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"network namespaces need {', '.join(missing)}"
    probe = f"amfs-chaos-{threading.get_native_id()}"
    done = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return done.stderr.strip()


@contextlib.contextmanager
def hosts(count: int, home: Path, mark: str) -> Iterator[Hosts]:
    reason = why_not_isolated()
    made = Hosts(count, home, mark, not reason)
    if reason:
        made.remarks.append(f"plain processes without cuts: {reason}")
    try:
        if not reason:
            made._build()
        yield made
    finally:
        made.remove()
