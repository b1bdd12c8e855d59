"""The words of a worker: effects at once, and news that are gathered into one message for each peer and kind. Pure.

Owns the news that wait for ``flush``. It does not know why something is said.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import msgspec

from amfs.engine.worker_records import Run
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Delete, DropSpilled, Effect, Log, Send, SetTimer
from amfs.vocabulary.partition import PartitionTable


class Outbox:
    """The outbox of one node's worker. ``out`` is the list of effects of the event that is being handled."""

    def __init__(self) -> None:
        self.out: list[Effect] = []
        self.now = 0.0
        self._touched: dict[int, None] = {}  # runs with something gathered
        self._locate: dict[int, list[str]] = {}
        self._fetch: dict[tuple[int, int], list[str]] = {}
        self._publish: dict[int, list[m.Published]] = {}
        self._release: dict[int, list[str]] = {}
        self._replica: dict[int, list[str]] = {}
        self._results: dict[tuple[int, int], list[m.Result]] = {}
        self._moved: dict[tuple[int, int, int], list[tuple[int, int]]] = {}  # (run, dispatcher, to whom they were given, -1: us)
        self._flushed: dict[int, list[tuple[str, int, str]]] = {}
        self._delete: list[str] = []
        self._drop: list[int] = []

    # ── at once ────────────────────────────────────────────────────────────────────────────────────

    def act(self, effect: Effect) -> None:
        self.out.append(effect)

    def send(self, to: int, message: m.Message) -> None:
        self.out.append(Send(to, message))

    def set_timer(self, key: object, delay_s: float) -> None:
        self.out.append(SetTimer(key, self.now + delay_s))

    def log(self, text: str, level: int = logging.INFO) -> None:
        self.out.append(Log(level, text))

    # ── gathered ───────────────────────────────────────────────────────────────────────────────────

    def touch(self, run: int) -> None:
        """Something is to be said of the run, if only how many of its tasks are parked."""
        self._touched[run] = None

    def locate(self, run: int, name: str) -> None:
        self._locate.setdefault(run, []).append(name)
        self._touched[run] = None

    def fetch(self, run: int, holder: int, name: str) -> None:
        self._fetch.setdefault((run, holder), []).append(name)
        self._touched[run] = None

    def publish(self, run: int, name: str, size: int, retention: int, listing: int = 0) -> None:
        self._publish.setdefault(run, []).append(m.Published(name, size, retention, listing))
        self._touched[run] = None

    def release(self, run: int, names: Iterable[str]) -> None:
        self._release.setdefault(run, []).extend(names)
        self._touched[run] = None

    def replica(self, run: int, name: str) -> None:
        self._replica.setdefault(run, []).append(name)
        self._touched[run] = None

    def report(self, run: int, origin: int, attempt: int, result: m.Result) -> None:
        if result.attempt != attempt:
            result = msgspec.structs.replace(result, attempt=attempt)
        results = self._results.get((run, origin))
        if results is None:
            self._results[run, origin] = [result]
            self._touched[run] = None
        else:
            results.append(result)

    def moved(self, run: int, spec: m.TaskSpec, to: int) -> None:
        """The task was given ``to`` another node, or to us (-1)."""
        self._moved.setdefault((run, spec.origin, to), []).append((spec.tid, spec.attempt))
        self._touched[run] = None

    def flushed(self, run: int, name: str, size: int, error: str) -> None:
        self._flushed.setdefault(run, []).append((name, size, error))
        self._touched[run] = None

    def delete(self, name: str) -> None:
        self._delete.append(name)

    def drop_copy(self, copy: int) -> None:
        """Of the spill directory."""
        self._drop.append(copy)

    def keep_copy(self, copy: int) -> None:
        """It was to be dropped, but is wanted."""
        self._drop.remove(copy)

    # ── out ────────────────────────────────────────────────────────────────────────────────────────

    def flush(self, table: PartitionTable, runs: Mapping[int, Run], parked_step: int) -> None:
        """Say all. ``parked_step``: a dispatcher hears of parked tasks when their number has changed by so many."""
        if self._touched:
            touched, self._touched = self._touched, {}
            for run in touched:
                self._flush_run(table, run, runs.get(run), parked_step)
        if self._delete:
            self.out.append(Delete(self._delete))
            self._delete = []
        if self._drop:
            self.out.append(DropSpilled(self._drop))
            self._drop = []

    def _flush_run(self, table: PartitionTable, run: int, known: Run | None, parked_step: int) -> None:
        group, send = table.group, self.send
        if publish := self._publish.pop(run, None):
            single = table.single
            if single is not None:
                send(single, m.Publish(run, tuple(publish)))
            else:
                by_shard: dict[int, list[m.Published]] = {}
                for file in publish:
                    by_shard.setdefault(table.node_of(file.name), []).append(file)
                for shard, files in by_shard.items():
                    send(shard, m.Publish(run, tuple(files)))
        if names := self._replica.pop(run, None):
            for shard, part in group(names).items():
                send(shard, m.Replica(run, tuple(part)))
        if names := self._locate.pop(run, None):
            for shard, part in group(names).items():
                send(shard, m.Locate(run, tuple(part)))
        if names := self._release.pop(run, None):
            for shard, part in group(names).items():
                send(shard, m.Release(run, tuple(part)))
        for key in [key for key in self._fetch if key[0] == run]:
            send(key[1], m.Fetch(run, tuple(self._fetch.pop(key))))
        for took in [key for key in self._moved if key[0] == run]:
            send(took[1], m.TaskMoved(run, tuple(self._moved.pop(took)), took[2]))
        if known is None:
            return
        if flushed := self._flushed.pop(run, None):
            send(known.submitter, m.Flushed(run, tuple(flushed)))
        for key in [key for key in self._results if key[0] == run]:
            origin = key[1]
            known.reported[origin] = known.parked.get(origin, 0)
            send(origin, m.Done(run, tuple(self._results.pop(key)), known.reported[origin]))
        for origin, parked in known.parked.items():
            if abs(parked - known.reported.get(origin, 0)) >= parked_step:
                known.reported[origin] = parked
                send(origin, m.Done(run, (), parked))

    def unsaid(self) -> list[object]:
        """News that were gathered and not said."""
        every = (self._locate, self._fetch, self._publish, self._release, self._replica, self._results, self._moved, self._flushed)
        return [gathered for gathered in every if gathered]

    def check_invariants(self) -> None:
        """Raise AssertionError if something would never be said."""
        keys = [key if isinstance(key, int) else key[0] for gathered in (self._locate, self._fetch, self._publish, self._release,
                self._replica, self._moved) for key in gathered]  # fmt: skip
        assert self._touched.keys() >= set(keys), "news of a run that nobody flushes"
