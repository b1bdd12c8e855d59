"""Two hosts, made of network and UTS namespaces: their nodes see each other over TCP only, and a cable can be cut.

Needs root and ``ip netns``; skipped where these are missing.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from amfs.net.records import load
from amfs.provision import daemon

pytestmark = [pytest.mark.root, pytest.mark.mpi, pytest.mark.slow]

PATIENCE_S = 60.0  # only turns a hang into a failure
MPIEXEC = Path(sys.executable).with_name("mpiexec")
AMFS = shlex.join([sys.executable, "-m", "amfs"])


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Hosts:
    """Hosts h1 and h2 at 10.97.0.1 and .2, and this machine at .254. ``on`` runs a command line on one of them."""

    def __init__(self, work: Path) -> None:
        self.mark = f"{os.getpid() % 100000:05}"
        self.work = work
        self.places = {host: Path(tempfile.mkdtemp(prefix=f"amfs-{host}-", dir="/tmp")) for host in ("h1", "h2")}
        self.script = work / "on.sh"
        # Also what MPICH's launcher calls in the place of ssh: options, host, command.
        self.script.write_text(
            '#!/bin/bash\nwhile [[ "$1" == -* ]]; do shift; done\nhost=$1; shift\n'
            f'case $host in h1) place={self.places["h1"]};; *) place={self.places["h2"]};; esac\n'
            f'exec ip netns exec t{self.mark}$host unshare --uts bash -c '
            f'"hostname $host; export AMFS_RUN_DIR=$place; cd {work}; $*"\n'
        )
        self.script.chmod(0o755)

    def set_up(self) -> None:
        ip("link", "add", f"b{self.mark}", "type", "bridge")
        ip("addr", "add", "10.97.0.254/24", "dev", f"b{self.mark}")
        ip("link", "set", f"b{self.mark}", "up")
        for number in (1, 2):
            space = f"t{self.mark}h{number}"
            ip("netns", "add", space)
            ip("link", "add", self.cable(number), "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", self.cable(number), "master", f"b{self.mark}", "up")
            ip("-n", space, "addr", "add", f"10.97.0.{number}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "route", "add", "default", "via", "10.97.0.254")

    def cable(self, number: int) -> str:
        return f"v{number}{self.mark}"

    def on(self, host: str, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.script, host, command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def states(self, host: str) -> dict[int, str]:
        """State by node, as seen from a host."""
        done = self.on(host, f"{AMFS} status --output json --timeout 1")
        assert done.returncode == 0, done.stderr
        (session,) = json.loads(done.stdout)["sessions"]
        return {node["node"]: node["state"] for node in session["nodes"]}

    def tear_down(self) -> None:
        for place in self.places.values():
            for file in place.glob("*/session.json"):
                daemon.stop([(entry.pid, entry.started) for entry in load(file).nodes])
            shutil.rmtree(place)
        # The cables explicitly: the kernel takes its time to clear away a namespace with its devices.
        things = [("link", "del", self.cable(1)), ("link", "del", self.cable(2)), ("link", "del", f"b{self.mark}")]
        things += [("netns", "del", f"t{self.mark}{host}") for host in self.places]
        for thing in things:
            subprocess.run(["ip", *thing], capture_output=True, check=False)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.delenv("AMFS_RUN_DIR")  # mpiexec would take it to all hosts, and each has its own
    made = Hosts(tmp_path)
    try:
        try:
            made.set_up()
        except OSError as error:
            pytest.skip(f"no namespaces here: {error}")
        yield made
    finally:
        made.tear_down()


def run_pairs(hosts: Hosts, host: str) -> None:
    """A workflow in which every consumer reads what several nodes made."""
    count = 6
    lines = [f"p{i} -b /bin/sh -o big{i} -a -c -a 'head -c 300000 /dev/zero > big{i}'" for i in range(count)]
    for i in range(count):
        names = " ".join(f"big{(i + step) % count}" for step in range(3))
        lines.append(f"c{i} -b /bin/sh -i {names} -o out{i} -a -c -a 'cat {names} | wc -c > out{i}'")
    (hosts.work / "list").write_text("\n".join(lines) + "\n")
    done = hosts.on(host, f"{AMFS} run list")
    assert done.returncode == 0, done.stderr
    assert [int((hosts.work / f"out{i}").read_text()) for i in range(count)] == [900_000] * count


def test_a_node_joins_over_tcp(hosts: Hosts) -> None:
    up = hosts.on("h1", f"{AMFS} up --nodes 2 --slots 1 --tcp 0.0.0.0 --name net{hosts.mark}")
    assert up.returncode == 0, up.stderr
    copy = hosts.work / "copied.json"
    shutil.copy(hosts.places["h1"] / f"net{hosts.mark}" / "session.json", copy)
    join = hosts.on("h2", f"{AMFS} node --join {copy} --detach --slots 2")
    assert join.returncode == 0, join.stderr
    assert hosts.states("h1") == hosts.states("h2") == dict.fromkeys(range(3), "up")
    run_pairs(hosts, "h2")
    assert hosts.on("h2", f"{AMFS} down").returncode == 0  # from any host
    until(lambda: hosts.on("h1", f"{AMFS} status").returncode == 4)


@pytest.mark.soak  # the simulator cuts nodes off, and tests/mpi/test_bootstrap.py starts ranks
def test_ranks_on_two_hosts_and_a_cut_cable(hosts: Hosts) -> None:
    pytest.importorskip("mpi4py")
    ranks = ["-launcher", "ssh", "-launcher-exec", str(hosts.script), "-localhost", "10.97.0.254", "-hosts", "h1,h2", "-n", "3"]
    if not MPIEXEC.exists():
        pytest.skip("needs the mpiexec of the mpich wheel")
    up = subprocess.run(
        [MPIEXEC, *ranks, sys.executable, "-m", "amfs", "up", "--slots", "1", "--name", f"mpi{hosts.mark}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert up.returncode == 0 and "3 nodes on 2 hosts" in up.stderr, up.stderr
    assert hosts.states("h1") == hosts.states("h2") == dict.fromkeys(range(3), "up")
    run_pairs(hosts, "h1")
    ip("link", "set", hosts.cable(2), "down")
    until(lambda: hosts.states("h1") == {0: "up", 1: "gone", 2: "up"})
    run_pairs(hosts, "h1")
    assert hosts.on("h1", f"{AMFS} down").returncode == 0
    assert hosts.on("h2", f"{AMFS} down").returncode == 0  # its node lives on by itself until somebody ends it
