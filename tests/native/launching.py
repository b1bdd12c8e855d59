"""Shared by the launcher's tests: a launcher with its directories, and records packed from keywords."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from amfs._native import Launcher
from amfs.libexec import program
from amfs.vocabulary.records import pack_body, pack_record

GUARD_SECONDS = 60.0
CONTEXT = 1
ENVIRONMENT = ["PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", "KEPT=base", "GONE=base"]


class Done(NamedTuple):
    serial: int
    outcome: int
    code: int
    slot: int
    start_us: int
    end_us: int
    cpu_us: int
    maxrss_kib: int
    outputs: tuple[tuple[int, int], ...]
    stdout: bytes
    stderr: bytes
    detail: str
    facts: tuple[tuple[int, ...], str, int, str, int] | None  # inputs changed, whole stdout, its size, sandbox, processes left
    traces: tuple[object, ...] | None = None  # of a blind task


class World:
    """A launcher with a store, a sandbox directory and a base directory on one file system."""

    def __init__(self, root: Path, slots: int = 2, memory: int = 0) -> None:
        self.root = root
        self.sandboxes = root / "sandboxes"
        self.store = root / "store"
        self.base = root / "base"
        self.logs = root / "logs"
        for directory in (self.sandboxes, self.store, self.base):
            directory.mkdir(exist_ok=True)
        self.launcher = Launcher(
            slots, memory=memory, sandbox_dir=str(self.sandboxes), log_dir=str(self.logs), watcher=program("amfs-watcher")
        )
        self.launcher.set_context(CONTEXT, str(self.base), ENVIRONMENT)
        self.serial = 0

    def stored(self, name: str, content: bytes = b"content\n", mode: int = 0o444) -> str:
        """A file in the store, as a published output would be."""
        path = self.store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        return str(path)

    def to(self, name: str) -> str:
        return str(self.store / name)

    def record(self, argv: Sequence[str], serial: int | None = None, **options: Any) -> bytes:
        if serial is None:
            self.serial += 1
            serial = self.serial
        executable = options.pop("program", None) or argv[0]
        command = {name: options.pop(name) for name in ("env", "cwd", "stdin", "stdout", "stderr") if name in options}
        options.setdefault("context", CONTEXT)
        return pack_record(serial, pack_body(executable, argv, **command), **options)

    def shell(self, script: str, **options: Any) -> bytes:
        return self.record(["/bin/sh", "-c", script], **options)

    def wait(self, count: int = 1) -> list[Done]:
        """The next ``count`` completions; fails instead of hanging."""
        found: list[Done] = []
        end = time.monotonic() + GUARD_SECONDS
        while len(found) < count:
            ready, _, _ = select.select([self.launcher.fd], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"only {len(found)} of {count} completions, queued {self.launcher.queued()}, running {self.launcher.running()}"
            found += [Done(*each) for each in self.launcher.completions()]
        assert len(found) == count
        return found

    def run(self, record: bytes) -> Done:
        self.launcher.submit([record])
        return self.wait()[0]

    def assert_clean(self) -> None:
        assert os.listdir(self.sandboxes) == []


def gone(pid: int) -> bool:
    """No such process, or dead and only waiting to be collected by whoever adopted it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
