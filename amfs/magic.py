"""``%%amfs``: a cell of shell commands with a session at hand. ``%load_ext amfs`` loads it.

::

    %%amfs
    amfs ls /
    AMFS_queue sort -k1 $input

The cell runs in ``amfs shell``: Bash inside the mounted file system of the session, with the commands of AMFS Shell. ``%%amfs --here``
runs Bash in the current directory instead, which needs no mount. The session is the one named on the line, else that of the newest
``Cluster`` of this notebook, else as for every command. Bytes that come are shown as they come. An interrupt ends what runs.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from typing import Any

from amfs.cluster import newest_cluster
from amfs.errors import AmfsError, UsageError

_PATIENCE_S = 5.0  # after an interrupt, before the rest is killed
_DRAIN_S = 0.3  # for output that processes in the background may still hold open


def load(shell: Any) -> None:
    """Register the magic with IPython."""
    shell.register_magic_function(amfs, "cell", "amfs")


def amfs(line: str, cell: str) -> None:
    """Run the cell. Raises AmfsError when its exit status is not 0."""
    words = line.split()
    here = "--here" in words
    names = [word for word in words if word != "--here"]
    if len(names) > 1 or any(name.startswith("-") for name in names):
        raise UsageError("usage: %%amfs [--here] [SESSION]")
    session = names[0] if names else newest_cluster()
    environment = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    if session:
        environment["AMFS_SESSION"] = session
    with tempfile.NamedTemporaryFile("w", prefix="amfs-cell-", suffix=".sh") as script:
        script.write(cell)
        script.flush()
        command = [sys.executable, "-m", "amfs", "shell", script.name]
        if here or find_spec("amfs.cli.shell") is None:
            command = ["bash", script.name]
        status = _run(command, environment)
    if status:
        raise AmfsError(f"the cell ended with status {status}" if status > 0 else f"the cell was killed by signal {-status}")


def _run(command: list[str], environment: dict[str, str]) -> int:
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _show(process)
        return process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def _show(process: subprocess.Popen[bytes]) -> None:
    """Pass on what comes until the process has ended and nothing comes any more."""
    with selectors.DefaultSelector() as selector:
        for stream, shown in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, (shown, codecs.getincrementaldecoder("utf-8")("backslashreplace")))
        ended = 0.0
        while selector.get_map():
            for key, _ in selector.select(0.1):
                shown, decoder = key.data
                data = os.read(key.fd, 1 << 16)
                print(decoder.decode(data, not data), end="", file=shown, flush=True)
                if not data:
                    selector.unregister(key.fileobj)
            if process.poll() is not None:
                ended = ended or time.monotonic()
                if time.monotonic() - ended > _DRAIN_S:
                    return


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, patience_s in ((signal.SIGINT, _PATIENCE_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return
