"""Sessions and mounts of somebody who is not root: through fusermount3, and in a namespace of his own.

Run as root, which becomes that user (``nobody``) and opens /dev/fuse to him meanwhile. Skipped where that cannot be.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from amfs.host import fusemounts

PATIENCE_S = 60.0  # only turns a hang into a failure
FUSE = Path("/dev/fuse")
pytestmark = pytest.mark.skipif(os.environ.get("AMFS_TESTS_NO_FUSE") == "1", reason="AMFS_TESTS_NO_FUSE=1")


class Person:
    """Runs programs as a user who owns a home of his own and nothing else."""

    def __init__(self, uid: int, gid: int, home: Path) -> None:
        self.uid, self.gid, self.home = uid, gid, home
        self.python = ""
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "AMFS_RUN_DIR": str(home / "run")}

    def run(self, *command: object, code: int | None = 0, uid: int = -1) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            list(map(str, command)), user=self.uid if uid < 0 else uid, group=self.gid, extra_groups=[], cwd=self.home, env=self.env,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert code is None or done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

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


@pytest.fixture(scope="module")
def person() -> Iterator[Person]:
    if os.geteuid() != 0 or not FUSE.exists():
        pytest.skip("only root can become an ordinary user, and /dev/fuse must be there")
    if fusemounts.fusermount() is None:
        pytest.skip("ordinary users mount through fusermount3, which is not here")
    nobody = pwd.getpwnam("nobody")
    home = Path(tempfile.mkdtemp(prefix="amfs-u-", dir="/tmp"))  # short: sockets lie in it
    mode = stat.S_IMODE(FUSE.stat().st_mode)
    try:
        home.chmod(0o755)
        (home / "m").mkdir()
        (home / "run").mkdir(0o700)
        for path in (home, home / "m", home / "run"):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        it = Person(nobody.pw_uid, nobody.pw_gid, home)
        it.python = find_python(it)
        if not it.python:
            pytest.skip(f"no Python that {nobody.pw_name} may run has what amfs needs ({sys.executable} may be in root's home)")
        FUSE.chmod(0o666)
        yield it
    finally:
        FUSE.chmod(mode)
        shutil.rmtree(home)


@pytest.fixture
def session(person: Person) -> Iterator[str]:
    """A session of his, of which nothing may be left."""
    name = f"user-{os.getpid()}"
    person.amfs("up", "--name", name, "--slots", "1")
    yield name
    person.amfs("umount", "--all", "--lazy")  # his own: that of others is none of his business
    person.amfs("down", name)
    assert not fusemounts.mounted(name)
    assert not [left for left in Path("/dev/shm").iterdir() if name in left.name]


WORK = """set -e
echo hello >m/a; mkdir m/d; ln m/a m/d/b; mv m/a m/c
cat m/d/b; chmod 600 m/c; ls -ln m
rm m/c; echo more >>m/d/b; cat m/d/b"""


@pytest.mark.parametrize("adapter", ["native", "fusepy"])
def test_he_mounts_his_own_files(person: Person, session: str, adapter: str) -> None:
    if adapter == "fusepy" and person.run(person.python, "-c", "import fuse", code=None).returncode != 0:
        pytest.skip("fusepy or its libfuse is not here")
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
    assert "user has no name" in told
    FUSE.chmod(0o600)
    try:
        told = person.amfs("mount", "m", code=5).stderr
    finally:
        FUSE.chmod(0o666)
    assert "/dev/fuse must be open to users" in told
    assert not os.path.ismount(person.home / "m")
