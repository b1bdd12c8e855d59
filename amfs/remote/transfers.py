"""Many transfers at once, each tried again when the storage asks for patience, and an end when it is gone.

Owns how many are under way, and when to give up. Knows no storage: a job is a function that raises RemoteError.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from amfs.remote.place import TRANSIENT, Kind, RemoteError

TRIES = 6  # of one object
PAUSE_FIRST_S, PAUSE_LAST_S = 0.1, 3.0
GONE_S = 30.0  # for which a storage that was not reached is not tried for other objects

Job = TypeVar("Job")
Value = TypeVar("Value")


class GoneError(RemoteError):
    """The storage does not answer any more: nothing else was tried."""


class Window:
    """How many transfers may be under way: half as many after each refusal, one more after as many as there may be have gone well."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._may = most
        self._under_way = 0
        self._well = 0
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._under_way < self._may)
            self._under_way += 1

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._under_way -= 1
            self._changed.notify()

    def refused(self) -> None:
        with self._changed:
            self._may = max(1, self._may // 2)
            self._well = 0

    def went_well(self) -> None:
        with self._changed:
            self._well += 1
            if self._well >= self._may and self._may < self._most:
                self._may += 1
                self._well = 0
                self._changed.notify()


class Transfers:
    """Runs jobs of one storage. One object is not tried again when another has just found that the storage is gone."""

    def __init__(self, threads: int, sleep: Callable[[float], None] = time.sleep) -> None:
        self._threads = threads
        self._window = Window(threads)
        self._sleep = sleep
        self._given_up = False
        self._gone: tuple[RemoteError, float] | None = None  # and until when nobody asks again

    def patiently(self, act: Callable[[], Value]) -> Value:
        """Do it, again if the storage was busy or could not be reached. Raises RemoteError; GoneError if that is so for all."""
        pause = PAUSE_FIRST_S
        for left in reversed(range(TRIES)):
            if self._given_up:
                raise RemoteError(Kind.OTHER, "", "interrupted")
            if self._gone is not None and time.monotonic() < self._gone[1]:
                raise GoneError(self._gone[0].kind, str(self._gone[0].filename), self._gone[0].words)
            try:
                with self._window:
                    value = act()
            except RemoteError as error:
                if error.kind not in TRANSIENT or not left:
                    if error.kind is Kind.UNREACHABLE:
                        self._gone = error, time.monotonic() + GONE_S
                        raise GoneError(error.kind, str(error.filename), error.words) from None
                    raise
                self._window.refused()
            else:
                self._window.went_well()
                return value
            self._sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, PAUSE_LAST_S)
        raise AssertionError("not reached")

    def give_up(self) -> None:
        """Transfers under way end as they will, and are not tried again; no other begins."""
        self._given_up = True

    def run(self, jobs: Iterable[Job], act: Callable[[Job], Value]) -> Iterator[tuple[Job, Value | OSError]]:
        """Results as they come. At most twice as many jobs as threads are taken ahead, so that results do not heap up."""
        source = iter(jobs)
        with ThreadPoolExecutor(self._threads, "amfs-remote") as pool:
            waiting: dict[Future[Value], Job] = {}
            try:
                while True:
                    while len(waiting) < 2 * self._threads and (job := next(source, None)) is not None:
                        waiting[pool.submit(self.patiently, lambda job=job: act(job))] = job
                    if not waiting:
                        return
                    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in done:
                        job = waiting.pop(future)
                        error = future.exception()
                        if error is None:
                            yield job, future.result()
                        elif isinstance(error, OSError):
                            yield job, error
                        else:
                            raise error
            except BaseException:
                self.give_up()
                raise
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
