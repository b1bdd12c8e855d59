"""A run that goes on, for the threads beside its loop: calls in the loop's thread, the content of files, the nodes that hold them.

Owns the waiting between the threads. Must not know: who asks, how the loop is driven.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from amfs.host.shared_storage import exists
from amfs.runs.fetcher import PATIENCE_S, Fetcher
from amfs.vocabulary import messages as m
from amfs.vocabulary.paths import shared_path
from amfs.vocabulary.states import FINISHED

if TYPE_CHECKING:
    from amfs.runs.driver import RunDriver

T = TypeVar("T")


class LiveRun:
    """A run, for other threads than its loop's. ``check`` is called again and again while one waits: it raises when the loop has ended."""

    def __init__(self, driver: RunDriver, check: Callable[[], None]) -> None:
        self.driver = driver
        self._check = check

    def in_loop(self, call: Callable[[], T]) -> T:
        """``call()`` in the loop's thread: its result, or its exception."""
        box: list[Any] = []
        done = threading.Event()

        def work() -> None:
            try:
                box.append((call(), None))
            except BaseException as error:
                box.append((None, error))
            done.set()

        self._check()
        self.driver.context.loop.post(work)
        while not done.wait(0.2):
            self._check()
        value, error = box[0]
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def makes(self, name: str) -> bool:
        """Is the file an output of a task of this run, ended or not?"""
        return name in self.driver.plan.writers

    def content(self, name: str) -> bytes:
        """The content of a file that a task has made, wherever it is. Raises FileNotFoundError."""
        return self.in_loop(lambda: reader(self.driver, name))()

    def locate(self, name: str) -> list[int]:
        """The nodes that hold a file that a task has made."""
        return self.in_loop(lambda: holders(self.driver, name))()

    def nodes(self) -> list[str]:
        """The names of the nodes' hosts, by number of the node."""
        return self.in_loop(lambda: hosts(self.driver))


def reader(driver: RunDriver, name: str) -> Callable[[], bytes]:
    """How to read a file that a task has made; to be called in the loop's thread, the result in another one. Raises FileNotFoundError."""
    options, context = driver.options, driver.context
    key = driver.maker.scope + name
    path = shared_path(options.base, name, options.hashed_outputs)
    store = context.store
    if store is not None and os.path.exists(store.path_of(key)):
        fd = os.open(store.path_of(key), os.O_RDONLY | os.O_CLOEXEC)
        return lambda: _read_all(fd)
    writer = driver.plan.writers.get(name)
    if store is None and writer is not None and driver.submitter.state[writer] == FINISHED:
        return Fetcher(driver, key).read
    if exists(context.shared, path):
        return lambda: context.shared.read(path)
    raise FileNotFoundError(f"{name}: no task of this session has made it, and it is not in {options.base}")


def _read_all(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        return file.read()


class Locator:
    """Asks which nodes hold a file. Made in the loop's thread, waited for in another."""

    def __init__(self, driver: RunDriver, name: str) -> None:
        self._driver = driver
        self._key = driver.maker.scope + name
        self._done = threading.Event()
        self._holders: tuple[int, ...] = ()
        driver.readers.setdefault(self._key, []).append(self)
        driver.send(driver.submitter.table.node_of(self._key), m.Locate(driver.context.run, (self._key,)))

    def located(self, at: m.FileAt) -> None:
        self._driver.readers[self._key].remove(self)
        self._holders = at.holders
        self._done.set()

    def content(self, blob: m.Blob) -> None:
        """Somebody else's."""

    def failed(self, why: str) -> None:
        self._done.set()

    def wait(self) -> list[int]:
        """The nodes; none if the file is not there, or nobody answers."""
        self._done.wait(PATIENCE_S)
        return sorted(self._holders)


def holders(driver: RunDriver, name: str) -> Callable[[], list[int]]:
    """How to know which nodes hold a file; to be called in the loop's thread, the result in another one."""
    writer = driver.plan.writers.get(name)
    if writer is None or driver.submitter.state[writer] != FINISHED:
        return list
    if driver.context.store is not None:
        return lambda: [0]
    return Locator(driver, name).wait


def hosts(driver: RunDriver) -> list[str]:
    """The names of the nodes' hosts, by number of the node; "" where there is none any more. In the loop's thread."""
    view = driver.context.view
    if driver.context.store is not None or view is None:
        return [os.uname().nodename]
    names = {member.node: member.host for member in view.members}
    return [names.get(node, "") for node in range(max(names, default=-1) + 1)]
