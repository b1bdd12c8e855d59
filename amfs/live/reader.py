"""Reads runs and sessions, for a process that shows them: all runs of this user on this host, all sessions that they can reach.

Owns the connections to nodes and the questions to the sockets of runs (``runs.watched``). Decides nothing; ``aggregate`` makes frames.
Use it from one thread at a time.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from amfs.client import discovery
from amfs.client.control import Client
from amfs.errors import SessionError
from amfs.live.aggregate import ENDED_S, Aggregator, Reading
from amfs.net import records
from amfs.net.records import SessionRecord
from amfs.provision import autoscale, ledger
from amfs.runs import watched
from amfs.vocabulary import live
from amfs.vocabulary.messages import Member, Status, StatusAsk

ANSWER_S = 1.0  # for nodes, and for runs
VIEW_S = 3.0  # how often it is asked who is in a session: the answer is as large as its partition table
LOOK_S = 5.0  # how often it is looked whether a session that did not answer lives

_told = msgspec.json.Decoder(live.Told)


class RunSocket(NamedTuple):
    """The socket of a run on this host; ``id`` as its ``live.Run`` has it."""

    id: str
    path: Path


def run_sockets() -> list[RunSocket]:
    """Of all runs of this user here, dead or alive."""
    base = records.base_path()
    if not base.exists():
        return []
    mine = f"{watched.here()}-"
    paths = sorted((records.private_directory(base) / watched.FOLDER).glob(f"{mine}*.sock"))
    return [RunSocket(path.name.removeprefix(mine).removesuffix(".sock"), path) for path in paths]


def ask_run(path: Path, ask: live.Ask, timeout_s: float = ANSWER_S + watched.PATIENCE_S) -> live.Told:
    """The answer of a run. Raises ConnectionError if it is over, OSError if it does not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
        except FileNotFoundError:
            raise ConnectionRefusedError(f"{path} is gone") from None
        connection.sendall(msgspec.json.encode(ask) + b"\n")
        parts = []
        while part := connection.recv(1 << 20):
            parts.append(part)
    try:
        return _told.decode(b"".join(parts))
    except msgspec.MsgspecError:
        raise ConnectionResetError("the run has ended meanwhile") from None


class _Link:
    """The connection to one session."""

    def __init__(self, record: SessionRecord) -> None:
        self.record = record
        self.client: Client | None = None
        self.error = ""
        self.again_at = 0.0
        self.members: dict[int, Member] = {}
        self.epoch = 0  # of the view that tells of them
        self.view_at = 0.0  # when to ask for them again

    def answers(self, ask: StatusAsk, *, view: bool) -> dict[int, dict[str, Any]]:
        """The answers of its nodes; {} with ``error`` set if it cannot be asked."""
        now = time.monotonic()
        if self.client is None and now < self.again_at:
            return {}
        try:
            if self.client is None:
                if not discovery.is_live(self.record, probe_s=ANSWER_S):
                    raise SessionError("does not answer")
                self.client = Client(self.record)
            if view and now >= self.view_at:
                seen = self.client.view(ANSWER_S)
                self.members, self.epoch = {member.node: member for member in seen.members}, seen.epoch
                self.view_at = now + VIEW_S
            found = self.client.ask(dict.fromkeys(self.members, ask), Status, ANSWER_S)
            if len(found) < len(self.members):
                self.view_at = 0.0
        except SessionError as error:
            self.close()
            self.view_at = 0.0
            self.error, self.again_at = str(error), now + LOOK_S
            return {}
        self.error = ""
        return {node: answer.data for node, answer in found.items()}

    def close(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            client.close()


class Reader:
    """Of session ``name`` and the runs in it; None: of all. A context manager."""

    def __init__(self, name: str | None = None) -> None:
        self.name = discovery.find(name).name if name else None
        self._given = discovery.find(name) if name else None
        self._links: dict[tuple[str, float], _Link] = {}
        self._aggregator = Aggregator()
        self._looked = False
        self._failed: dict[str, tuple[list[live.Failed], int]] = {}  # of runs that have ended
        self._runs: dict[str, tuple[live.Run, Path]] = {}  # that go on

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def frame(self) -> live.Frame:
        """How all stands now; takes up to some seconds if nodes or runs do not answer."""
        self._looked = True
        notes: list[str] = []
        nodes: list[live.Node] = []
        runs, busy = self._read_runs(nodes)
        sessions = [self._session(link, nodes, notes) for link in self._connected()]
        reading = Reading(runs, self._ended(), busy, nodes, sessions, notes)
        return self._aggregator.take(reading, time.time(), time.strftime("%H:%M:%S"))

    def page(self, at_work: int = live.PAGE, failed: int = live.PAGE, start: int = 0) -> live.Page:
        """Tasks at work, those that run longest first; failures from the ``start``-th newest on."""
        if not self._looked:
            self.frame()
        page = live.Page()
        for _, path in self._runs.values():
            with contextlib.suppress(OSError):
                if at_work:
                    told = ask_run(path, live.Ask("tasks", count=at_work))
                    page.at_work += told.at_work
                    page.at_work_total += told.at_work_total
                if failed:
                    told = ask_run(path, live.Ask("failed", start, failed))
                    page.failed += told.failed
                    page.failed_total += told.failed_total
        if at_work:
            for link in self._links.values():
                for node, data in link.answers(StatusAsk(at_work), view=False).items():
                    page.at_work_total += data.get("at_work_total", 0)
                    page.at_work += [_at_work(link.record.name, node, *task) for task in data.get("at_work", ())]
        page.at_work = sorted(page.at_work, key=lambda task: task.since)[:at_work]
        self._name(page.at_work)
        for newest, total in self._failed.values() if failed else ():
            page.failed += newest
            page.failed_total += total
        page.failed = page.failed[:failed]
        return page

    # ── runs ───────────────────────────────────────────────────────────────────────────────────────

    def _read_runs(self, nodes: list[live.Node]) -> tuple[list[live.Run], list[str]]:
        runs, busy = [], []
        before, self._runs = self._runs, {}
        for name, path in run_sockets():
            try:
                told = ask_run(path, live.Ask("totals"))
            except ConnectionError:
                with contextlib.suppress(OSError):
                    path.unlink()  # of a process that was killed
                continue
            except OSError:
                told = live.Told(error="does not answer")
            if told.run is None:
                busy.append(name)
                if name in before:
                    self._runs[name] = before[name]
                continue
            if self.name is None or told.run.place == self.name:
                runs.append(told.run)
                nodes += told.nodes
                self._runs[name] = (told.run, path)
        return runs, busy

    def _ended(self) -> list[live.Run]:
        """Runs that have left word of their end since the last look."""
        ended = []
        self._failed = failed = {}
        for path in (records.base_path() / watched.FOLDER).glob(f"{watched.here()}-*{watched.END}"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                if time.time() - path.stat().st_mtime > ENDED_S:
                    path.unlink()
                    continue
                told = _told.decode(path.read_bytes())
                if told.run is not None and (self.name is None or told.run.place == self.name):
                    ended.append(told.run)
                    failed[told.run.id] = (told.failed, told.failed_total)
        return ended

    def _name(self, tasks: Sequence[live.AtWork]) -> None:
        """Ask the runs for the ids of their tasks."""
        by_number = {(run.place, run.number): (run.id, path) for run, path in self._runs.values()}
        wanted: dict[tuple[str, Path], list[live.AtWork]] = {}
        for task in tasks:
            if not task.run and (found := by_number.get((task.place, task.run_number))) is not None:
                wanted.setdefault(found, []).append(task)
        for (name, path), of_run in wanted.items():
            with contextlib.suppress(OSError):
                names = ask_run(path, live.Ask("names", numbers=tuple(task.number for task in of_run))).names
                for task, (task.task, task.label) in zip(of_run, names, strict=False):
                    task.run = name

    # ── sessions ───────────────────────────────────────────────────────────────────────────────────

    def _connected(self) -> list[_Link]:
        """Links to all sessions there are."""
        found = [self._given] if self._given is not None else records.list_all()
        there = {(record.name, record.created): record for record in found if record is not None}
        for key in self._links.keys() - there.keys():
            self._links.pop(key).close()
        for key, record in there.items():
            if key not in self._links:
                self._links[key] = _Link(record)
        return list(self._links.values())

    def _session(self, link: _Link, nodes: list[live.Node], notes: list[str]) -> live.Session:
        record = link.record
        answers = link.answers(StatusAsk(), view=True)
        told = live.Session(record.name, record.created, error=link.error)
        if link.error:
            notes.append(f"session {record.name}: {link.error}")
            return told
        told.epoch = link.epoch
        for number, member in sorted(link.members.items()):
            data = answers.get(number)
            node = live.Node(record.name, number, "silent", member.host.partition("/")[0], member.slots)
            if data is not None:
                node = msgspec.convert({**data, "place": record.name, "host": node.host, "waiting": data.get("parked", 0)}, live.Node)
                node.state = "draining" if member.draining else "up"
                told.manager = data.get("manager", -1)
            nodes.append(node)
        if (book := ledger.load(record)) is not None:
            told.decisions = list(book.said)
            told.paused = book.halted()
            told.jobs = [(job.job, job.state.name.lower(), job.why) for job in book.jobs.values() if job.state.name != "JOINED"]
        if (auto := autoscale.load(record)) is not None:
            told.policy = auto.state()
            told.decisions = sorted([*told.decisions, *auto.said], key=lambda line: line[:8])  # by the clock
        return told


def _at_work(place: str, node: int, run: int, number: int, start_us: int, slot: int, pid: int, memory: int) -> live.AtWork:
    return live.AtWork(place, node, slot, pid, start_us * 1e-6, memory, number, run)
