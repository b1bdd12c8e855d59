"""``amfs up --on ray``: nodes within a real Ray cluster over hosts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec

import pytest
from waiting import until

from cluster.hosts import Host, Hosts
from cluster.test_ssh import left, ran_on, up_nodes

pytestmark = [pytest.mark.root, pytest.mark.slow]

PORT = 6379


def start(host: Host, *more: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return host.run("amfs", "up", "--on", "ray", "--name", "lab", *more, check=check)


@pytest.fixture
def ray(hosts: Hosts) -> Iterator[str]:
    """The address of a cluster of n1, its head, and n2."""
    if find_spec("ray") is None:
        pytest.skip("ray is not installed")
    place = hosts.shared / "ray"
    place.mkdir()
    one, two = hosts.nodes[:2]
    common = ("--num-cpus=2", "--object-store-memory=80000000", "--disable-usage-stats", "--block")
    address = f"{one.address}:{PORT}"
    head = ("ray", "start", "--head", f"--node-ip-address={one.address}", f"--port={PORT}", "--include-dashboard=false", *common)
    daemons = [one.start(*head, log=place / "n1.log", cwd=place)]
    until(lambda: "Ray runtime started" in (place / "n1.log").read_text(), "no head")
    words = ("ray", "start", f"--address={address}", f"--node-ip-address={two.address}", *common)
    daemons.append(two.start(*words, log=place / "n2.log", cwd=place))
    until(lambda: "Ray runtime started" in (place / "n2.log").read_text(), "no second node")
    yield address
    hosts.login.run("amfs", "down", "lab", check=False)
    for host in (one, two):
        for pid in host.processes(""):
            if pid != host.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    for daemon in daemons:
        daemon.wait(timeout=30)


@pytest.mark.soak
def test_an_actor_on_each_node_of_ray_s_is_a_node_and_ends_with_the_session(hosts: Hosts, ray: str) -> None:
    one, two = hosts.nodes[:2]
    done = start(one, "--at", ray)
    assert done.stdout == "lab\n" and "3 nodes on 2 hosts" in done.stderr, done.stderr
    assert sorted(node["slots"] for node in up_nodes(one)) == [0, 2, 2]
    assert ran_on(hosts, 24, one) == {one.name, two.name}
    for pid in two.processes("_RayActor"):
        os.kill(pid, signal.SIGTERM)
    until(lambda: len(up_nodes(one)) == 2 and not two.processes("amfs\x00node"), "a node outlives its actor")
    one.run("amfs", "down", "lab")
    until(lambda: not any(host.processes("amfs\x00node") or host.processes("_RayActor") for host in (one, two)), "an actor stays")
    until(lambda: not [path for path in left(hosts) if "ray" not in path and "plasma" not in path], f"left: {left(hosts)}")


def test_without_ray_it_is_said_in_a_line(hosts: Hosts) -> None:
    if find_spec("ray") is not None:
        pytest.skip("ray is installed")
    done = start(hosts.login, check=False)
    assert done.returncode == 5 and "pip install 'amfs-hpc[ray]'" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_cluster_that_is_not_there_is_said_in_a_line(hosts: Hosts) -> None:
    if find_spec("ray") is None:
        pytest.skip("ray is not installed")
    for address in (("--at", f"{hosts.nodes[2].address}:{PORT}"), ()):
        done = start(hosts.login, *address, check=False)
        assert done.returncode == 4 and "no Ray cluster answers" in done.stderr and done.stderr.count("\n") == 1, done.stderr
