"""Python functions on the nodes of a session, as ``concurrent.futures`` has them: ``cluster.executor()``.

::

    with amfs.Cluster(nodes=2, slots=2) as cluster, cluster.executor() as executor:
        squares = list(executor.map(lambda x: x * x, range(1000)))

Owns what people call. The workers and the calls on their way to them belong to ``functions.crew``.
"""

from __future__ import annotations

import itertools
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from amfs.engine.calls import CallLimits
from amfs.errors import SystemSetupError
from amfs.functions.crew import CallInterrupted, Crew, RemoteTraceback, WorkerLost
from amfs.net.call_stream import CALL, CHUNK
from amfs.runs.interrupts import watch

if TYPE_CHECKING:
    from amfs.client.files import Files
    from amfs.functions.pickles import Pickled

__all__ = ["CallInterrupted", "Executor", "RemoteTraceback", "WorkerLost"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Executor(futures.Executor):
    """Executes functions in Python processes on the nodes of a session, at most ``max_workers`` at a time, each in a slot.

    Workers are started when there are calls, and end when they had none for ``idle_s`` seconds, so that tasks can have the slots. They
    run in the current directory, import from where this process imports, and have OMP_NUM_THREADS=1 unless it is set. The output
    of functions appears here. Arguments and results travel by cloudpickle; above 64 KiB as files of the session.

    A function that raises: ``Future.result`` raises the same exception, caused by its traceback. A worker that dies takes the call with
    it that it executes (WorkerLost; with ``retries`` that call is executed again, up to so often), and nothing else. Calls that have not
    ended when the program ends are dropped: leave a with-block, or call ``shutdown``.
    """

    def __init__(
        self, files: Files, session: str, max_workers: int, *, idle_s: float = 10.0, retries: int = 0, owner: object = None
    ) -> None:
        """``owner``: kept as long as this object or a future of it is."""
        try:
            from amfs.functions.pickles import Pickles
        except ImportError:
            raise SystemSetupError("Python functions need cloudpickle: pip install 'amfs-hpc[functions]'") from None
        if max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        self.max_workers = max_workers
        self._files = files
        self._session = session
        self._limits = CallLimits(idle_s=idle_s, retries=retries)
        self._owner = owner
        self._pickles = Pickles()
        self._crew: Crew | None = None
        self._changing = threading.Lock()  # the crew
        self._shut = False
        self._process = os.getpid()
        self._forget: weakref.finalize[[Crew], Executor] | None = None
        watch(self)

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> futures.Future[_T]:
        """Have ``fn(*args, **kwargs)`` executed; returns a Future. Raises BrokenExecutor when workers cannot be started."""
        from amfs.functions.pickles import dumps_call

        return self._submit(self._pickles.of(fn), CALL, dumps_call(args, kwargs))

    def map(
        self, fn: Callable[..., _T], /, *iterables: Iterable[object], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[_T]:
        """As ``concurrent.futures.Executor.map``. ``chunksize`` calls travel as one, which saves most of the cost of short ones."""
        from amfs.functions.pickles import dumps_call, dumps_chunk

        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        end = None if timeout is None else time.monotonic() + timeout
        pickled = self._pickles.of(fn)
        rows = zip(*iterables)  # noqa: B905  (as the built-in map does)
        if chunksize == 1:
            made = [self._submit(pickled, CALL, dumps_call(row, {})) for row in rows]
        else:
            chunks = iter(lambda: list(itertools.islice(rows, chunksize)), [])
            made = [self._submit(pickled, CHUNK, dumps_chunk(chunk)) for chunk in chunks]
        return _results(made, end, chunksize > 1)

    def _submit(self, function: Pickled, kind: int, payload: bytes) -> futures.Future[Any]:
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._process != os.getpid():
            raise RuntimeError("this executor belongs to the process that this one was forked from")
        future: futures.Future[Any] = futures.Future()
        future._amfs_executor = self  # type: ignore[attr-defined]  # a waiter for the result keeps the executor that makes it
        (self._crew or self._start()).add(future, function, kind, payload)
        return future

    def _start(self) -> Crew:
        with self._changing:
            if self._crew is None:
                self._crew = Crew(self._files, self._session, self.max_workers, self._limits, secrets.token_hex(4))
                self._forget = weakref.finalize(self, Crew.drain, self._crew)
                self._forget.atexit = False
            return self._crew

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more calls. ``wait``: until all have ended and the workers are gone. ``cancel_futures``: drop what no worker has."""
        self._shut = True
        if self._crew is not None:
            if cancel_futures:
                self._crew.cancel_waiting()
            self._crew.drain()
            if wait:
                self._crew.join()

    def interrupt(self, why: str = "interrupted") -> None:
        """End calls that are executed or wait, and the workers with them: the futures raise CallInterrupted. This object can be used on."""
        with self._changing:
            crew, self._crew = self._crew, None
        if crew is not None:
            crew.end(why)

    def close(self) -> None:
        """End now."""
        self._shut = True
        self.interrupt("the cluster was closed")

    def release(self) -> None:
        """Let workers that have nothing to do end now, so that tasks can have their slots."""
        if self._crew is not None and self._process == os.getpid():
            self._crew.release()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.interrupt()
        self.shutdown(wait=True)
        return None

    def __repr__(self) -> str:
        state = ", shut down" if self._shut else ""
        return f"<amfs executor: up to {self.max_workers} workers, {self._crew.pending if self._crew is not None else 0} calls{state}>"


def _results(made: Sequence[futures.Future[Any]], end: float | None, chunks: bool) -> Iterator[Any]:
    """The results in order. A caller that stops looking at them has the rest cancelled."""
    waiting = list(reversed(made))
    try:
        while waiting:
            result = waiting[-1].result(None if end is None else end - time.monotonic())
            waiting.pop()
            if chunks:
                yield from result
            else:
                yield result
    finally:
        for future in waiting:
            future.cancel()
