"""Live sessions: finding one by its name, taking a name for a new one, removing what dead sessions left.

Owns the judgement whether a session still lives. Must not know: how nodes are started.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from amfs.errors import SessionError
from amfs.host.processes import host_id, is_running, start_time
from amfs.net.records import (
    STARTING,
    SessionRecord,
    base_dir,
    check_name,
    check_socket_path,
    list_all,
    load,
    random_name,
    remove_directory,
)


def claim(name: str | None) -> tuple[str, Path]:
    """A new session's name and its fresh private directory. A dead session of that name is cleaned away first.

    Raises SessionError if a live one has the name, UsageError if it cannot be a name.
    """
    base = base_dir()
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
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        raise SessionError(f"a session named {name} is being started by somebody else") from None
    (path / STARTING).write_text(f"{os.getpid()} {start_time(os.getpid())}")
    return name, path


def _refuse_if_taken(name: str, path: Path) -> None:
    """Raise SessionError if a session of that name lives, or is being started by a process that lives."""
    try:
        pid, started = map(int, (path / STARTING).read_text().split())
    except (OSError, ValueError):
        pid = started = 0
    if is_running(pid, started):
        raise SessionError(f"a session named {name} is being started by process {pid}; choose another --name")
    try:
        old = load(path / "session.json")
    except SessionError:
        return
    if is_live(old):
        raise SessionError(f"a session named {name} is running; end it with 'amfs down {name}' or choose another --name")


def find(name: str | None = None, *, probe_s: float = 1.0) -> SessionRecord:
    """The session ``name`` (a name, or the path of a session file); without it $AMFS_SESSION, else the newest live one.

    Dead sessions met on the way are cleaned. ``probe_s``: how long to wait for an answer when no local process tells. Raises SessionError.
    """
    name = name or os.environ.get("AMFS_SESSION")
    if name:
        if "/" in name or name.endswith(".json"):
            return load(Path(name))
        path = base_dir() / check_name(name) / "session.json"
        if not path.exists():
            others = ", ".join(session.name for session in list_all())
            raise SessionError(f"no session named {name}" + (f"; there are: {others}" if others else "; start one with 'amfs up'"))
        session = load(path)
        if not is_live(session, probe_s=probe_s):
            words = _last_words(session.directory)
            remove_directory(session.directory)
            raise SessionError(f"session {name} is gone (no process of it lives and nothing answers); cleaned up after it{words}")
        return session
    for session in list_all():
        if is_live(session, probe_s=probe_s):
            return session
        remove_directory(session.directory)
    raise SessionError("no session is running; start one with 'amfs up'")


def _last_words(directory: Path, most: int = 4) -> str:
    """What the logs of a dead session's nodes end in, where that is not the usual."""
    words = []
    for path in sorted(directory.glob("node-*.log"))[:64]:
        lines = path.read_text(errors="replace").strip().splitlines()
        if lines and " INFO " not in lines[-1]:
            words.append(f"\n  {path.name} ends in: {lines[-1].strip()}")
    return "".join(words[:most])


def newest_live(*, probe_s: float = 1.0) -> SessionRecord | None:
    """What ``find`` would give without a name, but None if there is nothing; makes and removes nothing, and is cheap then."""
    if os.environ.get("AMFS_SESSION"):
        return find(probe_s=probe_s)
    return next((session for session in list_all() if is_live(session, probe_s=probe_s)), None)


def is_live(session: SessionRecord, *, probe_s: float = 1.0, but: int = 0) -> bool:
    """Whether any node lives: by its local process (other than ``but``), else by an answer over the network within ``probe_s`` seconds."""
    host = host_id()
    if any(entry.host == host and entry.pid != but and is_running(entry.pid, entry.started) for entry in session.nodes):
        return True
    elsewhere = tuple(entry for entry in session.nodes if entry.host != host)
    if not elsewhere or probe_s <= 0:
        return False
    from amfs.client.control import answers  # the network is asked last

    return answers(msgspec.structs.replace(session, nodes=elsewhere), probe_s)
