"""A node below a process that is not ours, such as a worker of Dask: it goes when that process goes.

``run_node`` is for that process; it starts ``main`` beside itself, which sees the end of a pipe when the process is no more, and then has
the node drain and leave. Must not know: whose process that is.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

_TURN_S = 0.2


class _Order(msgspec.Struct, frozen=True):
    """``words``: the node's command. ``payload``: its standard input."""

    words: tuple[str, ...]
    payload: bytes


def run_node(payload: bytes, words: Sequence[str], closing: Callable[[], bool] = lambda: False) -> None:
    """Be a node, as "amfs node" with these words, until it ends, this process does, or ``closing``. Raises RuntimeError in its words."""
    from amfs.provision.daemon import node_environment

    node = [sys.executable, "-P", "-m", "amfs", "node", "--join", "-", "--log-here", *words]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "amfs.provision.tether"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, cwd="/", env=node_environment(),
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(msgspec.json.encode(_Order(tuple(node), payload)) + b"\n")
        process.stdin.flush()
        while process.poll() is None:
            if closing() and not process.stdin.closed:
                process.stdin.close()
            time.sleep(_TURN_S)
        said = [line for line in process.stdout.read().decode(errors="replace").splitlines() if line.strip()]
    if process.returncode:
        raise RuntimeError(said[-1] if said else f"the node ended with status {process.returncode}")


def main() -> int:
    """Beside the other process: standard input has an order, then nothing until its end."""
    heard = b""
    while not heard.endswith(b"\n"):
        if not (data := os.read(0, 65536)):
            return 1
        heard += data
    order = msgspec.json.decode(heard, type=_Order)
    with subprocess.Popen(order.words, stdin=subprocess.PIPE) as node:
        assert node.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            node.stdin.write(order.payload)
            node.stdin.close()
        ends = os.pidfd_open(node.pid)
        if 0 in select.select([0, ends], [], [])[0]:
            node.terminate()
        return node.wait()


if __name__ == "__main__":
    sys.exit(main())
