"""Clients of the stores that ``benchmarks storage`` and ``staging`` compare: each copies a file of the local disk into its store, and back.

Each is the shortest way to its store that a program has, so that the store is measured and not a library over it: system calls, obstore for
S3, plain HTTP for WebHDFS, the client of amfs, and fsspec for all else. They know nothing of the measurements.
"""

from __future__ import annotations

import http.client
import importlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from amfs.errors import AmfsError, UsageError

CHUNK = 1 << 20
_PART = 8 << 20
_HTTP_SECONDS = 120.0


class Spot(msgspec.Struct, frozen=True):
    """Where one client finds a store. ``kind``: one of KINDS; ``where``: a directory or a URL; ``options``: of its client."""

    kind: str
    where: str
    options: dict[str, str] = {}

    def below(self, name: str) -> Spot:
        return msgspec.structs.replace(self, where=f"{self.where.rstrip('/')}/{name}")


class Store(Protocol):
    """Files in one directory of a store, by names without a slash."""

    def put(self, name: str, source: str) -> None: ...

    def get(self, name: str, target: str) -> None: ...

    def prepare(self) -> None: ...

    def remove(self) -> None: ...


def copy(source: str, target: str) -> None:
    """By read and write, as cp does where the kernel cannot copy by itself."""
    buffer = memoryview(bytearray(CHUNK))
    fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        out = os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            while got := os.readv(fd, [buffer]):
                write(out, buffer[:got])
        finally:
            os.close(out)
    finally:
        os.close(fd)


def write(fd: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(fd, piece) :]


def keep(target: str, pieces: Iterator[Any]) -> None:
    """Write what comes over a connection to a local file."""
    fd = os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        for piece in pieces:
            write(fd, memoryview(piece))
    finally:
        os.close(fd)


class Directory:
    def __init__(self, spot: Spot) -> None:
        self.place = spot.where

    def put(self, name: str, source: str) -> None:
        copy(source, f"{self.place}/{name}")

    def get(self, name: str, target: str) -> None:
        copy(f"{self.place}/{name}", target)

    def prepare(self) -> None:
        os.makedirs(self.place, exist_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.place)


class Bucket:
    """s3://BUCKET/PREFIX by obstore; ``options`` are obstore's, and the environment holds for what they leave out."""

    def __init__(self, spot: Spot) -> None:
        try:
            self._obstore: Any = importlib.import_module("obstore")
            stores: Any = importlib.import_module("obstore.store")
        except ImportError:
            raise UsageError(f"{spot.where} needs obstore, which is not installed") from None
        parts = urlsplit(spot.where)
        self._prefix = parts.path.strip("/")
        options = {**spot.options, "endpoint": spot.options.get("endpoint", os.environ.get("AWS_ENDPOINT_URL", ""))}
        config = {name: value for name, value in options.items() if value}
        self._store: Any = stores.S3Store(parts.netloc, config=config, client_options={"allow_http": True})

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def put(self, name: str, source: str) -> None:
        if os.path.getsize(source) <= _PART:
            with open(source, "rb") as file:
                self._obstore.put(self._store, self._key(name), file.read(), use_multipart=False)
        else:
            with open(source, "rb") as file:
                self._obstore.put(self._store, self._key(name), file, chunk_size=_PART)

    def get(self, name: str, target: str) -> None:
        keep(target, iter(self._obstore.get(self._store, self._key(name)).stream(min_chunk_size=CHUNK)))

    def prepare(self) -> None:
        pass  # objects have no directories

    def remove(self) -> None:
        for batch in self._obstore.list(self._store, self._prefix):
            self._obstore.delete(self._store, [one["path"] for one in batch])


class WebHdfs:
    """webhdfs://HOST:PORT/DIRECTORY: each call is a request to the NameNode, which names the DataNode that takes or gives the bytes."""

    def __init__(self, spot: Spot) -> None:
        parts = urlsplit(spot.where)
        self._host, self._place = parts.netloc, parts.path.rstrip("/")

    def _url(self, path: str, operation: str) -> str:
        return f"/webhdfs/v1{quote(path)}?op={operation}&user.name=amfs"

    def _ask(self, method: str, host: str, url: str, body: Any = None) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(host, timeout=_HTTP_SECONDS)
        headers = {"Content-Type": "application/octet-stream"} if body is not None else {}
        connection.request(method, url, body, headers)
        return connection, connection.getresponse()

    def _call(self, method: str, host: str, url: str, expected: int, body: Any = None) -> tuple[str, bytes]:
        """The place that the answer names, and its text. Raises AmfsError."""
        connection, answer = self._ask(method, host, url, body)
        try:
            text = answer.read()
            if answer.status != expected:
                raise AmfsError(f"HDFS: {method} {url}: status {answer.status}: {_reason(text)}")
            return answer.headers.get("Location", ""), text
        finally:
            connection.close()

    def put(self, name: str, source: str) -> None:
        there, _ = self._call("PUT", self._host, self._url(f"{self._place}/{name}", "CREATE") + "&overwrite=true", 307)
        with open(source, "rb") as file:
            _, host, url = _parts(there)
            self._call("PUT", host, url, 201, file)

    def get(self, name: str, target: str) -> None:
        there, _ = self._call("GET", self._host, self._url(f"{self._place}/{name}", "OPEN"), 307)
        _, host, url = _parts(there)
        connection, answer = self._ask("GET", host, url)
        try:
            if answer.status != 200:
                raise AmfsError(f"HDFS: GET {url}: status {answer.status}: {_reason(answer.read())}")
            keep(target, iter(lambda: answer.read(CHUNK), b""))
        finally:
            connection.close()

    def prepare(self) -> None:
        self._call("PUT", self._host, self._url(self._place, "MKDIRS"), 200)

    def remove(self) -> None:
        self._call("DELETE", self._host, self._url(self._place, "DELETE") + "&recursive=true", 200)


def _parts(url: str) -> tuple[str, str, str]:
    found = urlsplit(url)
    return found.scheme, found.netloc, f"{found.path}?{found.query}"


def _reason(text: bytes) -> str:
    try:
        return str(json.loads(text)["RemoteException"]["message"]).partition("\n")[0]
    except (ValueError, KeyError, TypeError):
        return text[:200].decode(errors="replace")


class Session:
    """A directory of a session of amfs, through node ``node``; new files have the layout ``layout``."""

    def __init__(self, spot: Spot) -> None:
        from amfs.client.files import Files

        self._place = spot.where
        self._layout = spot.options.get("layout")
        self._files = Files(spot.options["session"], node=int(spot.options.get("node", "0")))

    def put(self, name: str, source: str) -> None:
        self._files.put_file(source, f"{self._place}/{name}", layout=self._layout)

    def get(self, name: str, target: str) -> None:
        self._files.get_file(f"{self._place}/{name}", target)

    def prepare(self) -> None:
        self._files.makedirs(self._place, exist_ok=True)

    def remove(self) -> None:
        self._files.rmtree(self._place)


class Url:
    """A directory in anything that fsspec knows."""

    def __init__(self, spot: Spot) -> None:
        try:
            core: Any = importlib.import_module("fsspec.core")
        except ImportError:
            raise UsageError(f"{spot.where} needs fsspec, which is not installed") from None
        self._fs: Any
        self._fs, self._place = core.url_to_fs(spot.where)

    def put(self, name: str, source: str) -> None:
        self._fs.put_file(source, f"{self._place}/{name}")

    def get(self, name: str, target: str) -> None:
        self._fs.get_file(f"{self._place}/{name}", target)

    def prepare(self) -> None:
        self._fs.makedirs(self._place, exist_ok=True)

    def remove(self) -> None:
        self._fs.rm(self._place, recursive=True)


KINDS: Mapping[str, type[Store]] = {"directory": Directory, "s3": Bucket, "webhdfs": WebHdfs, "amfs": Session, "url": Url}


def is_url(place: str) -> bool:
    return "://" in place or "::" in place


def spot_of(place: str) -> Spot:
    """The client for a directory or URL that a person has given."""
    scheme = place.partition("://")[0] if is_url(place) else "directory"
    return Spot(scheme if scheme in ("directory", "s3", "webhdfs") else "url", place)


def store_of(spot: Spot) -> Store:
    """Raises UsageError, AmfsError, and what its library raises."""
    made: Store = KINDS[spot.kind](spot)  # type: ignore[call-arg]
    return made
