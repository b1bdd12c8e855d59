"""A session as one object: ``amfs.Cluster`` runs workflows on its nodes and reaches their files, by path or by key."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from amfs.client.files import Extent, Files, StrPath, Usage
from amfs.client.tree import Entry
from amfs.errors import UsageError
from amfs.fs.attr import Attr
from amfs.runs.api import RunResult, Session, run

if TYPE_CHECKING:
    from amfs.engine.workflow import Task, Workflow
    from amfs.runs.collective import Moved
    from amfs.runs.differences import Difference
    from amfs.runs.loading_common import Transferred
    from amfs.runs.shuffle import Shuffled


def _is_path(key: StrPath) -> bool:
    return os.fsencode(os.fspath(key)).startswith((b"/", b"amfs:"))


class Cluster:
    """Attached to the session ``session`` (a name, the path of a session file, or None: $AMFS_SESSION or the newest one).

    ``put``, ``get``, ``delete`` and ``exists`` take keys: what begins with a slash is the path of a file, everything else the key of a
    value (see ``client.keyvalue``). All else that the file system can do is in ``files``. A context manager. Raises SessionError.
    """

    def __init__(self, session: str | None = None) -> None:
        self.files = Files(session)
        self.name = self.files.session
        self._session = session if session and ("/" in session or session.endswith(".json")) else self.name

    def close(self) -> None:
        """Hang up; the session goes on. Repeatable."""
        self.files.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<amfs cluster {self.name}>"

    @property
    def nodes(self) -> list[int]:
        """The nodes that are in."""
        return [usage.node for usage in self.df()]

    # ── work ───────────────────────────────────────────────────────────────────────────────────────

    def run(self, workflow: Workflow | str | os.PathLike[str] | Iterable[Task], **options: Any) -> RunResult:
        """Run a workflow on these nodes to its end: see ``amfs.run``."""
        return run(workflow, **self._own(options))

    def session(self, **options: Any) -> Session:
        """A run on these nodes that stays open: see ``amfs.Session``."""
        return Session(**self._own(options))

    def _own(self, options: dict[str, Any]) -> dict[str, Any]:
        if "session" in options:
            raise UsageError("a cluster runs in its own session; leave the option session out")
        return {**options, "session": self._session}

    # ── keys and values ────────────────────────────────────────────────────────────────────────────

    def put(self, key: str | bytes, value: bytes | bytearray | memoryview) -> None:
        """Set a key to a value, or write a file; who reads meanwhile gets the old one or the new one as a whole."""
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

    def open(self, path: StrPath, mode: str = "r", *args: Any, **how: Any) -> IO[Any]:
        """As Python's ``open``; see ``Files.open`` for what there is besides."""
        return self.files.open(path, mode, *args, **how)

    def ls(self, path: StrPath = "/") -> list[Entry]:
        """The entries of a directory, by name; of a file the one for itself."""
        info = self.files.info(path)
        if not self.files.isdir(path):
            from amfs.client.paths import clean

            above, _, name = clean(path).rpartition(b"/")
            return [Entry(above or b"/", name, info)]
        return sorted(self.files.scandir(path), key=lambda entry: entry.name)

    def stat(self, path: StrPath) -> os.stat_result:
        """As ``os.stat``."""
        return self.files.stat(path)

    def info(self, path: StrPath) -> Attr:
        """All that is known: layout, writer and rank, too."""
        return self.files.info(path)

    def upload(self, local: str | os.PathLike[str], path: StrPath, **how: Any) -> None:
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

    def load(self, sources: str | Sequence[str], path: StrPath, **how: Any) -> Transferred:
        """Copy local files in, all nodes at the same time: see ``runs.loading.load``."""
        from amfs.runs.loading import load

        return load(self.files, sources, path, **how)

    def dump(self, paths: StrPath | Sequence[StrPath], target: str, **how: Any) -> Transferred:
        """Copy files out, all nodes at the same time: see ``runs.loading.dump``."""
        from amfs.runs.loading import dump

        return dump(self.files, paths, target, **how)

    def diff(self, first: StrPath, second: StrPath) -> Difference:
        """Compare the contents of two directories, whatever the names: see ``runs.differences.diff``."""
        from amfs.runs.differences import diff

        return diff(self.files, first, second)

    def multicast(self, *paths: StrPath, **how: Any) -> Moved:
        """Copy files to every node: see ``runs.collective.move``."""
        return self._move("multicast", paths, how)

    def gather(self, *paths: StrPath, **how: Any) -> Moved:
        """Copy files to one node, ``root``: see ``runs.collective.move``."""
        return self._move("gather", paths, how)

    def allgather(self, *paths: StrPath, **how: Any) -> Moved:
        """Gather files on one node, and copy all of them to every node: see ``runs.collective.move``."""
        return self._move("allgather", paths, how)

    def scatter(self, *paths: StrPath, **how: Any) -> Moved:
        """Deal files out to the nodes: see ``runs.collective.move``."""
        return self._move("scatter", paths, how)

    def _move(self, kind: str, paths: tuple[StrPath, ...], how: dict[str, Any]) -> Moved:
        from amfs.runs.collective import move

        return move(self.files, kind, paths, **how)

    def shuffle(self, source: StrPath, target: StrPath, **how: Any) -> Shuffled:
        """Group the lines of the files in ``source`` by their key: see ``runs.shuffle.shuffle``."""
        from amfs.runs.shuffle import shuffle

        return shuffle(self.files, source, target, **how)

    def reduce(self, source: StrPath, target: StrPath, command: Sequence[str], **how: Any) -> RunResult:
        """Combine many files into one: see ``runs.reducing.reduce``."""
        from amfs.runs.reducing import reduce

        return reduce(self.files, source, target, command, **how)
