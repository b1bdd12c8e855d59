"""Object stores (s3, gs, az) and single files behind http and https, by obstore. Needs the extra ``urls``.

Owns how obstore is set up, and what its errors mean. It tries nothing again: ``transfers`` does.
"""

from __future__ import annotations

import datetime
import itertools
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import md5
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from amfs.errors import SystemSetupError, UsageError
from amfs.remote.place import SILENT_S, TRANSIENT, Found, Kind, RemoteError, Told, put_piece, why_untrusted
from amfs.remote.settings import certificates, s3_config

SCHEMES = frozenset(("s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https"))

_PIECE = 4 << 20  # bytes that one piece of a reading has at least
_PART = 8 << 20  # bytes of one part of an upload, and of one range of a large object
_PARTS_MAX = 9000  # S3 takes 10,000
_SUMMED = 1 << 20  # bytes of a range that are read back at a time
_AT_ONCE = 8  # parts or ranges of one object that are under way
LARGE = 64 << 20  # bytes; from there on an object is fetched in ranges at the same time
_LARGE_AT_ONCE = 4  # such objects; each has _AT_ONCE parts in memory
_RANGE_TRIES = 3
_SUM = re.compile(r'"[0-9a-f]{32}"')  # the ETag of what came in one piece: its MD5, if the bucket does not encrypt with other keys
_STATUS = re.compile(r"status code: (\d+)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_GENERIC = re.compile(r"^Generic \w+ error: ")
_REASON = re.compile(r'(?:message|error): "([^"]+)"')
_BUSY = frozenset((408, 429, 500, 502, 503, 504))


class Objects:
    """A bucket, a container, or a web server."""

    whole_max = _PART
    small_max = _PIECE
    at_once = 32
    conditional = True

    def __init__(self, url: str, given: Mapping[str, Any]) -> None:
        """``url``: any in it. Raises SystemSetupError, UsageError."""
        try:
            import obstore
        except ImportError:
            raise SystemSetupError(f"{url}: URLs need more packages; type: pip install 'amfs-hpc[urls]'") from None
        self._obstore = obstore
        parts = urlsplit(url, allow_fragments=False)
        self._web = parts.scheme in ("http", "https")
        self.lists_identities = parts.scheme in ("s3", "s3a")  # Azure has the ETags in listings without their quotation marks
        self._sums = not self._web  # are ETags of that form MD5s?
        self._large = threading.BoundedSemaphore(_LARGE_AT_ONCE)
        self._top = f"{parts.scheme}://{parts.netloc}/"
        try:
            self._store = _store(parts.scheme, parts.netloc, self._top, given)
        except obstore.exceptions.BaseError as error:
            raise UsageError(f"{url}: {_first_line(error)}") from None

    def url(self, key: str) -> str:
        return self._top + (quote(key, safe="/+:@,;=!$&'()*~") if self._web else key)

    def key(self, url: str) -> str:
        """The key that ``url`` names here. Only the paths of web servers are written with percent signs."""
        rest = url.partition("://")[2].partition("/")[2]
        return unquote(rest) if self._web else rest

    def list(self, prefix: str) -> Iterator[Found]:
        if self._web:
            raise RemoteError(Kind.UNSUPPORTED, self.url(prefix), "a web server lists nothing; give the URL of a file")
        try:
            for batch in self._obstore.list(self._store, prefix.rstrip("/") or None, chunk_size=1000):
                yield from map(_found, batch)
        except Exception as error:
            raise self._error(error, prefix) from None

    def is_directory(self, key: str) -> bool:
        return not key or key.endswith("/") or next(iter(self.list(key)), None) is not None

    def stat(self, key: str) -> Found:
        try:
            return _found(self._obstore.head(self._store, key))
        except Exception as error:
            raise self._error(error, key) from None

    def read(self, found: Found) -> Iterator[bytes]:
        return map(bytes, self._stream(found))

    def _stream(self, found: Found) -> Iterator[memoryview]:
        try:
            answer = self._get(found)
            size = 0
            for piece in (answer.bytes(),) if found.size <= _PIECE else answer.stream(min_chunk_size=_PIECE):
                size += len(piece)
                yield memoryview(piece)
            if size != found.size:
                raise RemoteError(Kind.CHANGED, self.url(found.key))
            self._check_after(found)
        except (RemoteError, GeneratorExit):
            raise
        except Exception as error:
            raise self._error(error, found.key) from None

    def _get(self, found: Found, start: int = 0, end: int = 0) -> Any:
        """The answer to a question for its content, or for that part of it."""
        if not found.identity:
            raise RemoteError(Kind.UNNOTICED, self.url(found.key), "the server tells neither an ETag nor a time")
        options: Any = {"if_match": found.identity} if found.identity.startswith('"') else {}
        if end:
            options["range"] = (start, end)
        answer = self._obstore.get(self._store, found.key, options=options)
        if not _is_same(_found(answer.meta), found):
            raise RemoteError(Kind.CHANGED, self.url(found.key))
        return answer

    def _check_after(self, found: Found) -> None:
        # The server of an object store reads one version; a web server reads a file that somebody may be writing.
        if self._web and not _is_same(self.stat(found.key), found):
            raise RemoteError(Kind.CHANGED, self.url(found.key))

    def get(self, found: Found) -> memoryview:
        [content] = self._stream(found)
        if self._has_sum(found):
            self._check_sum(found, _md5((content,)))
        return content

    def fetch(self, found: Found, descriptor: int, told: Told) -> None:
        if found.size >= LARGE:
            sum = _Sum(descriptor, found.size) if self._has_sum(found) else None
            with self._large:
                came = self._fetch_ranges(found, descriptor, told, sum)
            if came:
                if sum is not None:
                    self._check_sum(found, sum.value())
                return
        whole = self._fetch(found, descriptor, told)
        if self._has_sum(found):
            self._check_sum(found, _md5((whole,) if whole is not None else _pieces_of(descriptor)))

    def _has_sum(self, found: Found) -> bool:
        return self._sums and _SUM.fullmatch(found.identity) is not None

    def _check_sum(self, found: Found, sum: str) -> None:
        """``sum``: of what came."""
        if f'"{sum}"' == found.identity:
            return
        if _md5(self._stream(found)) != sum:
            raise RemoteError(Kind.DAMAGED, self.url(found.key))
        self._sums = False  # twice the same: the tag is no sum

    def _fetch(self, found: Found, descriptor: int, told: Told) -> memoryview | None:
        """The content, if it came in one piece."""
        at = 0
        piece = None
        for piece in self._stream(found):
            put_piece(descriptor, piece, at)
            at += len(piece)
            told(len(piece))
        return piece if piece is not None and len(piece) == at else None

    def _fetch_ranges(self, found: Found, descriptor: int, told: Told, sum: _Sum | None) -> bool:
        """Many at a time. False: the server gives no parts of objects, which it tells before it sends anything of them."""
        stopped = threading.Event()

        def fetch_one(start: int) -> None:
            for tries_left in reversed(range(_RANGE_TRIES)):
                if stopped.is_set():
                    return
                try:
                    piece = memoryview(self._get(found, start, min(start + _PART, found.size)).bytes())
                    break
                except RemoteError:
                    raise
                except Exception as error:
                    fault = self._error(error, found.key)
                    if fault.kind not in TRANSIENT or not tries_left:
                        raise fault from None
                    time.sleep(0.1 * (_RANGE_TRIES - tries_left))
            if len(piece) != min(_PART, found.size - start):
                raise RemoteError(Kind.CHANGED, self.url(found.key))
            put_piece(descriptor, piece, start)
            told(len(piece))
            if sum is not None:
                sum.add(start)

        with ThreadPoolExecutor(_AT_ONCE, "amfs-ranges") as pool:
            waiting = [pool.submit(fetch_one, start) for start in range(0, found.size, _PART)]
            try:
                for future in waiting:
                    future.result()
            except BaseException as error:
                stopped.set()
                pool.shutdown(wait=True, cancel_futures=True)
                if isinstance(error, RemoteError) and error.kind is Kind.UNSUPPORTED:
                    return False
                raise
        self._check_after(found)
        return True

    def write(self, key: str, pieces: Iterable[bytes], size: int = 0) -> Found:
        if size < LARGE:
            return self._write(key, pieces, _PART)
        with self._large:
            return self._write(key, pieces, max(_PART, -(-size // _PARTS_MAX)))

    def _write(self, key: str, pieces: Iterable[bytes], part: int) -> Found:
        # An error of the source passes through obstore, which gives up what was uploaded.
        faults: list[BaseException] = []
        source = iter(pieces)
        first = next(source, b"")
        size = len(first)

        def rest() -> Iterator[bytes]:
            nonlocal size
            try:
                for piece in itertools.chain((second,), source):
                    size += len(piece)
                    yield piece
            except BaseException as error:
                faults.append(error)
                raise

        second = next(source, b"")
        try:
            if second:
                content: Any = itertools.chain((first,), rest())
                put = self._obstore.put(self._store, key, content, chunk_size=part, max_concurrency=_AT_ONCE)
            else:
                put = self._obstore.put(self._store, key, first, use_multipart=False)
        except Exception as error:
            if faults:
                raise faults[0] from None
            raise self._error(error, key) from None
        return Found(key, size, put.get("e_tag") or "")

    def close(self) -> None:
        """The library ends its connections by itself."""

    def delete(self, key: str) -> None:
        try:
            self._obstore.delete(self._store, key)
        except Exception as error:
            raise self._error(error, key) from None

    def _error(self, error: Exception, key: str) -> RemoteError:
        text = str(error)
        exceptions = self._obstore.exceptions
        status = int(found[1]) if (found := _STATUS.search(text)) else 0
        code = found[1] if (found := _CODE.search(text)) else ""
        words = found[1] if (found := _MESSAGE.search(text)) else ""
        kind = Kind.OTHER
        if "://169.254." in _first_line(error):  # it looked for the keys of a machine in the cloud, whatever was the answer
            kind, words = Kind.DENIED, "no keys were found: in the environment, the usual files (~/.aws), or --storage"
        elif code == "NoSuchBucket":
            kind, words = Kind.NO_PLACE, ""
        elif code.endswith("UserNotFound"):  # so versitygw says that it does not know the key, with the status of a missing object
            kind = Kind.DENIED
        elif isinstance(error, UnicodeEncodeError):
            kind, words = Kind.UNSUPPORTED, "the name is not UTF-8, and keys of objects are"
        elif text.startswith("Could not parse path"):
            kind, words = Kind.UNSUPPORTED, "a key with an empty part, '..' or a control character"
        elif self._web and "Header missing" in text:
            kind, words = Kind.UNSUPPORTED, "the server does not tell how long it is; a directory has a slash at its end, or '#amfs path'"
        elif isinstance(error, (exceptions.NotSupportedError, exceptions.InvalidPathError)) or "non-partial response" in text:
            kind, words = Kind.UNSUPPORTED, _first_line(error)
        elif isinstance(error, (FileNotFoundError, exceptions.NotFoundError)) or status == 404:
            kind, words = Kind.MISSING, ""
        elif isinstance(error, exceptions.PreconditionError) or status == 412:
            kind, words = Kind.CHANGED, ""
        elif isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)) or status in (401, 403):
            kind, words = Kind.DENIED, words or code
        elif status in _BUSY:
            kind, words = Kind.BUSY, words or f"status {status}"
        elif "InvalidCertificate" in text:
            kind, words = Kind.UNTRUSTED, why_untrusted(text)
        elif self._web and status:
            words = f"the server answers with status {status}"
        elif "HTTP error" in text or "error sending request" in text or "error decoding response body" in text:
            kind, words = Kind.UNREACHABLE, _reason(text)
        else:
            words = words or code or _first_line(error)
        return RemoteError(kind, self.url(key), words)


class _Sum:
    """The MD5 of a large object, taken while its ranges come, in whatever order they do. The thread that has brought a range takes it and
    those that follow, while the others fetch."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._md5 = md5(usedforsecurity=False)
        self._at = 0  # the first range that was not taken
        self._there: set[int] = set()
        self._taking = threading.Lock()

    def add(self, start: int) -> None:
        """The range that begins there is in the file."""
        self._there.add(start)
        # Looked at again without the lock: a range may have been added by a thread that found the lock taken.
        while self._at in self._there and self._taking.acquire(blocking=False):
            try:
                while self._at in self._there:
                    end = min(self._at + _PART, self._size)
                    for at in range(self._at, end, _SUMMED):
                        self._md5.update(os.pread(self._descriptor, min(_SUMMED, end - at), at))
                    self._at += _PART
            finally:
                self._taking.release()

    def value(self) -> str:
        """When all ranges have been added."""
        return self._md5.hexdigest()


def _store(scheme: str, place: str, top: str, given: Mapping[str, Any]) -> Any:
    import obstore.store

    store: Any = obstore.store
    client: dict[str, Any] = {"connect_timeout": datetime.timedelta(seconds=10), "read_timeout": datetime.timedelta(seconds=SILENT_S)}
    client["timeout"] = datetime.timedelta(hours=12)  # of a whole object
    if trusted := certificates(given):
        client["root_certificate"] = trusted
    once = {"max_retries": 0, "retry_timeout": datetime.timedelta(0)}
    if scheme in ("http", "https"):
        return store.HTTPStore(top, client_options={**client, "allow_http": True}, retry_config=once)
    if scheme in ("gs", "az", "abfs", "abfss"):
        return store.from_url(top, config=given.get("options"), client_options=client, retry_config=once)
    config = s3_config(given)
    endpoint = config.get("endpoint", "")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise UsageError(f"{top}: the endpoint {endpoint} does not begin with https:// or http://")  # the library panics
    client["allow_http"] = endpoint.startswith("http:")
    return store.S3Store(place, config=config, client_options=client, retry_config=once)


def _pieces_of(descriptor: int) -> Iterator[bytes]:
    at = 0
    while piece := os.pread(descriptor, _PIECE, at):
        yield piece
        at += len(piece)


def _md5(pieces: Iterable[bytes | memoryview]) -> str:
    taken = md5(usedforsecurity=False)
    for piece in pieces:
        taken.update(piece)
    return taken.hexdigest()


def _found(meta: Mapping[str, Any]) -> Found:
    when = meta.get("last_modified")
    mtime = int(when.timestamp()) * 10**9 if when is not None and when.timestamp() > 0 else 0
    return Found(meta["path"], meta["size"], meta.get("e_tag") or (f"{meta['size']} {mtime}" if mtime else ""), mtime)


def _is_same(now: Found, then: Found) -> bool:
    return now.size == then.size and now.identity == then.identity


def _reason(text: str) -> str:
    """Why there is no connection: the innermost words in what the library tells of itself."""
    if "InvalidContentType" in text:
        return "it does not speak TLS"
    found = _REASON.findall(text)
    return str(found[-1]).rpartition(": ")[2] if found else ""


def _first_line(error: Exception) -> str:
    return _GENERIC.sub("", str(error).partition("\n")[0])
