"""A process that makes the system calls of cases: one JSON line in, one out, every case in a child of its own.

So a case may become another user, lose its rights, leave files open or locked, die, or hang, and the next one is not touched by it.

    {"roots": [DIR…], "steps": [[process, view, detached, [call, argument…]]…]}  →  [result…]
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from syscalls import Tree

#: A case that takes longer hangs. The machine may be busy, and some cases wait for the clock many times.
CASE_S = 60


class Helper:
    """Another process of a case; questions to it and its answers are JSON lines over two pipes."""

    def __init__(self, tree: Tree) -> None:
        ask, answer = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ask[1])
            os.close(answer[0])
            signal.alarm(CASE_S)
            with os.fdopen(ask[0]) as asked, os.fdopen(answer[1], "w") as answered:
                for line in asked:
                    view, op = json.loads(line)
                    answered.write(json.dumps(tree.run(op, view)) + "\n")
                    answered.flush()
            os._exit(0)
        os.close(ask[0])
        os.close(answer[1])
        self.asked, self.answered = os.fdopen(ask[1], "w"), os.fdopen(answer[0])

    def tell(self, view: int, op: list[Any]) -> None:
        self.asked.write(json.dumps([view, op]) + "\n")
        self.asked.flush()

    def answer(self) -> Any:
        line = self.answered.readline()
        return json.loads(line) if line else "!died"


def run_case(roots: list[str], steps: list[list[Any]]) -> list[Any]:
    tree = Tree(*roots)
    os.umask(0o022)
    helpers: dict[int, Helper] = {}
    results: list[Any] = []
    for process, view, detached, op in steps:
        if process == 0:
            results.append(tree.run(op, view))
            continue
        if process not in helpers:
            helpers[process] = Helper(tree)
        helper = helpers[process]
        if op[0] != "wait":
            helper.tell(view, op)
        results.append(None if detached else helper.answer())
    return results


def serve() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os.dup2(2, 1)  # programs that a case runs may not speak in the answers
            signal.alarm(CASE_S)
            status = 1
            try:
                answer = json.dumps(run_case(job["roots"], job["steps"])).encode()
                with os.fdopen(into, "wb") as pipe:
                    pipe.write(answer)
                status = 0
            finally:
                os._exit(status)
        os.close(into)
        with os.fdopen(out, "rb") as pipe:
            answer = pipe.read()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # its helpers; it waits to be reaped, so the number is still its own
        os.waitpid(child, 0)
        print((answer or b'["!died"]').decode(), flush=True)


class Executor:
    """The process, from the outside. ``send`` and ``receive`` apart, so that two of them work at the same time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, job: dict[str, Any]) -> None:
        pipe = self.process.stdin
        assert pipe is not None
        pipe.write(json.dumps(job).encode() + b"\n")
        pipe.flush()

    def receive(self) -> list[Any]:
        """Raises TimeoutError when it hangs; the process is of no use afterwards."""
        line = self._line(time.monotonic() + CASE_S + 10)
        results: list[Any] = json.loads(line)
        return results

    def _line(self, end: float) -> bytes:
        pipe: IO[bytes] | None = self.process.stdout
        assert pipe is not None
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("a system call hangs")
            part = os.read(pipe.fileno(), 1 << 20)
            if not part:
                raise EOFError("the executor has died; what it said is above")
            line += part
        return line

    def run(self, job: dict[str, Any]) -> list[Any]:
        self.send(job)
        return self.receive()

    def stop(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            return  # it hangs in the kernel, which the failing test has told


if __name__ == "__main__":
    serve()
