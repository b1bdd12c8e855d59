"""Identities of files that a run did not make: numbers that change when a file does.

Of a file: its size, its time of modification, and where it lies if links lead to it. Of a directory: those of all files below it, but for
what the run itself makes there. Owns every look at them. Must not know: what follows from a change.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable

from amfs._native import xxh64
from amfs.vocabulary.paths import in_namespace, namespace_path
from amfs.workflow.checks import Plan, absolute
from amfs.workflow.derivation import GONE

_SLOW_S = 0.0001  # of one look: a disk over a network, where many are had in the time of one
_THREADS = 16


class Identities:
    """Called with a file, named as in ``plan``, and whether it is a program: it is looked at once, when it is first asked for."""

    def __init__(self, plan: Plan, session: str | None) -> None:
        self._plan = plan
        self._session = session
        self._known: dict[str, int] = {}
        self._real: dict[str, str] = {}  # directory -> without links

    def __call__(self, name: str, program: bool = False) -> int:
        if program:
            path = absolute(name, self._plan.base)
            return self._look(path) if os.path.isfile(path) else GONE
        if name not in self._known:
            self.learn((name,))
        return self._known[name]

    def learn(self, names: Iterable[str]) -> None:
        """Of many files at a time. Raises SessionError."""
        lacking = [name for name in names if name not in self._known]
        inside = [name for name in lacking if in_namespace(name)]
        if inside:
            lacking = [name for name in lacking if not in_namespace(name)]
            self._learn_inside(inside)
        shared = self._plan.shared
        paths = [shared.get(name) or absolute(name, self._plan.base) for name in lacking]
        if any("://" in path for path in paths):
            lacking, paths = self._learn_at_urls(lacking, paths)
        begun = time.perf_counter()
        found = [*map(self._look, paths[:_THREADS])]
        rest = paths[_THREADS:]
        if rest and time.perf_counter() - begun > _SLOW_S * _THREADS:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(_THREADS) as pool:
                found += pool.map(self._look, rest, chunksize=64)
        else:
            found += map(self._look, rest)
        self._known.update(zip(lacking, found, strict=True))

    def _learn_at_urls(self, names: list[str], paths: list[str]) -> tuple[list[str], list[str]]:
        """Returns the rest: files of this machine."""
        from amfs.remote.outside import Outside

        at = {name: path for name, path in zip(names, paths, strict=True) if "://" in path}
        seen = self._plan.versions  # was asked for already
        known = {at[name]: f"{seen[name].size} {seen[name].identity}" for name in at if name in seen}
        if rest := [url for name, url in at.items() if name not in seen]:
            known.update(Outside().identities(rest))
        for name, url in at.items():
            self._known[name] = xxh64(known[url]) if url in known else GONE
        left = [(name, path) for name, path in zip(names, paths, strict=True) if name not in at]
        return [name for name, _ in left], [path for _, path in left]

    def _learn_inside(self, names: list[str]) -> None:
        from amfs.client.files import Files

        with Files(self._session or None) as files:
            infos = files.info_many([namespace_path(name) for name in names])
        for name, info in zip(names, infos, strict=True):
            self._known[name] = GONE if isinstance(info, OSError) else xxh64(f"{info.mode} {info.size} {info.mtime}")

    def _look(self, path: str) -> int:
        try:
            found, real = self._stat(path)
            lines = [f"{found.st_size} {found.st_mtime_ns}"] if not stat.S_ISDIR(found.st_mode) else self._below(path)
        except (OSError, ValueError):
            return GONE
        kind, where = stat.S_IFMT(found.st_mode), "" if real == path else real
        return xxh64("\n".join([f"{kind} {where}", *lines]).encode(errors="surrogateescape"))

    def _stat(self, path: str) -> tuple[os.stat_result, str]:
        """The file that a path leads to, and its place."""
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            return os.stat(path), os.path.realpath(path)
        directory, _, name = path.rpartition("/")
        real = self._real.get(directory)
        if real is None:
            real = self._real[directory] = os.path.realpath(directory or "/").rstrip("/")
        return found, f"{real}/{name}"

    def _below(self, top: str) -> list[str]:
        """A line for each file below a directory, sorted."""
        writers, prefix = self._plan.writers, f"{self._plan.base}/"
        lines: list[str] = []
        directories = [top]
        for directory in directories:  # grows while it is walked through
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
                    elif entry.path.removeprefix(prefix) not in writers:
                        lines.append(f"{entry.path[len(top) :]} {_file(entry)}")
        return sorted(lines)


def _file(entry: os.DirEntry[str]) -> str:
    link = os.readlink(entry.path) if entry.is_symlink() else ""
    try:
        found = entry.stat()
    except OSError:
        return f"{link} leads nowhere"
    return f"{link} {found.st_size} {found.st_mtime_ns}" if not stat.S_ISDIR(found.st_mode) else link
