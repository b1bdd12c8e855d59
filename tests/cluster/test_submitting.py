"""``amfs up --on slurm`` on the login host of a real Slurm: a job for each node, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from cluster.slurm import Slurm

pytestmark = [pytest.mark.root, pytest.mark.slow]


def status(slurm: Slurm, host: int | None = None) -> dict[str, Any]:
    """What ``amfs status`` says on the login host, or on a node."""
    where = slurm.hosts.login if host is None else slurm.hosts.nodes[host]
    said = where.run("amfs", "status", "lab", "--output", "json", env=slurm.env, check=False).stdout
    return json.loads(said or '{"sessions": [{"nodes": [], "jobs": [], "said": []}]}')["sessions"][0]  # type: ignore[no-any-return]


def up(slurm: Slurm, host: int | None = None) -> int:
    return sum(node["state"] == "up" for node in status(slurm, host)["nodes"])


def left(slurm: Slurm) -> list[str]:
    """Remains of amfs anywhere."""
    places = [(host, place) for host in slurm.hosts.all for place in ("/dev/shm", "/tmp/amfs-0")]
    found = [f"{host.name}:{place}/{name}" for host, place in places for name in host.listing(place)]
    jobs = [line for line in slurm.queue() if "|COMPLETING|" not in line]
    return found + jobs + [str(path) for path in (slurm.hosts.login.home / ".amfs/sessions").glob("*")]


@pytest.fixture(autouse=True)
def clean(slurm: Slurm) -> Iterator[None]:
    yield
    slurm.hosts.login.run("amfs", "down", "lab", env=slurm.env, check=False)
    until(lambda: not left(slurm), f"left: {left(slurm)}")
    until(lambda: not any(host.processes("amfs\x00node") for host in slurm.hosts.nodes))


def start(slurm: Slurm, nodes: str, *more: str, check: bool = True) -> Any:
    words = ("amfs", "up", "--on", "slurm", "--name", "lab", "--nodes", nodes, "--slots", "1", *more)
    return slurm.hosts.login.run(*words, env=slurm.env, check=check)


def test_a_session_of_jobs_is_used_from_any_host_and_taken_down_from_another(slurm: Slurm, tmp_path: Path) -> None:
    done = start(slurm, "1..3", "--time", "5m", "--", "--partition=main", "--exclusive")
    assert done.stdout == "lab\n" and "is node" in done.stderr, done.stderr
    until(lambda: up(slurm) == 4)
    assert [node["slots"] for node in status(slurm)["nodes"] if node["node"] == 0] == [0]
    assert up(slurm, 3) == 4  # n4 has no job
    work = slurm.hosts.shared / "submitted"
    work.mkdir()
    (work / "list").write_text("".join(f"t{k} -b sh -o o{k} -a -c 'hostname > o{k}; sleep 0.3'\n" for k in range(12)))
    slurm.hosts.nodes[3].run("amfs", "run", "--session", "lab", "list", cwd=work, env=slurm.env)
    names = {(work / f"o{k}").read_text().strip() for k in range(12)}
    assert len(names) == 3 and "login" not in names
    keys = (slurm.hosts.login.home / ".amfs/sessions/lab/session.json").read_text()
    secrets = [value for value in json.loads(keys)["keys"].values() if isinstance(value, str) and len(value) > 20]
    assert secrets
    seen = [path.read_text(errors="replace") for path in (slurm.hosts.login.home / ".amfs/sessions/lab").glob("node-*")]
    for host in slurm.hosts.all:
        for pid in host.processes("amfs"):
            seen += [Path(f"/proc/{pid}/{what}").read_text(errors="replace") for what in ("cmdline", "environ")]
    assert not any(secret in text for secret in secrets for text in seen)
    down = slurm.hosts.nodes[3].run("amfs", "down", "lab", env=slurm.env)
    assert down.stderr == "" and "lab is down" in down.stdout
    until(lambda: not left(slurm), f"left: {left(slurm)}")


def test_a_session_of_jobs_grows_and_shrinks_while_it_works(slurm: Slurm) -> None:
    start(slurm, "1")
    until(lambda: up(slurm) == 2)
    nodes, login = slurm.hosts.nodes, slurm.hosts.login
    for number in range(6):
        login.run("sh", "-c", f"seq 1 {20000 + number} | amfs put --session lab - amfs:/file-{number}", env=slurm.env)
    said = nodes[3].run("amfs", "scale", "3", "--session", "lab", env=slurm.env)  # from a host that has no part in it
    assert "2 more jobs are submitted to slurm" in said.stderr, said.stderr
    until(lambda: up(slurm) == 4)
    said = login.run("amfs", "scale", "1", "--session", "lab", env=slurm.env)
    assert "to drain" in said.stderr and "lab has 1 node;" in said.stderr, said.stderr
    until(lambda: up(slurm) == 2)
    for number in range(6):
        said = login.run("sh", "-c", f"amfs cat --session lab amfs:/file-{number} | tail -n 1", env=slurm.env)
        assert said.stdout == f"{20000 + number}\n", said
    until(lambda: sum("|COMPLETING|" not in line for line in slurm.queue()) == 1, f"{slurm.queue()}")


@pytest.mark.soak
def test_a_node_whose_limit_nears_has_a_successor_before_it_leaves(slurm: Slurm) -> None:
    start(slurm, "1", "--time", "1m")
    fewest = up(slurm)

    def is_replaced() -> bool:
        nonlocal fewest
        told = status(slurm)
        fewest = min(fewest, sum(node["state"] == "up" for node in told["nodes"]))
        return [job["state"] for job in told["jobs"]] == ["ended", "joined"]

    until(is_replaced)
    assert fewest == 2, "for a time the session had no node with slots"
    assert not status(slurm)["paused"]


def test_what_will_never_start_is_an_error_at_once(slurm: Slurm) -> None:
    done = start(slurm, "2", "--time", "2h", "--", "--partition=short", check=False)
    assert done.returncode == 4
    assert " and " in done.stderr.splitlines()[1] and "are given up" in done.stderr.splitlines()[1], done.stderr  # in one line
    assert "does not allow" in done.stderr and "gives fewer than 2 nodes: Partition" in done.stderr, done.stderr
    assert not left(slurm)


def test_what_is_refused_is_said_in_the_words_of_the_system(slurm: Slurm) -> None:
    done = start(slurm, "2", "--", "--partition=nowhere", check=False)
    assert done.returncode == 4 and "invalid partition" in done.stderr and "sbatch --parsable" in done.stderr
    assert not left(slurm)


def test_a_dry_run_does_nothing(slurm: Slurm) -> None:
    done = start(slurm, "1..3", "--dry-run", "--time", "2h", "--", "--account=ab12")
    assert "#!/bin/sh" in done.stdout and "--time=2:00:00 --account=ab12" in done.stdout
    assert not left(slurm)


def test_a_session_for_one_run_is_gone_with_it(slurm: Slurm) -> None:
    work = slurm.hosts.shared / "once"
    work.mkdir()
    (work / "list").write_text("".join(f"t{k} -b sh -o o{k} -a -c 'hostname > o{k}; sleep 0.3'\n" for k in range(8)))
    words = ("amfs", "run", "--on", "slurm", "--nodes", "2", "--time", "5m", "--on-options", "--exclusive", "-j", "1", "list")
    slurm.hosts.login.run(*words, cwd=work, env=slurm.env)
    assert len({(work / f"o{k}").read_text() for k in range(8)}) == 2
    assert not left(slurm)


def test_jobs_that_end_by_themselves_are_replaced_and_a_node_that_was_told_to_leave_is_not(slurm: Slurm) -> None:
    start(slurm, "2", "--time", "5m")
    first, second = (job["job"] for job in status(slurm)["jobs"])
    slurm.on_login("scancel", first)
    until(lambda: any(f"job {first}, node " in line and "it was cancelled" in line for line in status(slurm)["said"]))
    until(lambda: up(slurm) == 3 and len(status(slurm)["jobs"]) == 3, f"{status(slurm)['said']}")
    assert any("1 more job submitted to slurm: of 2 nodes 1 stays" in line for line in status(slurm)["said"])
    node = next(job["node"] for job in status(slurm)["jobs"] if job["job"] == second)
    slurm.hosts.nodes[3].run("amfs", "node", "--drain", str(node), "--session", "lab", env=slurm.env)  # from where nothing runs
    until(lambda: up(slurm) == 2 and [job["state"] for job in status(slurm)["jobs"]] == ["ended", "ended", "joined"])
    assert status(slurm)["wanted"] == 1
    assert slurm.hosts.nodes[3].run("amfs", "down", "lab", env=slurm.env).stderr == ""
    until(lambda: not any("|COMPLETING|" not in line for line in slurm.queue()), f"{slurm.queue()}")


@pytest.mark.soak
def test_jobs_that_wait_are_named_and_the_absent_controller_is_survived(slurm: Slurm) -> None:
    start(slurm, "1..2", "--", "--exclusive", f"--nodelist={slurm.hosts.nodes[0].name}")
    until(lambda: any("for Resources: nodes that are free" in line for line in status(slurm)["said"]))
    slurm.stop_controller()
    try:
        until(lambda: any("does not answer" in line and "Unable to contact" in line for line in status(slurm)["said"]))
        assert up(slurm) == 2
        assert sorted(job["state"] for job in status(slurm)["jobs"]) == ["joined", "pending"]
    finally:
        slurm.start_controller()
    until(lambda: any("answers again" in line for line in status(slurm)["said"]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_while_jobs_wait_cancels_them(slurm: Slurm, tmp_path: Path, number: signal.Signals) -> None:
    words = ("amfs", "up", "--on", "slurm", "--name", "lab", "--nodes", "2", "--", "--exclusive", f"--nodelist={slurm.hosts.nodes[0].name}")
    log = tmp_path / "up.log"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it, and so would its programs
    try:
        process = slurm.hosts.login.start(*words, log=log, env=slurm.env)
    finally:
        signal.signal(signal.SIGINT, before)
    until(lambda: "for Resources" in log.read_text(), "no job waits")
    for pid in slurm.hosts.login.processes("up\x00--on"):
        os.kill(pid, number)
    until(lambda: "does not stop that" in log.read_text(), "the end is not said")
    for pid in slurm.hosts.login.processes("up\x00--on"):
        with suppress(ProcessLookupError):
            os.kill(pid, number)  # again, as the impatient do
    assert process.wait(timeout=90) == 128 + number
    assert not left(slurm), log.read_text()


@pytest.mark.soak
def test_the_founder_s_end_ends_no_work(slurm: Slurm) -> None:
    start(slurm, "2")
    for pid in [*slurm.hosts.login.processes("amfs.node.main"), *slurm.hosts.login.processes("amfs.provision.keeper")]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: up(slurm, 3) == 2)
    work = slurm.hosts.shared / "later"
    work.mkdir()
    (work / "list").write_text("".join(f"t{k} -b sh -o o{k} -a -c 'hostname > o{k}'\n" for k in range(4)))
    slurm.hosts.nodes[3].run("amfs", "run", "--session", "lab", "list", cwd=work, env=slurm.env)
    slurm.hosts.nodes[3].run("amfs", "down", "lab", env=slurm.env)
    slurm.hosts.login.run("amfs", "status", check=False)  # sweeps what was killed


@pytest.mark.soak
def test_a_cancelled_job_costs_its_tasks_no_attempt(slurm: Slurm, tmp_path: Path) -> None:
    elsewhere = ",".join(host.name for host in slurm.hosts.nodes[2:])
    start(slurm, "2", "--", "--exclusive", f"--exclude={elsewhere}")
    start_of_long = ("amfs", "node", "--join", str(slurm.hosts.login.home / ".amfs/sessions/lab/session.json"), "--slots", "1")
    stays = slurm.hosts.nodes[3].start(*start_of_long, log=tmp_path / "node.log")
    until(lambda: up(slurm) == 4)
    work = slurm.hosts.shared / "ends"
    work.mkdir()
    task = "t{0} -b sh -o o{0} -a -c 'date >> {1}/began-{0}; sleep {2}; date > o{0}'\n"
    (work / "list").write_text("".join(task.format(k, work, 3) for k in range(9)))
    words = ("amfs", "run", "--session", "lab", "--retries", "0", "list")
    run = slurm.hosts.login.start(*words, cwd=work, log=tmp_path / "run.log", env=slurm.env)
    until(lambda: len(list(work.glob("began-*"))) >= 3)
    slurm.on_login("scancel", *(job["job"] for job in status(slurm)["jobs"]))
    assert run.wait(timeout=90) == 0, (tmp_path / "run.log").read_text()
    assert any(len(path.read_text().splitlines()) > 1 for path in work.glob("began-*"))
    until(lambda: sum("it was cancelled" in line for line in status(slurm)["said"]) == 2, str(status(slurm)["said"]))
    slurm.hosts.login.run("amfs", "down", "lab", env=slurm.env)
    stays.wait(timeout=60)
