"""The process that aborts the mounts of this node when the node is killed (csrc/programs/aborter.c). I/O.

Owns that process and the pipe to it: when the node dies the pipe ends. Must not know: anything of a mount but its device.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess

from amfs.errors import SystemSetupError
from amfs.libexec import program

log = logging.getLogger("amfs.fs")

_END_S = 5.0


class Aborter:
    """Started with the first mount. Without it mounts work; programs may hang in them when the node is killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._devices: set[str] = set()
        self._failed = False

    def add(self, device: str) -> None:
        """The node serves the mount of this device ("major:minor"; "": not known). Repeatable."""
        if not device or device in self._devices:
            return
        self._start()
        self._devices.add(device)
        self._say("+", device)

    def remove(self, device: str) -> None:
        """It does not any more: the kernel may give the number to another mount. Repeatable."""
        if device in self._devices:
            self._devices.remove(device)
            self._say("-", device)

    def _start(self) -> None:
        if self._process is not None or self._failed:
            return
        try:
            self._process = subprocess.Popen(
                [program("amfs-aborter")], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", bufsize=0
            )
        except (OSError, SystemSetupError) as error:
            self._failed = True
            log.warning("if this node is killed programs may hang in its mounts: %s", error)

    def _say(self, sign: str, device: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # somebody has killed it
                self._process.stdin.write(f"{sign}{device.partition(':')[2]}\n".encode())

    def close(self) -> None:
        """End it. Repeatable."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
