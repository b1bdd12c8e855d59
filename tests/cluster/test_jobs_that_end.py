"""Jobs of a real Slurm that end by themselves: preempted, never nodes, cancelled again and again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE_S, until

from cluster.slurm import Slurm
from cluster.test_submitting import left, start, status, up

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture(autouse=True)
def clean(slurm: Slurm) -> Iterator[None]:
    yield
    slurm.on_login("scancel", "--user=root", check=False)
    slurm.hosts.login.run("amfs", "down", "lab", env=slurm.env, check=False)
    until(lambda: not left(slurm), f"left: {left(slurm)}")


def said(slurm: Slurm, words: str) -> bool:
    return any(words in line for line in status(slurm)["said"])


@pytest.mark.soak
def test_a_preempted_node_keeps_its_files_and_another_job_takes_its_place(slurm: Slurm) -> None:
    start(slurm, "2", "--time", "5m", "--", "--exclusive")
    for number in range(4):
        slurm.hosts.nodes[number].run("sh", "-c", f"seq 1 {20000 + number} | amfs put --session lab - amfs:/file-{number}", env=slurm.env)
    urgent = slurm.on_login(
        "sbatch", "--parsable", "--partition=urgent", "-N4", "--exclusive", "--output=/dev/null", input="#!/bin/sh\nsleep 1000\n"
    ).strip()
    until(lambda: sum("another job was given its place" in line for line in status(slurm)["said"]) == 2, f"{status(slurm)['said']}")
    until(lambda: up(slurm) == 1 and sum(job["state"] == "pending" for job in status(slurm)["jobs"]) == 2, f"{status(slurm)['jobs']}")
    for number in range(4):
        found = slurm.hosts.login.run("sh", "-c", f"amfs cat --session lab amfs:/file-{number} | tail -n 1", env=slurm.env)
        assert found.stdout == f"{20000 + number}\n", found
    slurm.on_login("scancel", urgent)
    until(lambda: up(slurm) == 3, f"{status(slurm)['said']}")


@pytest.mark.soak
def test_jobs_that_end_again_and_again_make_the_keeper_pause(slurm: Slurm) -> None:
    start(slurm, "1", "--time", "5m")
    ended: set[str] = set()

    def is_paused() -> bool:
        told = status(slurm)
        for job in told["jobs"]:
            if job["state"] == "joined" and job["job"] not in ended:
                slurm.on_login("scancel", job["job"])
                ended.add(job["job"])
        return bool(told["paused"])

    until(is_paused, f"{status(slurm)['said']}")
    assert len(ended) == 3
    said_to_it = slurm.hosts.login.run("amfs", "status", "lab", env=slurm.env).stdout
    assert "no job is submitted before" in said_to_it and "'amfs scale 1 --session lab' tries again at once" in said_to_it, said_to_it
    slurm.hosts.login.run("amfs", "scale", "1", "--session", "lab", env=slurm.env)
    until(lambda: up(slurm) == 2 and not status(slurm)["paused"], f"{status(slurm)['said']}")


@pytest.mark.soak
def test_a_job_that_runs_and_never_becomes_a_node_is_given_up(slurm: Slurm, tmp_path: Path) -> None:
    def nodes() -> set[int]:
        return {pid for host in slurm.hosts.nodes for pid in host.processes("amfs\x00node")}

    start(slurm, "1", "--time", "5m")
    first = nodes()
    scaling = slurm.hosts.nodes[3].start("amfs", "scale", "2", "--session", "lab", log=tmp_path / "scale.log", env=slurm.env)
    end = time.monotonic() + PATIENCE_S
    while not (second := nodes() - first):  # it must be stopped before it has joined
        assert time.monotonic() < end, f"{status(slurm)['said']}"
    for pid in second:
        os.kill(pid, signal.SIGSTOP)
    assert scaling.wait(timeout=60) == 0
    end += PATIENCE_S  # the keeper gives it a minute
    while not said(slurm, "given up"):
        assert time.monotonic() < end, f"{status(slurm)['said']}"
