"""``amfs scale auto`` on a real Slurm: a queue of tasks has jobs submitted, they are used, and they drain afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from cluster.slurm import Slurm
from cluster.test_submitting import left, start, status, up

pytestmark = [pytest.mark.root, pytest.mark.slow]

#: Short times, so that the test need not wait for minutes.
POLICY = """
min = 1
max = 3
[brake]
after_out = "1 s"
after_in = "0 s"
[[rule]]
name = "tasks wait"
when = "queue > 1"
do = "grow to queue 1"
[[rule]]
name = "idle"
when = "idle > 1 s"
do = "shrink to 1"
"""
PROCESS = "amfs.provision.autoscale"


@pytest.fixture(autouse=True)
def clean(slurm: Slurm) -> Iterator[None]:
    yield
    slurm.hosts.login.run("amfs", "down", "lab", env=slurm.env, check=False)
    until(lambda: not left(slurm), f"left: {left(slurm)}")
    ours = ("amfs\x00node", "amfs.node.main", "amfs.provision")
    until(lambda: not any(host.processes(word) for host in slurm.hosts.all for word in ours))


def grows_is_used_and_shrinks(slurm: Slurm, work: Path, log: Path) -> None:
    """The run is driven from a host on which nobody asks for its status: a run that is watched leaves how it ended."""
    work.mkdir(exist_ok=True)
    for old in work.glob("o*"):
        old.unlink()
    (work / "list").write_text("".join(f"t{k} -b sh -o o{k} -a -c 'hostname > o{k}; sleep 1'\n" for k in range(14)))
    run = slurm.hosts.nodes[3].start("amfs", "run", "--session", "lab", "list", cwd=work, log=log, env=slurm.env)
    until(lambda: up(slurm) == 4, f"{status(slurm)['said']}")
    assert len([line for line in slurm.queue() if "|RUNNING|" in line]) == 3
    assert run.wait(timeout=90) == 0, log.read_text()
    assert len({(work / f"o{k}").read_text() for k in range(14)}) == 3, "nodes that came were not used"
    until(lambda: up(slurm) == 2, f"{status(slurm)['said']}")
    until(lambda: len([line for line in slurm.queue() if "|COMPLETING|" not in line]) == 1, f"{slurm.queue()}")


def test_waiting_tasks_have_jobs_submitted_that_drain_when_idle_and_the_process_that_decides_may_die(slurm: Slurm, tmp_path: Path) -> None:
    shared, login = slurm.hosts.shared, slurm.hosts.login
    (shared / "mine.toml").write_text(POLICY)
    start(slurm, "1", "--", "--exclusive")
    until(lambda: up(slurm) == 2)
    login.run("amfs", "put", "--session", "lab", str(shared / "mine.toml"), "amfs:/kept", env=slurm.env)
    said = slurm.hosts.nodes[3].run("amfs", "scale", "auto", "--policy", str(shared / "mine.toml"), "--session", "lab", env=slurm.env)
    assert "is applied, 1..3 nodes" in said.stderr, said.stderr
    (pid,) = login.processes(PROCESS)
    os.kill(pid, signal.SIGKILL)
    until(lambda: any("has died; it is started again" in line for line in status(slurm, 3)["said"]))
    until(lambda: login.processes(PROCESS) not in ([], [pid]))
    assert status(slurm)["policy"].startswith("auto: policy ")
    grows_is_used_and_shrinks(slurm, shared / "work", tmp_path / "run.log")
    decided = [line for line in status(slurm)["said"] if "auto: " in line]
    assert sum("to 3 nodes: 'tasks wait': " in line for line in decided) == 1, decided
    assert sum("3 to 1 node: 'idle': " in line for line in decided) == 1, decided
    assert login.run("amfs", "cat", "--session", "lab", "amfs:/kept", env=slurm.env).stdout == POLICY

    said = slurm.hosts.nodes[3].run("amfs", "scale", "1", "--session", "lab", env=slurm.env)
    assert "the policy is applied no more" in said.stderr, said.stderr
    until(lambda: not login.processes(PROCESS))
    assert "over, by 'amfs scale 1'" in status(slurm)["policy"]


@pytest.mark.soak
@pytest.mark.parametrize("repeat", range(20))
def test_twenty_times(slurm: Slurm, tmp_path: Path, repeat: int) -> None:
    test_waiting_tasks_have_jobs_submitted_that_drain_when_idle_and_the_process_that_decides_may_die(slurm, tmp_path)
