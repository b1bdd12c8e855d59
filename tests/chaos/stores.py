"""Storage servers for the soak of storage: each on this machine, killed and started again, and looked into without amfs.

Owns how an object gets into a storage and out of it without amfs: S3 by boto3, HDFS by WebHDFS, the others as files of this machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from servers import Server, Sftp, free_port

_PIECE = 8 << 20
_THREADS = 8
_PROBE = "probe"  # an object by which it is seen whether a server serves
_UP_S = 120.0
RECORD = "/.amfs-directory"  # that a directory is whole: no part of what did not end


class Store:
    """Objects below ``url``, which ends with a slash. Keys may have slashes."""

    name = ""
    writes = True
    hides_dotted = False  # names that begin with a dot are in no listing
    forgets = False  # its objects, when it is killed

    def __init__(self, place: Path) -> None:
        self.place = place
        self.url = ""
        self.environment: dict[str, str] = {}

    def directory(self, key: str) -> str:
        """Its URL, for a command."""
        return self.url + key

    @property
    def scrubbed(self) -> bool:
        """Does ``amfs scrub --remote`` look for what is unfinished there? It takes no directory."""
        return "://" in self.url

    def kill(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None:
        self.kill()

    def put(self, key: str, content: bytes | Path) -> None:
        raise NotImplementedError

    def digest(self, key: str) -> str:
        """SHA-256 of an object; "" if there is none."""
        raise NotImplementedError

    def keys(self, prefix: str) -> list[str]:
        raise NotImplementedError

    def remove(self, prefix: str) -> None:
        raise NotImplementedError

    def unfinished(self) -> list[str]:
        """Remains of commands that were killed, which nobody sees as objects."""
        return []

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda item: self.put(*item), objects.items()))

    def digests(self, keys: Iterable[str]) -> dict[str, str]:
        keys = list(keys)
        with ThreadPoolExecutor(_THREADS) as pool:
            return dict(zip(keys, pool.map(self.digest, keys), strict=True))


def sha_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Directory(Store):
    """A plain directory. No server: nothing to kill."""

    name = "directory"

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.root = place / "files"
        self.root.mkdir()
        self.url = f"{self.root}/"

    def put(self, key: str, content: bytes | Path) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, path)
        else:
            beside = path.with_name(f"new-{path.name}")
            beside.write_bytes(content)
            beside.rename(path)

    def digest(self, key: str) -> str:
        path = self.root / key
        return sha_of_file(path) if path.is_file() else ""

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self._all(prefix) if "/.amfs-" not in f"/{key}")

    def _all(self, prefix: str) -> list[str]:
        return [str(path.relative_to(self.root)) for path in (self.root / prefix).rglob("*") if path.is_file()]

    def remove(self, prefix: str) -> None:
        path = self.root / prefix
        if path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)

    def unfinished(self) -> list[str]:
        return [key for key in self._all("") if "/.amfs-" in f"/{key}" and not key.endswith(RECORD)]


class Ssh(Directory):
    """sftp by OpenSSH."""

    name = "sftp"

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._sftp = Sftp(place)
        self.url = f"{self._sftp.host}{self.root}/"
        settings = place / "storage.toml"
        settings.write_text(f'["{self._sftp.host}/"]\noptions = {{ key_filename = "{self._sftp.key}" }}\n')
        self.environment = {"AMFS_STORAGE": str(settings)}

    def kill(self) -> None:
        self._sftp.kill_with_connections()

    def start(self) -> None:
        self._sftp.server.start()


class Https(Directory):
    """nginx with a certificate of its own authority: files of a directory, read only."""

    name = "https"
    writes = False
    hides_dotted = True  # nginx

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        from benchmarks.servers import nginx_settings

        port, tls = free_port(), place / "tls"
        tls.mkdir()
        self._server = Server(["nginx", "-c", str(nginx_settings(tls, self.root, port))], port)
        self.url = f"https://localhost:{port}/"
        self.environment = {"SSL_CERT_FILE": f"{tls}/authority"}

    def directory(self, key: str) -> str:
        return f"{self.url}{key}/"  # without the slash it is a file

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()


class _Bucket(Store):
    """S3; looked into by boto3."""

    def _connect(self, endpoint: str) -> None:
        import boto3  # type: ignore[import-untyped]
        import botocore.config  # type: ignore[import-untyped]

        self.environment = {
            "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "amfskey", "AWS_SECRET_ACCESS_KEY": "amfssecret", "AWS_REGION": "us-east-1",
        }  # fmt: skip
        config = botocore.config.Config(max_pool_connections=_THREADS, retries={"total_max_attempts": 6})
        keys = {"aws_access_key_id": "amfskey", "aws_secret_access_key": "amfssecret", "region_name": "us-east-1"}
        self.client: Any = boto3.client("s3", endpoint_url=endpoint, config=config, **keys)
        self.url = "s3://soak/"
        self.client.create_bucket(Bucket="soak")

    def put(self, key: str, content: bytes | Path) -> None:
        if isinstance(content, Path):
            self.client.upload_file(str(content), "soak", key)
        else:
            self.client.put_object(Bucket="soak", Key=key, Body=content)

    def digest(self, key: str) -> str:
        try:
            body = self.client.get_object(Bucket="soak", Key=key)["Body"]
        except self.client.exceptions.NoSuchKey:
            return ""
        taken = hashlib.sha256()
        for piece in body.iter_chunks(_PIECE):
            taken.update(piece)
        return taken.hexdigest()

    def keys(self, prefix: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="soak", Prefix=prefix)
        return [one["Key"] for page in pages for one in page.get("Contents", [])]

    def remove(self, prefix: str) -> None:
        keys = self.keys(prefix)
        for start in range(0, len(keys), 1000):
            self.client.delete_objects(Bucket="soak", Delete={"Objects": [{"Key": key} for key in keys[start : start + 1000]]})

    def unfinished(self) -> list[str]:
        return [one["Key"] for one in self.client.list_multipart_uploads(Bucket="soak").get("Uploads", [])]


class Moto(_Bucket):
    """An imitation of S3 in Python; objects in its memory."""

    name = "moto"
    forgets = True

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        port = free_port()
        self._server = Server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port)
        self._connect(f"http://127.0.0.1:{port}")

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()
        self.client.create_bucket(Bucket="soak")


class Versity(_Bucket):
    """S3 over a directory, in Go."""

    name = "versitygw"

    def __init__(self, place: Path) -> None:
        from benchmarks.servers import versitygw_program

        super().__init__(place)
        program = versitygw_program()
        if program is None:
            raise NotHere("versitygw is not installed")
        port = free_port()
        (place / "data").mkdir()
        env = ["env", "ROOT_ACCESS_KEY=amfskey", "ROOT_SECRET_KEY=amfssecret"]
        self._server = Server([*env, program, "--port", f"127.0.0.1:{port}", "posix", str(place / "data")], port)
        self._connect(f"http://127.0.0.1:{port}")

    def keys(self, prefix: str) -> list[str]:
        return [key for key in super().keys(prefix) if ".sgwtmp." not in key]  # it lists its own scratch files

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()


class NotHere(Exception):
    """This machine has not what the server needs."""


class Hdfs(Store):
    """A NameNode and a DataNode; the DataNode is what is killed. Looked into by WebHDFS."""

    name = "hdfs"

    def __init__(self, place: Path) -> None:
        from amfs.bench.process import Failed
        from benchmarks import servers

        super().__init__(place)
        self._stack = contextlib.ExitStack()
        try:
            running = self._stack.enter_context(servers.hdfs(place, again_ms=20))
        except Failed as error:
            raise NotHere(str(error)) from None
        self.url = f"{running.spot.where}/"
        self._at = running.spot.where.removeprefix("webhdfs://").partition("/")[0]
        self._data = _data_node(place)
        self._again: Server | None = None
        self._await()

    def kill(self) -> None:
        if self._again is not None:
            self._again.kill()
        else:
            os.killpg(self._data, 9)

    def start(self) -> None:
        command = (self.place / "datanode.command").read_bytes().split(b"\0")[:-1]
        self._again = Server([word.decode() for word in command], _port_of_data_node(self.place))
        self._await()

    def _await(self) -> None:
        """The DataNode listens before the NameNode knows of it and of its blocks."""
        end = time.monotonic() + _UP_S
        while not self._serves():
            assert time.monotonic() < end, "the DataNode does not serve"
            time.sleep(0.5)

    def _serves(self) -> bool:
        """Both ways."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.put(_PROBE, os.urandom(8))
            return bool(self.digest(_PROBE))
        return False

    def stop(self) -> None:
        if self._again is not None:
            self._again.kill()
        self._stack.close()

    def _ask(self, method: str, key: str, query: str, body: Any = None) -> Any:
        where = f"http://{self._at}/webhdfs/v1/bench/{urllib.parse.quote(key)}?{query}&user.name=root"
        if method == "PUT" and body is not None:  # two steps: the NameNode says which DataNode
            opener = urllib.request.build_opener(_NoRedirect)
            with opener.open(urllib.request.Request(where, method="PUT")) as answer:
                where = answer.headers["Location"]
        return urllib.request.urlopen(urllib.request.Request(where, method=method, data=body), timeout=120)

    def put(self, key: str, content: bytes | Path) -> None:
        with contextlib.ExitStack() as stack:
            if isinstance(content, Path):
                file = stack.enter_context(content.open("rb"))
                where = f"http://{self._at}/webhdfs/v1/bench/{urllib.parse.quote(key)}?op=CREATE&overwrite=true&user.name=root"
                subprocess.run(["curl", "-sfL", "-X", "PUT", "-T", file.name, where], check=True)
            else:
                self._ask("PUT", key, "op=CREATE&overwrite=true", content).close()

    def digest(self, key: str) -> str:
        try:
            with self._ask("GET", key, "op=OPEN") as answer:
                return hashlib.file_digest(answer, "sha256").hexdigest()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return ""
            raise

    def _all(self, prefix: str) -> Iterator[str]:
        try:
            with self._ask("GET", prefix, "op=LISTSTATUS") as answer:
                entries = json.load(answer)["FileStatuses"]["FileStatus"]
        except urllib.error.HTTPError:
            return
        for entry in entries:
            name = f"{prefix.rstrip('/')}/{entry['pathSuffix']}".lstrip("/")
            if entry["type"] == "DIRECTORY":
                yield from self._all(name)
            else:
                yield name

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self._all(prefix) if "/.amfs-" not in f"/{key}"]

    def remove(self, prefix: str) -> None:
        self._ask("DELETE", prefix, "op=DELETE&recursive=true").close()

    def unfinished(self) -> list[str]:
        return [key for key in self._all("") if "/.amfs-" in f"/{key}" and not key.endswith(RECORD)]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def http_error_307(self, request: Any, answer: Any, code: int, message: str, headers: Any) -> Any:
        return answer


def _data_node(place: Path) -> int:
    """The DataNode whose settings are in ``place``; its command is kept, to start it again."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                if b"datanode.DataNode" in command and str(place).encode() in command:
                    (place / "datanode.command").write_bytes(command)
                    return int(entry.name)
    raise NotHere("the DataNode is not found")


def _port_of_data_node(place: Path) -> int:
    """Of the DataNode's web server, from its settings."""
    found = re.search(r"dfs.datanode.http.address</name><value>127.0.0.1:(\d+)<", (place / "hdfs-conf" / "hdfs-site.xml").read_text())
    assert found
    return int(found[1])


STORES: dict[str, type[Store]] = {kind.name: kind for kind in (Directory, Moto, Versity, Https, Ssh, Hdfs)}
