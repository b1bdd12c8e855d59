"""The hosts and the Slurm that other tests stand on are what they say."""

from __future__ import annotations

import pytest
from waiting import until

from cluster.hosts import Hosts
from cluster.slurm import Slurm

pytestmark = [pytest.mark.root, pytest.mark.slow]


def test_hosts_differ_in_all_that_is_a_host_s_own(hosts: Hosts) -> None:
    one, two = hosts.nodes[:2]
    assert one.run("hostname").stdout.strip() == one.name != two.name
    for directory in ("/tmp", "/dev/shm", "/run"):
        one.run("touch", f"{directory}/mine")
        assert "mine" in one.listing(directory) and "mine" not in two.listing(directory) + hosts.login.listing(directory)
    assert len(one.run("ps", "-A", "-o", "pid=").stdout.split()) == 2  # its first process, and ps
    (hosts.shared / "everybody's").write_text("x")
    assert two.run("cat", str(hosts.shared / "everybody's")).stdout == "x"


CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 9), 3)"


def test_hosts_see_each_other_until_they_are_cut(hosts: Hosts) -> None:
    one, two = hosts.nodes[:2]
    assert "refused" in one.run("python3", "-c", CONNECT, two.name, check=False).stderr
    hosts.cut(two)
    said = one.run("python3", "-c", CONNECT, two.name, check=False).stderr
    assert "timed out" in said or "No route" in said
    hosts.mend(two)
    until(lambda: "refused" in one.run("python3", "-c", CONNECT, two.name, check=False).stderr)


def test_slurm_runs_jobs_on_all_nodes_and_ends_them(slurm: Slurm) -> None:
    names = {host.name for host in slurm.hosts.nodes}
    assert set(slurm.on_login("srun", "-N4", "hostname").split()) == names
    job = slurm.on_login("sbatch", "--parsable", "-N2", "--wrap", "srun sleep 1000").strip()
    until(lambda: any(line.startswith(f"{job}|RUNNING|") for line in slurm.queue()))
    slurm.on_login("scancel", job)
    until(lambda: not slurm.queue())
    until(lambda: not any(host.processes("sleep\x001000") for host in slurm.hosts.nodes))


def test_what_a_step_started_ends_with_it(slurm: Slurm) -> None:
    """So it is on most clusters: a node that an ``srun`` left in the background is gone when the srun ends."""
    if not slurm.contained:
        pytest.skip("no freezer of cgroup v1 here")
    slurm.on_login("srun", "-N1", "sh", "-c", "setsid sleep 2000 >/dev/null 2>&1 </dev/null & sleep 0.2")
    until(lambda: not any(host.processes("2000") for host in slurm.hosts.nodes))


def test_jobs_go_on_while_the_controller_is_away(slurm: Slurm) -> None:
    job = slurm.on_login("sbatch", "--parsable", "--wrap", "sleep 3000").strip()
    until(lambda: any(line.startswith(f"{job}|RUNNING|") for line in slurm.queue()))
    slurm.stop_controller()
    assert "Unable to contact" in slurm.hosts.login.run("squeue", env=slurm.env, check=False).stderr
    slurm.start_controller()
    until(lambda: any(line.startswith(f"{job}|RUNNING|") for line in slurm.queue()))
    slurm.on_login("scancel", job)
