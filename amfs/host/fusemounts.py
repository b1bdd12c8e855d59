"""Mounts of this host: making and ending them, and asking a node to serve one.

Owns the mount table's reading, fusermount3, and the little protocol by which a command hands the descriptor of a fresh mount to a node of
this host: one message each way over a Unix socket in the session's directory. So a mount can be made in another mount, network or user
namespace than that of the node. Must not know: the content of the file system.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from amfs._native import fuse_mount, fuse_unmount
from amfs.errors import SessionError, SystemSetupError, UsageError
from amfs.host import mount_ways
from amfs.host.mount_ways import Device, Site, Way

KIND = "fuse.amfs"
FUSEPY_KIND = "fuse.amfspy"
FORCE, LAZY = 1, 2  # flags of fuse_unmount
READ_AHEAD_KIB = 1020  # a request of a read in order: as much as a pipe takes (fuse_splice.c); the kernel's own 128 makes eight of it
_IN_USE = "in use: a process has files open or stands in it; --lazy takes it out of sight, and ends it when they have gone"
_ANSWER_S = 10.0
_HELPER_S = 10.0
_MESSAGE_BYTES = 1 << 16


# ── the mount table ────────────────────────────────────────────────────────────────────────────────


class Mounted(NamedTuple):
    """A line of a mount table that is ours."""

    device: str  # "major:minor"
    path: str
    session: str
    kind: str
    user: int = -1  # the user who mounted it; -1: not said

    @property
    def connection(self) -> str:
        """The kernel's number of the connection behind it."""
        return self.device.partition(":")[2]


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def mounted(session: str | None = None, *, table: str = "/proc/self/mountinfo") -> list[Mounted]:
    """The mounts of amfs (of one session) in a mount table, oldest first. Raises OSError."""
    found = []
    with open(table, encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            before, _, after = line.partition(" - ")
            fields, rest = before.split(" "), after.split(" ")
            if len(fields) < 6 or len(rest) < 2 or rest[0] not in (KIND, FUSEPY_KIND):
                continue
            name = _unescape(rest[1]).partition(":")[2]
            if session is None or name == session:
                said = re.search(r"\buser_id=(\d+)", rest[2]) if len(rest) > 2 else None
                found.append(Mounted(fields[2], _unescape(fields[4]), name, rest[0], int(said[1]) if said else -1))
    return found


def at(path: str) -> Mounted | None:
    """The uppermost mount of amfs at this very path."""
    return next((mount for mount in reversed(mounted()) if mount.path == path), None)


def is_dead(mount: Mounted, patience_s: float = 2.0) -> bool:
    """Whether nobody serves it any more. One that does not answer in time is stuck, not dead."""
    found: list[int | None] = []

    def look() -> None:
        try:
            os.getxattr(mount.path, "user.amfs.layout")  # no kernel remembers it, and its node asks nobody for it, as it would for statvfs
        except OSError as error:
            found.append(error.errno)

    asking = threading.Thread(target=look, daemon=True)  # left behind where it has to wait
    asking.start()
    asking.join(patience_s)
    return bool(found) and found[0] in (errno.ENOTCONN, errno.ECONNABORTED)


def tasks_dir(run_dir: str, node: int) -> str:
    """Where a node mounts the file system for blind tasks, in the directory of its session."""
    return f"{run_dir}/node-{node}.tasks"


def is_for_tasks(path: str) -> bool:
    return re.fullmatch(r"node-\d+\.tasks", os.path.basename(path)) is not None


def unmount_tasks(run_dir: str) -> bool:
    """Unmount what dead nodes have left mounted in the directory of a session, which is to be removed; whether nothing is mounted there."""
    done = True
    for mount in reversed(_quietly("/proc/self/mountinfo")):
        if mount.path.startswith(f"{run_dir}/"):
            try:
                unmount(mount.path, lazy=True)
            except (UsageError, SystemSetupError, subprocess.TimeoutExpired):
                done = False
    return done


# ── mounting ───────────────────────────────────────────────────────────────────────────────────────


T = TypeVar("T")
_CAP_SYS_ADMIN = 21


def mount_here(path: str, session: str) -> int:
    """Mount at ``path`` in this process's namespace; the descriptor to be served.

    Raises UsageError (what is wrong with the path), SystemSetupError (what the machine lacks, or its site forbids).
    """
    return mount(path, session, None)[1]


def mount(path: str, session: str, within: Callable[[], T] | None) -> tuple[Way, int | T]:
    """Mount at ``path`` in the first way that can be gone; the way, and the descriptor to be served or what ``within`` has returned.

    ``within`` mounts in namespaces that users of the mount will enter; None: they will not. It raises OSError, SessionError or
    SystemSetupError, and so says that this way cannot be gone. Raises as ``mount_here``.
    """
    if not os.path.isdir(path):
        raise UsageError(f"{path} is not a directory: a mount needs an empty one")
    here, source = site(), f"amfs:{session}"
    failed: list[mount_ways.Failure] = []
    while (way := mount_ways.next_way(here, failed, enters=within is not None)) is not None:
        try:
            if way is Way.DIRECT:
                return way, fuse_mount(path, source, os.geteuid() == 0)
            if way is Way.HELPER:
                return way, mount_by_helper(here.helper, path, source)
            assert within is not None
            return way, within()
        except OSError as error:
            failed.append(mount_ways.Failure(way, error.errno or 0, error.strerror or str(error)))
        except (SessionError, SystemSetupError) as error:
            failed.append(mount_ways.Failure(way, 0, str(error)))
    raise SystemSetupError(f"cannot mount at {path}: {mount_ways.refusal(here, failed, enters=within is not None)}")


def site() -> Site:
    """Facts about this machine, and this process on it."""
    if os.access("/dev/fuse", os.R_OK | os.W_OK, effective_ids=True):
        device = Device.OPEN
    else:
        device = Device.CLOSED if os.path.exists("/dev/fuse") else Device.ABSENT
    status = _read("/proc/self/status")
    said = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    forbids = hinders = ""
    if _read("/proc/sys/user/max_user_namespaces") == "0":
        forbids = "/proc/sys/user/max_user_namespaces is 0"
    elif os.geteuid() != 0 and _read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        forbids = "/proc/sys/kernel/unprivileged_userns_clone is 0"
    if _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") not in ("", "0"):
        hinders = "AppArmor restricts them: /proc/sys/kernel/apparmor_restrict_unprivileged_userns is not 0"
    elif re.search(r"^Seccomp:\s*2", status, re.MULTILINE):
        hinders = "a filter of system calls is in force, as in a container"
    capable = said is not None and bool(int(said[1], 16) >> _CAP_SYS_ADMIN & 1)
    return Site(device, capable, forbids, hinders, fusermount() or "")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def fusermount() -> str | None:
    """The set-uid helper that mounts for ordinary users."""
    return shutil.which("fusermount3") or shutil.which("fusermount")


def _users_may_share() -> bool:
    try:
        return any(line.strip() == "user_allow_other" for line in Path("/etc/fuse.conf").read_text().splitlines())
    except OSError:
        return False


def mount_by_helper(helper: str, path: str, source: str) -> int:
    """Mount through fusermount3, which gives the descriptor back over a socket. Raises SystemSetupError."""
    options = f"fsname={source},subtype=amfs,default_permissions,nosuid,nodev"
    if os.geteuid() == 0 or _users_may_share():
        options += ",allow_other"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        ours.settimeout(_HELPER_S)
        done = subprocess.Popen(
            [helper, "-o", options, "--", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            pass_fds=(theirs.fileno(),), env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
        )  # fmt: skip
        theirs.close()
        descriptors: list[int] = []
        with contextlib.suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(ours, 16, 1)
        try:
            said = done.communicate(timeout=_HELPER_S)[1].decode(errors="replace").strip()
        except subprocess.TimeoutExpired:
            done.kill()
            done.communicate()
            said = "it did not end"
    if not descriptors:
        hints = {
            "username": "this user has no name on this machine (/etc/passwd), and it mounts only for those that have one",
        }
        hint = next((f"; {text}" for word, text in hints.items() if word in said), "")
        raise SystemSetupError(f"{helper} does not mount: {said or 'it said nothing'}{hint}")
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def read_ahead(device: str, kib: int = READ_AHEAD_KIB) -> bool:
    """Have the kernel ask for as much at a time as it may. Needs root; returns whether it was granted."""
    try:
        Path(f"/sys/class/bdi/{device}/read_ahead_kb").write_text(str(kib))
    except OSError:
        return False
    return True


# ── unmounting ─────────────────────────────────────────────────────────────────────────────────────


def unmount(path: str, *, lazy: bool = False) -> None:
    """Unmount what is at ``path``. Raises UsageError saying why not."""
    try:
        fuse_unmount(path, LAZY if lazy else 0)
        return
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise UsageError(f"cannot unmount {path}: {_why_not(error)}") from None
    helper = fusermount()
    if helper is None:
        raise SystemSetupError(f"cannot unmount {path}: ordinary users need fusermount3 (package fuse3)")
    command = [helper, "-u", *(["-z"] if lazy else []), "--", path]
    plain = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_HELPER_S, check=False, env=plain)
    if done.returncode:
        said = done.stderr.strip()
        raise UsageError(f"cannot unmount {path}: {_IN_USE if 'busy' in said.lower() else said}")


def _why_not(error: OSError) -> str:
    if error.errno == errno.EBUSY:
        return _IN_USE
    if error.errno == errno.EINVAL:
        return "nothing is mounted there"
    return error.strerror or str(error)


def force(mount: Mounted) -> None:
    """Take a mount away whatever its server does: programs that wait for it get an error. Raises UsageError if even that fails."""
    with contextlib.suppress(OSError):
        Path(f"/sys/fs/fuse/connections/{mount.connection}/abort").write_text("1")
    try:
        fuse_unmount(mount.path, FORCE | LAZY)
    except OSError:
        unmount(mount.path, lazy=True)


def sweep(session: str | None = None) -> list[Mounted]:
    """Unmount what nobody serves any more; returns what went."""
    gone = []
    with contextlib.suppress(OSError):
        for mount in reversed(mounted(session)):
            if is_dead(mount):
                with contextlib.suppress(UsageError, SystemSetupError, subprocess.TimeoutExpired):
                    unmount(mount.path, lazy=True)
                    gone.append(mount)
    return gone


def unmount_anywhere(mount_device: str, path: str) -> bool:
    """Unmount a mount of ours that this process serves, in its own namespace or in one where it is seen. As root; else only here."""
    if any(mount.device == mount_device and mount.path == path for mount in _quietly("/proc/self/mountinfo")):
        with contextlib.suppress(UsageError, SystemSetupError, subprocess.TimeoutExpired):
            unmount(path, lazy=True)
            return True
        return False
    tried = {os.stat("/proc/self/ns/mnt").st_ino}
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            space = os.stat(process / "ns/mnt").st_ino
            if space in tried:
                continue
            tried.add(space)
            for mount in _quietly(str(process / "mountinfo")):
                if mount.device == mount_device:
                    descriptor = os.open(process / "ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        fuse_unmount(mount.path, LAZY, descriptor)
                        return True
                    finally:
                        os.close(descriptor)
    return False


def _quietly(table: str) -> list[Mounted]:
    try:
        return mounted(table=table)
    except OSError:
        return []


# ── handing a mount to a node ──────────────────────────────────────────────────────────────────────


class Serve(msgspec.Struct, frozen=True, tag="serve"):
    """Serve the mount whose descriptor comes with this message."""

    path: str
    device: str
    passthrough: bool = True
    no_open: bool = False


class MountWithFusepy(msgspec.Struct, frozen=True, tag="mount-with-fusepy"):
    """Mount at ``path`` through libfuse (fusepy) and serve that."""

    path: str


class MountWithin(msgspec.Struct, frozen=True, tag="mount-within"):
    """Mount at ``path`` in the namespaces of the node's keeper and serve that. With the answer comes a pidfd of the keeper."""

    path: str


class ListMounts(msgspec.Struct, frozen=True, tag="list"):
    """What do you serve?"""


class MountFacts(msgspec.Struct, frozen=True):
    """One mount that a node serves."""

    path: str
    adapter: str  # native, fusepy
    device: str
    active: dict[str, int | bool | str]


class Answer(msgspec.Struct, frozen=True):
    error: str = ""
    mounts: tuple[MountFacts, ...] = ()
    namespace: int = 0  # the number of the mount namespace in which they are; 0: in that of the node


class Within(NamedTuple):
    """Namespaces that a program has to enter to see a mount."""

    keeper: int  # pidfd of a process in them
    namespace: int

    def entering(self, enter: str, directory: str, *words: str) -> list[str]:
        """The words of a command that runs another one there, which must be given ``keeper``. ``enter``: the program amfs-enter."""
        return [enter, str(self.keeper), str(self.namespace), directory, *words]


Order = Serve | MountWithFusepy | MountWithin | ListMounts


def control_socket(run_dir: str, node: int) -> str:
    """The socket at which a node takes such messages."""
    return f"{run_dir}/node-{node}.fs"


def ask(run_dir: str, node: int, order: Order, descriptor: int = -1, *, timeout_s: float = _ANSWER_S) -> Answer:
    """Ask a node of this host. Raises SessionError if it cannot be reached or refuses."""
    answer, descriptors = _exchange(run_dir, node, order, descriptor, timeout_s)
    for extra in descriptors:
        os.close(extra)
    return answer


def ask_within(run_dir: str, node: int, path: str) -> Within:
    """Have a node of this host mount at ``path`` in namespaces that can be entered. Raises SessionError likewise."""
    answer, descriptors = _exchange(run_dir, node, MountWithin(path), -1, 3 * _ANSWER_S)
    if len(descriptors) != 1:
        raise SessionError(f"node {node} does not say where its mounts are")
    return Within(descriptors[0], answer.namespace)


def _exchange(run_dir: str, node: int, order: Order, descriptor: int, timeout_s: float) -> tuple[Answer, list[int]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.settimeout(timeout_s)
        try:
            line.connect(control_socket(run_dir, node))
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))] if descriptor >= 0 else []
            line.sendmsg([msgspec.json.encode(order)], rights)
            data, descriptors, _, _ = socket.recv_fds(line, _MESSAGE_BYTES, 1)
            for received in descriptors:
                os.set_inheritable(received, False)
        except TimeoutError:
            raise SessionError(f"node {node} does not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise SessionError(f"cannot reach node {node} at {control_socket(run_dir, node)}: {error.strerror}") from None
    if not data:
        raise SessionError(f"node {node} has closed the line")
    answer = msgspec.json.decode(data, type=Answer)
    if answer.error:
        raise SessionError(f"node {node}: {answer.error}")
    return answer, descriptors


def take_order(line: socket.socket) -> tuple[Order, int]:
    """The order of a command, and the descriptor that came along or -1. Raises ValueError."""
    data, descriptors, flags, _ = socket.recv_fds(line, _MESSAGE_BYTES, 4, socket.MSG_DONTWAIT)
    for extra in descriptors[1:]:
        os.close(extra)
    descriptor = descriptors[0] if descriptors else -1
    try:
        if flags & socket.MSG_TRUNC:
            raise ValueError("a message that is too long")
        order: Order = msgspec.json.decode(data, type=Order)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise ValueError(f"a message that cannot be understood: {error}") from None
    if descriptor >= 0:
        os.set_inheritable(descriptor, False)
    return order, descriptor
