"""The client of the envelope benchmark (benchmarks/envelope.c) as a process that takes orders from a benchmark.

The benchmark or a node starts it. It connects to the Unix socket of the benchmark, and ends when the benchmark closes the connection.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from amfs.bench.process import Failed

START_SECONDS = 30.0
HANG_SECONDS = 120.0


class Done(NamedTuple):
    """A phase as a client counted it: all its processes together, first beginning to last end."""

    operations: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.operations / self.seconds if self.seconds > 0 else 0.0


class Client:
    """``clients`` processes that work in ``directories`` (mounts of one file system), below a directory ``name`` there.

    ``command`` makes what is started of the words that would start the program here. Raises Failed.
    """

    def __init__(
        self,
        program: Path,
        clients: int,
        name: str,
        directories: Sequence[str | Path],
        *,
        command: Callable[[list[str]], list[str]] = list,
        hang_seconds: float = HANG_SECONDS,
    ) -> None:
        self.what = f"{clients} clients in {directories[0]}"
        self.hang_seconds = hang_seconds
        self._talk: socket.socket | None = None
        self._place = tempfile.TemporaryDirectory(prefix="amfs-bench-", dir="/tmp", ignore_cleanup_errors=True)  # short: a socket's path
        where = f"{self._place.name}/s"
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        words = [str(program), where, str(clients), name, *map(str, directories)]
        try:
            self._door.bind(where)
            self._door.listen(1)
            self._process = subprocess.Popen(
                command(words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said, start_new_session=True
            )
        except OSError as error:
            self._door.close()
            self._said.close()
            self._place.cleanup()
            raise Failed(f"cannot start the client: {error.strerror}") from None
        try:
            self._talk = self._accept()
        except BaseException:
            self.close()
            raise

    def _accept(self) -> socket.socket:
        """The client's connection; notices when the process ends before it has come."""
        self._door.settimeout(0.1)
        limit = time.monotonic() + START_SECONDS
        while time.monotonic() < limit:
            try:
                talk = self._door.accept()[0]
            except TimeoutError:
                if self._process.poll() is not None:
                    raise Failed(f"{self.what}: {self._last_words()}") from None
            else:
                talk.settimeout(self.hang_seconds)
                return talk
        raise Failed(f"{self.what} did not start within {START_SECONDS:.0f} s")

    def phase(self, name: str, *, seconds: float = 0.0, count: int = 0, shift: int = 0) -> Done:
        """Run a phase (see envelope.c) to its end. Raises Failed."""
        assert self._talk is not None
        answer = b""
        try:
            self._talk.sendall(f"{name} {seconds:.6f} {count} {shift}\n".encode())
            while not answer.endswith(b"\n"):
                got = self._talk.recv(4096)
                if not got:
                    raise Failed(f"{self.what}: {self._last_words()}")
                answer += got
        except TimeoutError:
            raise Failed(f"{self.what} did not end {name} within {self.hang_seconds:.0f} s") from None
        except OSError:
            raise Failed(f"{self.what}: {self._last_words()}") from None
        verdict, _, rest = answer.decode("utf-8", "replace").strip().partition(" ")
        if verdict != "ok":
            raise Failed(f"{self.what}, {name}: {rest}")
        operations, took = rest.split()
        return Done(int(operations), float(took))

    def close(self) -> None:
        """End it, with all its processes."""
        if self._talk is not None:
            self._talk.close()
        self._door.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 15)
            try:
                self._process.wait(5.0)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, 9)
                self._process.wait()
        self._said.close()
        self._place.cleanup()

    def _last_words(self) -> str:
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "the client is gone"
        self._said.seek(0)
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"the client ended with status {self._process.returncode}"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
