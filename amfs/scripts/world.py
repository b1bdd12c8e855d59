"""The world that a running script asks: files (those of the run too), programs, Python, output. Answers come when they are there."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from amfs.errors import AmfsError, SystemSetupError
from amfs.host.processes import usable_cpus
from amfs.host.replacing import put_in_place
from amfs.swift import requests as r
from amfs.swift.evaluate.calls import NAMELESS
from amfs.translate.swift_host import Host
from amfs.workflow.workflow import Task

if TYPE_CHECKING:
    import subprocess
    from concurrent.futures import ThreadPoolExecutor

    from amfs.scripts.python_workers import PythonOnNodes, PythonWorkers


class Run(Protocol):
    """The run that the tasks of a script belong to."""

    def add(self, tasks: list[Task]) -> None:
        """Submit. Raises ``WorkflowError``."""

    def makes(self, name: str) -> bool:
        """Is it the output of a task, ended or not?"""

    def forget(self, names: list[str]) -> None:
        """No task reads these files any more, and none will."""

    def read(self, name: str) -> bytes:
        """A file that a task has made. Raises ``FileNotFoundError``, ``AmfsError``."""

    def nodes(self) -> list[str]:
        """Host names, by rank."""

    def locate(self, name: str) -> list[int]:
        """Ranks of the nodes that hold a file that a task has made."""


#: Requests that may take long: they are carried out in threads of their own.
_SLOW = (r.Execute, r.CallPython, r.ReadFile, r.Stat, r.Glob, r.Locate)

_THREADS = 16


class World:
    """See the module. ``show``: writes text out (text, is it an error). ``session``: Python functions run on its nodes."""

    def __init__(
        self, run: Run, base: str, arguments: Sequence[str] = (), *, slots: int = 0, environment: Mapping[str, str] | None = None,
        session: str | None = None, show: Callable[[str, bool], None] | None = None,
    ) -> None:  # fmt: skip
        self.host = host = Host(base, arguments, environment)
        host.answers |= {
            r.ReadFile: self._read_file, r.Stat: self._stat, r.WriteFile: self._write_file, r.Copy: self._copy, r.Remove: self._remove,
            r.Nodes: lambda request: run.nodes(), r.Locate: self._locate, r.Execute: self._execute, r.CallPython: self._call_python,
        }  # fmt: skip
        self.run = run
        self.slots = slots or usable_cpus()
        self.session = session
        self.show = show or _show
        self._written: dict[str, None] = {}  # files that no program has named
        self._pool: ThreadPoolExecutor | None = None
        self._python: Any = None
        self._resident: PythonWorkers | None = None
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        self._timers: set[threading.Timer] = set()
        self._lock = threading.Lock()

    def forget(self, names: list[str]) -> None:
        """Nothing of the script refers to these temporary files any more."""
        written = [name for name in names if name in self._written]
        _remove(self.host.base, written)
        for name in written:
            del self._written[name]
        self.run.forget(names)

    def fulfil(self, request: r.Request, done: Callable[[Any], None]) -> None:
        """``done`` gets the answer, in this thread or another one."""
        if isinstance(request, r.Print):
            self.show(request.text, request.error)
            done(None)
        elif isinstance(request, r.Pause):
            self._pause(request.seconds, done)
        elif isinstance(request, _SLOW) and not self._is_quick(request):
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(max(_THREADS, 2 * self.slots), "amfs script")
            self._pool.submit(lambda: done(self._safely(request)))
        else:
            done(self._safely(request))

    def _is_quick(self, request: r.Request) -> bool:
        name = getattr(request, "name", "")
        return isinstance(request, r.Stat | r.ReadFile | r.Glob | r.Locate) and not self.run.makes(name)

    def _safely(self, request: r.Request) -> Any:
        try:
            return self.host.answer(request)
        except (AmfsError, ValueError) as error:
            return r.Refused(str(error))
        except Exception as error:  # the evaluation waits for an answer: none must be lost
            return r.Refused(f"{type(request).__name__} failed: {type(error).__name__}: {error}")

    def _pause(self, seconds: float, done: Callable[[Any], None]) -> None:
        def over() -> None:
            self._timers.discard(timer)
            done(None)

        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), over)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()

    # ── files ──────────────────────────────────────────────────────────────────────────────────────

    def _read_file(self, request: r.ReadFile) -> bytes:
        return self.run.read(request.name) if self.run.makes(request.name) else self.host.read_file(request)

    def _stat(self, request: r.Stat) -> r.Status | None:
        if self.run.makes(request.name) and not os.path.exists(self.host.path(request.name)):
            try:
                return r.Status(len(self.run.read(request.name)), time.time(), "file")
            except FileNotFoundError:
                return None
        return self.host.stat(request)

    def _write_file(self, request: r.WriteFile) -> None:
        path = self.host.path(request.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if request.append:
            with open(path, "ab") as file:
                file.write(request.data)
            return
        part = f"{path}.{os.getpid()}.{threading.get_ident()}~"
        with open(part, "wb") as file:
            file.write(request.data)
        put_in_place(part, path)
        if request.name.startswith(NAMELESS):
            self._written[request.name] = None

    def _copy(self, request: r.Copy) -> None:
        self._write_file(r.WriteFile(request.target, self._read_file(r.ReadFile(request.source))))

    def _remove(self, request: r.Remove) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.host.path(request.name))

    # ── places ─────────────────────────────────────────────────────────────────────────────────────

    def _locate(self, request: r.Locate) -> list[int]:
        ranks = self.run.locate(request.name) if self.run.makes(request.name) else []
        return ranks or self.host.locate(request)

    # ── programs ───────────────────────────────────────────────────────────────────────────────────

    def _execute(self, request: r.Execute) -> r.Executed:
        for name in request.inputs:  # files that a task has made may be in memory only
            if self.run.makes(name) and not os.path.exists(self.host.path(name)):
                self._write_file(r.WriteFile(name, self.run.read(name)))
        import subprocess  # few scripts start programs outside tasks

        pipe = subprocess.PIPE
        with self._lock:
            if self._closed:
                raise r.Refused("the run has ended")
            process = subprocess.Popen(
                list(request.words), stdin=pipe, stdout=pipe, stderr=pipe, cwd=self.host.base, env=dict(self.host.environment),
                process_group=0,
            )
            self._running.add(process)
        with process:
            stdout, stderr = process.communicate(request.stdin)
        self._running.discard(process)
        return r.Executed(stdout, stderr, process.returncode)

    def _call_python(self, request: r.CallPython) -> str:
        if request.worker:
            return self._call_resident(request)
        with self._lock:
            if self._python is None:
                self._python = self._python_processes()
        return str(self._python.call(request.code, request.expression, request.persistent))

    def _call_resident(self, request: r.CallPython) -> str:
        """In a process on this machine, which stays until the run ends."""
        from amfs.scripts.python_workers import PythonWorkers

        with self._lock:
            if self._resident is None:
                self._resident = PythonWorkers(self.slots, self.host.base, self.host.environment)
        return self._resident.call_resident(request.worker, request.code, request.expression, request.persistent)

    def _python_processes(self) -> PythonOnNodes | PythonWorkers:
        from amfs.scripts.python_workers import PythonOnNodes, PythonWorkers

        if self.session is not None:
            try:
                return PythonOnNodes(self.session, self.slots, self.host.base)
            except SystemSetupError as error:
                self.show(f"python() runs on this machine only: {error}\n", True)
        return PythonWorkers(self.slots, self.host.base, self.host.environment)

    def close(self) -> None:
        """Leave nothing behind: processes, threads, files that nobody has named."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for timer in list(self._timers):
            timer.cancel()
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for python in (self._python, self._resident):
            if python is not None:
                python.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        _remove(self.host.base, self._written)


def _remove(base: str, names: Iterable[str]) -> None:
    """Files, and the directories that they leave empty."""
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(base, name))
            parts = name.split("/")
            for count in range(len(parts) - 1, 0, -1):
                os.rmdir(os.path.join(base, *parts[:count]))


def _show(text: str, error: bool) -> None:
    stream = sys.stderr if error else sys.stdout
    stream.write(text)
    stream.flush()
