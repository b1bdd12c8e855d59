"""The file system of a session for libraries that use fsspec (pandas, Dask, Zarr, pyarrow …): ``amfs://SESSION/path``.

``amfs:///path`` is in the session that $AMFS_SESSION names, else in the newest one. The storage option ``session`` says the same.
Needs the extra ``amfs-hpc[fsspec]``.
"""

from __future__ import annotations

import io
import os
import stat
import threading
import weakref
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import IO, Any, cast

import fsspec
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import isfilelike, stringify_path

from amfs.client.connection import Call
from amfs.client.files import Files
from amfs.client.keyvalue import ROOT as KEYS
from amfs.client.open_file import CHUNK
from amfs.client.paths import clean, parse
from amfs.client.transfer import open_exported
from amfs.client.tree import Entry
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import Attr

_shared: weakref.WeakValueDictionary[tuple[int, str | None, int | None], Files] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _files_of(session: str | None, node: int | None) -> Files:
    """One connection for all instances of this process (fsspec makes one for each thread)."""
    key = os.getpid(), session, node
    with _lock:
        files = _shared.get(key)
        if files is None or files.connection.closed:
            files = _shared[key] = Files(session, node=node)
        return files


def _visible(entry: Entry) -> bool:
    """Is it no directory of the session's own, as that of keys and values? By its path it is found all the same."""
    return entry.path != KEYS


class AmfsFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """``session``: the name of a session, or the path of a session file. ``node``: the node to go through. ``auto_mkdir``: make the
    directories in which files are written."""

    protocol = "amfs"
    root_marker = "/"

    def __init__(self, session: str | None = None, node: int | None = None, auto_mkdir: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.session = session
        self.node = node
        self.auto_mkdir = auto_mkdir
        self._kept = _files_of(session, node)

    @property
    def files(self) -> Files:
        """The connection; a new one if the old one was closed or belongs to the parent of this process."""
        if self._kept.connection.closed or self._kept.connection.pid != os.getpid():
            self._kept = _files_of(self.session, self.node)
        return self._kept

    # ── names ──────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, (list, tuple, set)):
            return [cls._strip_protocol(each) for each in path]
        text = str(stringify_path(path)).removeprefix("amfs::")
        return os.fsdecode(clean(text))

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        place = parse(str(stringify_path(path)).removeprefix("amfs::"))
        return {"session": place.session} if place is not None and place.session is not None else {}

    def unstrip_protocol(self, name: str) -> str:
        return f"amfs://{self.session or ''}{self._strip_protocol(name)}"

    @classmethod
    def _parent(cls, path: str) -> str:
        return str(cls._strip_protocol(path)).rpartition("/")[0] or "/"

    @property
    def fsid(self) -> str:
        return f"amfs:{self.files.session}"

    # ── what is there ──────────────────────────────────────────────────────────────────────────────

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        attr = self.files.info(name, follow=False)
        return _info(name, attr, self.files.info(name) if stat.S_ISLNK(attr.mode) else attr, self._target(name, attr))

    def _target(self, name: str, attr: Attr) -> str | None:
        return str(self.files.readlink(name)) if stat.S_ISLNK(attr.mode) else None

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        name = self._strip_protocol(path)
        try:
            entries = sorted(filter(_visible, self.files.scandir(name)), key=lambda entry: entry.name)
        except NotADirectoryError:
            return [self.info(name)] if detail else [name]
        if not detail:
            return [os.fsdecode(entry.path) for entry in entries]
        return list(self._infos(entries).values())

    def _infos(self, entries: Iterable[Entry]) -> dict[str, dict[str, Any]]:
        """The facts of entries, by path; symbolic links count as their targets."""
        found: dict[bytes, tuple[Attr, Attr, str | None]] = {entry.path: (entry.attr, entry.attr, None) for entry in entries}
        links = [path for path, (attr, _, _) in found.items() if stat.S_ISLNK(attr.mode)]
        if links:
            leads = self.files.info_many(links)
            targets = self.files.call_many(Call(q.ReadlinkPath(path), (path,)) for path in links)
            for path, lead, target in zip(links, leads, targets, strict=True):
                attr = found[path][0]
                found[path] = (
                    attr,
                    attr._replace(mode=stat.S_IFLNK, size=0) if isinstance(lead, OSError) else lead,
                    None if isinstance(target, OSError) else os.fsdecode(target),
                )
        return {os.fsdecode(path): _info(os.fsdecode(path), *facts) for path, facts in found.items()}

    def find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any) -> Any:
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        name = self._strip_protocol(path)
        top = clean(name)
        above = 0 if top == b"/" else top.count(b"/")
        found: dict[str, dict[str, Any]] = {}
        for at, entries in self.files.walk(top, lambda error: None):
            if at == b"/":
                entries[:] = filter(_visible, entries)  # and so it is not walked
            infos = self._infos(entries)
            found.update({each: info for each, info in infos.items() if withdirs or info["type"] != "directory"})
            if maxdepth is not None and (0 if at == b"/" else at.count(b"/")) - above + 1 >= maxdepth:
                entries.clear()
        if (withdirs and self.isdir(name)) or (not found and self.isfile(name)):
            found[name] = self.info(name)
        names = sorted(found)
        return {each: found[each] for each in names} if detail else names

    def exists(self, path: str, **options: Any) -> bool:
        return self.files.exists(self._strip_protocol(path))

    def lexists(self, path: str, **options: Any) -> bool:
        return self.files.lexists(self._strip_protocol(path))

    def isdir(self, path: str) -> bool:
        return self.files.isdir(self._strip_protocol(path))

    def isfile(self, path: str) -> bool:
        return self.files.isfile(self._strip_protocol(path))

    def islink(self, path: str) -> bool:
        return self.files.islink(self._strip_protocol(path))

    def created(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["created"], tz=UTC)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], tz=UTC)

    # ── changing the tree ──────────────────────────────────────────────────────────────────────────

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        name = self._strip_protocol(path)
        if create_parents:
            self.files.makedirs(name)
        else:
            self.files.mkdir(name)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.files.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.files.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        name = self._strip_protocol(path)
        try:
            self.files.unlink(name)
        except IsADirectoryError:
            self.files.rmdir(name)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        wanted = path if isinstance(path, (list, tuple, set)) else [path]
        if not recursive or maxdepth is not None:
            super().rm(list(wanted), recursive=recursive, maxdepth=maxdepth)
            return
        for name in self.expand_path(list(wanted)):
            if self.files.isdir(name) and not self.files.islink(name):
                self.files.rmtree(name)
            else:
                self.files.unlink(name)

    def mv(self, path1: Any, path2: Any, recursive: bool = True, maxdepth: int | None = None, **options: Any) -> None:
        if not isinstance(path1, str) or not isinstance(path2, str) or maxdepth is not None or any(char in path1 for char in "*?["):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.files.isdir(target) and source != target:
            target = f"{target.rstrip('/')}/{source.rpartition('/')[2]}"
        self._make_room(target)
        self.files.rename(source, target)

    def link(self, src: str, dst: str, **options: Any) -> None:
        self.files.link(self._strip_protocol(src), self._strip_protocol(dst))

    def symlink(self, src: str, dst: str, **options: Any) -> None:
        self.files.symlink(self._strip_protocol(src), self._strip_protocol(dst))

    def chmod(self, path: str, mode: int) -> None:
        self.files.chmod(self._strip_protocol(path), mode)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        name = self._strip_protocol(path)
        self._make_room(name)
        with self.files.open(name, "wb" if truncate else "ab", buffering=0):
            pass
        self.files.utime(name)

    def _make_room(self, name: str) -> None:
        if self.auto_mkdir:
            self.files.makedirs(self._parent(name), exist_ok=True)

    # ── content ────────────────────────────────────────────────────────────────────────────────────

    def _open(
        self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, cache_options: Any = None, **options: Any
    ) -> AmfsFile:
        name = self._strip_protocol(path)
        if "r" not in mode:
            self._make_room(name)
        return AmfsFile(self, name, mode, autocommit, {key: options[key] for key in ("layout", "stripe", "rank") if key in options})

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        name = self._strip_protocol(path)
        if start is None and end is None:
            return self.files.read_bytes(name)
        content = self.cat_ranges([name], [start], [end], on_error="raise")[0]
        assert isinstance(content, bytes)
        return content

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any) -> Any:
        paths = self.expand_path(path, recursive=recursive)
        if options or (len(paths) == 1 and not isinstance(path, (list, tuple)) and paths[0] == self._strip_protocol(path)):
            return super().cat(path, recursive=recursive, on_error=on_error, **options)
        wanted = [name for name in paths if not self.isdir(name)] if recursive else paths
        results = dict(zip(wanted, self.files.read_many(wanted), strict=True))
        for error in results.values():
            if isinstance(error, OSError) and on_error == "raise":
                raise error
        return {name: content for name, content in results.items() if not (on_error == "omit" and isinstance(content, OSError))}

    def cat_ranges(
        self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None, on_error: str = "return", **options: Any
    ) -> list[bytes | Exception]:
        """Parts of files, as many at a time as the connection takes. ``max_gap`` is of no use here."""
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(starts) == len(ends) == len(paths):
            raise ValueError("as many starts and ends as paths, please")
        names = [self._strip_protocol(path) for path in paths]
        with _Readers(self.files, list(dict.fromkeys(names))) as readers:
            results = [readers.read(name, start, end) for name, start, end in zip(names, starts, ends, strict=True)]
        for result in results:
            if isinstance(result, Exception) and on_error == "raise":
                raise result
        return results

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        name = self._strip_protocol(path)
        self._make_room(name)
        with self.files.open(name, "xb" if mode == "create" else "wb", buffering=0) as file:
            file.write(value)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.files.isdir(source):
            self.files.makedirs(target, exist_ok=True)
            return
        self.files.makedirs(self._parent(target), exist_ok=True)
        self.files.copy_file(source, target)

    def get_file(self, rpath: str, lpath: Any = None, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **options: Any) -> None:
        name = self._strip_protocol(rpath)
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        attr = self.files.info(name)
        if stat.S_ISDIR(attr.mode):
            if outfile is None:
                os.makedirs(lpath, exist_ok=True)
            return
        callback.set_size(attr.size)
        if outfile is None:
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
            self.files.get_file(name, lpath, progress=callback.relative_update)
            return
        with self.files.open(name, "rb", buffering=0) as file:
            while piece := file.read(CHUNK):
                outfile.write(piece)
                callback.relative_update(len(piece))

    def put_file(
        self, lpath: str, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **options: Any
    ) -> None:
        name = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            self.files.makedirs(name, exist_ok=True)
            return
        callback.set_size(os.path.getsize(lpath))
        self.files.makedirs(self._parent(name), exist_ok=True)
        how = {key: options[key] for key in ("layout", "stripe", "rank") if key in options}
        self.files.put_file(lpath, name, exclusive=mode == "create", progress=callback.relative_update, **how)


def _info(name: str, attr: Attr, lead: Attr, target: str | None) -> dict[str, Any]:
    """The dictionary that fsspec wants. ``lead``: of what a link leads to, else the same as ``attr``."""
    kind = "directory" if stat.S_ISDIR(lead.mode) else "file" if stat.S_ISREG(lead.mode) else "other"
    info = {
        "name": name, "size": lead.size, "type": kind, "created": attr.ctime / 1e9, "islink": target is not None, "mode": attr.mode,
        "uid": attr.uid, "gid": attr.gid, "mtime": lead.mtime / 1e9, "ino": attr.ino, "nlink": attr.nlink,
    }  # fmt: skip
    return info if target is None else {**info, "destination": target}


class _Readers:
    """Files open for parts of them: by a descriptor of the gateway's store where that is on this host, else by a handle."""

    def __init__(self, files: Files, names: list[str]) -> None:
        self._files = files
        calls = [Call(q.Export(clean(name)), (name,)) for name in names]
        exports = files.call_many(calls) if files.connection.same_host else [None] * len(names)
        self._open: dict[str, Any] = {}
        for name, exported in zip(names, exports, strict=True):
            opened = open_exported(exported)
            try:
                self._open[name] = os.fdopen(opened[0], "rb") if opened is not None else files.open(name, "rb", buffering=0)
            except OSError as error:
                self._open[name] = error

    def read(self, name: str, start: int | None, end: int | None) -> bytes | Exception:
        """The bytes that a slice of Python has for ``start`` and ``end``."""
        file = self._open[name]
        if isinstance(file, OSError):
            return file
        try:
            size = file.seek(0, os.SEEK_END) if (start or 0) < 0 or (end or 0) < 0 else None
            first, last, _ = slice(start, end).indices(size) if size is not None else (start or 0, end, 1)
            file.seek(first)
            return bytes(file.read() if last is None else file.read(max(0, last - first)))
        except OSError as error:
            return error

    def __enter__(self) -> _Readers:
        return self

    def __exit__(self, *about: object) -> None:
        for file in self._open.values():
            if not isinstance(file, OSError):
                file.close()


class AmfsFile(io.IOBase):
    """An open file. Within a transaction (``autocommit`` false) it is written beside its place, and put there by ``commit``."""

    def __init__(self, fs: AmfsFileSystem, path: str, mode: str, autocommit: bool = True, how: dict[str, Any] | None = None) -> None:
        self.fs = fs
        self.path = path
        self.mode = mode
        self.autocommit = autocommit or "r" in mode
        self.how = how or {}
        self.name = path if self.autocommit else os.fsdecode(fs.files.beside(path))
        if not self.autocommit and "x" in mode and fs.files.lexists(path):
            raise FileExistsError(path)
        self.f = cast("IO[bytes]", fs.files.open(self.name, mode if "b" in mode else mode + "b", **self.how))
        self.blocksize = CHUNK

    @property
    def size(self) -> int:
        """In bytes, now."""
        if not self.f.closed and self.f.writable():
            self.f.flush()
        return self.fs.files.info(self.name).size

    def commit(self) -> None:
        """Put what was written in its place."""
        if self.autocommit:
            raise RuntimeError("Can only commit if not already set to autocommit")
        self.close()
        self.fs.files.rename(self.name, self.path)

    def discard(self) -> None:
        """Forget what was written."""
        if self.autocommit:
            raise RuntimeError("Cannot discard if set to autocommit")
        self.close()
        self.fs.files.unlink(self.name)

    def __reduce__(self) -> Any:
        if "r" not in self.mode or "+" in self.mode:
            raise ValueError("a file that is open for writing cannot be pickled")
        return _reopened, (self.fs, self.path, self.mode, self.f.tell())

    def readable(self) -> bool:
        return self.f.readable()

    def writable(self) -> bool:
        return self.f.writable()

    def seekable(self) -> bool:
        return self.f.seekable()

    def read(self, size: int = -1) -> bytes:
        return bytes(self.f.read(size))

    def read1(self, size: int = -1) -> bytes:
        return bytes(self.f.read1(size))  # type: ignore[attr-defined]

    def readinto(self, buffer: Any) -> int:
        return int(self.f.readinto(buffer))  # type: ignore[attr-defined]

    def readline(self, size: int | None = -1, /) -> bytes:
        return bytes(self.f.readline(-1 if size is None else size))

    def write(self, data: Any) -> int:
        return self.f.write(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self.f.seek(offset, whence)

    def tell(self) -> int:
        return self.f.tell()

    def truncate(self, size: int | None = None) -> int:
        return self.f.truncate(size)

    def flush(self) -> None:
        if not self.f.closed:
            self.f.flush()

    def close(self) -> None:
        if hasattr(self, "f"):
            self.f.close()
        super().close()

    def __repr__(self) -> str:
        return f"<amfs file {self.path!r} mode {self.mode!r}>"


def _reopened(fs: AmfsFileSystem, path: str, mode: str, at: int) -> AmfsFile:
    file = AmfsFile(fs, path, mode)
    file.seek(at)
    return file
