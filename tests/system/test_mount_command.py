"""Mounts as a person uses them: mount, look, umount; killed and stopped nodes, namespaces, libfuse, fusermount3."""

from __future__ import annotations

import errno
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

import commands
import pytest
from waiting import until

from amfs.host import fusemounts
from amfs.host.processes import is_running
from amfs.net.records import SessionRecord, load

PATIENCE_S = 60.0  # only turns a hang into a failure
pytestmark = pytest.mark.skipif(os.environ.get("AMFS_TESTS_NO_FUSE") == "1", reason="AMFS_TESTS_NO_FUSE=1")

Amfs = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def place() -> Iterator[Path]:
    """Where to mount."""
    path = Path(tempfile.mkdtemp(prefix="amfs-at-", dir="/tmp"))
    yield path
    path.rmdir()


@pytest.fixture
def amfs(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Amfs]:
    """Runs ``amfs ARGUMENTS`` among sessions of this test only; nothing of it may be left at the end."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.fail("these tests mount: run them as root with /dev/fuse, or set AMFS_TESTS_NO_FUSE=1", pytrace=False)
    home = Path(tempfile.mkdtemp(prefix="amfs-m-", dir="/tmp"))
    monkeypatch.setenv("AMFS_RUN_DIR", str(home))
    monkeypatch.delenv("AMFS_SESSION", raising=False)

    def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = commands.run(*map(str, arguments), timeout=PATIENCE_S)
        assert done.returncode == code, f"amfs {arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    yield run
    run("umount", "--all", "--session", name(), "--force")
    run("down", "--all")
    shutil.rmtree(home)
    assert not fusemounts.mounted(name())


def name() -> str:
    return f"mnt-{os.getpid()}"


@pytest.fixture
def session(amfs: Amfs) -> SessionRecord:
    amfs("up", "--name", name(), "--slots", "1")
    return load(Path(os.environ["AMFS_RUN_DIR"]) / name() / "session.json")


def in_time(*command: object, patience_s: float = 20.0) -> int:
    quiet = subprocess.DEVNULL
    return subprocess.run([*map(str, command)], stdout=quiet, stderr=quiet, timeout=patience_s, check=False).returncode


@pytest.mark.parametrize("options", [[], ["--no-passthrough"], ["--cache", "open"], ["--fuse", "fusepy"]], ids=" ".join)
def test_mount_and_umount(amfs: Amfs, session: SessionRecord, place: Path, options: list[str]) -> None:
    said = amfs("mount", place, *options, "--verbose").stdout
    assert str(place) in said and ("fusepy" in said) == ("fusepy" in options)
    assert ("passthrough: the kernel" in said) == (options == [])
    (place / "d").mkdir()
    (place / "d" / "f").write_bytes(b"x" * 200_000)
    os.link(place / "d" / "f", place / "g")
    os.symlink("g", place / "h")
    assert (place / "h").read_bytes() == b"x" * 200_000 and sorted(os.listdir(place)) == ["d", "g", "h"]
    os.setxattr(place / "g", "user.a", b"b")
    assert os.getxattr(place / "d" / "f", "user.a") == b"b"
    with pytest.raises(OSError) as refused:  # as on NFS; the bytes are those of setcap cap_chown+ep
        os.setxattr(place / "g", "security.capability", bytes.fromhex("0100000201000000000000000000000000000000"))
    assert refused.value.errno == errno.EOPNOTSUPP and os.listxattr(place / "g") == ["user.a"]
    (place / "d").rename(place / "e")
    shutil.rmtree(place / "e")
    assert (place / "g").read_bytes() == b"x" * 200_000
    amfs("umount", place)
    assert not os.path.ismount(place)
    amfs("mount", place)
    assert sorted(os.listdir(place)) == ["g", "h"], "what was there stays in the session"


def test_a_session_ends_with_its_mounts(amfs: Amfs, session: SessionRecord, place: Path) -> None:
    amfs("mount", place)
    with open(place / "f", "w"):
        amfs("down", name())
    assert not os.path.ismount(place)


@pytest.mark.parametrize("fuse", ["native", "fusepy"])
def test_whether_a_mount_is_dead_is_no_question_to_other_nodes(amfs: Amfs, place: Path, fuse: str) -> None:
    def asked() -> int:
        (one,) = json.loads(amfs("status", name(), "--output", "json").stdout)["sessions"]
        return int(one["nodes"][0]["fs_asked"])

    amfs("up", "--name", name(), "--nodes", "2", "--slots", "1")
    amfs("mount", place, "--fuse", fuse)
    mount = fusemounts.at(str(place))
    assert mount is not None
    before = asked()
    assert not any(fusemounts.is_dead(mount) for _ in range(5)) and asked() == before
    os.statvfs(place)
    assert asked() > before, "what is counted here is not counted"


def test_status_shows_mounts(amfs: Amfs, session: SessionRecord, place: Path) -> None:
    amfs("mount", place)
    (one,) = json.loads(amfs("status", name(), "--output", "json").stdout)["sessions"]
    (mount,) = one["nodes"][0]["mounts"]
    assert mount["path"] == str(place) and mount["adapter"] == "native"
    assert str(place) in amfs("status", name()).stdout


def test_mistakes_are_told(amfs: Amfs, session: SessionRecord, place: Path) -> None:
    assert "make it first" in amfs("mount", place / "none", code=2).stderr
    assert "node 7 does not run" in amfs("mount", place, "--node", "7", code=2).stderr
    assert "no mount of amfs" in amfs("umount", place, code=2).stderr
    assert "or --all" in amfs("umount", code=2).stderr
    amfs("mount", place)
    assert "is mounted there already" in amfs("mount", place, code=2).stderr
    with open(place / "f", "w"):
        assert "in use" in amfs("umount", place, code=2).stderr
    amfs("umount", place)
    assert "no session named nobody" in amfs("mount", place, "--session", "nobody", code=4).stderr


def children(pid: int) -> list[int]:
    return [int(child) for listed in Path(f"/proc/{pid}/task").glob("*/children") for child in listed.read_text().split()]


def program_of(pid: int) -> str:
    """ "" if it has ended."""
    try:
        return os.path.basename(Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode())
    except OSError:
        return ""


def test_after_kill_9(amfs: Amfs, session: SessionRecord, place: Path) -> None:
    """Programs that use the mount get an error at once; the mount goes without --force."""
    amfs("mount", place)
    (place / "f").write_bytes(b"x")
    (aborter,) = [pid for pid in children(session.nodes[0].pid) if program_of(pid) == "amfs-aborter"]
    os.kill(session.nodes[0].pid, signal.SIGKILL)
    assert in_time("cat", place / "f") != 0
    until(lambda: not program_of(aborter), "the process that aborts the mounts does not end")
    amfs("umount", place)
    assert not os.path.ismount(place)


def is_not_connected(place: Path) -> bool:
    try:
        (place / "new").write_bytes(b"for nobody")
    except OSError as error:
        return error.errno == errno.ENOTCONN
    return False


def test_the_mount_of_a_session_without_nodes_stays_until_somebody_ends_it(amfs: Amfs, session: SessionRecord, place: Path) -> None:
    """The finder of a dead session removes its directory. Programs would go on in the bare directory below if the mount went, too."""
    amfs("mount", place)
    os.kill(session.nodes[0].pid, signal.SIGKILL)
    until(lambda: not is_running(session.nodes[0].pid, session.nodes[0].started), "the node lives")
    said = amfs("ls", "/", "--session", name(), code=4).stderr
    assert "is gone" in said and f"amfs umount {place}" in said and not session.directory.exists()
    assert is_not_connected(place)
    amfs("status", code=4)
    amfs("up", "--name", name(), "--slots", "1")
    assert is_not_connected(place), "another session of that name ends nothing"
    amfs("down", name())
    assert not os.path.ismount(place)


@pytest.mark.parametrize(("command", "code"), [("down", 4), ("down --all", 0), ("clean", 0)], ids=["down", "down --all", "clean"])
def test_who_ends_what_a_dead_session_left_ends_its_mounts(
    amfs: Amfs, session: SessionRecord, place: Path, command: str, code: int
) -> None:
    amfs("mount", place)
    os.kill(session.nodes[0].pid, signal.SIGKILL)
    until(lambda: not is_running(session.nodes[0].pid, session.nodes[0].started), "the node lives")
    amfs(*command.split(), *([name()] if command == "down" else []), code=code)
    assert not os.path.ismount(place) and not session.directory.exists()


def test_a_stuck_mount_goes_with_force(amfs: Amfs, session: SessionRecord, place: Path) -> None:
    amfs("mount", place)
    pid = session.nodes[0].pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in Path(f"/proc/{pid}/task").glob("*/stat")))
    waiting = subprocess.Popen(["ls", str(place)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.3)
    assert waiting.poll() is None
    amfs("umount", place, "--force")
    assert waiting.wait(20) != 0 and not os.path.ismount(place)
    os.kill(pid, signal.SIGCONT)


def test_in_another_mount_and_network_namespace(amfs: Amfs, session: SessionRecord, place: Path) -> None:
    """Mounted there, it is seen there only; it ends with the last process there, and with the session."""
    script = f"{sys.executable} -m amfs mount {place} -v && echo hi > {place}/f && cat {place}/f && touch {place}.in && exec sleep 60"
    inside = subprocess.Popen(["unshare", "-n", "-m", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    mark = Path(f"{place}.in")
    end = time.monotonic() + PATIENCE_S
    while not mark.exists() and inside.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    try:
        assert mark.exists(), inside.communicate()[0]
        assert not os.path.ismount(place) and os.listdir(place) == []
        table = f"/proc/{inside.pid}/mountinfo"
        assert fusemounts.mounted(name(), table=table)
        amfs("down", name())
        assert not fusemounts.mounted(name(), table=table)
    finally:
        inside.kill()
        inside.communicate()
        mark.unlink(missing_ok=True)


def test_through_fusermount(amfs: Amfs, session: SessionRecord, place: Path) -> None:
    """As ordinary users mount: the helper gives the descriptor back over a socket."""
    helper = fusemounts.fusermount()
    if helper is None:
        pytest.skip("no fusermount3 here")
    descriptor = fusemounts.mount_by_helper(helper, str(place), f"amfs:{name()}")
    made = fusemounts.at(str(place))
    assert made is not None and made.session == name() and made.kind == fusemounts.KIND
    order = fusemounts.Serve(str(place), made.device)
    assert fusemounts.ask(str(session.directory), 0, order, descriptor).mounts[0].active["started"]
    os.close(descriptor)
    (place / "f").write_bytes(b"x")
    assert (place / "f").read_bytes() == b"x"
    amfs("umount", place)


def test_two_nodes_see_what_the_other_has_closed(amfs: Amfs, place: Path) -> None:
    amfs("up", "--name", name(), "--slots", "1", "--nodes", "2")
    for node in range(2):
        (place / str(node)).mkdir()
        amfs("mount", place / str(node), "--node", node)
    a, b = place / "0", place / "1"
    for number in range(30):
        writer, reader = (a, b) if number % 2 else (b, a)
        (writer / f"f{number}").write_bytes(b"%d" % number * 1000)
        assert (reader / f"f{number}").read_bytes() == b"%d" % number * 1000
    assert sorted(os.listdir(a)) == sorted(os.listdir(b)) and len(os.listdir(a)) == 30
    for node in range(2):
        amfs("umount", place / str(node))
        (place / str(node)).rmdir()
