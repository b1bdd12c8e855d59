"""Any storage that fsspec knows: sftp, webhdfs, hdfs, ftp, smb, chirp by our own file system, and whatever people have installed for it.

Owns how a file gets its name when it is whole, which file systems do in different ways, and what their errors mean.
"""

from __future__ import annotations

import functools
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from amfs.errors import SystemSetupError, UsageError
from amfs.remote import web_pages
from amfs.remote.place import SILENT_S, Found, Kind, RemoteError, Told, put_piece, why_untrusted
from amfs.remote.settings import certificates

_PIECE = 4 << 20
_BLOCK = 32 << 20  # bytes of one request that writes: on HDFS each opens the file again
#: Where a file that was written under another name can take the place of the old one in one step.
_RENAMING = frozenset(("file", "local", "sftp", "ssh", "webhdfs", "webHDFS", "memory", "smb", "ftp"))
#: Such a name, and the final name, of which the name has the first characters.
_UNFINISHED = re.compile(r"((?:.*/)?)\.amfs-[0-9a-f]{12}-(.+)", re.DOTALL)
_NAME_MAX = 100
_KNOWN = "; URLs begin with s3, gs, az, https, http, sftp, webhdfs, hdfs, chirp, or what fsspec knows"
#: Whose libraries have one connection, which two threads must not use at the same time.
_ONE_BY_ONE = frozenset(("sftp", "ssh", "ftp", "smb"))
_SSH = frozenset(("sftp", "ssh"))
_CONNECT_S = 10.0
_REQUEST, _REQUESTS_AHEAD = 32 << 10, 256  # bytes of one of sftp, and how many are under way
_IDENTITIES = ("ETag", "etag", "e_tag", "md5Hash", "md5", "checksum", "sha256", "generation", "version")
_TIMES = ("mtime", "modified", "modificationTime", "LastModified", "last_modified", "updated")
_WITHIN = re.compile(r"\[Errno -?\d+\] ([^\"')]+)")  # in the text of requests
_NUMBERED = re.compile(r"^\[Errno [^]]*\] ")
_UNREACHABLE = ("connect", "timed out", "timeout", "unreachable", "name or service", "resolution", "socket is closed", "eoferror")
_DENIED = ("permission", "denied", "forbidden", "unauthorized", "credential", "authenti")


class System:
    """One file system of fsspec."""

    whole_max = 16 << 20
    small_max = 4 << 20
    conditional = False
    lists_identities = False

    def __init__(self, url: str, given: Mapping[str, Any]) -> None:
        """Raises SystemSetupError, UsageError."""
        try:
            import fsspec
        except ImportError:
            raise SystemSetupError(f"{url}: URLs need more packages; type: pip install 'amfs-hpc[urls]'") from None
        self._scheme = url.partition("://")[0]
        options = dict(given.get("options", {}))
        if self._scheme in _SSH:
            options.setdefault("timeout", _CONNECT_S)
        if self._scheme == "https" and (trusted := certificates(given)):
            options.setdefault("ssl", _context(trusted))
        if self._scheme == "chirp":
            fsspec.register_implementation("chirp", "amfs.remote.chirp.ChirpFileSystem", clobber=True)
        try:
            # fsspec gives the same file system again to each caller: two moves would have one connection, and a broken one would stay.
            system, path = fsspec.core.url_to_fs(url, skip_instance_cache=True, **options)
        except ImportError as error:
            raise SystemSetupError(f"{url}: {str(error).rstrip('.')}") from None
        except ValueError as error:
            unknown = self._scheme not in fsspec.available_protocols()
            raise UsageError(f"{url}: {f'no storage is known for {self._scheme}://{_KNOWN}' if unknown else error}") from None
        except TypeError as error:  # of the call that opens it
            raise UsageError(f"{url}: its library takes other options: {error}") from None
        except FileNotFoundError as error:  # one that an option names: nothing was looked for at the storage yet
            raise UsageError(f"{url}: an option of the settings names a file that is not there: {error.filename or error}") from None
        except Exception as error:
            hint = "; say webhdfs://, or type: pip install hdfs-native" if self._scheme == "hdfs" else ""
            raise UsageError(f"{url}: {_error(error, url).strerror}{hint}") from None
        self._system = system
        self._limit_silence()
        self.at_once = 1 if self._scheme in _ONE_BY_ONE else 8
        self._web = self._scheme in ("http", "https")
        self._left = deque[str]()  # unfinished files that could not be removed when their writing failed
        # A key is a path of the file system; only what people read begins like a URL.
        self._top = "" if self._web else f"{self._scheme}://{urlsplit(url, allow_fragments=False).netloc.rpartition('@')[2]}"
        self._first = str(path)

    def close(self) -> None:
        """Nobody calls any more. A connection ends."""
        client = getattr(self._system, "client", None) if self._scheme in _SSH else None
        if client is not None:
            with suppress(Exception):
                client.close()

    def _limit_silence(self) -> None:
        """A server from which nothing comes is given up: the libraries wait for ever."""
        if self._scheme in _SSH:
            self._system.ftp.get_channel().settimeout(SILENT_S)
        elif self._scheme.lower() == "webhdfs":
            session = self._system.session
            session.request = functools.partial(session.request, timeout=(_CONNECT_S, SILENT_S))

    def _connect_again(self) -> None:
        """If the connection has ended. Raises what its library does."""
        if self._scheme in _SSH:
            transport = self._system.client.get_transport()
            if transport is None or not transport.is_active():
                self._system._connect()
                self._limit_silence()

    def url(self, key: str) -> str:
        return self._top + (key if self._web or key.startswith("/") else "/" + key)

    def key(self, url: str) -> str:
        """The key that ``url`` names here."""
        path = str(self._system._strip_protocol(url))
        return path.rstrip("/") + "/" if url.endswith("/") and not self._web else path

    def list(self, prefix: str) -> Iterator[Found]:
        def list_all() -> dict[str, Any]:
            self._system.invalidate_cache()
            return dict(self._below(prefix.rstrip("/") or "/" if not self._web else prefix))

        found = self._do(prefix, list_all)
        for path in sorted(found):
            yield self.stat(path) if self._web else _found(path, found[path])  # a page of names tells nothing else

    def beginning(self, prefix: str) -> Iterator[Found]:
        """All files in the directory of the key ``prefix``, and those in directories whose keys begin with it."""

        def list_all() -> dict[str, Any]:
            self._system.invalidate_cache()
            return dict(self._below(prefix.rpartition("/")[0] or "/", prefix))

        for path, facts in self._do(prefix, list_all).items():
            yield _found(path, facts)

    def _below(self, top: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """The files below a directory; in it, and in those that begin with ``prefix``. The library's own walk takes a directory that cannot
        be read for an empty one."""
        waiting, seen = [top], {top.rstrip("/")}
        while waiting:
            directory = waiting.pop()
            try:
                entries = self._named(directory) if self._web else self._system.ls(directory, detail=True)
            except FileNotFoundError:  # removed meanwhile
                continue
            for facts in entries:
                path = facts["name"]
                if path.rstrip("/") in seen:
                    continue
                seen.add(path.rstrip("/"))
                if facts["type"] == "directory":
                    if path.startswith(prefix):
                        waiting.append(path)
                else:
                    yield path, facts

    def _named(self, directory: str) -> Sequence[Mapping[str, str]]:
        page = self._system.cat_file(directory)
        urls = web_pages.entries(page, directory.rstrip("/") + "/")
        return [{"name": url, "type": "directory" if url.endswith("/") else "file"} for url in urls]

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
        known = {"size": found.size} if self._scheme == "chirp" else {}  # else it asks once more
        file = self._do(found.key, lambda: self._system.open(found.key, "rb", block_size=_PIECE, **known))
        if self._scheme in _SSH and found.size > _REQUEST:  # else each request waits for the answer to the one before
            self._do(found.key, lambda: file.prefetch(found.size, max_concurrent_requests=_REQUESTS_AHEAD))
        size = 0
        with file:
            while data := self._do(found.key, lambda: file.read(_PIECE)):
                size += len(data)
                yield data
        now = self.stat(found.key)
        if size != found.size or (now.size, now.identity) != (found.size, found.identity):
            raise RemoteError(Kind.CHANGED, self.url(found.key))

    def get(self, found: Found) -> bytes:
        return b"".join(self.read(found))

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
            self._into(key, lambda: self._system.makedirs(above, exist_ok=True))
        self._remove_left()
        place = f"{above}/.amfs-{os.urandom(6).hex()}-{cut(key).rpartition('/')[2]}" if renames else key
        how: dict[str, Any] = {"block_size": _BLOCK} if renames else {"block_size": _BLOCK, "autocommit": False}
        file = self._into(key, lambda: self._system.open(place, "wb", **how))
        if not renames and not (hasattr(file, "commit") and hasattr(file, "discard")):
            raise RemoteError(Kind.UNSUPPORTED, self.url(key), "its library shows a file before it is whole")
        if self._scheme in _SSH:
            file.set_pipelined(True)
        size = 0
        try:
            for piece in pieces:
                self._do(key, lambda piece=piece: file.write(piece))  # type: ignore[misc]
                size += len(piece)
            if self._scheme in _SSH:
                self._do(key, file.flush)  # or closing does not look at the answers
            self._do(key, file.close)
            if not renames:
                self._do(key, file.commit)
                return self.stat(key)
            written = self.stat(place)
            if written.size != size:
                raise RemoteError(Kind.PARTLY, self.url(key), f"{written.size} of {size} bytes; is there room?")
            self._do(key, lambda: self._rename(place, key))
        except BaseException:
            self._give_up(file, place if renames else "")
            raise
        return written._replace(key=key)

    def _into(self, key: str, act: Callable[[], Any]) -> Any:
        """Do it; a missing thing means its directory."""
        try:
            return self._do(key, act)
        except RemoteError as error:
            if error.kind is not Kind.MISSING:
                raise
            raise RemoteError(Kind.OTHER, self.url(key), "its directory cannot be made") from None

    def _rename(self, place: str, key: str) -> None:
        if self._scheme.lower() == "webhdfs":  # whose rename replaces nothing unless it is told to
            self._system._call("RENAME", method="put", path=place, destination=key, renameoptions="OVERWRITE")
        else:
            self._system.mv(place, key)

    def _give_up(self, file: Any, place: str) -> None:
        if not place:
            with suppress(Exception):
                file.discard()
            return
        try:
            file.close()
        except Exception:  # its connection has ended; another one can remove the file
            if self._scheme in _SSH:
                file._closed = True  # else its finalizer tries again
        try:
            self._system.rm_file(place)
        except FileNotFoundError:
            return
        except Exception:  # mostly the same fault again; the next try begins when the storage answers again
            self._left.append(place)

    def _remove_left(self) -> None:
        for _ in range(len(self._left)):
            try:
                place = self._left.popleft()
            except IndexError:  # another thread has taken it
                return
            try:
                self._do(place, lambda place=place: self._system.rm_file(place))  # type: ignore[misc]
            except RemoteError as error:
                if error.kind is not Kind.MISSING:
                    self._left.append(place)
                    return

    def unfinished(self, found: Iterable[Found]) -> Iterator[tuple[Found, str]]:
        """Those of these files that were being written when somebody looked, or whose writer has died, and what each was to be called
        (``cut``). Raises RemoteError where unfinished files have no names of their own."""
        if self._scheme not in _RENAMING | {"chirp"}:
            raise RemoteError(Kind.UNSUPPORTED, self._top, "it tells nothing of unfinished uploads")
        for one in found:
            if named := _UNFINISHED.fullmatch(one.key):
                yield one, named[1] + named[2]

    def delete(self, key: str) -> None:
        self._do(key, lambda: self._system.rm_file(key))

    def _do(self, key: str, act: Callable[[], Any]) -> Any:
        try:
            self._connect_again()
            return act()
        except RemoteError:
            raise
        except Exception as error:  # each library has its own
            fault = _error(error, self.url(key))
            if fault.kind is Kind.UNREACHABLE:
                self.close()  # an answer that comes late is not taken for that to the next question
            raise fault from None


def _context(trusted: str) -> Any:
    import ssl

    context = ssl.create_default_context()
    context.load_verify_locations(cadata=trusted)
    return context


def cut(key: str) -> str:
    """So much of a key as the name of the unfinished file tells."""
    above, slash, name = key.rpartition("/")
    return above + slash + name[:_NAME_MAX]


def name_of(key: str, web: bool) -> str:
    """The key as the name of a file: those of web servers are written with percent signs."""
    return unquote(key, errors="surrogateescape") if web else key


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
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception):
        error = cause  # fsspec calls a file of a web server missing, whatever the reason for which it was not told its size
    text = _NUMBERED.sub("", str(error).strip().partition("\n")[0])
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    words = f"{text} {type(error).__name__}".lower()
    if isinstance(error, FileNotFoundError) or status == 404:
        return RemoteError(Kind.MISSING, url)
    if "certificate" in words:
        return RemoteError(Kind.UNTRUSTED, url, why_untrusted(text))
    if isinstance(error, (ConnectionError, TimeoutError)) or any(word in words for word in _UNREACHABLE):
        reason = getattr(error, "os_error", None)  # aiohttp writes an object of the ssl module into its text
        if isinstance(reason, OSError):
            text = os.strerror(reason.errno) if reason.errno and reason.errno > 0 else reason.strerror or text
        elif found := _WITHIN.search(text):
            text = found[1]
        return RemoteError(Kind.UNREACHABLE, url, text)
    if status in (429, 500, 502, 503, 504):
        return RemoteError(Kind.BUSY, url, f"status {status}")
    if isinstance(error, PermissionError) or status in (401, 403) or any(word in words for word in _DENIED):
        return RemoteError(Kind.DENIED, url, text)
    if isinstance(error, UnicodeEncodeError):
        return RemoteError(Kind.UNSUPPORTED, url, "the name is not UTF-8")
    if text == "Failure":  # of sftp's server, which knows no other word for most faults
        text = "the server does not say why; is there room, and may files be written there?"
    if isinstance(error, NotImplementedError):
        return RemoteError(Kind.UNSUPPORTED, url)
    return RemoteError(Kind.OTHER, url, text or type(error).__name__)
