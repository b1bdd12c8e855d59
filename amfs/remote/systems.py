"""Any storage that fsspec knows: sftp, webhdfs, hdfs, ftp, smb, and whatever people have installed for it.

Owns how a file gets its name when it is whole, which file systems do in different ways, and what their errors mean.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from amfs.errors import SystemSetupError, UsageError
from amfs.remote.place import Found, Kind, RemoteError, Told, put_piece

_PIECE = 4 << 20
_BLOCK = 32 << 20  # bytes of one request that writes: on HDFS each opens the file again
#: Where a file that was written under another name can take the place of the old one in one step.
_RENAMING = frozenset(("file", "local", "sftp", "ssh", "webhdfs", "webHDFS", "memory", "smb", "ftp"))
#: Whose libraries have one connection, which two threads must not use at the same time.
_ONE_BY_ONE = frozenset(("sftp", "ssh", "ftp", "smb"))
_IDENTITIES = ("ETag", "etag", "e_tag", "md5Hash", "md5", "checksum", "sha256", "generation", "version")
_TIMES = ("mtime", "modified", "modificationTime", "LastModified", "last_modified", "updated")
_UNREACHABLE = ("connect", "timed out", "timeout", "unreachable", "name or service", "resolution")
_DENIED = ("permission", "denied", "forbidden", "unauthorized", "credential", "authenti")


class System:
    """One file system of fsspec."""

    whole_max = 16 << 20

    def __init__(self, url: str, given: Mapping[str, Any]) -> None:
        """Raises SystemSetupError, UsageError."""
        try:
            import fsspec
        except ImportError:
            raise SystemSetupError(f"{url}: URLs need more packages; type: pip install 'amfs-hpc[urls]'") from None
        self._scheme = url.partition("://")[0]
        try:
            system, path = fsspec.core.url_to_fs(url, **given.get("options", {}))
        except ImportError as error:
            raise SystemSetupError(f"{url}: {str(error).rstrip('.')}") from None
        except ValueError as error:
            raise UsageError(f"{url}: {error}") from None
        except Exception as error:
            hint = "; say webhdfs://, or type: pip install hdfs-native" if self._scheme == "hdfs" else ""
            raise UsageError(f"{url}: {_error(error, url).strerror}{hint}") from None
        self._system = system
        self.at_once = 1 if self._scheme in _ONE_BY_ONE else 8
        self._web = self._scheme in ("http", "https")
        # A key is a path of the file system; only what people read begins like a URL.
        self._top = "" if self._web else f"{self._scheme}://{urlsplit(url, allow_fragments=False).netloc.rpartition('@')[2]}"
        self._first = str(path)

    def url(self, key: str) -> str:
        return self._top + (key if self._web or key.startswith("/") else "/" + key)

    def key(self, url: str) -> str:
        """What ``url`` names here."""
        return str(self._system._strip_protocol(url)) + ("/" if url.endswith("/") and not self._web else "")

    def list(self, prefix: str) -> Iterator[Found]:
        def list_all() -> Any:
            self._system.invalidate_cache()
            return self._system.find(prefix.rstrip("/") or "/", detail=True, withdirs=False)

        found = self._do(prefix, list_all)
        for path in sorted(found):
            yield self.stat(path) if self._web else _found(path, found[path])  # a page of names tells nothing else

    def is_directory(self, key: str) -> bool:
        return key.endswith("/") or bool(self._do(key, lambda: self._system.isdir(key)))

    def stat(self, key: str) -> Found:
        def look() -> Any:
            self._system.invalidate_cache()  # or it answers what it has seen before
            return self._system.info(key)

        facts = self._do(key, look)
        if facts.get("type") == "directory":
            raise RemoteError(Kind.MISSING, self.url(key), "it is a directory")
        return _found(key, facts)

    def read(self, found: Found) -> Iterator[bytes]:
        if not found.identity:
            raise RemoteError(Kind.UNNOTICED, self.url(found.key), "the storage tells neither a sum nor a time")
        file = self._do(found.key, lambda: self._system.open(found.key, "rb", block_size=_PIECE))
        size = 0
        with file:
            while data := self._do(found.key, lambda: file.read(_PIECE)):
                size += len(data)
                yield data
        now = self.stat(found.key)
        if size != found.size or (now.size, now.identity) != (found.size, found.identity):
            raise RemoteError(Kind.CHANGED, self.url(found.key))

    def fetch(self, found: Found, descriptor: int, told: Told) -> None:
        at = 0
        for piece in self.read(found):
            put_piece(descriptor, piece, at)
            at += len(piece)
            told(len(piece))

    def write(self, key: str, pieces: Iterable[bytes], size: int = 0) -> Found:
        above = key.rpartition("/")[0]
        renames = self._scheme in _RENAMING
        if renames and above:
            self._do(key, lambda: self._system.makedirs(above, exist_ok=True))
        place = f"{above}/.amfs-{os.urandom(6).hex()}-{key.rpartition('/')[2][:100]}" if renames else key
        how: dict[str, Any] = {"block_size": _BLOCK} if renames else {"block_size": _BLOCK, "autocommit": False}
        file = self._do(key, lambda: self._system.open(place, "wb", **how))
        if not renames and not (hasattr(file, "commit") and hasattr(file, "discard")):
            raise RemoteError(Kind.UNSUPPORTED, self.url(key), "its library shows a file before it is whole")
        size = 0
        try:
            for piece in pieces:
                self._do(key, lambda piece=piece: file.write(piece))  # type: ignore[misc]
                size += len(piece)
            self._do(key, file.close)
            self._do(key, (lambda: self._rename(place, key)) if renames else file.commit)
        except BaseException:
            self._give_up(file, place if renames else "")
            raise
        return self.stat(key)

    def _rename(self, place: str, key: str) -> None:
        if self._scheme.lower() == "webhdfs":  # whose rename replaces nothing unless it is told to
            self._system._call("RENAME", method="put", path=place, destination=key, renameoptions="OVERWRITE")
        else:
            self._system.mv(place, key)

    def _give_up(self, file: Any, place: str) -> None:
        try:
            if place:
                file.close()
                self._system.rm_file(place)
            else:
                file.discard()
        except Exception:  # the same fault again: the file that is left has a name that nobody looks for
            return

    def delete(self, key: str) -> None:
        self._do(key, lambda: self._system.rm_file(key))

    def _do(self, key: str, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except RemoteError:
            raise
        except Exception as error:  # each library has its own
            raise _error(error, self.url(key)) from None


def name_of(key: str, web: bool) -> str:
    """The key as the name of a file: those of web servers are written with percent signs."""
    return unquote(key) if web else key


def _found(key: str, facts: Mapping[str, Any]) -> Found:
    size = facts.get("size")
    when = next((facts[name] for name in _TIMES if facts.get(name) is not None), None)
    mtime = _nanoseconds(when)
    identity = next((str(facts[name]) for name in _IDENTITIES if facts.get(name)), "") or (f"{size} {when}" if when is not None else "")
    return Found(key, int(size or 0), identity, mtime)


def _nanoseconds(when: Any) -> int:
    if isinstance(when, (int, float)):
        return int(when * (10**6 if when > 1e11 else 10**9))  # milliseconds, as those of HDFS
    if hasattr(when, "timestamp"):
        return int(when.timestamp()) * 10**9
    return 0


def _error(error: Exception, url: str) -> RemoteError:
    text = str(error).strip().partition("\n")[0]
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    words = f"{text} {type(error).__name__}".lower()
    if isinstance(error, FileNotFoundError) or status == 404:
        return RemoteError(Kind.MISSING, url)
    if isinstance(error, (ConnectionError, TimeoutError)) or any(word in words for word in _UNREACHABLE):
        return RemoteError(Kind.UNREACHABLE, url, text)
    if status in (429, 500, 502, 503, 504):
        return RemoteError(Kind.BUSY, url, f"status {status}")
    if isinstance(error, PermissionError) or status in (401, 403) or any(word in words for word in _DENIED):
        return RemoteError(Kind.DENIED, url, text)
    if isinstance(error, NotImplementedError):
        return RemoteError(Kind.UNSUPPORTED, url)
    return RemoteError(Kind.OTHER, url, text or type(error).__name__)
