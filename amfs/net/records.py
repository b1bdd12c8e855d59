"""The records of running sessions: one private directory each, with keys, endpoints and processes.

Owns the layout of that directory and its permissions. Must not know: ZeroMQ, messages, the start of nodes, whether a session lives. Secrets
are only ever in files of mode 0600 in directories of mode 0700, and on pipes; never on a command line.

::

    $AMFS_RUN_DIR | $XDG_RUNTIME_DIR/amfs | /tmp/amfs-UID       0700
    └── brave-otter/                                            0700
        ├── session.json                                        0600   SessionRecord
        ├── node-0.ipc  node-0.log  node-0.life  …              0600   socket, log, and lock of each local node (``host.life``)
        ├── spool/  queue/  queue.lock  queue.sock  queue.log   0600   tasks that were queued, and the queue server (``queueing.server``)
        ├── bin/                                                0700   the commands on the PATH of ``amfs shell``
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
import stat
from pathlib import Path

import msgspec

from amfs.errors import SessionError, UsageError
from amfs.host import orphans
from amfs.net.keys import Keys

FORMAT_VERSION = 2
NO_SLOTS = -1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}\Z")
_IPC_PATH_MAX = 107  # sun_path minus the final NUL
QUEUE_LOCK = "queue.lock"  # in a session's directory: "PID START-TIME" of its queue server, which has it locked
STARTING = "starting"  # in a session's directory: locked by the process that is starting it
LAUNCHERS = "launchers"  # in a session's directory: "HOST PID START-TIME" of the processes here that live as long as its nodes do
OVER = "over"  # in a session's directory: a node of this host was ordered to end with the whole session
LIFE = ".life"  # in place of ".ipc" of a node's socket: the file that it keeps locked
_LONGEST_SOCKET = len("/node-999999.ipc")

_ADJECTIVES = (
    "able amber apt bold brave brisk calm clear crisp deft eager early fair fine fleet fond gentle glad golden grand green happy hardy "
    "keen kind lively lucid merry mild neat nimble noble open plain proud quick quiet rapid ready sharp silver steady sunny swift tidy "
    "vivid warm wise witty"
)
_NOUNS = (
    "badger bear beaver bison crane crow deer dove eagle egret elk falcon ferret finch fox gannet gecko goose hare hawk heron ibis jay "
    "kestrel kite lark lemur linnet lynx magpie marten mole moose newt orca otter owl panda plover puffin quail raven robin salmon seal "
    "shrike stoat stork swan swift tapir tern toad trout vole walrus wren yak"
)


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All a node process needs to start; it gets this on a pipe, because of the keys."""

    session: str
    run_dir: str  # the session's private directory on this host
    keys: Keys
    node: int = 0
    listen: tuple[str, ...] = ()  # ZeroMQ endpoints, "ipc://PATH", "tcp://ADDRESS:PORT" (port 0 or *: chosen by the system)
    manager: int = 0  # the manager's id; equal to ``node``: this node founds the session
    managers: tuple[str, ...] = ()  # endpoints of the manager, best first
    slots: int = 0  # 0: as many as the CPUs that this process may use; NO_SLOTS: it runs no tasks
    memory: int = 0  # bytes for tasks, 0: not accounted
    store_limit: int = 0  # bytes that this node may keep in memory, 0: as many as there is room for
    sharing: int = 1  # nodes that are started together on this host, and so share its memory
    high_water: float = 0.0  # of that limit, above which files of runs are spilled; 0: the usual
    spill: str = ""  # directory on a disk for them; "": $TMPDIR or the like, "none": nothing is spilled
    spill_limit: int = 0  # bytes, 0: as many as there is room for
    replicas: int = 1  # nodes that have the content of each file of amfs:/; of the node that founds the session
    store_dir: str = ""  # where the store is made; "": in /dev/shm, else the temporary directory
    data_address: str = "127.0.0.1"  # address of the data server
    unit_size: int = 0  # nodes per unit, 0: all in one
    expected: int = 1  # nodes of the session; of use to the node that founds it
    drain_s: float = 30.0  # for which a node that is told to end hands over what it has
    guest: bool = False  # the session's directory was made for nodes that join: it goes with the last of them
    log_file: str = ""
    host: str = ""  # name by which peers tell whether they share this machine


class NodeEntry(msgspec.Struct, frozen=True):
    """One node as the session file knows it; nodes that joined later are known to the manager only."""

    node: int
    endpoints: tuple[str, ...]  # best first
    host: str
    pid: int  # on ``host``
    started: int  # start time of that process (clock ticks since boot), so that a reused pid is not mistaken for it


class Ready(msgspec.Struct, frozen=True):
    """The JSON line that a node process writes on its ready pipe: it listens, or why it cannot."""

    node: int = -1
    endpoints: tuple[str, ...] = ()
    pid: int = 0
    started: int = 0
    error: str = ""


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session file."""

    name: str
    keys: Keys
    created: float  # seconds since the epoch
    host: str  # where this file was written
    nodes: tuple[NodeEntry, ...] = ()
    unit_size: int = 0
    version: int = FORMAT_VERSION

    @property
    def directory(self) -> Path:
        """Where this session's files are on this host."""
        return base_dir() / self.name

    @property
    def path(self) -> Path:
        return self.directory / "session.json"


# ── directories ────────────────────────────────────────────────────────────────────────────────────


def _check_private(path: Path) -> None:
    """Raise SessionError unless ``path`` is a directory that belongs to us and is closed to everybody else."""
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode):
        raise SessionError(f"{path} is not a directory; amfs keeps its sessions there. Remove it or set AMFS_RUN_DIR.")
    if facts.st_uid != os.geteuid():
        raise SessionError(f"{path} belongs to user {facts.st_uid}, not to you. Set AMFS_RUN_DIR to a directory of your own.")
    if facts.st_mode & 0o077:
        raise SessionError(f"{path} is open to others (mode {stat.S_IMODE(facts.st_mode):o}) and holds keys. Do: chmod 700 {path}")


def private_directory(path: Path) -> Path:
    """Make it if need be. Raises SessionError unless it is ours and closed to everybody else."""
    try:
        path.mkdir(mode=0o700, parents=False, exist_ok=True)
    except FileNotFoundError:
        raise SessionError(f"{path.parent} does not exist; amfs keeps its sessions in {path}") from None
    except OSError as error:
        raise SessionError(f"cannot make {path}: {error.strerror}") from None
    _check_private(path)
    return path


def base_path() -> Path:
    chosen = os.environ.get("AMFS_RUN_DIR")
    if chosen:
        return Path(chosen).absolute()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime) and os.access(runtime, os.W_OK):
        path = Path(runtime) / "amfs"
        if len(os.fsencode(path)) + 41 + _LONGEST_SOCKET <= _IPC_PATH_MAX:
            return path
    return Path("/tmp") / f"amfs-{os.getuid()}"


def base_dir() -> Path:
    """The directory of all sessions of this user on this host, made if need be.

    Raises SessionError if it belongs to somebody else or is open to others.
    """
    return private_directory(base_path())


def shared_dir(name: str) -> Path:
    """Where a session whose nodes are jobs of a batch system has its files for all hosts: in the home, which they share."""
    return Path.home() / ".amfs" / "sessions" / check_name(name)


def random_name() -> str:
    return f"{random.choice(_ADJECTIVES.split())}-{random.choice(_NOUNS.split())}"


def check_name(name: str) -> str:
    """``name`` if it may name a session, else UsageError."""
    if not _NAME.match(name):
        raise UsageError(f"'{name}' cannot name a session: use up to 40 letters, digits, '.', '_' and '-', a letter or digit first")
    return name


def check_socket_path(directory: Path) -> None:
    """Raise SessionError if the path of a socket in this directory would be too long."""
    if len(os.fsencode(directory)) + _LONGEST_SOCKET > _IPC_PATH_MAX:
        raise SessionError(f"{directory} is too long a path for sockets; set AMFS_RUN_DIR to a shorter directory")


def life_file(node: int | str) -> str:
    """The file in a session's directory that a node of this host keeps locked as long as it lives."""
    return f"node-{node}{LIFE}"


def _has_mounts(path: Path) -> bool:
    try:
        return any(name.endswith(".tasks") or name.startswith("mount-") for name in os.listdir(path))  # ``queueing.shell``
    except OSError:
        return False


def remove_directory(path: Path) -> None:
    """Remove a session's directory (it must lie in ``base_dir()``) and the files that its dead nodes left in /dev/shm.

    Mounts elsewhere stay, dead, until somebody ends them (``fusemounts.sweep``): programs would go on in the directory below.
    """
    if path.parent != base_dir() or path.is_symlink():
        raise SessionError(f"{path} is not a session's directory; not removed")
    from amfs.host import fusemounts

    if _has_mounts(path) and not fusemounts.unmount_tasks(str(path)):
        raise SessionError(f"{path} is not removed: something is mounted in it, and cannot be unmounted")
    shutil.rmtree(path, ignore_errors=True)
    orphans.sweep(path.name)


# ── session files ──────────────────────────────────────────────────────────────────────────────────


def save(session: SessionRecord, directory: Path | None = None) -> Path:
    """Write the session file, mode 0600, at once or not at all. Returns its path. ``directory``: if it is not where we would look."""
    return rewrite(session, private_directory(directory or session.directory))


def rewrite(session: SessionRecord, directory: Path) -> Path:
    """Likewise, in a directory that is there. Raises FileNotFoundError if it is not any more."""
    temporary = directory / f".session-{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(session), indent=1))
    os.replace(temporary, directory / "session.json")
    (directory / STARTING).unlink(missing_ok=True)
    return directory / "session.json"


def load(path: Path) -> SessionRecord:
    """Read a session file. Raises SessionError if it is missing, not ours, open to others, or not readable by this version."""
    try:
        facts = os.stat(path)
        if facts.st_uid != os.geteuid():
            raise SessionError(f"{path} belongs to user {facts.st_uid}, not to you")
        if facts.st_mode & 0o077:
            raise SessionError(f"{path} holds keys and is open to others (mode {stat.S_IMODE(facts.st_mode):o}). Do: chmod 600 {path}")
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise SessionError(f"cannot read the session file {path}: {error.strerror}") from None


def parse(data: bytes, source: str) -> SessionRecord:
    """The session in ``data``, which ``source`` names for people. Raises SessionError if this version cannot read it."""
    try:
        session = msgspec.json.decode(data, type=SessionRecord)
        check_name(session.name)
    except (msgspec.MsgspecError, UnicodeDecodeError, UsageError) as error:
        raise SessionError(f"{source} is not a session file of this version of amfs: {error}") from None
    if session.version != FORMAT_VERSION:
        raise SessionError(f"{source} was written by another version of amfs (format {session.version}, this one reads {FORMAT_VERSION})")
    return session


def add_node(session: SessionRecord, entry: NodeEntry, directory: Path | None = None) -> None:
    """Write a node that joined from this host into this host's session file, so that ``amfs down`` here knows its process."""
    directory = private_directory(directory or session.directory)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = directory / "session.json"
        known = load(path) if path.exists() else session
        others = tuple(other for other in known.nodes if other.node != entry.node)
        save(msgspec.structs.replace(known, nodes=(*others, entry)), directory)
    finally:
        os.close(lock)


def list_all() -> list[SessionRecord]:
    """All readable session files of this user on this host, newest first, dead or alive."""
    base = base_path()
    if not base.exists():
        return []
    _check_private(base)
    found = []
    for path in base.glob("*/session.json"):
        try:
            found.append(load(path))
        except SessionError:
            continue
    return sorted(found, key=lambda session: (-session.created, session.name))
