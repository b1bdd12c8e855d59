"""Sessions over several hosts by hand: ``amfs up --tcp`` and ``amfs node --join``, all with the same default paths."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from cluster.hosts import Host, Hosts

pytestmark = [pytest.mark.root, pytest.mark.slow]


def members(host: Host, name: str) -> list[int]:
    """The nodes of a session that are up, as ``amfs status`` says on ``host``."""
    said = host.run("amfs", "status", name, "--output", "json", check=False).stdout
    return [node["node"] for session in json.loads(said or "{}").get("sessions", []) for node in session["nodes"] if node["state"] == "up"]


@pytest.fixture
def joined(hosts: Hosts, tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A session of n1, which n2 and n3 have joined: its file, and the processes of the two nodes."""
    first, *others = hosts.nodes[:3]
    first.run("amfs", "up", "--tcp", "0.0.0.0", "--name", "far", "--slots", "1")
    file = hosts.shared / "far.json"
    file.write_bytes(Path(f"/proc/{first.pid}/root/tmp/amfs-0/far/session.json").read_bytes())
    file.chmod(0o600)
    logs = [tmp_path / f"{host.name}.log" for host in others]
    nodes = [host.start("amfs", "node", "--join", str(file), "--slots", "1", log=log) for host, log in zip(others, logs, strict=True)]
    try:
        until(lambda: len(members(first, "far")) == 3 or any(node.poll() is not None for node in nodes))
        assert len(members(first, "far")) == 3, "".join(log.read_text() for log in logs)
        yield str(file), nodes
    finally:
        first.run("amfs", "down", "far", check=False)
        for node in nodes:
            node.wait(timeout=60)


def test_nodes_of_other_hosts_join_and_work(hosts: Hosts, joined: tuple[str, list[subprocess.Popen[bytes]]]) -> None:
    first = hosts.nodes[0]
    (hosts.shared / "list").write_text("".join(f"t{k} -b sh -o o{k} -a -c 'hostname > o{k}; sleep 0.2'\n" for k in range(12)))
    first.run("amfs", "run", "--session", "far", "list", cwd=hosts.shared)
    names = {(hosts.shared / f"o{k}").read_text().strip() for k in range(12)}
    assert names == {host.name for host in hosts.nodes[:3]}


def test_a_node_that_leaves_takes_its_keys_and_its_store_along(
    hosts: Hosts, joined: tuple[str, list[subprocess.Popen[bytes]]]
) -> None:
    _, (process, _) = joined
    first, leaving = hosts.nodes[:2]
    assert leaving.listing("/tmp/amfs-0/far") and leaving.listing("/dev/shm")
    for pid in leaving.processes("--join"):
        os.kill(pid, signal.SIGTERM)
    process.wait(timeout=60)
    assert leaving.listing("/dev/shm") == []
    assert "session.json" not in leaving.listing("/tmp/amfs-0/far")
    assert len(members(first, "far")) == 2


def test_what_killed_nodes_left_on_their_hosts_goes_when_the_session_answers_no_more(
    hosts: Hosts, joined: tuple[str, list[subprocess.Popen[bytes]]]
) -> None:
    _, processes = joined
    first, cleaned, joins, another = hosts.nodes[:4]
    for host in (cleaned, joins):
        for pid in host.processes("--join"):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.wait(timeout=60)
    assert "freed" in cleaned.run("amfs", "clean").stdout and "session.json" in cleaned.listing("/tmp/amfs-0/far"), "the session lives"
    first.run("amfs", "down", "far")
    done = cleaned.run("amfs", "clean")
    assert (done.stdout.splitlines()[0], done.stderr) == ("removed /tmp/amfs-0/far, of a session without nodes", "")
    assert cleaned.listing("/tmp/amfs-0") == [] and joins.listing("/tmp/amfs-0") == ["far"]
    another.run("amfs", "up", "--tcp", "0.0.0.0", "--name", "near", "--slots", "1")
    file = hosts.shared / "near.json"
    file.write_bytes(Path(f"/proc/{another.pid}/root/tmp/amfs-0/near/session.json").read_bytes())
    file.chmod(0o600)
    joins.run("amfs", "node", "--detach", "--join", str(file), "--slots", "1")
    assert joins.listing("/tmp/amfs-0") == ["near"]
    assert another.run("amfs", "down", "near").stderr == ""


def test_down_says_no_more_than_that_it_is_down(hosts: Hosts, joined: tuple[str, list[subprocess.Popen[bytes]]]) -> None:
    done = hosts.nodes[0].run("amfs", "down", "far")
    assert (done.stdout, done.stderr) == ("far is down\n", "")


def test_the_session_is_seen_and_used_from_any_host_that_has_its_file(
    hosts: Hosts, joined: tuple[str, list[subprocess.Popen[bytes]]]
) -> None:
    file, _ = joined
    (hosts.shared / "text").write_text("hello\n")
    hosts.login.run("amfs", "put", "--session", file, str(hosts.shared / "text"), "/text")
    assert hosts.nodes[3].run("amfs", "cat", "--session", file, "/text").stdout == "hello\n"
    assert "3 nodes" in hosts.login.run("amfs", "status", file).stdout
