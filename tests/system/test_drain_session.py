"""A node of a real session is told to end, and hands over what only it has: files whole and in stripes, names, tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import commands
import pytest
from daily import daily
from fs_session import PATIENCE_S, running
from waiting import until

from amfs.client.files import Files
from amfs.host.processes import is_running
from amfs.net.records import SessionRecord

MIB = 1 << 20
DATA = bytes(range(1, 251)) * (3 * MIB // 250)


def amfs(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return commands.run(*arguments, cwd=cwd, timeout=PATIENCE_S)


def tell(session: SessionRecord, *nodes: int) -> None:
    """SIGTERM to these at once; returns when they are no more."""
    chosen = [entry for entry in session.nodes if entry.node in nodes]
    for entry in chosen:
        os.kill(entry.pid, signal.SIGTERM)
    until(lambda: not any(is_running(entry.pid, entry.started) for entry in chosen))


def begin(session: SessionRecord, here: Path) -> subprocess.Popen[bytes]:
    """A run of the list there, in which no task may fail once."""
    return subprocess.Popen([sys.executable, "-m", "amfs", "run", "-q", "--retries", "0", "--session", session.name, "list"], cwd=here)


def log(session: SessionRecord, node: int) -> str:
    return (Path(session.directory) / f"node-{node}.log").read_text()


def fill(session: SessionRecord, nodes: int) -> list[str]:
    """Whole files of each node, and files in stripes."""
    names = []
    for node in range(nodes):
        with Files(node=node) as files:
            if not node:
                files.mkdir("/striped")
                files.set_layout("/striped", "striped")
            for number in range(4):
                names += [f"/whole-{node}-{number}", f"/striped/{node}-{number}"]
                files.write_bytes(names[-2], DATA)
                files.write_bytes(names[-1], DATA)
    return names


@pytest.mark.parametrize("told", daily([(1,), (0,), (0, 1, 2)], (0, 1, 2)), ids=str)
def test_no_file_of_nodes_that_are_told_to_end_is_lost(told: tuple[int, ...]) -> None:
    """They were EIO from then on."""
    with running(4) as session:
        names = fill(session, 4)
        tell(session, *told)
        for node in told:
            assert "all that it had is on other nodes" in log(session, node)
        with Files(node=3) as files:
            assert len(files.df()) == 4 - len(told)
            for name in names:
                assert files.read_bytes(name) == DATA, name


def test_no_file_that_a_program_has_closed_in_a_mount_of_a_node_that_leaves_is_lost(tmp_path: Path) -> None:
    """It makes one after the other, which the poll loop did not see, until the mount ends. The last ones were EIO."""
    closed: list[str] = []

    def write_on() -> None:
        with suppress(OSError):
            while True:
                (tmp_path / f"f{len(closed)}").write_bytes(b"%d" % len(closed))
                closed.append(f"f{len(closed)}")

    with running(3) as session:
        assert amfs("mount", str(tmp_path), "--node", "1").returncode == 0
        try:
            with Files(node=1) as files:
                for number in range(8):
                    files.write_bytes(f"/first-{number}", DATA)
            writer = threading.Thread(target=write_on)
            writer.start()
            until(lambda: len(closed) > 5)
            tell(session, 1)
            writer.join(PATIENCE_S)
            assert not writer.is_alive()
            assert "all that it had is on other nodes" in log(session, 1)
            with Files(node=0) as files:
                assert [name for name in closed if files.read_bytes(f"/{name}") != name[1:].encode()] == []
        finally:
            amfs("umount", str(tmp_path))


def test_no_directory_is_refused_while_the_manager_leaves() -> None:
    """The last ones that it was asked for were EIO."""
    made: list[str] = []

    def make_on() -> None:
        with Files(node=2) as files:
            while is_running(manager.pid, manager.started) or len(made) < 20:
                files.mkdir(f"/d{len(made)}")
                made.append(f"d{len(made)}")

    with running(3) as session, ThreadPoolExecutor(1) as pool:
        manager = next(entry for entry in session.nodes if entry.node == 0)
        making = pool.submit(make_on)
        until(lambda: len(made) > 5 or making.done())
        tell(session, 0)
        making.result(PATIENCE_S)
        assert "all that it had is on other nodes" in log(session, 0)
        with Files(node=1) as files:
            assert sorted(files.listdir("/")) == sorted(made)


def test_the_last_node_says_that_nobody_takes_what_it_has() -> None:
    with running(1) as session:
        tell(session, 0)
        assert "no other node is there that could take what this one has" in log(session, 0)


def test_by_command_from_anywhere() -> None:
    with running(2) as session:
        names = fill(session, 2)
        assert amfs("node", "--drain", "7").returncode != 0
        done = amfs("node", "--drain", "1")
        assert done.returncode == 0, done.stderr
        assert "node 1 has left" in done.stderr
        last = amfs("node", "--drain", "0")
        assert last.returncode != 0 and "amfs down" in last.stderr
        with Files(node=0) as files:
            assert all(files.read_bytes(name) == DATA for name in names)


def test_tasks_that_run_may_end_and_no_new_ones_begin(tmp_path: Path) -> None:
    lines = [f"t{k} -b sh -a -c 'echo x >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done'\n" for k in range(2)]
    lines += [f"u{k} -b sh -a -c 'echo {k} >> {tmp_path}/later'\n" for k in range(20)]
    (tmp_path / "list").write_text("".join(lines))
    with running(2) as session:
        run = begin(session, tmp_path)
        until(lambda: (tmp_path / "begun").exists() and len((tmp_path / "begun").read_text().split()) == 2)
        entry = session.nodes[1]
        os.kill(entry.pid, signal.SIGTERM)
        until(lambda: "draining" in amfs("status", session.name).stdout)
        (tmp_path / "go").touch()
        assert run.wait(PATIENCE_S) == 0
        until(lambda: not is_running(entry.pid, entry.started))
        assert len((tmp_path / "begun").read_text().split()) == 2, "a task that ran began again"
        assert sorted(map(int, (tmp_path / "later").read_text().split())) == list(range(20))


def test_tasks_that_do_not_end_in_time_run_elsewhere_at_no_cost(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(
        "".join(f"t{k} -b sh -a -c 'echo x >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done'\n" for k in range(2))
    )
    with running(2, "--drain-time", "1") as session:
        run = begin(session, tmp_path)
        until(lambda: (tmp_path / "begun").exists() and len((tmp_path / "begun").read_text().split()) == 2)
        tell(session, 1)
        assert "its 1 s are over; 1 tasks run elsewhere" in log(session, 1)
        (tmp_path / "go").touch()
        assert run.wait(PATIENCE_S) == 0


def test_told_twice_it_ends_at_once(tmp_path: Path) -> None:
    """A task on each of two nodes would keep the first telling waiting."""
    (tmp_path / "list").write_text("".join(f"t{k} -b sh -a -c 'echo x >> {tmp_path}/begun; sleep 300'\n" for k in range(2)))
    with running(2) as session:
        run = begin(session, tmp_path)
        until(lambda: (tmp_path / "begun").exists() and len((tmp_path / "begun").read_text().split()) == 2)
        os.kill(session.nodes[1].pid, signal.SIGTERM)
        until(lambda: "this node drains" in log(session, 1))
        tell(session, 1)
        assert "told again to end" in log(session, 1)
        run.send_signal(signal.SIGINT)
        run.wait(PATIENCE_S)


def test_a_node_whose_job_ends_begins_nothing_longer_and_leaves_in_time(tmp_path: Path) -> None:
    with running(1) as session:
        environment = {**os.environ, "AMFS_JOB_END": str(int(time.time()) + 6)}
        join = [sys.executable, "-m", "amfs", "node", "--join", session.name, "--slots", "4"]
        with subprocess.Popen(join, env=environment, stderr=subprocess.PIPE, text=True) as node:
            errors = node.stderr
            assert errors is not None
            until(lambda: "serving 4 slots" in errors.readline())
            lines = [f"t{number} -b sh -time-limit 60 -a -c :\n" for number in range(12)]
            (tmp_path / "list").write_text("".join(lines))
            ran = amfs("run", "--output", "json", "--session", session.name, "list", cwd=tmp_path)
            events = [json.loads(line) for line in ran.stdout.splitlines()]
            assert [event["node"] for event in events if event["event"] == "task"] == [0] * 12, ran.stderr
            said = errors.read()
            assert node.wait() == 0
        assert "its job is about to end: this node drains" in said


def test_files_between_tasks_go_to_nodes_that_stay(tmp_path: Path) -> None:
    """They are wanted only after the node has left, and what made them does not run again."""
    makers = "".join(f"m{k} -b sh -o a{k} -node 1 -a -c 'echo >> {tmp_path}/made; seq {k} 300000 > a{k}'\n" for k in range(6))
    gate = f"gate -b sh -o gate -node 0 -a -c 'until [ -e {tmp_path}/open ]; do sleep 0.05; done; echo > gate'\n"
    readers = "".join(f"r{k} -b sh -i a{k} gate -o b{k} -a -c 'cksum < a{k} > b{k}'\n" for k in range(6))
    (tmp_path / "list").write_text(makers + gate + readers)
    with running(2) as session:
        run = begin(session, tmp_path)
        until(lambda: (tmp_path / "made").exists() and len((tmp_path / "made").read_text()) == 6)
        tell(session, 1)
        (tmp_path / "open").touch()
        assert run.wait(PATIENCE_S) == 0
        assert "all that it had is on other nodes" in log(session, 1)
    assert len((tmp_path / "made").read_text()) == 6
    for k in range(6):
        text = "".join(f"{n}\n" for n in range(k, 300001)).encode()
        assert (tmp_path / f"b{k}").read_text() == subprocess.run(["cksum"], input=text, capture_output=True, check=True).stdout.decode()


def test_after_a_node_has_left_what_nobody_reads_any_more_goes_at_once(tmp_path: Path) -> None:
    """It stayed until the run was over."""
    names = [f"a{k}" for k in range(6)]
    makers = "".join(f"m-{name} -b sh -o {name} -node 2 -a -c 'seq 300000 > {name}'\n" for name in names)
    gates = "".join(
        f"gate-{node} -b sh -o gate-{node} -node {node} -a -c 'until [ -e {tmp_path}/open ]; do sleep 0.05; done; echo > gate-{node}'\n"
        for node in (0, 1)
    )
    readers = "".join(f"r-{name} -b sh -i {name} gate-0 gate-1 -a -c 'cksum < {name} && echo >> {tmp_path}/read'\n" for name in names)
    last = f"last -b sh -a -c 'until [ -e {tmp_path}/end ]; do sleep 0.05; done'\n"
    (tmp_path / "list").write_text(makers + gates + last + readers)
    with running(3, "--slots", "2") as session:

        def held() -> int:
            told = json.loads(amfs("status", session.name, "--output", "json").stdout)
            return sum(node["memory"] + node["spilled"] for node in told["sessions"][0]["nodes"] if "memory" in node)

        run = begin(session, tmp_path)
        until(lambda: held() > 6 * MIB)
        tell(session, 2)
        assert held() > 6 * MIB, "its files are elsewhere"
        (tmp_path / "open").touch()
        until(lambda: (tmp_path / "read").exists() and len((tmp_path / "read").read_text()) == 6)
        until(lambda: held() < MIB)
        (tmp_path / "end").touch()
        assert run.wait(PATIENCE_S) == 0
