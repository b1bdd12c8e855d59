"""``amfs up --on ssh --hosts FILE`` over real sshds: a node on each host, whose keys come by a pipe, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from cluster.hosts import Host, Hosts
from cluster.sshd import Sshd

pytestmark = [pytest.mark.root, pytest.mark.slow]


def up_nodes(host: Host, name: str = "lab") -> list[dict[str, Any]]:
    said = host.run("amfs", "status", name, "--output", "json", check=False).stdout
    found = [node for session in json.loads(said or "{}").get("sessions", []) for node in session["nodes"]]
    return [node for node in found if node["state"] == "up"]


def left(hosts: Hosts) -> list[str]:
    """Remains of amfs on any host. Semaphores in /dev/shm are Python's, of other programs."""
    places = [(host, place) for host in hosts.all for place in ("/dev/shm", "/tmp/amfs-0")]
    return [f"{host.name}:{place}/{name}" for host, place in places for name in host.listing(place) if not name.startswith("sem.")]


@pytest.fixture(autouse=True)
def clean(hosts: Hosts) -> Iterator[None]:
    yield
    hosts.login.run("amfs", "down", "lab", check=False)
    until(lambda: not left(hosts), f"left: {left(hosts)}")
    until(lambda: not any(host.processes("amfs\x00node") or host.processes("ssh\x00-T") for host in hosts.all), "processes are left")


def start(sshd: Sshd, lines: str, *more: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    file = sshd.hosts.shared / "hosts.txt"
    file.write_text(lines)
    words = ("amfs", "up", "--on", "ssh", "--hosts", str(file), "--name", "lab", *more, "--", "-F", str(sshd.client))
    return sshd.hosts.login.run(*words, check=check)


def ran_on(hosts: Hosts, count: int = 12, at: Host | None = None) -> set[str]:
    """The hosts on which the tasks of a run have been."""
    work = hosts.shared / "work"
    work.mkdir(exist_ok=True)
    (work / "list").write_text("".join(f"t{k} -b sh -o o{k} -a -c 'hostname > o{k}; sleep 0.2'\n" for k in range(count)))
    (at or hosts.login).run("amfs", "run", "--session", "lab", "list", cwd=work)
    return {(work / f"o{k}").read_text().strip() for k in range(count)}


def test_a_node_on_each_host_with_its_slots_and_keys_that_nobody_sees(sshd: Sshd) -> None:
    one, two, three = sshd.hosts.nodes[:3]
    done = start(sshd, f"# ours\n{one.name} slots=1\n{two.name}:2\n\nroot@{three.address}   slots=3 # by address\n")
    assert done.stdout == "lab\n" and "4 nodes on 4 hosts" in done.stderr, done.stderr
    slots = {node["host"].partition("/")[0]: node["slots"] for node in up_nodes(sshd.hosts.login)}
    assert slots == {"login": 0, one.name: 1, two.name: 2, three.name: 3}
    assert ran_on(sshd.hosts) == {host.name for host in (one, two, three)}
    keys = json.loads(Path(f"/proc/{sshd.hosts.login.pid}/root/tmp/amfs-0/lab/session.json").read_text())["keys"]
    secrets = [value for value in keys.values() if isinstance(value, str) and len(value) > 20]
    assert secrets
    seen = [path.read_text(errors="replace") for path in Path(f"/proc/{sshd.hosts.login.pid}/root/tmp/amfs-0/lab").glob("launch-*")]
    for host in sshd.hosts.all:
        for pid in host.processes("amfs"):
            seen += [Path(f"/proc/{pid}/{what}").read_text(errors="replace") for what in ("cmdline", "environ")]
    assert len(seen) > 9 and not any(secret in text for secret in secrets for text in seen)
    down = sshd.hosts.login.run("amfs", "down", "lab")
    assert (down.stdout, down.stderr) == ("lab is down\n", "")


def test_nodes_outlive_the_connection_that_started_them(sshd: Sshd) -> None:
    one, two = sshd.hosts.nodes[:2]
    start(sshd, f"{one.name}\n{two.name}\n", "--slots", "1")
    for pid in [*sshd.hosts.login.processes("ssh\x00-T"), *sshd.connections(one), *sshd.connections(two)]:
        with suppress(ProcessLookupError):  # it went with another of them
            os.kill(pid, signal.SIGKILL)
    until(lambda: not sshd.connections(one) + sshd.connections(two))
    assert ran_on(sshd.hosts) == {one.name, two.name}
    assert len(up_nodes(sshd.hosts.login)) == 3
    assert two.run("amfs", "down", "lab").stdout == "lab is down\n"  # from any host of the session
    until(lambda: not left(sshd.hosts) or left(sshd.hosts) == ["login:/tmp/amfs-0/lab"], f"left: {left(sshd.hosts)}")


@pytest.mark.parametrize("runtime", [False, True], ids=["same directory", "$XDG_RUNTIME_DIR"])
def test_the_host_on_which_it_is_typed_can_be_one_of_them(sshd: Sshd, runtime: bool) -> None:
    one, two = sshd.hosts.nodes[:2]
    file = sshd.hosts.shared / "hosts.txt"
    file.write_text(f"{one.name}\n{two.name}\n")
    one.run("mkdir", "-p", "-m", "700", "/run/mine")
    env = {"XDG_RUNTIME_DIR": "/run/mine"} if runtime else {}
    words = ("amfs", "up", "--on", "ssh", "--hosts", str(file), "--name", "lab", "--slots", "1", "--", "-F", str(sshd.client))
    assert "3 nodes on 2 hosts" in one.run(*words, env=env).stderr
    down = one.run("amfs", "down", "lab", env=env)
    assert (down.stdout, down.stderr) == ("lab is down\n", "")
    until(lambda: not left(sshd.hosts) and not one.listing("/run/mine/amfs"), f"left: {left(sshd.hosts)}")


def test_a_host_that_cannot_be_reached_is_named_in_the_words_of_ssh(sshd: Sshd) -> None:
    """No sshd is on the login host."""
    one, two = sshd.hosts.nodes[:2]
    lines = f"{one.name}\nlogin\n{two.name}\n"
    done = start(sshd, lines, check=False)
    assert done.returncode == 4
    assert "ssh gives fewer than 3 nodes: login: ssh: connect to host login port 22: Connection refused" in done.stderr, done.stderr
    until(lambda: not left(sshd.hosts))
    done = start(sshd, lines, "--nodes", "2..3", "--slots", "1")  # two will do
    assert "no node on login: ssh: connect to host login port 22: Connection refused" in done.stderr and "3 nodes on 3 hosts" in done.stderr
    assert ran_on(sshd.hosts) == {one.name, two.name}


def test_a_node_that_cannot_start_says_why(sshd: Sshd) -> None:
    sshd.hosts.login.run("mkdir", "/tmp/spill")  # there alone
    done = start(sshd, f"{sshd.hosts.nodes[0].name}\n", "--spill", "/tmp/spill", check=False)
    assert done.returncode == 4 and f"{sshd.hosts.nodes[0].name}: cannot spill to /tmp/spill" in done.stderr, done.stderr


def test_a_session_for_one_run_is_gone_with_it(sshd: Sshd) -> None:
    work = sshd.hosts.shared / "once"
    work.mkdir()
    (work / "list").write_text("".join(f"t{k} -b sh -o o{k} -a -c 'hostname > o{k}; sleep 0.2'\n" for k in range(8)))
    file = sshd.hosts.shared / "hosts.txt"
    file.write_text("".join(f"{host.name}\n" for host in sshd.hosts.nodes))
    words = ("amfs", "run", "--on", "ssh", "--hosts", str(file), "--on-options", f"-F {sshd.client}", "-j", "1", "list")
    sshd.hosts.login.run(*words, cwd=work)
    assert {(work / f"o{k}").read_text().strip() for k in range(8)} == {host.name for host in sshd.hosts.nodes}
    assert not sshd.hosts.login.processes("ssh\x00-T")


def test_an_end_of_the_start_leaves_nothing(sshd: Sshd, tmp_path: Path) -> None:
    """Told to end while a host does not answer."""
    one, two = sshd.hosts.nodes[:2]
    file = sshd.hosts.shared / "hosts.txt"
    file.write_text(f"{one.name}\n{two.name}\n")
    words = ("amfs", "up", "--on", "ssh", "--hosts", str(file), "--name", "lab", "--", "-F", str(sshd.client))
    sshd.hosts.cut(two)
    try:
        process = sshd.hosts.login.start(*words, log=tmp_path / "up.log")
        until(lambda: bool(one.processes("amfs\x00node")))
        for pid in sshd.hosts.login.processes("up\x00--on"):
            os.kill(pid, signal.SIGTERM)
        assert process.wait(timeout=90) != 0
        assert not sshd.hosts.login.processes("ssh\x00-T")
    finally:
        sshd.hosts.mend(two)
