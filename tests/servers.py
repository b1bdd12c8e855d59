"""Real storage servers on this machine: S3 (moto), a web server (nginx), sftp (OpenSSH). Each is a process of its own on a free port."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

START_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A command that listens on ``port``. ``kill`` and ``start`` again as often as wanted. ``log``: the file for what it writes."""

    def __init__(self, command: list[str], port: int, log: Path | None = None) -> None:
        self.port = port
        self._command = command
        self._log = log or Path(os.devnull)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None and time.monotonic() < end, f"{self._command[0]} does not listen"
                time.sleep(0.02)

    @property
    def group(self) -> int:
        """Its processes, for kill(1)."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # a test has killed it by itself
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


class S3:
    """moto: objects in memory, any keys; its own client for what the tests look at."""

    def __init__(self, log: Path | None = None) -> None:
        import boto3  # type: ignore[import-untyped]

        port = free_port()
        self.server = Server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port, log)
        self.endpoint = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
        }  # fmt: skip
        self.client: Any = boto3.client(
            "s3", endpoint_url=self.endpoint, aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1"
        )

    def put(self, bucket: str, objects: dict[str, bytes]) -> None:
        self.client.create_bucket(Bucket=bucket)
        for key, content in objects.items():
            self.client.put_object(Bucket=bucket, Key=key, Body=content)

    def content(self, bucket: str, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=bucket, Key=key)["Body"].read())

    def keys(self, bucket: str) -> list[str]:
        return [one["Key"] for one in self.client.list_objects_v2(Bucket=bucket).get("Contents", [])]


def s3_in_environment() -> Iterator[S3]:
    """A fixture: S3 as the environment of the tests knows it."""
    server = S3()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server
    server.server.kill()


class Web:
    """nginx: files below ``root``, with ranges, listings, and ETags unless they are not wanted. ``log``: a file for its requests."""

    def __init__(self, place: Path, log: Path | None = None, etags: bool = True) -> None:
        port = free_port()
        self.root = place / "web"
        self.root.mkdir()
        scratch = " ".join(f"{name}_temp_path {place}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (place / "nginx.conf").write_text(
            f"daemon off; pid {place}/pid; error_log stderr; user {pwd.getpwuid(os.getuid()).pw_name};\nevents {{}}\n"
            f"http {{ access_log {log or 'off'}; etag {'on' if etags else 'off'}; {scratch}\n"
            f"server {{ listen 127.0.0.1:{port}; root {self.root}; autoindex on; }} }}\n"
        )
        self.server = Server(["nginx", "-c", str(place / "nginx.conf")], port)
        self.url = f"http://127.0.0.1:{port}"


def web_of_a_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A fixture: nginx."""
    server = Web(tmp_path_factory.mktemp("web"))
    yield server
    server.server.kill()


class Sftp:
    """OpenSSH with keys of its own; its files are those of this machine."""

    def __init__(self, place: Path) -> None:
        port = free_port()
        for name in ("host", "id"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)], check=True)
        (place / "authorized_keys").write_bytes((place / "id.pub").read_bytes())
        (place / "config").write_text(
            f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {place}/host\nPidFile none\nAuthorizedKeysFile {place}/authorized_keys\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
        )
        os.makedirs("/run/sshd", exist_ok=True)
        self.server = Server(["/usr/sbin/sshd", "-D", "-e", "-f", str(place / "config")], port)
        self.host = f"sftp://127.0.0.1:{port}"
        self.key = place / "id"

    def kill_with_connections(self) -> None:
        """Each connection has processes of its own, which would live on."""
        children = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [tuple(map(int, line.split())) for line in children.splitlines()]
        found, new = set[int](), {self.server.group}
        while new := {pid for pid, parent in pairs if parent in new} - found:
            found |= new
        self.server.kill()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
