"""A session as one object: ``amfs.Cluster`` runs workflows on its nodes and reaches their files, by path or by key."""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Unpack, overload

from amfs.client.discovery import is_live
from amfs.client.files import Extent, Files, StrPath, Usage
from amfs.client.keywords import OpenKeywords, PutKeywords
from amfs.client.tree import Entry
from amfs.errors import SessionError, UsageError
from amfs.operations.keywords import LoadingKeywords, MoveKeywords, ReduceKeywords, ShuffleKeywords
from amfs.runs.api import RunResult, Session, run
from amfs.runs.keywords import RunKeywords, SessionKeywords
from amfs.vocabulary.attr import COPIES_MAX, Attr

if TYPE_CHECKING:
    from _typeshed import OpenBinaryMode, OpenTextMode

    from amfs.display.summary import Summary
    from amfs.functions.executor import Executor
    from amfs.operations.collective import Moved
    from amfs.operations.differences import Difference
    from amfs.operations.loading_common import Transferred
    from amfs.operations.shuffle import Shuffled
    from amfs.provision.owned import OwnedSession
    from amfs.workflow.workflow import Task, Workflow


def _is_path(key: StrPath) -> bool:
    return os.fsencode(os.fspath(key)).startswith((b"/", b"amfs:"))


_clusters: list[weakref.ref[Cluster]] = []  # of this process, oldest first


def newest_cluster() -> str:
    """The session of the newest Cluster of this process that is open, '' if there is none."""
    _clusters[:] = [ref for ref in _clusters if (cluster := ref()) is not None and not cluster.files.connection.closed]
    cluster = _clusters[-1]() if _clusters else None
    return cluster._session if cluster is not None else ""


def _start(
    session: str | None, nodes: int | None, slots: int | None, keep: bool, replicas: int | None
) -> tuple[str, OwnedSession | None]:
    """The name of a session of that name, or of a new one; and, if it is new and to end with us, its owner."""
    from amfs.net.records import list_all
    from amfs.provision.local import LocalProcesses
    from amfs.provision.owned import OwnedSession
    from amfs.provision.provisioner import NodeOptions

    if session and ("/" in session or session.endswith(".json")):
        raise UsageError("a session that is to be started needs a name, not the path of a session file")
    if slots is not None and slots < 1:
        raise UsageError(f"a node has at least one slot, not {slots}")
    if replicas is not None and not 1 <= replicas <= COPIES_MAX:
        raise UsageError(f"a file has 1 to {COPIES_MAX} replicas, not {replicas}")
    if keep and not session:
        raise UsageError("a session that is kept needs a name, by which to find it again")
    if session and any(known.name == session and is_live(known) for known in list_all()):
        return session, None
    record = LocalProcesses(1 if nodes is None else nodes).start(session, NodeOptions(slots=slots or 0, replicas=replicas or 1))
    return record.name, None if keep else OwnedSession(record)


class Listed(NamedTuple):
    """One entry of ``Cluster.ls``, much like ``os.DirEntry``. ``attr``: all that is known of it."""

    name: str
    path: str
    attr: Attr

    @classmethod
    def of(cls, entry: Entry) -> Listed:
        """The same with text for bytes."""
        return cls(os.fsdecode(entry.name), os.fsdecode(entry.path), entry.attr)

    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.attr.mode)

    def is_file(self) -> bool:
        return stat.S_ISREG(self.attr.mode)

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self.attr.mode)

    def __repr__(self) -> str:
        return f"<Listed {self.path!r}>"


class Cluster:
    """A session, attached to or started here. A context manager.

    ``Cluster()`` and ``Cluster("lab")`` attach to a session that runs (a name, the path of a session file, or None: $AMFS_SESSION or the
    newest one); ``close`` hangs up. With ``nodes`` (processes on this machine) or ``slots`` (of each node, default: one per usable CPU) a
    session is started, which ends with ``close``, when this process ends, however it does, and when the object is forgotten.
    ``Cluster("lab", nodes=2)`` starts it only if no session of that name runs, and otherwise takes that one as it is. With ``keep`` a
    session that is started here goes on until ``shutdown`` or "amfs down": so a notebook finds its files again when its kernel was
    restarted.

    With ``replicas`` so many nodes have the content of each file before its close is answered, where the file or its directory does not
    say otherwise (``user.amfs.replicas``).

    ``put``, ``get``, ``delete`` and ``exists`` take keys: a key that begins with a slash is the path of a file, any other the key of a
    value (see ``client.keyvalue``). All else that the file system can do is in ``files``. Raises SessionError.
    """

    def __init__(
        self, session: str | None = None, *, nodes: int | None = None, slots: int | None = None, keep: bool = False,
        replicas: int | None = None,
    ) -> None:  # fmt: skip
        self._owned: OwnedSession | None = None
        self._executors: weakref.WeakSet[Executor] = weakref.WeakSet()
        if nodes is not None or slots is not None:
            session, self._owned = _start(session, nodes, slots, keep, replicas)
        elif keep:
            raise UsageError("keep is for a session that is started here: say how many nodes")
        elif replicas is not None:
            raise UsageError("replicas is for a session that is started here: say how many nodes")
        try:
            self.files = Files(session)
        except BaseException:
            if self._owned is not None:
                self._owned.end()
            raise
        self.name = self.files.session
        self._session = session if session and ("/" in session or session.endswith(".json")) else self.name
        _clusters.append(weakref.ref(self))

    def close(self) -> None:
        """End a session that was started here without ``keep``; else hang up, and the session goes on. Ends its executors. Repeatable."""
        for executor in list(self._executors):
            executor.close()
        self.files.close()
        if self._owned is not None:
            self._owned.end()

    def shutdown(self) -> None:
        """End the session, also one that another program has started. Repeatable."""
        from amfs.provision.local import LocalProcesses

        record = self.files.connection.session
        self.close()
        if self._owned is None and record.path.exists():
            LocalProcesses().end(record, 10.0)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<amfs cluster {self.name}{' (closed)' if self.files.connection.closed else ''}>"

    def _repr_html_(self) -> str:
        from amfs.display.html import cluster_html, esc

        try:
            members = {member.node: member for member in self.files.connection.members()}
            usage = [each for each in self.df() if each.node in members]
        except (SessionError, OSError) as error:
            return esc(f"{self!r}: {error}")
        nodes = [
            (each.node, members[each.node].host.partition("/")[0], members[each.node].slots, each.files, each.used, each.capacity)
            for each in usage
        ]
        return cluster_html(self.name, nodes)

    @property
    def nodes(self) -> list[int]:
        """The nodes that are in."""
        return [usage.node for usage in self.df()]

    @property
    def slots(self) -> int:
        """How many tasks all nodes together run at a time."""
        return sum(member.slots for member in self.files.connection.members())

    def executor(self, max_workers: int | None = None, *, idle_s: float = 10.0, retries: int = 0) -> Executor:
        """Executes Python functions on the nodes, as ``concurrent.futures`` does: see ``functions.executor``. Needs the extra functions."""
        from amfs.functions.executor import Executor

        self._release_slots()
        executor = Executor(self.files, self._session, max_workers or self.slots, idle_s=idle_s, retries=retries, owner=self)
        self._executors.add(executor)
        return executor

    # ── work ───────────────────────────────────────────────────────────────────────────────────────

    def run(self, workflow: Workflow | str | os.PathLike[str] | Iterable[Task], **options: Unpack[RunKeywords]) -> RunResult:
        """Run a workflow on these nodes to its end: see ``amfs.run``. Idle workers of its executors leave their slots to it."""
        self._release_slots()
        return run(workflow, **self._own(options))

    def session(self, **options: Unpack[SessionKeywords]) -> Session:
        """A run on these nodes that stays open: see ``amfs.Session``. Idle workers of its executors leave their slots to it."""
        self._release_slots()
        return Session(**self._own(options))

    def queue(self, *commands: Sequence[str], directory: StrPath = "/", env: Mapping[str, str] | None = None) -> int:
        """Record tasks in the session's queue, each the words of ``AMFS_queue`` (docs/reference/amfs-shell.md). They run in ``directory``
        of its file system. Returns how many. ``env``: their environment (default: this program's). They belong to the session, not to this
        program. Raises UsageError for words that are not well-formed, SessionError where the session has no directory on this host."""
        from amfs.client.paths import clean
        from amfs.queueing.client import Queue

        where = os.fsdecode(clean(directory))
        return Queue(self._session).add([("-C", f"amfs:{where}", *command) for command in commands], os.getcwd(), env=env)

    def execute(self, *, progress: bool | None = None) -> Summary | None:
        """Run what is queued, by whomever, and wait for its end: see ``queueing.execute.execute``."""
        from amfs.queueing.execute import execute

        return execute(self._session, progress=progress)

    def _own(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if "session" in options:
            raise UsageError("a cluster runs in its own session; leave the option session out")
        return {**options, "session": self._session}

    def _release_slots(self) -> None:
        for executor in self._executors:
            executor.release()

    # ── keys and values ────────────────────────────────────────────────────────────────────────────

    def put(self, key: str | bytes, value: bytes | bytearray | memoryview) -> None:
        """Set a key to a value, or write a file; readers meanwhile get the old one or the new one as a whole."""
        if _is_path(key):
            self.files.write_atomic(key, value)
        else:
            self.files.kv.put(key, value)

    def get(self, key: str | bytes) -> bytes:
        """The value of a key or the content of a file. Raises KeyError, for a path FileNotFoundError."""
        return self.files.read_bytes(key) if _is_path(key) else self.files.kv.get(key)

    def delete(self, key: str | bytes) -> None:
        """Remove a key or a file. Raises KeyError, for a path FileNotFoundError."""
        if _is_path(key):
            self.files.unlink(key)
        else:
            self.files.kv.delete(key)

    def exists(self, key: str | bytes) -> bool:
        """Is there such a key, or something at this path?"""
        return self.files.exists(key) if _is_path(key) else self.files.kv.exists(key)

    # ── files ──────────────────────────────────────────────────────────────────────────────────────

    @overload
    def open(
        self, path: StrPath, mode: OpenTextMode = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None, **how: Unpack[OpenKeywords],
    ) -> IO[str]: ...  # fmt: skip

    @overload
    def open(
        self, path: StrPath, mode: OpenBinaryMode, buffering: int = -1, encoding: None = None, errors: None = None,
        newline: None = None, **how: Unpack[OpenKeywords],
    ) -> IO[bytes]: ...  # fmt: skip

    @overload
    def open(
        self, path: StrPath, mode: str, buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None, **how: Unpack[OpenKeywords],
    ) -> IO[str] | IO[bytes]: ...  # fmt: skip

    def open(
        self, path: StrPath, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None, **how: Unpack[OpenKeywords],
    ) -> IO[str] | IO[bytes]:  # fmt: skip
        """As Python's ``open``; see ``Files.open`` for what there is besides."""
        return self.files.open(path, mode, buffering, encoding, errors, newline, **how)

    def ls(self, path: StrPath = "/") -> list[Listed]:
        """The entries of a directory, by name; of a file the one for itself. Names are text, as ``os.fsdecode`` makes it."""
        info = self.files.info(path)
        if not self.files.isdir(path):
            from amfs.client.paths import clean

            above, _, name = clean(path).rpartition(b"/")
            return [Listed.of(Entry(above or b"/", name, info))]
        return [Listed.of(entry) for entry in sorted(self.files.scandir(path), key=lambda entry: entry.name)]

    def url(self, path: str) -> str:
        """The same file for libraries that use fsspec (pandas, pyarrow, Dask …): "amfs://SESSION/path"."""
        return f"amfs://{self.name}/{path.removeprefix('amfs:').lstrip('/')}"

    def stat(self, path: StrPath) -> os.stat_result:
        """As ``os.stat``."""
        return self.files.stat(path)

    def info(self, path: StrPath) -> Attr:
        """All that is known: layout, writer and rank, too."""
        return self.files.info(path)

    def upload(self, local: str | os.PathLike[str], path: StrPath, **how: Unpack[PutKeywords]) -> None:
        """Copy a local file in: see ``Files.put_file``."""
        self.files.put_file(local, path, **how)

    def download(self, path: StrPath, local: str | os.PathLike[str]) -> None:
        """Copy a file out."""
        self.files.get_file(path, local)

    # ── places ─────────────────────────────────────────────────────────────────────────────────────

    def set_rank(self, path: StrPath, node: int) -> None:
        """Have this file on that node, now or once it is made."""
        self.files.set_rank(path, node)

    def get_rank(self, path: StrPath) -> int:
        """The node that has the file's first bytes."""
        return self.files.get_rank(path)

    def locate(self, path: StrPath) -> list[Extent]:
        """Which nodes have which parts of a file."""
        return self.files.locate(path)

    def df(self) -> list[Usage]:
        """How full the nodes are."""
        return self.files.df()

    # ── whole directories ──────────────────────────────────────────────────────────────────────────

    def load(self, sources: str | Sequence[str], path: StrPath, **how: Unpack[LoadingKeywords]) -> Transferred:
        """Copy local files in, all nodes at the same time: see ``operations.loading.load``."""
        from amfs.operations.loading import load

        return load(self.files, sources, path, **how)

    def dump(self, paths: StrPath | Sequence[StrPath], target: str, **how: Unpack[LoadingKeywords]) -> Transferred:
        """Copy files out, all nodes at the same time: see ``operations.loading.dump``."""
        from amfs.operations.loading import dump

        return dump(self.files, paths, target, **how)

    def diff(self, first: StrPath, second: StrPath) -> Difference:
        """Compare the contents of two directories, whatever the names: see ``operations.differences.diff``."""
        from amfs.operations.differences import diff

        return diff(self.files, first, second)

    def multicast(self, *paths: StrPath, **how: Unpack[MoveKeywords]) -> Moved:
        """Copy files to every node: see ``operations.collective.move``."""
        return self._move("multicast", paths, how)

    def gather(self, *paths: StrPath, **how: Unpack[MoveKeywords]) -> Moved:
        """Copy files to one node, ``root``: see ``operations.collective.move``."""
        return self._move("gather", paths, how)

    def allgather(self, *paths: StrPath, **how: Unpack[MoveKeywords]) -> Moved:
        """Gather files on one node, and copy all of them to every node: see ``operations.collective.move``."""
        return self._move("allgather", paths, how)

    def scatter(self, *paths: StrPath, **how: Unpack[MoveKeywords]) -> Moved:
        """Deal files out to the nodes: see ``operations.collective.move``."""
        return self._move("scatter", paths, how)

    def _move(self, kind: str, paths: tuple[StrPath, ...], how: MoveKeywords) -> Moved:
        from amfs.operations.collective import move

        return move(self.files, kind, paths, **how)

    def shuffle(self, source: StrPath, target: StrPath, **how: Unpack[ShuffleKeywords]) -> Shuffled:
        """Group the lines of the files in ``source`` by their key: see ``operations.shuffle.shuffle``."""
        from amfs.operations.shuffle import shuffle

        return shuffle(self.files, source, target, **how)

    def reduce(self, source: StrPath, target: StrPath, command: Sequence[str], **how: Unpack[ReduceKeywords]) -> RunResult:
        """Combine many files into one: see ``operations.reducing.reduce``."""
        from amfs.operations.reducing import reduce

        return reduce(self.files, source, target, command, **how)
