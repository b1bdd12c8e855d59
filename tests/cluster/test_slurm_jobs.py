"""``amfs up`` in a job of a real Slurm: all hosts of the job are nodes, whatever way the job was made, and nothing stays behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from waiting import until

from cluster.slurm import Slurm

pytestmark = [pytest.mark.root, pytest.mark.slow]

TASKS = "".join(f"t{k} -b sh -o o{k} -a -c 'hostname > o{k}; sleep 0.2'\n" for k in range(16))


def left(slurm: Slurm) -> list[str]:
    """Remains of amfs on any host."""
    places = [(host, place) for host in slurm.hosts.all for place in ("/dev/shm", "/tmp/amfs-0")]
    return [f"{host.name}:{place}/{name}" for host, place in places for name in host.listing(place)]


def job(slurm: Slurm, nodes: int, script: str, *options: str) -> str:
    """Submit a script; returns the number of the job. Its output is in job-NUMBER.log of the home."""
    words = ("sbatch", "--parsable", f"-N{nodes}", "--output=job-%j.log", *options)
    return slurm.on_login(*words, input=f"#!/bin/bash\n{script}").strip()


def over(slurm: Slurm, number: str) -> str:
    """Wait until a job is over; its output."""
    until(lambda: not any(line.startswith(f"{number}|") for line in slurm.queue()), f"job {number} goes on")
    return (slurm.hosts.login.home / f"job-{number}.log").read_text()


@pytest.fixture
def work(slurm: Slurm) -> Path:
    place = slurm.hosts.shared / "work"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    (place / "list").write_text(TASKS)
    return place


def test_a_batch_script_uses_all_nodes_of_its_job(slurm: Slurm, work: Path) -> None:
    script = f"set -e\ncd {work}\namfs up --name job --slots 1\namfs run --session job list\namfs status job\namfs down job"
    said = over(slurm, job(slurm, 4, script))
    assert "4 nodes on 4 hosts" in said and "job is down" in said, said
    assert {(work / f"o{k}").read_text().strip() for k in range(16)} == {host.name for host in slurm.hosts.nodes}, said
    until(lambda: not left(slurm), f"left: {left(slurm)}")


def test_a_job_by_hand_is_used_from_the_login_host(slurm: Slurm, work: Path) -> None:
    script = f"cd {work} && amfs up --slots 1 && amfs status && amfs run list && amfs down"
    done = slurm.hosts.login.run("salloc", "-N2", "sh", "-c", script, env=slurm.env, check=False)
    assert done.returncode == 0 and "2 nodes on 2 hosts" in done.stderr, done.stdout + done.stderr
    assert len({(work / f"o{k}").read_text() for k in range(16)}) == 2
    assert "refused" not in done.stderr
    until(lambda: not left(slurm), f"left: {left(slurm)}")


def test_a_job_by_hand_that_ends_without_down_leaves_nothing_on_the_login_host(slurm: Slurm) -> None:
    login = slurm.hosts.login
    done = login.run("salloc", "-N2", "sh", "-c", "amfs up --name job --slots 1 && amfs status job", env=slurm.env)
    assert "2 of 2 nodes up" in done.stdout
    until(lambda: not slurm.queue() and not login.processes("srun"), "the job goes on")
    assert "job" in login.listing("/tmp/amfs-0")
    done = login.run("amfs", "status", "job", env=slurm.env, check=False)
    assert done.returncode == 4 and "session job is gone" in done.stderr, done.stderr
    until(lambda: not left(slurm), f"left: {left(slurm)}")


def test_a_node_has_as_many_slots_as_the_job_has_cpus_there(slurm: Slurm) -> None:
    script = "amfs up --name job; amfs status job --output json | grep slots; amfs down job; echo true | amfs run --local --output json"
    for cpus in (1, 2):
        said = over(slurm, job(slurm, 1, script, f"--cpus-per-task={cpus}"))
        assert f'"slots": {cpus},' in said and f'"slots":{cpus}' in said, said


def test_a_part_of_the_job_and_no_more_than_it_has(slurm: Slurm) -> None:
    script = "amfs up --name part --nodes 2 --slots 1; amfs down part; amfs up --nodes 4; amfs up --on local --nodes 3; amfs down"
    said = over(slurm, job(slurm, 3, script))
    assert "2 nodes on 2 hosts" in said and "--nodes 4: this job has 3 of them" in said and "3 nodes on " in said, said


def test_a_launcher_that_runs_the_command_on_each_node_is_refused(slurm: Slurm) -> None:
    """Each copy would be a session of one node; and nodes of an MPI step end with the step."""
    done = slurm.hosts.login.run("srun", "-N3", "--ntasks-per-node=1", "amfs", "up", env=slurm.env, check=False)
    assert done.returncode != 0
    assert "runs this command 3 times" in done.stderr and "type 'amfs up' once in the job" in done.stderr
    until(lambda: not left(slurm), f"left: {left(slurm)}")


def test_nothing_stays_when_a_job_is_cancelled(slurm: Slurm) -> None:
    number = job(slurm, 4, "amfs up --name job --slots 1 && echo it is up && sleep 1000")
    log = slurm.hosts.login.home / f"job-{number}.log"
    until(lambda: log.exists() and "it is up" in log.read_text())
    assert left(slurm)
    slurm.on_login("scancel", number)
    over(slurm, number)
    until(lambda: not left(slurm), f"left: {left(slurm)}")
    until(lambda: not any(host.processes("amfs") for host in slurm.hosts.nodes))
