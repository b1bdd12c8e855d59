"""Commands in namespaces of their own, as in a container: their reach through the session's directory, and that they remove nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import commands
import pytest
from daily import daily
from fs_session import PATIENCE_S, about, kill, running

from amfs.client import discovery
from amfs.host import orphans
from amfs.net import records
from amfs.net.records import SessionRecord

pytestmark = pytest.mark.root

TASK = "t -b sh -o out -a -c 'echo made > out'\n"
AMFS = f"{sys.executable} -m amfs"
PID = ("--pid", "--fork", "--mount-proc")
SPACES = {
    "pid": PID,
    "pid without its own /proc": ("--pid", "--fork"),
    "mount, with a /dev/shm of its own": ("--mount",),
    "network": ("--net",),
    "host name": ("--uts",),
    "all": (*PID, "--net", "--uts", "--ipc"),
}


def amfs(*words: str) -> subprocess.CompletedProcess[str]:
    return commands.run(*words, timeout=PATIENCE_S)


def within(spaces: tuple[str, ...], script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    hidden = "mount -t tmpfs none /dev/shm; " if "--mount" in spaces or ("--net" in spaces and len(spaces) > 1) else ""
    named = "hostname contained; " if "--uts" in spaces else ""
    command = ["unshare", *spaces, "sh", "-ec", hidden + named + script]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=100)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("space", daily(SPACES, "pid", "all"))
def test_a_session_is_whole_in_other_namespaces(tmp_path: Path, space: str) -> None:
    """``unshare --pid … amfs ls /`` removed the directory of every session of the user."""
    (tmp_path / "m").mkdir()
    content = os.urandom(3 << 20)
    (tmp_path / "in").write_bytes(content)
    (tmp_path / "list").write_text(TASK)
    with running(2) as session:
        done = within(
            SPACES[space],
            f"{AMFS} ls / && {AMFS} put in /in && {AMFS} get /in back && {AMFS} mount m && cat m/in > read && echo new > m/new && ls m && "
            f"{AMFS} run -q list && {AMFS} status && {AMFS} umount m",
            tmp_path,
        )
        assert done.returncode == 0, done.stderr
        assert session.path.exists() and discovery.is_live(session)
        assert (tmp_path / "back").read_bytes() == (tmp_path / "read").read_bytes() == content
        assert (tmp_path / "out").read_text() == "made\n"
        assert "2 of 2 nodes up" in done.stdout and f"mounts {tmp_path}/m" in done.stdout
        assert sorted(amfs("ls", "/").stdout.split()) == ["in", "new"]
        taken = within(SPACES[space], f"{AMFS} up --name {session.name}", tmp_path)
        assert taken.returncode and "is running" in taken.stderr
        assert discovery.is_live(session)


def test_a_host_whose_loopback_has_ipv6_only(tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "in").write_bytes(content)
    name = f"six-{os.getpid()}"
    script = (
        f"ip link set lo up; ip address del 127.0.0.1/8 dev lo; {AMFS} up --name {name} --nodes 2 --slots 1; {AMFS} put in /in; mkdir m; "
        f"{AMFS} mount m --node 1; cat m/in > read; umount m; {AMFS} cat /in > cat; {AMFS} down {name}"
    )
    done = within(("--net",), script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "read").read_bytes() == (tmp_path / "cat").read_bytes() == content


def test_a_session_is_ended_from_another_pid_namespace(tmp_path: Path) -> None:
    with running(2) as session:
        done = within(PID, f"{AMFS} down {session.name}", tmp_path)
        assert (done.returncode, done.stdout, about(session.name, done.stderr)) == (0, f"{session.name} is down\n", "")
        assert not session.directory.exists() and not discovery.held(session)


def test_a_node_that_hangs_cannot_be_ended_from_there_and_its_directory_stays(tmp_path: Path) -> None:
    with running(1) as session:
        os.kill(session.nodes[0].pid, signal.SIGSTOP)
        try:
            done = within(PID, f"{AMFS} down {session.directory}/session.json --timeout 1", tmp_path)
            assert "node 0 runs in another PID namespace and does not end" in done.stderr
            assert f"{session.name} is not known to be down" in done.stdout
            assert session.path.exists()
        finally:
            os.kill(session.nodes[0].pid, signal.SIGCONT)


def test_a_dead_session_is_known_to_be_dead_in_another_pid_namespace(tmp_path: Path) -> None:
    with running(1) as session:
        kill(session, 0)
        done = within(PID, f"{AMFS} ls / --session {session.name}", tmp_path)
        assert done.returncode and "is gone" in done.stderr and not session.directory.exists()


def test_a_directory_that_was_removed_is_made_again(tmp_path: Path) -> None:
    with running(3) as session:
        (tmp_path / "m").mkdir()
        assert amfs("mount", str(tmp_path / "m")).returncode == 0
        (tmp_path / "m" / "file").write_text("content")
        shutil.rmtree(session.directory)
        until(lambda: session.path.exists() and len(list(session.directory.glob("node-*.fs"))) == 3)
        again = records.load(session.path)
        assert again.keys == session.keys and {entry.pid for entry in again.nodes} == {entry.pid for entry in session.nodes}
        assert session.directory.stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "m" / "file").read_text() == "content"
        assert within(PID, f"{AMFS} cat /file", tmp_path).stdout == "content"
        (tmp_path / "n").mkdir()
        assert amfs("mount", str(tmp_path / "n"), "--node", "2").returncode == 0
        assert (tmp_path / "n" / "file").read_text() == "content"
        for node in range(3):
            assert "was removed; it is made again" in (session.directory / f"node-{node}.log").read_text()


def test_a_directory_that_belongs_to_another_session_now_is_left_alone(tmp_path: Path) -> None:
    with running(1) as session:
        aside = session.directory.with_name("aside")
        os.kill(session.nodes[0].pid, signal.SIGSTOP)  # or it makes the directory again first
        try:
            session.directory.rename(aside)
            assert amfs("up", "--name", session.name, "--slots", "1").returncode == 0
        finally:
            os.kill(session.nodes[0].pid, signal.SIGCONT)
        other = records.load(session.path)
        log = aside / "node-0.log"
        until(lambda: "now belongs to another session" in log.read_text())
        assert records.load(session.path) == other
        assert amfs("down", session.name).returncode == 0
        aside.rename(session.directory)


# ── starts that are ended midway ───────────────────────────────────────────────────────────────────


def moment(directory: Path, what: str) -> bool:
    return any(directory.glob(what))


@pytest.mark.parametrize("what", daily([".starting-*", "*/starting", "*/node-0.life", "*/node-1.ipc", "*/session.json"], "*/node-1.ipc"))
def test_a_start_that_is_killed_leaves_nothing(tmp_path_factory: pytest.TempPathFactory, what: str) -> None:
    """Nodes without a session file were left, which nobody could find."""
    base = tmp_path_factory.mktemp("r")
    environment = {**os.environ, "AMFS_RUN_DIR": str(base)}
    environment.pop("AMFS_SESSION", None)
    command = [sys.executable, "-m", "amfs"]
    name = f"killed-{os.getpid()}"
    base.chmod(0o700)
    up = subprocess.Popen([*command, "up", "--nodes", "2", "--slots", "1", "--name", name], env=environment, stderr=subprocess.DEVNULL)
    while not moment(base, what) and up.poll() is None:
        pass
    up.kill()
    up.wait()
    if (base / name / "session.json").exists():  # it was complete
        assert subprocess.run([*command, "down", name], env=environment, capture_output=True).returncode == 0
    else:
        again = subprocess.run([*command, "up", "--slots", "1", "--name", f"{name}b"], env=environment, capture_output=True, text=True)
        assert again.returncode == 0, again.stderr
        until(lambda: not moment(base, f"{name}/node-*.life") or not any(map(discovery.life.is_held, base.glob(f"{name}/node-*.life"))))
        assert subprocess.run([*command, "down", f"{name}b"], env=environment, capture_output=True).returncode == 0
    for path in base.glob(".starting-*"):  # killed before it had its lock: it goes after a minute
        os.utime(path, (0, 0))
    subprocess.run([*command, "clean"], env=environment, capture_output=True, check=True)
    until(lambda: not list(base.iterdir()))
    until(lambda: not list(orphans.SHM.glob(f"amfs-{os.getuid()}-{name}*")))


# ── nodes that are told to end by their host ───────────────────────────────────────────────────────


def terminate(session: SessionRecord, *nodes: int) -> None:
    chosen = [entry for entry in session.nodes if entry.node in nodes]
    for entry in chosen:
        os.kill(entry.pid, signal.SIGTERM)
    until(lambda: not any(entry in chosen for entry in discovery.held(session)))


def test_the_last_of_four_nodes_goes_on(tmp_path: Path) -> None:
    with running(4, "--replicas", "2") as session:
        terminate(session, 0, 1, 2)
        until(lambda: "1 of 4 nodes up" in amfs("status").stdout)
        (tmp_path / "list").write_text(TASK)
        assert subprocess.run([sys.executable, "-m", "amfs", "run", "-q", "list"], cwd=tmp_path, timeout=60).returncode == 0
        assert "node 3 takes over" in (session.directory / "node-3.log").read_text()


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_mount_of_a_node_that_is_told_to_end_stays(tmp_path: Path, nodes: int) -> None:
    """It was removed, so that programs wrote to the directory below."""
    place = tmp_path / "m"
    place.mkdir()
    with running(nodes) as session:
        assert amfs("mount", str(place), "--node", "0").returncode == 0
        (place / "file").write_text("here")
        terminate(session, 0)
        for _ in range(2):
            with pytest.raises(OSError, match="not connected"):
                (place / "new").write_text("lost in a local directory")
            if nodes > 1:  # another session that starts leaves it, too
                assert amfs("up", "--name", f"{session.name}b", "--slots", "1").returncode == 0
                assert amfs("down", f"{session.name}b").returncode == 0
        amfs("down", session.name)
    assert not os.path.ismount(place) and not list(place.iterdir())


def test_a_mount_goes_with_the_end_of_its_session(tmp_path: Path) -> None:
    place = tmp_path / "m"
    place.mkdir()
    with running(2) as session:
        assert amfs("mount", str(place), "--node", "1").returncode == 0
        assert amfs("down", session.name).returncode == 0
        assert not os.path.ismount(place) and not list(place.iterdir())


def test_a_system_without_proc_is_one_line(tmp_path: Path) -> None:
    """As in the bare root directory of another system."""
    (tmp_path / "list").write_text("true\n")
    done = within(("--mount",), f"umount -l /proc; {AMFS} run --local list", tmp_path)
    assert done.returncode == 5 and done.stderr.count("\n") == 1 and "/proc is not mounted" in done.stderr, done.stderr
