"""Sessions and mounts of somebody who is not root: through fusermount3, in a namespace of his own, and in those of a node's keeper.

Run as root, which becomes that user (``nobody``) and opens /dev/fuse to him meanwhile. Skipped where that cannot be.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amfs.host import fusemounts
from amfs.net.records import SessionRecord, parse

PATIENCE_S = 60.0  # only turns a hang into a failure
FUSE = Path("/dev/fuse")
pytestmark = pytest.mark.skipif(os.environ.get("AMFS_TESTS_NO_FUSE") == "1", reason="AMFS_TESTS_NO_FUSE=1")


class Person:
    """Runs programs as a user who owns a home of his own and nothing else."""

    def __init__(self, uid: int, gid: int, home: Path) -> None:
        self.uid, self.gid, self.home = uid, gid, home
        self.python = ""
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "AMFS_RUN_DIR": str(home / "run")}
        if sys.pycache_prefix is not None:  # bytecode is not beside the sources, and he could not read where it is or keep his own
            self.env["PYTHONPYCACHEPREFIX"] = str(home / "bytecode")

    def run(self, *command: object, code: int | None = 0, uid: int = -1) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            list(map(str, command)), user=self.uid if uid < 0 else uid, group=self.gid, extra_groups=[], cwd=self.home, env=self.env,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert code is None or done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def start(self, *command: object, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        return subprocess.Popen(
            list(map(str, command)), user=self.uid, group=self.gid, extra_groups=[], cwd=self.home, env=self.env, stdin=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def amfs(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run(self.python, "-m", "amfs", *arguments, code=code)


def find_python(person: Person) -> str:
    """A Python that this user may run, with everything that amfs needs: ours, or the system's with our packages. "": there is none."""
    borrowed = person.home / "site"
    borrowed.mkdir()
    packages = sysconfig.get_path("platlib")
    (borrowed / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({packages!r})\n")
    for python, more in ((sys.executable, {}), ("/usr/bin/python3", {"PYTHONPATH": str(borrowed)})):
        person.env.update(more)
        with contextlib.suppress(OSError):
            if person.run(python, "-c", "import amfs._native, amfs.node.main, click, msgspec, zmq", code=None).returncode == 0:
                return python
    return ""


@contextlib.contextmanager
def living(uid: int, gid: int) -> Iterator[Person]:
    """A user with a home, and a /dev/fuse that is open to him."""
    home = Path(tempfile.mkdtemp(prefix="amfs-u-", dir="/tmp"))  # short: sockets lie in it
    mode = stat.S_IMODE(FUSE.stat().st_mode)
    try:
        home.chmod(0o755)
        (home / "m").mkdir()
        (home / "run").mkdir(0o700)
        for path in (home, home / "m", home / "run"):
            os.chown(path, uid, gid)
        it = Person(uid, gid, home)
        it.python = find_python(it)
        if not it.python:
            pytest.skip(f"no Python that user {uid} may run has what amfs needs ({sys.executable} may be in root's home)")
        FUSE.chmod(0o666)
        yield it
    finally:
        FUSE.chmod(mode)
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def person() -> Iterator[Person]:
    if os.geteuid() != 0 or not FUSE.exists():
        pytest.skip("only root can become an ordinary user, and /dev/fuse must be there")
    nobody = pwd.getpwnam("nobody")
    with living(nobody.pw_uid, nobody.pw_gid) as it:
        yield it


@contextlib.contextmanager
def up(person: Person, name: str) -> Iterator[str]:
    """A session of his, of which nothing may be left."""
    person.amfs("up", "--name", name, "--slots", "1")
    yield name
    person.amfs("umount", "--all", "--lazy")  # his own: that of others is none of his business
    person.amfs("down", name)
    assert not fusemounts.mounted(name)
    assert not [left for left in Path("/dev/shm").iterdir() if name in left.name]


@pytest.fixture
def session(person: Person) -> Iterator[str]:
    with up(person, f"user-{os.getpid()}") as name:
        yield name


WORK = """set -e
echo hello >m/a; mkdir m/d; ln m/a m/d/b; mv m/a m/c
cat m/d/b; chmod 600 m/c; ls -ln m
rm m/c; echo more >>m/d/b; cat m/d/b"""


@pytest.mark.parametrize("adapter", ["native", "fusepy"])
def test_he_mounts_his_own_files(person: Person, session: str, adapter: str) -> None:
    if adapter == "fusepy" and person.run(person.python, "-c", "import fuse", code=None).returncode != 0:
        pytest.skip("fusepy or its libfuse is not here")
    if fusemounts.fusermount() is None:
        pytest.skip("for everybody to see it, ordinary users mount through fusermount3, which is not here")
    told = person.amfs("mount", "m", "--fuse", adapter, "--verbose").stdout
    assert told.startswith(f"{person.home}/m: {adapter}")
    done = person.run("sh", "-c", WORK).stdout.splitlines()
    assert done[0] == "hello" and done[-2:] == ["hello", "more"]
    assert [line.split()[2:4] for line in done[2:-2]] == [[str(person.uid), str(person.gid)]] * 2  # his own, and nobody else's
    assert person.amfs("ls", "/d").stdout.split() == ["b"]
    if not any(line.strip() == "user_allow_other" for line in Path("/etc/fuse.conf").read_text().splitlines()):
        with pytest.raises(PermissionError):  # not even root
            (person.home / "m" / "d" / "b").read_bytes()
    person.amfs("umount", "m")
    assert not os.path.ismount(person.home / "m")


def test_his_blind_tasks_have_a_mount(person: Person, session: str) -> None:
    lines = person.home / "lines"
    lines.write_text("a -b sh -blind -a -c 'mkdir d; id -u > d/f'\nb -b sh -blind -retries 0 -a -c 'echo x > y; cat z'\n")
    lines.chmod(0o644)
    ran = person.amfs("run", str(lines), "--session", session, code=1)
    assert "task b failed: exit status 1; looked in vain for /z" in ran.stderr
    assert person.amfs("ls", "/").stdout.split() == ["d"]
    assert person.amfs("cat", "/d/f").stdout == f"{person.uid}\n"


def test_in_a_user_namespace_of_his_own(person: Person, session: str) -> None:
    unshare = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    if person.run(*unshare, "true", code=None).returncode != 0:
        pytest.skip("users may not have namespaces of their own here, or unshare is older than 2.37")
    inside = f"{person.python} -m amfs mount m --session {session} && echo seen >m/f && cat m/f && {person.python} -m amfs umount m"
    assert person.run(*unshare, "sh", "-c", inside).stdout == "seen\n"
    assert person.amfs("cat", "/f").stdout == "seen\n"


def test_what_is_wrong_is_said(person: Person, session: str) -> None:
    stranger = 30001
    with contextlib.suppress(KeyError):
        pwd.getpwuid(stranger)
        stranger = 30002
    script = f"from amfs.host import fusemounts\nfusemounts.mount_here({str(person.home / 'm')!r}, 's')"
    os.chown(person.home / "m", stranger, -1)
    try:
        told = person.run(person.python, "-c", script, code=1, uid=stranger).stderr
    finally:
        os.chown(person.home / "m", person.uid, -1)
    assert "user has no name" in told or fusemounts.fusermount() is None
    FUSE.chmod(0o600)
    try:
        told = person.amfs("mount", "m", code=5).stderr
    finally:
        FUSE.chmod(0o666)
    assert "/dev/fuse must be open to users" in told
    assert not os.path.ismount(person.home / "m")


# ── without fusermount3, and without a name in /etc/passwd ─────────────────────────────────────────


@pytest.fixture(scope="module")
def stranger() -> Iterator[Person]:
    if os.geteuid() != 0 or not FUSE.exists():
        pytest.skip("only root can become an ordinary user, and /dev/fuse must be there")
    named = {user.pw_uid for user in pwd.getpwall()}
    uid = next(number for number in range(30001, 40000) if number not in named)
    with living(uid, uid) as it:
        tools = it.home / "tools"  # all that there is, but for the helper
        tools.mkdir()
        for name in ("sh", "bash", "cat", "id", "mkdir", "cp", "sleep", "stat", "ls"):
            found = shutil.which(name)
            assert found is not None
            (tools / name).symlink_to(found)
        it.env["PATH"] = str(tools)
        unshare = shutil.which("unshare")
        if unshare is None or it.run(unshare, "--user", "--map-current-user", "sh", "-c", "true", code=None).returncode != 0:
            pytest.skip("users may not have namespaces of their own here")
        yield it


@pytest.fixture
def place(stranger: Person) -> Iterator[str]:
    with up(stranger, f"stranger-{os.getpid()}") as name:
        yield name


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def processes(person: Person, program: str) -> list[int]:
    """His processes that run this program."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if process.stat().st_uid == person.uid and os.path.basename(words[0]) == program.encode():
                found.append(int(process.name))
    return found


def record(person: Person, name: str) -> SessionRecord:
    path = person.home / "run" / name / "session.json"
    return parse(path.read_bytes(), str(path))


def write_tasks(person: Person, lines: str) -> Path:
    tasks = person.home / "lines"
    tasks.write_text(lines)
    tasks.chmod(0o644)
    return tasks


def test_blind_tasks_without_a_helper(stranger: Person, place: str) -> None:
    lines = (
        "a -b sh -blind -a -c 'mkdir d; id -u > d/f; cp d/f d/g; stat -c %u:%g . > d/owner'\n"
        "b -b cat -blind -cwd /d -retries 0 -a none\n"
    )
    ran = stranger.amfs("run", write_tasks(stranger, lines), "--session", place, code=1)
    assert "looked in vain for /d/none" in ran.stderr
    assert stranger.amfs("cat", "/d/f", "/d/g", "/d/owner").stdout == f"{stranger.uid}\n" * 2 + f"{stranger.uid}:{stranger.gid}\n"
    assert not fusemounts.mounted(place), "outside of its namespaces nobody sees the mount"
    node = record(stranger, place).nodes[0].pid
    assert Path(f"/proc/{node}/environ").stat().st_uid == stranger.uid, "the node cannot look at itself any more"
    # One that is killed is replaced, and what it kept goes with it.
    (keeper,) = processes(stranger, "amfs-keeper")
    os.kill(keeper, signal.SIGKILL)
    log = stranger.home / "run" / place / "node-0.log"
    until(lambda: "keeps mounts" in log.read_text(), "the node does not notice that its keeper has ended")
    stranger.amfs("run", write_tasks(stranger, "c -b sh -blind -a -c 'cat d/f > h'\n"), "--session", place, "--no-journal")
    assert stranger.amfs("cat", "/h").stdout == f"{stranger.uid}\n"
    assert [pid for pid in processes(stranger, "amfs-keeper") if pid != keeper]


def test_a_shell_without_a_helper(stranger: Person, place: str) -> None:
    script = "mkdir e; echo first > e/one; cat e/one; amfs shell -C /e -c 'cat one; pwd'; id -u; exit 7"
    told = stranger.amfs("shell", "--session", place, "-c", script, code=7)
    lines = told.stdout.splitlines()
    assert lines[:2] == ["first", "first"] and lines[2].endswith("/e") and lines[3] == str(stranger.uid), told
    assert "no mount" not in told.stderr
    assert stranger.amfs("cat", "/e/one").stdout == "first\n"
    assert "there is no directory /none in the session" in stranger.amfs("shell", "-C", "/none", "-c", "true", code=2).stderr
    assert not [path.name for path in (stranger.home / "run" / place).glob("mount-*") if path.name != lines[2].split("/")[-2]]
    refused = stranger.amfs("mount", "m", code=5).stderr
    assert "amfs shell" in refused and "fusermount3 is not here" in refused and "Traceback" not in refused


def test_in_a_user_namespace_of_his_own_a_mount_needs_no_helper(stranger: Person, place: str) -> None:
    amfs = f"{stranger.python} -m amfs"
    inside = f"{amfs} mount m --session {place} && echo seen >m/f && cat m/f && {amfs} umount m"
    unshare = [shutil.which("unshare"), "--user", "--map-current-user", "--keep-caps", "--mount"]
    assert stranger.run(*unshare, "sh", "-c", inside).stdout == "seen\n"
    assert stranger.amfs("cat", "/f").stdout == "seen\n"


def test_a_killed_node_leaves_no_mount_and_no_process(stranger: Person, place: str) -> None:
    words = [stranger.python, "-m", "amfs"]
    task = "t -b sh -blind -a -c 'echo here > begun; sleep 1000'\n"
    shell = stranger.start(*words, "shell", "-c", "echo ready; read line; cat begun; echo $?", stdin=subprocess.PIPE)
    run = stranger.start(*words, "run", write_tasks(stranger, task), "--session", place, "--no-journal")
    try:
        assert shell.stdout is not None and shell.stdout.readline() == "ready\n"
        until(lambda: processes(stranger, "sleep"), "the blind task does not begin")
        (keeper,) = processes(stranger, "amfs-keeper")
        space = os.readlink(f"/proc/{keeper}/ns/mnt")
        assert space != os.readlink("/proc/self/ns/mnt")
        os.kill(record(stranger, place).nodes[0].pid, signal.SIGKILL)
        until(lambda: not processes(stranger, "amfs-keeper") and not processes(stranger, "sleep"), "a process is left")
        out, err = shell.communicate("go on\n", timeout=PATIENCE_S)
        assert out == "1\n" and "not connected" in err  # and not an empty directory
    finally:
        shell.kill()
        run.kill()
        for process in (shell, run):
            process.communicate()
    stranger.amfs("clean")
    assert not (stranger.home / "run" / place).exists()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            assert os.readlink(path / "ns/mnt") != space, "somebody is left in the namespaces, and so are the mounts"
    stranger.amfs("up", "--name", place, "--slots", "1")  # the fixture ends it


def test_what_the_site_forbids_is_said(stranger: Person) -> None:
    """In a user namespace in which no more of them may be made, and without any right in it."""
    lines = write_tasks(stranger, "a -b id -blind -retries 0\n")
    name = f"forbidden-{os.getpid()}"
    amfs = f"{stranger.python} -m amfs"
    script = (
        f"{amfs} up --name {name} --slots 1; {amfs} run {lines} --session {name} --no-journal; {amfs} shell -c 'echo here'; "
        f"{amfs} down {name}"
    )
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("no setpriv here")
    bare = f"{setpriv} --inh-caps -all --ambient-caps -all --bounding-set -all"
    done = stranger.run(
        shutil.which("unshare"), "--user", "--map-current-user", "--keep-caps", "sh", "-c",
        f"echo 0 > /proc/sys/user/max_user_namespaces; exec {bare} sh -c \"$0\"", script,
    )  # fmt: skip
    assert "a blind task runs in a mount that its node makes" in done.stderr
    assert done.stderr.count("user namespaces are forbidden here (/proc/sys/user/max_user_namespaces is 0)") >= 2, done.stderr
    assert "no mount" in done.stderr and "here\n" in done.stdout and f"{name} is down" in done.stdout
