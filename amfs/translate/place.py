"""The real place in which a workflow runs: which files and directories are on shared storage, which programs on this machine.

The one module of ``translate`` that looks at the file system by itself, for the checks of ``amfs.workflow.checks``. Writes nothing.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterable

from amfs.host.shared_storage import SharedStorage, missing
from amfs.remote.outside import Outside
from amfs.remote.place import Found
from amfs.vocabulary.object_versions import ObjectVersion
from amfs.vocabulary.paths import url_of
from amfs.workflow.check_parts import UnusableInputs


class HostPlace:
    """``amfs.workflow.checks.Place`` on this machine. ``base`` defaults to the current directory, ``path`` to $PATH."""

    def __init__(
        self, base: str | os.PathLike[str] | None = None, path: str | None = None, shared: SharedStorage | None = None
    ) -> None:
        self._shared = shared or Outside()
        self._base = os.path.abspath(os.fspath(base)) if base is not None else os.getcwd()
        self._real: dict[str, str] = {}  # directory -> without links
        self._seen: dict[str, ObjectVersion] = {}  # URL -> what is there: the same for as long as the workflow is
        self._absent: set[str] = set()  # directories that are still to be made
        self._path = os.environ.get("PATH", os.defpath) if path is None else path

    @property
    def base(self) -> str:
        return self._base

    def missing(self, names: Iterable[str]) -> set[str]:
        by_directory: defaultdict[str, list[str]] = defaultdict(list)
        urls: dict[str, str] = {}
        for name in names:
            if ":/" in name and (url := name if "://" in name else url_of(name)):
                urls[name] = url
                continue
            head, slash, _ = name.rpartition("/")
            by_directory[head or slash].append(name)
        gone: set[str] = set()
        unusable: dict[str, str] = {}
        if urls and isinstance(self._shared, Outside):
            found, unusable = self._shared.look(url for url in urls.values() if url not in self._seen)
            for url, one in found.items():
                conditional = self._shared.is_conditional(url, one)
                tree = not isinstance(one, Found)
                self._seen[url] = ObjectVersion(one.size, one.identity, one.mtime if isinstance(one, Found) else 0, tree, conditional)
            gone = {name for name, url in urls.items() if url not in self._seen}
        for directory, members in by_directory.items():
            lacking = missing(self._shared, self._absolute(directory), [name.rpartition("/")[2] for name in members])
            gone.update(name for name in members if name.rpartition("/")[2] in lacking)
        if unusable:
            raise UnusableInputs({name: unusable[url] for name, url in urls.items() if url in unusable}, gone)
        return gone

    def versions(self, urls: Iterable[str]) -> dict[str, ObjectVersion]:
        return {url: self._seen[url] for url in urls if url in self._seen}

    def real(self, directory: str) -> str:
        if url_of(directory):
            return directory
        path = directory if directory[:1] == "/" else f"{self._base}/{directory}".rstrip("/")
        if ".." in directory or directory.count("/") > 200:
            return os.path.realpath(path)
        return self._real_path(path)

    def _real_path(self, path: str) -> str:
        """Each directory is looked at once, however many lie below it; none in one that is still to be made."""
        known = self._real.get(path)
        if known is None:
            above, _, name = path.rpartition("/")
            if not name:
                return above or "/"
            parent = self._real_path(above or "/")
            known = f"{parent.rstrip('/')}/{name}"
            absent = above in self._absent
            try:
                if not absent and stat.S_ISLNK(os.lstat(known).st_mode):
                    known = os.path.realpath(known)
            except OSError:
                absent = True
            if absent:
                self._absent.add(path)
            self._real[path] = known
        return known

    def unwritable(self, directory: str) -> str:
        return self._shared.unwritable(directory if "://" in directory else url_of(directory) or self._absolute(directory))

    def find_program(self, name: str, *, here: bool) -> tuple[str, str]:
        local = os.path.normpath(self._absolute(name))
        if "/" in name:
            why = _not_runnable(local)
            return ("", why) if why else (local, "")
        if here and not _not_runnable(local):
            return local, ""
        for directory in self._path.split(os.pathsep):
            candidate = os.path.join(self._base, directory or ".", name)
            if not _not_runnable(candidate):
                return os.path.normpath(candidate), ""
        if here:
            why = "is a directory here" if os.path.isdir(local) else "is here, but is not executable" if os.path.exists(local) else ""
            return "", f"{why}, and is not on PATH" if why else f"was not found in {self._base} nor on PATH"
        hint = f"; it is here: write ./{name}" if not _not_runnable(local) else ""
        return "", f"was not found on PATH{hint}"

    def _absolute(self, name: str) -> str:
        return os.path.join(self._base, name)


def _not_runnable(path: str) -> str:
    """Why ``path`` cannot be run, or ''."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be used: {error.strerror}"
    except ValueError:
        return "has a NUL character in its name"
    if not stat.S_ISREG(mode):
        return "is a directory" if stat.S_ISDIR(mode) else "is not a regular file"
    if not os.access(path, os.X_OK):
        return "is not executable"
    return ""
