"""Python leaf functions of scripts: ``python(code, expression)`` in processes that stay.

A call with ``persistent`` finds what earlier ones in the same process have left. The first process that is free takes the call, so calls
that follow each other find each other's globals.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Mapping

from amfs.swift.requests import Refused

#: What a process runs: a line in, a line out. What the code prints goes to standard error's place, the terminal.
_SERVER = """
import base64, json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
kept = {"__name__": "__main__"}
for line in sys.stdin:
    code, expression, persistent = json.loads(base64.b64decode(line))
    names = kept if persistent else {"__name__": "__main__"}
    try:
        exec(compile(code, "<swift>", "exec"), names)
        value = eval(compile(expression, "<swift>", "eval"), names) if expression.strip() else ""
        answer = [True, value if isinstance(value, str) else str(value)]
    except BaseException as error:
        answer = [False, "".join(traceback.format_exception_only(type(error), error)).strip()]
    sys.stdout.flush()
    answers.write(base64.b64encode(json.dumps(answer).encode()).decode() + "\\n")
"""


class PythonWorkers:
    """At most ``slots`` processes, started when they are needed. For use by several threads."""

    def __init__(self, slots: int, directory: str, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.environment = dict(environment)
        self._free = threading.Semaphore(max(1, slots))
        self._lock = threading.Lock()
        self._idle: list[tuple[int, subprocess.Popen[str]]] = []
        self._numbers = 0
        self._closed = False
        self._all: dict[int, subprocess.Popen[str]] = {}

    def call(self, code: str, expression: str, persistent: bool) -> str:
        """The value of the expression as text. Raises ``Refused``."""
        with self._free:
            number, process = self._take()
            assert process.stdin is not None and process.stdout is not None
            asked = base64.b64encode(json.dumps([code, expression, persistent]).encode()).decode()
            try:
                process.stdin.write(asked + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except OSError:
                line = ""
            if not line:
                status = process.wait()
                raise Refused(f"the Python process ended with status {status}")
            with self._lock:
                self._idle.append((number, process))
                self._idle.sort(key=lambda one: -one[0])
            good, value = json.loads(base64.b64decode(line))
        if not good:
            raise Refused(f"Python: {value}")
        return str(value)

    def _take(self) -> tuple[int, subprocess.Popen[str]]:
        with self._lock:
            if self._closed:
                raise Refused("the run has ended")
            if self._idle:
                return self._idle.pop()
            number = self._numbers
            self._numbers += 1
            process = subprocess.Popen(
                [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.directory,
                env=self.environment,
            )  # fmt: skip
            self._all[number] = process
            return number, process

    def close(self) -> None:
        """End the processes."""
        with self._lock:
            self._closed = True
            processes = list(self._all.values())
        for process in processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
