"""Sessions of real node processes as a person uses them: up, status, join, down, and nodes that die."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import until

from amfs.host import life, orphans
from amfs.host.processes import host_id, is_running, start_time
from amfs.net.records import NodeEntry, SessionRecord, life_file, load, save
from amfs.net.sockets import make_keys
from amfs.provision.local import LocalProcesses

Run = Callable[..., subprocess.CompletedProcess[str]]
PATIENCE_S = 60.0  # only turns a hang into a failure


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for sessions of this test only; whatever still runs there at the end is killed, and the test fails."""
    path = Path(tempfile.mkdtemp(prefix="amfs-t-", dir="/tmp"))  # short: sockets lie in it
    monkeypatch.setenv("AMFS_RUN_DIR", str(path))
    monkeypatch.delenv("AMFS_SESSION", raising=False)
    yield path
    left = [entry for file in path.glob("*/session.json") for entry in load(file).nodes if is_running(entry.pid, entry.started)]
    for entry in left:
        os.kill(entry.pid, signal.SIGKILL)
    shutil.rmtree(path)
    assert not left, "nodes were left running"


def session_of(home: Path, name: str) -> SessionRecord:
    return load(home / name / "session.json")


def started(home: Path, amfs: Run, what: str, nodes: int) -> SessionRecord:
    """A session that ``amfs up`` started, with a name of its own."""
    name = f"{what}-{os.getpid()}"
    assert amfs("up", "--nodes", str(nodes), "--slots", "1", "--name", name).returncode == 0
    return session_of(home, name)


def node(session: SessionRecord, number: int) -> NodeEntry:
    return next(entry for entry in session.nodes if entry.node == number)


def status(amfs: Run, name: str) -> dict[int, str]:
    """State by node."""
    done = amfs("status", name, "--output", "json", "--timeout", "1")
    assert done.returncode == 0, done.stderr
    (session,) = json.loads(done.stdout)["sessions"]
    return {each["node"]: each["state"] for each in session["nodes"]}


def stores(name: str) -> list[Path]:
    return sorted(orphans.SHM.glob(f"amfs-{os.getuid()}-{name}-*"))


def assert_gone(home: Path, session: SessionRecord) -> None:
    """Nothing of it is left: no process, no directory, no memory."""
    until(lambda: not any(is_running(entry.pid, entry.started) for entry in session.nodes))
    assert not (home / session.name).exists()
    until(lambda: not stores(session.name))  # another session that starts may be just removing them


def test_four_nodes_from_up_to_down(home: Path, amfs: Run, tmp_path: Path) -> None:
    name = f"four-{os.getpid()}"
    up = amfs("up", "--nodes", "4", "--slots", "1", "--name", name)
    assert (up.returncode, up.stdout) == (0, name + "\n"), up.stderr
    session = session_of(home, name)
    assert len(stores(name)) == 4
    for entry in session.nodes:
        told = Path(f"/proc/{entry.pid}/cmdline").read_bytes() + Path(f"/proc/{entry.pid}/environ").read_bytes()
        assert session.keys.server_secret.encode() not in told and session.keys.client_secret.encode() not in told
        assert session.keys.data not in told and base64.b64encode(session.keys.data) not in told
        assert os.getsid(entry.pid) != os.getsid(0) and os.readlink(f"/proc/{entry.pid}/fd/0") == "/dev/null"

    assert status(amfs, name) == dict.fromkeys(range(4), "up")
    table = amfs("status").stdout
    assert table.startswith(f"{name}: 4 of 4 nodes up, 4 slots")
    taken = amfs("up", "--name", name)
    assert taken.returncode == 4 and "is running; end it with" in taken.stderr

    (tmp_path / "list").write_text("".join(f"t{i} -b /bin/sh -o f{i} -a -c -a 'echo {i} > f{i}'\n" for i in range(20)))
    ran = amfs("run", "list")
    assert ran.returncode == 0, ran.stderr
    assert [(tmp_path / f"f{i}").read_text() for i in range(20)] == [f"{i}\n" for i in range(20)]

    down = amfs("down")
    assert (down.returncode, down.stdout) == (0, f"{name} is down\n")
    assert name not in down.stderr  # its news of others that died on this machine is none of this test's business
    assert_gone(home, session)
    again = amfs("status")
    assert again.returncode == 4 and "no session is running; start one with 'amfs up'" in again.stderr


def test_a_killed_node_is_noticed_and_the_run_goes_on(home: Path, amfs: Run, tmp_path: Path) -> None:
    session = started(home, amfs, "kill", 4)
    name = session.name
    (tmp_path / "list").write_text("".join(f"t{i} -b /bin/sh -o f{i} -a -c -a 'sleep 0.2; echo {i} > f{i}'\n" for i in range(40)))
    with subprocess.Popen(
        [sys.executable, "-m", "amfs", "run", "list", "--output", "json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        until(lambda: list(tmp_path.glob("f*")))
        os.kill(node(session, 2).pid, signal.SIGKILL)
        output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, (output[-2000:], errors[-2000:])
    assert [(tmp_path / f"f{i}").read_text() for i in range(40)] == [f"{i}\n" for i in range(40)]
    until(lambda: status(amfs, name) == {0: "up", 1: "up", 2: "gone", 3: "up"})
    assert amfs("down", name).returncode == 0
    assert_gone(home, session)


@pytest.mark.soak  # in a run: tests/system/test_runs_on_nodes.py
def test_the_manager_may_die(home: Path, amfs: Run) -> None:
    session = started(home, amfs, "head", 3)
    name = session.name
    os.kill(node(session, 0).pid, signal.SIGKILL)
    until(lambda: status(amfs, name) == {0: "gone", 1: "up", 2: "up"})
    assert amfs("down", name).returncode == 0
    assert_gone(home, session)


def test_a_session_whose_nodes_were_all_killed_is_cleaned(home: Path, amfs: Run) -> None:
    session = started(home, amfs, "dead", 2)
    name = session.name
    assert stores(name)
    for entry in session.nodes:
        os.kill(entry.pid, signal.SIGKILL)
    until(lambda: not any(is_running(entry.pid, entry.started) for entry in session.nodes))
    done = amfs("status", name)
    assert done.returncode == 4 and f"session {name} is gone" in done.stderr
    assert_gone(home, session)


def test_what_another_has_begun_to_remove_goes_too(home: Path, amfs: Run) -> None:
    """A command that finds a session dead removes it, and may be ended in the middle of that, its file gone and the rest not."""
    session = started(home, amfs, "half", 1)
    session.path.unlink()
    LocalProcesses().end(session)
    assert_gone(home, session)


def test_a_node_that_does_not_listen_any_more_is_killed(home: Path, amfs: Run) -> None:
    session = started(home, amfs, "stop", 2)
    name = session.name
    stuck = node(session, 1).pid
    os.kill(stuck, signal.SIGSTOP)
    down = amfs("down", name, "--timeout", "4")  # the other node has enough of that
    assert down.returncode == 0 and f"killed process {stuck}: no end within 4 s" in down.stderr
    assert_gone(home, session)


OWNER = """
import os, sys, time
from pathlib import Path
from amfs.host import life
lock = life.hold(Path(sys.argv[1]))
if sys.argv[2] == "ends":
    life.say_end(lock)
print(flush=True)
time.sleep(float(sys.argv[3]))
"""


@pytest.mark.parametrize(("says", "takes_s", "limit_s"), [("ends", 1.5, 0.0), ("ends", 60.0, 3.0), ("nothing", 60.0, 0.5)])
def test_a_node_that_has_begun_to_end_is_given_more_time(home: Path, says: str, takes_s: float, limit_s: float) -> None:
    """On a busy machine it may take long to remove a store. A node that was killed meanwhile left it behind."""
    directory = home / "slow"
    directory.mkdir(mode=0o700)
    command = [sys.executable, "-c", OWNER, str(directory / life_file(0)), says, str(takes_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == b"\n"
        entry = NodeEntry(0, (f"ipc://{directory}/node-0.ipc",), host_id(), owner.pid, start_time(owner.pid))
        session = SessionRecord(name="slow", keys=make_keys(), created=time.time(), host=host_id(), nodes=(entry,))
        save(session)
        remarks = LocalProcesses().end(session, 0.5)
    killed = [remark for remark in remarks if remark.startswith("killed")]
    assert killed == ([f"killed process {owner.pid}: no end within {limit_s:g} s"] if limit_s else [])
    assert owner.returncode == (-signal.SIGTERM if limit_s else 0)


def test_a_node_says_that_it_has_begun_to_end(home: Path, amfs: Run) -> None:
    session = started(home, amfs, "says", 2)
    says = session.directory / life_file(1)
    assert life.is_held(says) and not life.is_ending(says)
    os.kill(node(session, 1).pid, signal.SIGTERM)
    until(lambda: not life.is_held(says))
    assert life.is_ending(says)
    assert amfs("down", session.name).returncode == 0
    assert_gone(home, session)


def test_a_node_joins_and_leaves(home: Path, amfs: Run, tmp_path: Path) -> None:
    name = f"join-{os.getpid()}"
    assert amfs("up", "--nodes", "2", "--slots", "1", "--name", name, "--tcp", "127.0.0.1").returncode == 0
    # As from another host: another place for sessions, a copy of the session file, and only TCP between them.
    elsewhere = Path(tempfile.mkdtemp(prefix="amfs-t-", dir="/tmp"))
    copy = tmp_path / "copied.json"
    raw = json.loads((home / name / "session.json").read_bytes())
    for entry in raw["nodes"]:
        entry["host"] = "another host"
    copy.write_text(json.dumps(raw))
    copy.chmod(0o600)
    env = {**os.environ, "AMFS_RUN_DIR": str(elsewhere)}
    join = [sys.executable, "-m", "amfs", "node", "--join", str(copy), "--slots", "3", "--tcp", "127.0.0.1"]
    with subprocess.Popen(join, env=env, stderr=subprocess.PIPE, text=True) as joined:
        until(lambda: status(amfs, name) == {0: "up", 1: "up", 2: "up"})
        assert amfs("status", name).stdout.startswith(f"{name}: 3 of 3 nodes up, 5 slots")
        joined.terminate()
        assert joined.wait(PATIENCE_S) == 0
        assert joined.stderr is not None and f"node 2 joins {name}" in joined.stderr.read()
    until(lambda: status(amfs, name) == {0: "up", 1: "up"})
    assert amfs("node", "--join", name, "--detach").returncode == 0  # on the same host, by name
    session = session_of(home, name)
    assert len(session.nodes) == 3 and {entry.host for entry in session.nodes} == {host_id()}
    assert amfs("down", name).returncode == 0
    assert_gone(home, session)
    shutil.rmtree(elsewhere)


def test_a_node_that_joins_frees_what_a_killed_one_left(home: Path, amfs: Run) -> None:
    """Where nodes are jobs of a batch system, no other command may ever come to the host."""
    name = f"again-{os.getpid()}"
    assert amfs("up", "--nodes", "2", "--slots", "1", "--name", name).returncode == 0
    killed = next(entry for entry in session_of(home, name).nodes if entry.node == 1)
    (store,) = Path("/dev/shm").glob(f"amfs-{os.getuid()}-{name}-n1-*")
    os.kill(killed.pid, signal.SIGKILL)
    until(lambda: not is_running(killed.pid, killed.started))
    assert store.exists()
    assert amfs("node", "--join", name, "--slots", "1", "--detach").returncode == 0
    assert not store.exists()
    assert amfs("down", name).returncode == 0


def test_without_tcp_nobody_joins_from_elsewhere(home: Path, amfs: Run, tmp_path: Path) -> None:
    name = f"local-{os.getpid()}"
    assert amfs("up", "--slots", "1", "--name", name).returncode == 0
    copy = tmp_path / "copied.json"
    shutil.copy(home / name / "session.json", copy)
    text = copy.read_text().replace(host_id(), "another host")
    copy.write_text(text)
    copy.chmod(0o600)
    done = amfs("node", "--join", str(copy), env={"AMFS_RUN_DIR": str(tmp_path / "elsewhere")})
    assert done.returncode == 4
    assert done.stderr == f"amfs: session {name} can be reached only from another host: it was started without --tcp\n"
    assert amfs("down", name).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--tcp", "192.0.2.1"], 4, "cannot listen on tcp://192.0.2.1:0"),
        (["--tcp", "nonsense:port"], 2, "is not an address to listen on"),
        (["--store", "/proc/nowhere"], 4, "cannot make the store in /proc/nowhere"),
        (["--memory", "lots"], 2, "'lots' is not a size"),
        (["--name", "a/b"], 2, "cannot name a session"),
        (["--nodes", "0"], 2, "write a number"),
    ],
)
def test_what_cannot_start_says_why_and_leaves_nothing(home: Path, amfs: Run, arguments: list[str], code: int, words: str) -> None:
    done = amfs("up", *arguments)
    assert words in done.stderr and done.returncode == code and done.stdout == ""
    assert "Traceback" not in done.stderr
    assert list(home.iterdir()) == []


def test_a_node_that_dies_at_once_is_reported_with_its_log(home: Path, amfs: Run, tmp_path: Path) -> None:
    broken = tmp_path / "sitecustomize.py"
    broken.write_text("import sys\nif '-P' in sys.orig_argv: sys.exit('the interpreter is broken')\n")
    done = amfs("up", env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})
    assert done.returncode == 4 and "node 0 did not start: it ended at once" in done.stderr and "the interpreter is broken" in done.stderr
    assert list(home.iterdir()) == []
