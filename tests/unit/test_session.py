"""The registry of sessions: private, honest about who lives, and tidy."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from amfs.client import discovery
from amfs.errors import SessionError, UsageError
from amfs.host import orphans, processes
from amfs.net import records
from amfs.net.keys import Keys
from amfs.net.records import NodeEntry, SessionRecord

KEYS = Keys("a" * 40, "SECRET-OF-SERVER", "c" * 40, "SECRET-OF-CLIENT", b"SECRET-OF-DATA" + bytes(18))
GONE = (999_999_999, 5)  # no such process


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("AMFS_SESSION", raising=False)
    return tmp_path / "run"


def entry(process: tuple[int, int], host: str = "", node: int = 0, endpoint: str = "ipc:///nowhere/x.ipc") -> NodeEntry:
    return NodeEntry(node, (endpoint,), host or processes.host_id(), *process)


def ourselves() -> tuple[int, int]:
    return os.getpid(), processes.start_time(os.getpid())


def make(name: str, process: tuple[int, int] | None = None, created: float = 1.0) -> SessionRecord:
    """A session with one node; ours is its process if none is given."""
    discovery.claim(name)
    session = SessionRecord(
        name=name, keys=KEYS, created=created, host=processes.host_id(), nodes=(entry(ourselves() if process is None else process),)
    )
    records.save(session)
    return session


# ── files ──────────────────────────────────────────────────────────────────────────────────────────


def test_everything_is_private(base: Path) -> None:
    old = os.umask(0)
    try:
        session = make("one")
    finally:
        os.umask(old)
    assert stat.S_IMODE(base.stat().st_mode) == 0o700
    assert stat.S_IMODE(session.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(session.path.stat().st_mode) == 0o600
    assert records.load(session.path) == session


def test_no_secret_in_words() -> None:
    session = SessionRecord(name="x", keys=KEYS, created=0.0, host="h")
    assert "SECRET" not in repr(session) and "SECRET" not in str(KEYS)


def test_a_directory_open_to_others_is_refused(base: Path) -> None:
    base.mkdir(mode=0o700)
    base.chmod(0o750)
    with pytest.raises(SessionError, match=r"is open to others \(mode 750\).*chmod 700"):
        records.base_dir()
    with pytest.raises(SessionError, match="open to others"):
        discovery.find()


def test_something_else_in_the_place_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    base.symlink_to(tmp_path / "real")
    with pytest.raises(SessionError, match="is not a directory"):
        records.base_dir()


@pytest.mark.root
def test_a_directory_of_somebody_else_is_refused(base: Path) -> None:
    base.mkdir(mode=0o700)
    os.chown(base, 12345, 12345)
    with pytest.raises(SessionError, match="belongs to user 12345, not to you"):
        records.base_dir()


@pytest.mark.root
def test_a_session_file_of_somebody_else_is_refused() -> None:
    session = make("theirs")
    os.chown(session.path, 12345, 12345)
    with pytest.raises(SessionError, match="belongs to user 12345"):
        records.load(session.path)


def test_a_session_file_open_to_others_is_refused() -> None:
    session = make("open")
    session.path.chmod(0o644)
    with pytest.raises(SessionError, match=r"holds keys and is open to others \(mode 644\). Do: chmod 600"):
        records.load(session.path)


@pytest.mark.parametrize("content", [b"", b"{", b'{"name": 3}', b"\xff\xfe", b"[]", b'{"name": "../x", "keys": 1}'])
def test_a_damaged_session_file_is_named(content: bytes) -> None:
    session = make("damaged")
    session.path.write_bytes(content)
    with pytest.raises(SessionError, match=r"damaged/session.json is not a session file of this version"):
        records.load(session.path)
    assert records.list_all() == []


def test_where_sessions_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMFS_RUN_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if len(str(tmp_path)) < 40:
        assert records.base_dir() == tmp_path / "amfs"
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    for useless in (str(deep), "/nowhere/at/all", ""):  # too long for sockets, missing, empty
        monkeypatch.setenv("XDG_RUNTIME_DIR", useless)
        assert records.base_path() == Path(f"/tmp/amfs-{os.getuid()}")


# ── names ──────────────────────────────────────────────────────────────────────────────────────────


def test_random_names_are_good_names(base: Path) -> None:
    for _ in range(200):
        records.check_name(records.random_name())
    name, path, _ = discovery.claim(None)
    assert path == base / name and path.is_dir()


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", ".x", "a b", "x" * 41, "a\n", "ä"])
def test_bad_names(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a session"):
        discovery.claim(name)


def test_a_living_session_keeps_its_name() -> None:
    make("taken")
    with pytest.raises(SessionError, match="a session named taken is running; end it with 'amfs down taken'"):
        discovery.claim("taken")


def test_a_dead_session_does_not() -> None:
    session = make("reused", GONE)
    (session.directory / "node-0.ipc").touch()
    path = discovery.claim("reused").path
    assert not (path / "node-0.ipc").exists() and not (path / "session.json").exists()


def test_a_session_that_is_being_started_keeps_its_name() -> None:
    discovery.claim("young")
    with pytest.raises(SessionError, match=f"is being started by process {os.getpid()}"):
        discovery.claim("young")


# ── finding ────────────────────────────────────────────────────────────────────────────────────────


def test_the_newest_living_session_is_found_and_the_dead_are_cleaned(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("old", created=1.0)
    make("new", created=2.0)
    dead = make("dead", GONE, created=3.0)
    assert discovery.newest_live() is not None and dead.directory.exists()  # a look changes nothing
    assert discovery.find().name == "new"
    assert not dead.directory.exists()
    monkeypatch.setenv("AMFS_SESSION", "old")
    assert discovery.find().name == "old"
    newest = discovery.newest_live()
    assert newest is not None and newest.name == "old"


def test_by_name_and_by_path(tmp_path: Path) -> None:
    session = make("named")
    assert discovery.find("named") == discovery.find(str(session.path)) == session
    with pytest.raises(SessionError, match="no session named other; there are: named"):
        discovery.find("other")


def test_nothing_runs(base: Path) -> None:
    assert discovery.newest_live() is None
    assert not base.exists()  # and nothing was made to find that out
    with pytest.raises(SessionError, match="no session is running; start one with 'amfs up'"):
        discovery.find()


def test_asking_for_a_dead_session_says_so() -> None:
    session = make("late", GONE)
    (session.directory / "node-0.log").write_text("12:00 node 0 INFO x: serving\n")
    (session.directory / "node-1.log").write_text("12:00 node 1 INFO x: serving\nTraceback\nMemoryError: no more\n")
    with pytest.raises(SessionError, match=r"session late is gone .*; cleaned up after it\n  node-1.log ends in: MemoryError: no more$"):
        discovery.find("late")
    assert not session.directory.exists()


def test_a_reused_pid_is_not_the_node() -> None:
    pid, started = ourselves()
    assert discovery.is_live(make("a", (pid, started)))
    assert not discovery.is_live(make("b", (pid, started + 1)))


def test_a_zombie_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.start_time(child.pid) == 0


def test_a_session_elsewhere_is_asked(tmp_path: Path) -> None:
    far = entry((1, 1), host="another host", endpoint="tcp://127.0.0.1:9")  # nobody listens there
    session = SessionRecord(name="far", keys=REAL_KEYS, created=1.0, host="another host", nodes=(far,))
    assert not discovery.is_live(session, probe_s=0.2)


REAL_KEYS = Keys(  # public test vectors of CURVE: a client needs well-formed keys to ask at all
    "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6",
    "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs", bytes(32),
)  # fmt: skip


def test_nodes_that_join_are_remembered() -> None:
    session = make("grows")
    records.add_node(session, entry((7, 7), node=3))
    records.add_node(session, entry((8, 8), node=3))
    assert [(each.node, each.pid) for each in records.load(session.path).nodes] == [(0, os.getpid()), (3, 8)]


def test_only_directories_of_sessions_are_removed(tmp_path: Path, base: Path) -> None:
    records.base_dir()
    (tmp_path / "precious").mkdir()
    (base / "link").symlink_to(tmp_path / "precious")
    for path in (tmp_path / "precious", base / "link"):
        with pytest.raises(SessionError, match="not removed"):
            records.remove_directory(path)
    assert (tmp_path / "precious").is_dir()


# ── orphans ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[Path]:
    """A store whose owner was killed."""
    script = (
        "import sys, time; from pathlib import Path; from amfs.host import orphans\n"
        "marked = orphans.make('lost', 'n0', Path(sys.argv[1])); (marked.path / 'file').write_text('x')\n"
        "print(marked.path, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        assert orphans.sweep(None, tmp_path) == [] and path.exists(), "swept from under its owner"
        process.kill()
    yield path


def test_what_a_killed_process_left_is_swept(orphan: Path, tmp_path: Path) -> None:
    assert orphans.sweep("another", tmp_path) == []
    assert orphans.sweep("lost", tmp_path) == [orphan]
    assert not orphan.exists()


def test_nothing_else_is_swept(tmp_path: Path) -> None:
    unmarked = tmp_path / f"amfs-{os.getuid()}-mine-n0-x"
    unmarked.mkdir()
    (tmp_path / f"amfs-{os.getuid()}-link").symlink_to(tmp_path)
    (tmp_path / f"amfs-{os.getuid()}-file").touch()
    mine = orphans.make("s", "n0", tmp_path)
    assert orphans.sweep(None, tmp_path) == []
    assert unmarked.exists() and mine.path.exists()
    mine.remove()
    mine.remove()
    assert not mine.path.exists()


def test_a_session_that_cannot_be_judged_is_left_and_said(base: Path) -> None:
    discovery.claim("far").release()
    far = SessionRecord(name="far", keys=KEYS, created=1.0, host="", nodes=(entry((1, 1), "elsewhere/00000000-1"),))
    records.save(far)
    words = f"session far does not answer, and whether its nodes on elsewhere have ended cannot be known here: {base}/far is left as it is"
    for look in (lambda: discovery.find("far"), lambda: discovery.find(), lambda: discovery.claim("far")):
        with pytest.raises(SessionError, match=words):
            look()
    assert far.path.exists() and discovery.newest_live() is None


@pytest.fixture
def joined(base: Path) -> Iterator[tuple[SessionRecord, subprocess.Popen[bytes]]]:
    """A session of another host, of which a process here keeps the lock of node 1."""
    entries = (entry((1, 1), "elsewhere/00000000-1"), entry(GONE, node=1))
    session = SessionRecord(name="guest", keys=KEYS, created=1.0, host="elsewhere/00000000-1", nodes=entries)
    records.save(session)
    script = "import sys, time; from pathlib import Path; from amfs.host import life\n"
    script += "life.hold(Path(sys.argv[1])); print(flush=True); time.sleep(600)"
    command = [sys.executable, "-c", script, str(session.directory / records.life_file(1))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield session, process
        process.kill()


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def test_what_a_killed_node_left_of_a_session_of_another_host_is_removed(joined: tuple[SessionRecord, subprocess.Popen[bytes]]) -> None:
    session, process = joined
    discovery.sweep_left("other")
    assert discovery.state_of(session) is discovery.State.LIVE and session.path.exists(), "its owner lives"
    kill(process)
    discovery.sweep_left("guest")
    assert session.path.exists() and discovery.state_of(session) is discovery.State.DEAD
    discovery.sweep_left("other")
    assert not session.directory.exists()


def test_a_node_that_is_just_joining_keeps_the_directory(joined: tuple[SessionRecord, subprocess.Popen[bytes]]) -> None:
    session, process = joined
    kill(process)
    records.add_node(session, entry(ourselves(), node=2))
    session = records.load(session.path)
    assert discovery.state_of(session) is discovery.State.LIVE
    discovery.sweep_left("other")
    assert session.path.exists()


def test_what_the_founder_s_host_has_stays_while_nodes_elsewhere_may_live(joined: tuple[SessionRecord, subprocess.Popen[bytes]]) -> None:
    session, process = joined
    kill(process)
    mine = msgspec.structs.replace(session, host=processes.host_id())
    records.save(mine)
    assert discovery.state_of(mine) is discovery.State.UNKNOWN
    discovery.sweep_left("other")
    assert session.path.exists()


def test_what_a_start_that_was_killed_left_is_removed(base: Path) -> None:
    claim = discovery.claim("young")
    assert discovery.clean() == [] and claim.path.exists(), "its owner lives"
    claim.release()
    assert discovery.clean(remove=False) == [claim.path] and claim.path.exists()
    assert discovery.clean() == [claim.path] and not claim.path.exists()
