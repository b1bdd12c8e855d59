"""From one reading of all runs and nodes to the next: rates, time left, runs that ended, what became of nodes. Pure.

Costs as much as there are runs, stages and nodes. Owns the memory that this needs, which is bounded. Must not know: clocks, sockets,
where readings come from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from amfs.vocabulary.live import Frame, Node, Run, Session, Transfer

WINDOW_S = 5.0  # rates are means over so long
ENDED_S = 60.0  # for so long a run that has ended is shown
DECISIONS = 50  # sentences of a session that are kept
TRANSFERS = 2000  # pairs of nodes that are told, those with most bytes


class Reading(NamedTuple):
    """One reading of runs and nodes. ``ended``: runs that said how they ended; ``busy``: ids of runs that are there and did not answer."""

    runs: Sequence[Run] = ()
    ended: Sequence[Run] = ()
    busy: Iterable[str] = ()
    nodes: Sequence[Node] = ()
    sessions: Sequence[Session] = ()
    notes: Sequence[str] = ()


class Rates:
    """The rates of counters that only grow. One that is smaller than before has begun anew."""

    def __init__(self, window: float = WINDOW_S) -> None:
        self._window = window
        self._marks: dict[Hashable, deque[tuple[float, int]]] = {}
        self._touched: set[Hashable] = set()

    def of(self, key: Hashable, count: int, now: float) -> float:
        """The mean over the window, in units per second; 0 at the first look."""
        self._touched.add(key)
        marks = self._marks.setdefault(key, deque())
        if marks and count < marks[-1][1]:
            marks.clear()
        marks.append((now, count))
        while len(marks) > 2 and now - marks[1][0] >= self._window:
            marks.popleft()
        elapsed = now - marks[0][0]
        return (count - marks[0][1]) / elapsed if elapsed > 0 else 0.0

    def forget(self) -> None:
        """Counters that were not asked for since the last call are gone."""
        self._marks = {key: marks for key, marks in self._marks.items() if key in self._touched}
        self._touched = set()

    def __len__(self) -> int:
        return len(self._marks)


class Aggregator:
    """Makes frames of readings."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._last: dict[str, Run] = {}  # runs that go on, by id, as last told
        self._ended: dict[str, tuple[float, Run]] = {}
        self._states: dict[str, dict[int, str]] = {}  # session -> node -> state as last told
        self._decisions: dict[str, deque[str]] = {}

    def take(self, reading: Reading, now: float, clock: str = "") -> Frame:
        """The frame at ``now`` (seconds since 1970, never smaller than before); ``clock``: the same for people."""
        runs = [self._run(run, now) for run in reading.runs]
        there = {run.id for run in runs}
        for run_id in reading.busy:
            if (known := self._last.get(run_id)) is not None and run_id not in there:
                runs.append(msgspec.structs.replace(known, silent=True))
                there.add(run_id)
        self._note_ends(reading.ended, there, now)
        self._last = {run.id: run for run in runs}
        nodes = [self._node(node, now) for node in reading.nodes]
        frame = Frame(
            at=now,
            sessions=[self._session(session, nodes, clock) for session in reading.sessions],
            runs=sorted(runs, key=lambda run: (run.began, run.id)) + [run for _, run in self._ended.values()],
            nodes=nodes,
            transfers=self._transfers(nodes, now),
            notes=list(reading.notes),
        )
        self._rates.forget()
        names = {session.name for session in reading.sessions}
        self._states = {name: states for name, states in self._states.items() if name in names}
        self._decisions = {name: said for name, said in self._decisions.items() if name in names}
        return frame

    def _run(self, run: Run, now: float) -> Run:
        ended = run.finished + run.failed
        rate = self._rates.of(("run", run.id), ended, now)
        left = run.total - ended
        return msgspec.structs.replace(
            run,
            rate=rate,
            moved_rate=self._rates.of(("moved", run.id), run.moved, now),
            eta_s=left / rate if run.total >= 0 and rate > 0 else -1.0,
            stages=[
                msgspec.structs.replace(stage, rate=self._rates.of(("stage", run.id, stage.label), stage.finished + stage.failed, now))
                for stage in run.stages
            ],
        )

    def _note_ends(self, told: Sequence[Run], there: set[str], now: float) -> None:
        for run in told:
            at, _ = self._ended.get(run.id, (now, run))
            self._ended[run.id] = (at, msgspec.structs.replace(run, running=0))
        for run_id, run in self._last.items():
            if run_id not in there and run_id not in self._ended:
                self._ended[run_id] = (now, msgspec.structs.replace(run, over="gone", running=0, rate=0.0, moved_rate=0.0, eta_s=-1.0))
        self._ended = {key: (at, run) for key, (at, run) in self._ended.items() if now - at < ENDED_S and key not in there}

    def _node(self, node: Node, now: float) -> Node:
        key = (node.place, node.node)
        return msgspec.structs.replace(
            node, rate=self._rates.of(("node", key), node.ended, now), fetched_rate=self._rates.of(("fetched", key), node.fetched, now)
        )

    def _transfers(self, nodes: Sequence[Node], now: float) -> list[Transfer]:
        pairs = [
            Transfer(node.place, source, node.node, total, self._rates.of(("pair", node.place, source, node.node), total, now))
            for node in nodes
            for source, total in node.fetched_from.items()
        ]
        return sorted(pairs, key=lambda pair: -pair.total)[:TRANSFERS]

    def _session(self, session: Session, nodes: Sequence[Node], clock: str) -> Session:
        """With what became of its nodes since the last reading, behind what it said itself."""
        states = {node.node: node.state for node in nodes if node.place == session.name}
        said = self._decisions.setdefault(session.name, deque(maxlen=DECISIONS))
        before = self._states.get(session.name)
        if before is not None and not session.error:
            for number in sorted(states.keys() | before.keys()):
                was, state = before.get(number), states.get(number, "gone")
                if state != was:
                    said.append(f"{clock} node {number} {'joined' if was is None else f'was {was}, is {state}'}")
        if not session.error:
            self._states[session.name] = {number: state for number, state in states.items() if state != "gone"}
        return msgspec.structs.replace(session, decisions=[*session.decisions, *said][-DECISIONS:])
