"""Threads that copy between this node and storage at URLs. I/O.

Owns the threads, and the storages of each scope (a run, or a move of files) while it lasts. Must not know: who wants what copied.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from amfs.errors import UsageError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from amfs.remote.opening import Place, Storages
    from amfs.remote.transfers import Transfers

THREADS = 16

T = TypeVar("T")


class _Storages:
    """Those of one scope. Each is opened once, and has as many threads as its library allows."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._lock = threading.Lock()
        self._opened: dict[int, tuple[Transfers, ThreadPoolExecutor]] = {}
        self._known: dict[str, tuple[Place, Transfers, ThreadPoolExecutor]] = {}
        self._closed = False

    def known(self, url: str) -> tuple[Place, Transfers, ThreadPoolExecutor] | None:
        """An earlier answer of ``at``. Never waits."""
        return self._known.get(url)

    def at(self, url: str) -> tuple[Place, Transfers, ThreadPoolExecutor]:
        """Raises AmfsError. May take as long as a login."""
        from concurrent.futures import ThreadPoolExecutor

        from amfs.remote.transfers import Transfers

        with self._lock:
            if self._closed:
                raise UsageError(f"{url}: whoever wanted it has ended")
            place = self._storages.place(url)
            opened = self._opened.get(id(place.remote))
            if opened is None:
                together = min(THREADS, place.remote.at_once)
                opened = self._opened[id(place.remote)] = Transfers(together), ThreadPoolExecutor(together, "amfs-urls")
            self._known[url] = found = place, *opened
            return found

    def close(self, wait: bool) -> None:
        """Leave what has not begun, and try nothing again."""
        with self._lock:
            self._closed = True
            for transfers, pool in self._opened.values():
                transfers.give_up()
                pool.shutdown(wait=False, cancel_futures=True)
        if wait:
            self._end()
        elif self._opened:
            threading.Thread(target=self._end, name="amfs-urls-end", daemon=True).start()

    def _end(self) -> None:
        """Works under way end first."""
        for _, pool in self._opened.values():
            pool.shutdown(wait=True)
        self._storages.close()


class UrlThreads:
    """Nothing is started before a scope is opened."""

    def __init__(self) -> None:
        self._scopes: dict[str, _Storages] = {}
        self._opener: ThreadPoolExecutor | None = None

    def open(self, scope: str, packed: bytes) -> None:
        """From now on URLs are reached by these settings, for that scope."""
        from concurrent.futures import ThreadPoolExecutor  # few runs meet a URL

        from amfs.remote import settings
        from amfs.remote.opening import Storages

        if self._opener is None:
            self._opener = ThreadPoolExecutor(1, "amfs-urls-opener")
        self._scopes[scope] = _Storages(Storages(settings.unpack(packed)))

    def close(self, scope: str) -> None:
        if (storages := self._scopes.pop(scope, None)) is not None:
            storages.close(wait=False)

    def begin(self, scope: str, url: str, act: Callable[[Place], T], ended: Callable[[T | BaseException], None]) -> None:
        """Have a thread do it, patiently. ``ended`` is called once, in any thread."""
        storages = self._scopes.get(scope)
        if storages is None or self._opener is None:
            ended(UsageError(f"{url}: this node was not told how to reach it"))
            return

        def copied(future: Future[T]) -> None:
            if future.cancelled():
                ended(UsageError(f"{url}: whoever wanted it has ended"))
            else:
                ended(future.exception() or future.result())

        def begin(place: Place, transfers: Transfers, pool: ThreadPoolExecutor) -> None:
            pool.submit(transfers.patiently, lambda: act(place)).add_done_callback(copied)

        if (known := storages.known(url)) is not None:  # no other thread need be woken
            begin(*known)
            return

        def open_and_begin() -> None:
            begin(*storages.at(url))

        def opened(future: Future[None]) -> None:
            if future.cancelled() or future.exception() is not None:  # its scope has ended meanwhile, or a library's error
                ended(UsageError(f"{url}: the node ends") if future.cancelled() else future.exception() or AssertionError())

        self._opener.submit(open_and_begin).add_done_callback(opened)

    def stop(self) -> None:
        """Wait for what is under way, and leave the rest. Repeatable."""
        if self._opener is not None:
            self._opener.shutdown(wait=True, cancel_futures=True)
            self._opener = None
            for storages in self._scopes.values():
                storages.close(wait=True)
