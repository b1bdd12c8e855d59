"""Live sessions: finding one by its name, taking a name for a new one, removing what dead sessions left.

Owns the judgement whether a session still lives. Only sessions proved to be dead are removed. Must not know: how nodes are started.
"""

from __future__ import annotations

import contextlib
import enum
import os
import shlex
import shutil
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from amfs.errors import SessionError
from amfs.host import life
from amfs.host.processes import host_id, is_running, same_machine
from amfs.net.records import (
    LAUNCHERS,
    OVER,
    QUEUE_LOCK,
    STARTING,
    NodeEntry,
    SessionRecord,
    base_dir,
    base_path,
    check_name,
    check_socket_path,
    life_file,
    list_all,
    load,
    random_name,
    remove_directory,
    shared_dir,
)

_EMPTY_S = 60.0  # a directory that has got no lock for so long is not being filled by anybody


class State(enum.Enum):
    LIVE = enum.auto()
    DEAD = enum.auto()  # this is proved
    UNKNOWN = enum.auto()  # some of its nodes can be neither seen nor reached from here


class Claim(NamedTuple):
    """A name that was taken for a new session, as long as ``lock`` is open."""

    name: str
    path: Path
    lock: int

    def release(self) -> None:
        """The session is there, or is not to be."""
        os.close(self.lock)


def claim(name: str | None) -> Claim:
    """A new session's name and its fresh private directory. A dead session of that name is cleaned away first.

    Raises SessionError if one that may live has the name, UsageError if it cannot be a name.
    """
    base = base_dir()
    clean()
    if name is None:
        for _ in range(100):
            name = random_name()
            if not (base / name).exists():
                break
    assert name is not None
    path = base / check_name(name)
    check_socket_path(path)
    if path.exists():
        _refuse_if_taken(name, path)
        remove_directory(path)
    # It gets its name only when it is locked: this process may be killed at any moment.
    fresh = Path(tempfile.mkdtemp(prefix=".starting-", dir=base))
    try:
        lock = life.hold(fresh / STARTING, str(os.getpid()))
    except OSError as error:
        os.rmdir(fresh)
        raise SessionError(f"cannot lock a file in {base} ({error.strerror}); set AMFS_RUN_DIR to a directory on a local disk") from None
    try:
        fresh.rename(path)
    except OSError:
        os.close(lock)
        shutil.rmtree(fresh, ignore_errors=True)
        raise SessionError(f"a session named {name} is being started by somebody else") from None
    return Claim(name, path, lock)


def _refuse_if_taken(name: str, path: Path) -> None:
    """Raise SessionError unless the session of that name, and the process that was starting it, are dead."""
    if life.is_held(path / STARTING):
        who = life.text(path / STARTING)
        raise SessionError(f"a session named {name} is being started by process {who}; choose another --name")
    try:
        old = load(path / "session.json")
    except SessionError:
        if _is_left(path):
            return
        raise SessionError(f"{path} is not known to be left by a dead session; choose another --name, or remove it yourself") from None
    if (state := state_of(old)) is State.LIVE:
        raise SessionError(f"a session named {name} is running; end it with 'amfs down {name}' or choose another --name")
    if state is State.UNKNOWN:
        raise SessionError(f"{unknown(old)}; choose another --name")


def _is_left(path: Path) -> bool:
    """Is it proved that nobody uses this directory, which has no session file that can be read?"""
    locks = [path / STARTING, *path.glob(life_file("*"))]
    return all(life.is_held(lock) is False or not os.path.lexists(lock) for lock in locks)


def clean(*, remove: bool = True) -> list[Path]:
    """Remove the directories of sessions whose start was ended midway; those that these are."""
    left = []
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(base_path().iterdir()):
            with contextlib.suppress(OSError, SessionError):
                if not path.is_dir() or path.is_symlink() or (path / "session.json").exists():
                    continue
                if (path / STARTING).exists():
                    if _is_left(path):
                        left.append(path)
                        if remove:
                            remove_directory(path)
                elif remove and path.name.startswith(".starting-") and time.time() - path.stat().st_mtime > _EMPTY_S:
                    shutil.rmtree(path)  # it has its lock, under another name, or nothing
    return left


def find(name: str | None = None, *, probe_s: float = 1.0, ending: bool = False) -> SessionRecord:
    """The session ``name`` (a name, or the path of a session file); without it $AMFS_SESSION, else the newest live one.

    Dead sessions met on the way are cleaned. ``probe_s``: how long to wait for an answer when no local process tells. ``ending``: it is to
    be ended, and so are mounts that it has left. Raises SessionError.
    """
    name = name or os.environ.get("AMFS_SESSION")
    if name:
        if "/" in name or name.endswith(".json"):
            return load(Path(name))
        path = base_dir() / check_name(name) / "session.json"
        if (shared := shared_dir(name) / "session.json").exists() and (not path.exists() or load(shared).created == load(path).created):
            return load(shared)  # it names more nodes; and jobs that wait are to be ended even if none lives
        if not path.exists():
            others = ", ".join(session.name for session in list_all())
            raise SessionError(f"no session named {name}" + (f"; there are: {others}" if others else "; start one with 'amfs up'"))
        session = load(path)
        state = state_of(session, probe_s=probe_s)
        if state is State.UNKNOWN:
            raise SessionError(unknown(session))
        if state is State.DEAD:
            words = _last_words(session.directory)
            remove_directory(session.directory)
            if ending:
                from amfs.host import fusemounts

                fusemounts.sweep(session.name)
            raise SessionError(
                f"session {name} is gone (no process of it lives here and nothing answers); cleaned up after it{_mounts_left(name)}{words}"
            )
        return session
    left = []
    for session in list_all():
        state = state_of(session, probe_s=probe_s)
        if state is State.LIVE:
            return session
        if state is State.DEAD:
            remove_directory(session.directory)
        else:
            left.append(f"\n  {unknown(session)}")
    raise SessionError("no session is running; start one with 'amfs up'" + "".join(left))


def forget(session: SessionRecord, node: int, guest: bool) -> None:
    """A node of this host has ended: remove the directory here if nobody needs it any more. Keys have nothing to do on a host that was
    left. ``guest``: the directory was made for nodes that join, so nobody here ends the session. Raises SessionError."""
    if not session.path.exists() or life.is_held(session.directory / QUEUE_LOCK):
        return
    known = load(session.path)
    others = [path for path in session.directory.glob(life_file("*")) if path.name != life_file(node)]
    if (guest and not any(life.is_held(path) for path in others)) or state_of(known, probe_s=0.5, but=node) is State.DEAD:
        remove_directory(session.directory)


def _mounts_left(name: str) -> str:
    from amfs.host import fusemounts

    try:
        places = " ".join(shlex.quote(mount.path) for mount in fusemounts.mounted(name))
    except OSError:
        return ""
    return f"; its mounts stay so that nobody writes to the directories below: amfs umount {places}" if places else ""


def unknown(session: SessionRecord) -> str:
    """A sentence on a session of which it is not known whether it lives."""
    hosts = ", ".join(dict.fromkeys(entry.host.partition("/")[0] for entry in session.nodes))
    return (
        f"session {session.name} does not answer, and whether its nodes on {hosts} have ended cannot be known here: "
        f"{session.directory} is left as it is; remove it yourself if they have"
    )


def _last_words(directory: Path, most: int = 4) -> str:
    """The last lines of the logs of a dead session's nodes, where they are not the usual ones."""
    words = []
    for path in sorted(directory.glob("node-*.log"))[:64]:
        lines = path.read_text(errors="replace").strip().splitlines()
        if lines and " INFO " not in lines[-1]:
            words.append(f"\n  {path.name} ends in: {lines[-1].strip()}")
    return "".join(words[:most])


def newest_live(*, probe_s: float = 1.0) -> SessionRecord | None:
    """As ``find`` without a name, but None if there is nothing; makes and removes nothing, and is cheap then."""
    if os.environ.get("AMFS_SESSION"):
        return find(probe_s=probe_s)
    return next((session for session in list_all() if is_live(session, probe_s=probe_s)), None)


def is_live(session: SessionRecord, *, probe_s: float = 1.0) -> bool:
    return state_of(session, probe_s=probe_s) is State.LIVE


def held(session: SessionRecord, *, but: int = -1) -> list[NodeEntry]:
    """The nodes on this machine (other than ``but``) that live, in whichever namespaces."""
    here = host_id()
    return [entry for entry in session.nodes if entry.node != but and same_machine(entry.host, here) and _lives(session, entry)]


def is_ending(session: SessionRecord, entry: NodeEntry) -> bool:
    """Has this node of this machine said that it has begun to end?"""
    return life.is_ending(session.directory / life_file(entry.node))


def _lives(session: SessionRecord, entry: NodeEntry) -> bool | None:
    """None: that cannot be seen here."""
    path = session.directory / life_file(entry.node)
    known = life.is_held(path)
    if known is None and entry.host == host_id() and not path.exists():  # its directory was removed, and not yet made again
        known = is_running(entry.pid, entry.started)
    return known


def _is_over(session: SessionRecord) -> bool:
    """Has a node of this host been ordered to end with the whole session?"""
    with contextlib.suppress(SessionError):
        return (session.directory / OVER).exists() and load(session.path).created == session.created
    return False


def is_left_here(session: SessionRecord, *, but: int = -1) -> bool:
    """Was its directory made for nodes that joined from this host, which have all died? It goes with the last of them (``forget``), and one
    that was killed could not take it along. Their locks prove it, on this boot and after another one."""
    if session.host == host_id() or life.is_held(session.directory / STARTING) or life.is_held(session.directory / QUEUE_LOCK):
        return False
    locks = [path for path in session.directory.glob(life_file("*")) if path.name != life_file(but)]
    if not locks or not all(life.is_held(lock) is False for lock in locks):
        return False
    return not held(session, but=but)  # one that is just joining has no lock yet


def _launchers_ended(session: SessionRecord) -> bool:
    """Have the commands on this host ended that started its nodes in a batch job, and that live as long as these do?"""
    try:
        lines = (session.directory / LAUNCHERS).read_text().splitlines()
        known = [(host, int(pid), int(started)) for host, pid, started in map(str.split, lines)]
    except (OSError, ValueError):
        return False
    return bool(known) and all(host == host_id() and not is_running(pid, started) for host, pid, started in known)


def sweep_left(but: str) -> None:
    """Remove the directories of other sessions than ``but`` that nodes which were killed have left here, unless the session answers."""
    for session in list_all():
        if session.name != but and is_left_here(session) and state_of(session, probe_s=0.5) is State.DEAD:
            with contextlib.suppress(SessionError):
                remove_directory(session.directory)


def state_of(session: SessionRecord, *, probe_s: float = 1.0, but: int = -1) -> State:
    """By the locks of its nodes (other than ``but``), then by an answer over the network within ``probe_s`` seconds. DEAD is also one that
    does not answer if only leftovers of dead nodes are here: nothing is lost when that is removed. And one whose batch job
    is over, as the host sees that started its nodes."""
    lives = {entry.node: _lives(session, entry) for entry in session.nodes if entry.node != but}
    if any(lives.values()):
        return State.LIVE
    elsewhere = tuple(entry for entry in session.nodes if entry.node in lives and lives[entry.node] is None)
    if not elsewhere or _is_over(session):
        return State.DEAD
    from amfs.client.control import answers  # the network is asked last

    there = probe_s > 0 and answers(msgspec.structs.replace(session, nodes=elsewhere), probe_s)
    if there:
        return State.LIVE
    return State.DEAD if is_left_here(session, but=but) or (probe_s > 0 and _launchers_ended(session)) else State.UNKNOWN
