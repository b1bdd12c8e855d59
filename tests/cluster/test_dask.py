"""``amfs up --on dask``: nodes within a real Dask cluster over hosts, which come and go with its workers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from daily import daily
from waiting import until

from cluster.hosts import Host, Hosts
from cluster.test_ssh import left, ran_on, up_nodes

pytestmark = [pytest.mark.root, pytest.mark.slow]

PORT = 8786


@pytest.fixture(scope="module")
def dask(hosts: Hosts) -> Iterator[str]:
    """The address of a scheduler on the login host; n1 has two workers, n2 and n3 have one each."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    place = hosts.shared / "dask"
    place.mkdir()
    address = f"tcp://{hosts.login.address}:{PORT}"
    words = ("dask", "scheduler", "--host", hosts.login.address, "--port", str(PORT), "--no-dashboard")
    daemons = [hosts.login.start(*words, log=place / "scheduler.log", cwd=place)]
    # Before the others import the same: where nothing of it is compiled yet, all of them would do that.
    until(lambda: "Scheduler at" in (place / "scheduler.log").read_text())
    for host, count in zip(hosts.nodes, (2, 1, 1), strict=False):
        words = ("dask", "worker", address, f"--nworkers={count}", "--nthreads=2", "--no-dashboard", "--local-directory=/tmp")
        daemons.append(host.start(*words, log=place / f"{host.name}.log", cwd=place))
    ask = "import distributed, sys; distributed.Client(sys.argv[1]).wait_for_workers(4)"
    hosts.login.run("python3", "-c", ask, address)
    yield address
    for host in hosts.all:
        for pid in [*host.processes("dask"), *host.processes("multiprocessing")]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for daemon in daemons:
        daemon.wait(timeout=30)


@pytest.fixture(autouse=True)
def clean(hosts: Hosts) -> Iterator[None]:
    yield
    hosts.login.run("amfs", "down", "lab", check=False)
    until(lambda: not left(hosts), f"left: {left(hosts)}")
    until(lambda: not any(host.processes("amfs\x00node") or host.processes("provision.tether") for host in hosts.all), "processes are left")


def start(dask: str, host: Host, *more: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return host.run("amfs", "up", "--on", "dask", "--at", dask, "--name", "lab", *more, check=check)


TASKS = """\
import distributed, sys
print(distributed.Client(sys.argv[1]).run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))
"""


def tasks(hosts: Hosts, dask: str) -> str:
    """How many tasks the scheduler knows."""
    return hosts.login.run("python3", "-c", TASKS, dask).stdout.strip()


def test_a_task_on_each_host_is_a_node_and_ends_with_the_session(hosts: Hosts, dask: str) -> None:
    done = start(dask, hosts.login)
    assert done.stdout == "lab\n" and "4 nodes on 4 hosts" in done.stderr, done.stderr
    three = hosts.nodes[:3]
    slots = {node["host"].partition("/")[0]: node["slots"] for node in up_nodes(hosts.login)}
    assert slots == {"login": 0, three[0].name: 4, three[1].name: 2, three[2].name: 2}
    assert ran_on(hosts, 24) == {host.name for host in three}
    assert tasks(hosts, dask) == "3"
    hosts.login.run("amfs", "down", "lab")
    until(lambda: tasks(hosts, dask) == "0")


RETIRE = """\
import distributed, sys
client = distributed.Client(sys.argv[1])
client.retire_workers([worker for worker in client.processing() if client.processing()[worker] and sys.argv[2] + ":" in worker])
"""


@pytest.mark.parametrize("way", daily(["killed", "retired"], "retired"))
def test_a_node_goes_with_its_worker_and_hands_over_what_it_has(hosts: Hosts, dask: str, way: str) -> None:
    start(dask, hosts.login, "--nodes", "2", "--slots", "1")
    (hosts.shared / "text").write_text("hello\n")
    for host in hosts.nodes[:2]:
        host.run("amfs", "put", "--session", "lab", str(hosts.shared / "text"), f"/from-{host.name}")
    one = next(host for host in hosts.nodes[:2] if host.processes("provision.tether"))
    if way == "retired":
        hosts.login.run("python3", "-c", RETIRE, dask, one.address)
    else:
        parents = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in one.processes("provision.tether")}
        for pid in parents:
            os.kill(pid, signal.SIGKILL)  # the worker; its nanny starts another
    until(lambda: len(up_nodes(hosts.login)) == 2)
    for host in hosts.nodes[:2]:
        assert hosts.login.run("amfs", "cat", "--session", "lab", f"/from-{host.name}").stdout == "hello\n"


def test_what_cannot_be_is_said_in_a_line(hosts: Hosts, dask: str) -> None:
    done = start(dask, hosts.login, "--nodes", "9", check=False)
    assert done.returncode == 2 and "--nodes 9: dask has room for 3" in done.stderr, done.stderr
    done = start(f"tcp://{hosts.nodes[3].address}:{PORT}", hosts.login, check=False)
    assert done.returncode == 4 and "no Dask scheduler answers at" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    hosts.login.run("mkdir", "-p", "/tmp/spill")  # there alone
    done = start(dask, hosts.login, "--nodes", "1", "--spill", "/tmp/spill", check=False)
    assert done.returncode == 4 and f"{hosts.nodes[0].address}: cannot spill to /tmp/spill" in done.stderr, done.stderr
