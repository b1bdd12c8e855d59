"""Python leaf functions of scripts: ``python(code, expression)`` in processes that stay.

A call with ``persistent`` finds what earlier ones in the same process have left. The first process that is free takes the call, so calls
that follow each other find each other's globals. A resident process has a name, and takes the calls with that name and no others.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from amfs.errors import AmfsError
from amfs.swift.requests import Refused

_SERVER = Path(__file__).with_name("python_leaf.py")

#: Seconds until a node's idle process leaves its slot to tasks. Its variables are gone then.
_IDLE_S = 5.0


class PythonOnNodes:
    """Processes on the nodes of a session, one a slot. Raises SystemSetupError if ``amfs-hpc[functions]`` is not installed."""

    def __init__(self, session: str, slots: int, directory: str) -> None:
        from amfs.client.files import Files
        from amfs.functions.executor import Executor

        self.directory = directory
        self._files = Files(session)
        self._executor = Executor(self._files, session, max(1, slots), idle_s=_IDLE_S)

    def call(self, code: str, expression: str, persistent: bool) -> str:
        """The value of the expression as text. Raises ``Refused``."""
        from amfs.scripts.python_leaf import evaluate_in

        try:
            return _value(*self._executor.submit(evaluate_in, self.directory, code, expression, persistent).result())
        except (RuntimeError, AmfsError) as error:  # the worker is lost, or the run has ended
            raise Refused(f"Python: {error}") from None

    def close(self) -> None:
        """End the processes."""
        self._executor.close()
        self._files.close()


def _value(good: bool, text: str) -> str:
    if not good:
        raise Refused(f"Python: {text}")
    return text


def _asked(process: subprocess.Popen[str], code: str, expression: str, persistent: bool) -> tuple[bool, str]:
    """The answer of a process. Raises ``Refused`` if it ends."""
    assert process.stdin is not None and process.stdout is not None
    asked = base64.b64encode(json.dumps([code, expression, persistent]).encode()).decode()
    try:
        process.stdin.write(asked + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        line = ""
    if not line:
        raise Refused(f"the Python process ended with status {process.wait()}")
    good, text = json.loads(base64.b64decode(line))
    return good, text


class PythonWorkers:
    """At most ``slots`` processes on this machine, started when they are needed. For use by several threads."""

    def __init__(self, slots: int, directory: str, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.environment = dict(environment)
        self._free = threading.Semaphore(max(1, slots))
        self._lock = threading.Lock()
        self._idle: list[tuple[int, subprocess.Popen[str]]] = []
        self._residents: dict[str, subprocess.Popen[str]] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._numbers = 0
        self._closed = False
        self._all: dict[int, subprocess.Popen[str]] = {}

    def call(self, code: str, expression: str, persistent: bool) -> str:
        """The value of the expression as text. Raises ``Refused``."""
        with self._free:
            number, process = self._take()
            answer = _asked(process, code, expression, persistent)
            with self._lock:
                self._idle.append((number, process))
                self._idle.sort(key=lambda one: -one[0])
        return _value(*answer)

    def call_resident(self, name: str, code: str, expression: str, persistent: bool) -> str:
        """The same in the process of that name, which takes one call after the other. It takes no place from those without a name."""
        with self._lock:
            turn = self._turns.setdefault(name, threading.Lock())
        with turn:
            with self._lock:
                process = self._residents.get(name)
                if process is None:
                    _, process = self._start()
                    self._residents[name] = process
            return _value(*_asked(process, code, expression, persistent))

    def _take(self) -> tuple[int, subprocess.Popen[str]]:
        with self._lock:
            return self._idle.pop() if self._idle and not self._closed else self._start()

    def _start(self) -> tuple[int, subprocess.Popen[str]]:
        """Under the lock."""
        if self._closed:
            raise Refused("the run has ended")
        number = self._numbers
        self._numbers += 1
        process = subprocess.Popen(  # by its text: started by its name it would import from its own directory, not the user's
            [sys.executable, "-c", _SERVER.read_text()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.directory,
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
