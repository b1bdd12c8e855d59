"""Names in the node's log what takes too long: requests of mounts, works, threads of C, a turn of the poll loop. A thread of its own
looks once a second. Each source says when its work began, and nothing else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from amfs._native import watched

log = logging.getLogger("amfs")

LOOK_S = 1.0
LONG_S = 10.0  # after which something is named; then again each time that it has taken twice as long

Entry = tuple[str, float]  # what, and for how many seconds


class Watchdog:
    def __init__(self, sources: Iterable[Callable[[float], list[Entry]]]) -> None:
        """``sources``: each gives what takes longer than so many seconds by now."""
        self._sources = tuple(sources)
        self._said: dict[str, float] = {}
        self._failed: set[Callable[[float], list[Entry]]] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="amfs-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            for line in self.look(self.ask()):
                log.warning("%s", line)

    def ask(self) -> list[Entry]:
        """All sources. One that fails is named the first time, and asked again the next."""
        entries: list[Entry] = []
        for source in self._sources:
            try:
                entries += source(LONG_S)
            except Exception as error:
                if source not in self._failed:
                    log.warning("the watchdog cannot ask one of its sources: %s", error)
                self._failed.add(source)
        return entries

    def look(self, entries: list[Entry]) -> list[str]:
        """Lines to log of these."""
        slow = dict(sorted(entries, key=lambda entry: entry[1]))
        self._said = {what: said for what, said in self._said.items() if what in slow and slow[what] >= said}
        lines = []
        for what, seconds in slow.items():
            if seconds >= 2 * self._said.get(what, 0.0):
                self._said[what] = seconds
                lines.append(f"{what} has taken {seconds:.0f} s and goes on")
        return lines


def since(began: float) -> float:
    return time.monotonic() - began


def threads_overdue(longer_s: float) -> list[Entry]:
    """The work of threads of C."""
    return [(f"{what} {number:#x}", ms / 1000) for what, number, ms in watched(int(longer_s * 1000))]
