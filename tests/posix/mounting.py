"""Sessions and mounts for the suites of the file system: the one place that knows how they are started and ended.

``AMFS_POSIX_DIR=DIR[:DIR…]`` runs everything on directories given by hand instead: one for each mount, and they must show the same tree
(with one, it is all mounts). ``AMFS_POSIX_MOUNT='--fuse fusepy'`` gives options to every ``amfs mount``,
``AMFS_POSIX_SESSION='--store-limit 64M --spill none'`` to every ``amfs up``; with ``AMFS_POSIX_LAYOUT='--layout striped'`` everything
happens in a directory made like that. ``AMFS_POSIX_WITHOUT='fallocate EXCHANGE'`` leaves out what needs a call or a flag that the mount is
known not to have.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from amfs.host import hugetmpfs

sys.path.append(str(Path(__file__).resolve().parent.parent))  # for the programs of this directory, which are run by hand as well
import commands

#: A limit that only turns a hang into a failure.
PATIENCE_S = 60.0
BY_HAND = "AMFS_POSIX_DIR"
OPTIONS = "AMFS_POSIX_MOUNT"
SESSION_OPTIONS = "AMFS_POSIX_SESSION"
LAYOUT = "AMFS_POSIX_LAYOUT"
NO_FUSE = "AMFS_TESTS_NO_FUSE"
#: Words of tables that are left out: names of calls and flags; of random calls also ``removed-open``: removing what is open.
WITHOUT = frozenset(os.environ.get("AMFS_POSIX_WITHOUT", "").split())


class NotHere(Exception):
    """The machine lacks what the suites need, and says what."""


@dataclass
class Session:
    name: str
    #: Where its description lies: a directory of its own, so that nothing of the user's is touched.
    home: Path

    def amfs(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``amfs ARGUMENTS`` for this session. Raises AssertionError with what it said when it fails."""
        env = {"AMFS_RUN_DIR": str(self.home), "AMFS_SESSION": self.name}
        done = commands.run(*arguments, env=env, timeout=PATIENCE_S)
        assert done.returncode == 0, f"{shlex.join(done.args)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options for the kind of mount; the environment has the defaults."""
    parser.add_argument("--nodes", type=int, default=1, help="nodes, with a mount each [1]")
    for flag, variable, words in (
        ("--mount-options", OPTIONS, "options of amfs mount, as '--cache open'"),
        ("--session-options", SESSION_OPTIONS, "options of amfs up, as '--store-limit 64M --spill none'"),
        ("--layout-options", LAYOUT, "work in a directory made by amfs mkdir with these, as '--layout striped'"),
    ):
        parser.add_argument(flag, metavar="WORDS", default=os.environ.get(variable, ""), help=f"{words} [${variable}]")


def take_options(options: argparse.Namespace) -> None:
    """What ``add_options`` read is what every session and mount from now on gets."""
    os.environ[OPTIONS], os.environ[SESSION_OPTIONS] = options.mount_options, options.session_options
    os.environ[LAYOUT] = options.layout_options


def kind(count: int) -> str:
    """The kind of mounts, in words."""
    if given := os.environ.get(BY_HAND):
        return given
    words = [os.environ.get(name, "") for name in (OPTIONS, SESSION_OPTIONS, LAYOUT)]
    return " ".join([f"{count} mount" + ("s" if count > 1 else ""), *filter(None, words)])


def needed() -> None:
    """Raises NotHere, in words, unless this process can mount."""
    if os.geteuid() != 0:
        raise NotHere("the suites of the file system change owners and become other users: run them as root")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise NotHere("the suites of the file system need /dev/fuse")


def start_session(nodes: int) -> Session:
    home = Path(tempfile.mkdtemp(prefix="amfs-posix-", dir="/tmp"))  # short: sockets lie in it
    session = Session(f"posix-{os.getpid()}-{nodes}", home)
    try:
        more = shlex.split(os.environ.get(SESSION_OPTIONS, ""))
        session.amfs("up", "--nodes", str(nodes), "--slots", "1", "--name", session.name, *more)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    return session


def stop_session(session: Session) -> None:
    try:
        session.amfs("down", session.name)
    finally:
        shutil.rmtree(session.home, ignore_errors=True)


def mount(session: Session, node: int, directory: Path, *options: str) -> None:
    session.amfs("mount", str(directory), "--node", str(node), *options, *shlex.split(os.environ.get(OPTIONS, "")))
    assert os.path.ismount(directory), f"{directory} is no mount although amfs mount said nothing"


def umount(session: Session, directory: Path) -> None:
    try:
        session.amfs("umount", str(directory))
    except AssertionError:
        # Whatever went wrong, nothing of it may stay on the machine.
        session.amfs("umount", "--force", str(directory))
        raise
    assert not os.path.ismount(directory), f"{directory} is still mounted although amfs umount said nothing"


@contextlib.contextmanager
def mounted(count: int, *options: str) -> Iterator[list[Path]]:
    """A session of ``count`` nodes, each with a mount; or the directories given by hand, ``count`` of them."""
    if given := os.environ.get(BY_HAND):
        tops = [Path(each).resolve(strict=True) for each in given.split(":")]
        own = f"t-{os.getpid()}-{os.urandom(3).hex()}"
        (tops[0] / own).mkdir()
        try:
            yield [tops[n % len(tops)] / own for n in range(count)]
        finally:
            shutil.rmtree(tops[0] / own)
        return
    needed()
    session = start_session(count)
    base = Path(tempfile.mkdtemp(prefix="amfs-mounts-", dir="/tmp"))
    base.chmod(0o755)
    done: list[Path] = []
    for node in range(count):
        (base / f"node{node}").mkdir()
    try:
        for node in range(count):
            directory = base / f"node{node}"
            mount(session, node, directory, *options)
            done.append(directory)
        below = ""
        if like := shlex.split(os.environ.get(LAYOUT, "")):
            below = "like-that"
            session.amfs("mkdir", *like, f"/{below}")
        yield [directory / below for directory in done]
    finally:
        with contextlib.ExitStack() as ending:
            ending.callback(os.rmdir, base)
            for node in range(count):
                ending.callback(os.rmdir, base / f"node{node}")
            ending.callback(stop_session, session)
            for directory in done:
                ending.callback(umount, session, directory)


@contextlib.contextmanager
def on_tmpfs() -> Iterator[Path]:
    """A fresh directory on a tmpfs like those of the nodes. Raises NotHere where there is none.

    On huge pages a byte behind a hole takes pages of the hole, too; and a file with pages counts as written when it is cut to its own size.
    """
    shm = Path("/dev/shm")
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(shm)], capture_output=True, text=True, check=False).stdout.strip()
    if kind != "tmpfs":
        raise NotHere(f"the suites compare with a tmpfs, and {shm} is none ({kind or 'missing'})")
    path = Path(tempfile.mkdtemp(prefix="amfs-oracle-", dir=shm))
    try:
        yield hugetmpfs.mount(path) or path
    finally:
        hugetmpfs.unmount(path)
        shutil.rmtree(path)
