"""One run of ``benchmarks elastic`` on real nodes: a session of processes on this machine, brought to its numbers of nodes by ``amfs
scale``.

Owns the session from its beginning to its end, and the clock beside it: each second it asks the nodes what a policy asks them, and adds up
how long nodes were there and how much of their memory was not used. Tasks are those of ``amfs run --synthetic``: they sleep, but their
files are real.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from amfs.bench.dispatch import work_parent
from amfs.bench.process import Failed
from amfs.errors import AmfsError
from amfs.net import records
from amfs.provision import autoscale, resizing
from benchmarks.elastic_workloads import MEMORY, SLOTS, Shape, text_of
from benchmarks.mounts import Session

LOOK_S = 1.0
HANG_S = 1800.0
BEGIN_S = 60.0
_CHANGE = re.compile(r"auto: \d+ to \d+ nodes?: ")


class Watch(threading.Thread):
    """Looks at a session until it is ``end``ed. ``node_s``: seconds of nodes, those that drain too; ``unused``: byte-seconds of their
    memory without files; ``half_s``: in which half of the ``cluster`` was free; ``spilled``: the most bytes at a time."""

    def __init__(self, session: Session, cluster: int) -> None:
        super().__init__(daemon=True)
        self.session, self.cluster = session, cluster
        self.node_s = self.unused = self.half_s = 0.0
        self.spilled = self.most = self.missed = 0
        self._over = threading.Event()

    def run(self) -> None:
        record = records.load(Path(self.session.file))
        before = time.monotonic()
        there = used = 0
        while True:
            try:
                nodes = resizing.look(record)
                facts = autoscale.facts_of(nodes)
            except AmfsError:
                self.missed += 1  # the last known state holds on
            else:
                there = sum(member.slots > 0 for member in nodes.view.members)
                used = facts.memory + facts.spilled
                self.most, self.spilled = max(self.most, there), max(self.spilled, facts.spilled)
            now = time.monotonic()
            self.node_s += there * (now - before)
            self.unused += max(0, there * MEMORY - used) * (now - before)
            self.half_s += (now - before) * (2 * there <= self.cluster)
            before = now
            if self._over.wait(LOOK_S):
                return

    def end(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def _here(session: Session) -> Iterator[None]:
    """Records of sessions are looked for below this process's AMFS_RUN_DIR."""
    before = os.environ.get("AMFS_RUN_DIR")
    os.environ["AMFS_RUN_DIR"] = session.env["AMFS_RUN_DIR"]
    try:
        yield
    finally:
        if before is None:
            del os.environ["AMFS_RUN_DIR"]
        else:
            os.environ["AMFS_RUN_DIR"] = before


class Measured:
    """The result of one run. ``said``: by the policy, with its reasons."""

    def __init__(self, seconds: float, watch: Watch, said: list[str]) -> None:
        self.seconds, self.said = seconds, said
        self.changes = sum(_CHANGE.search(line) is not None for line in said)
        self.node_s, self.unused, self.spilled, self.most = watch.node_s, watch.unused, watch.spilled, watch.most
        self.half_free = watch.half_s / seconds


def run(shape: Shape, time_scale: float, first: int, most: int, policy: str, bounds: tuple[int, int]) -> Measured:
    """On ``first`` nodes, and then as the file ``policy`` says, between ``bounds``; "": as many from begin to end. Raises Failed."""
    options = ("--store-limit", str(MEMORY), "--slots", str(SLOTS))
    with (
        tempfile.TemporaryDirectory(prefix="amfs-bench-", dir=work_parent()) as place,
        Session(first, SLOTS, ("--expect", str(most), *options[:2])) as session,
        _here(session),
    ):
        list_ = Path(place) / "list.jsonl"
        list_.write_bytes(text_of(shape))
        record = records.load(Path(session.file))
        watch = Watch(session, most)
        if policy:
            session.amfs("scale", "auto", "--policy", policy, "--nodes", f"{bounds[0]}..{bounds[1]}", "--session", session.file, *options)
            give_up = time.monotonic() + BEGIN_S
            while (auto := autoscale.load(record)) is None or not auto.begun:
                if time.monotonic() > give_up:
                    raise Failed("the process that applies the policy does not begin")
                time.sleep(0.05)
        watch.start()
        begin = time.monotonic()
        try:
            session.amfs(
                "run", "--synthetic", "--time-scale", f"{time_scale:.6g}", "--session", session.file, "--quiet", "-C", f"{place}/out",
                str(list_), cwd=place, hang_seconds=HANG_S,
            )  # fmt: skip
            seconds = time.monotonic() - begin
        finally:
            watch.end()
        auto = autoscale.load(record)
        said = auto.said if auto is not None else []
        if auto is not None:
            autoscale.end(record, "the measurement is over")
        return Measured(seconds, watch, said)
