"""The process that watches the jobs of a session, from the first until the session is over: asks who is a member, asks the queue why others
are not, carries out what ``engine.jobs`` decides, and writes it down. Must not know: how a session is founded; any batch system.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from amfs.client import discovery
from amfs.client.control import Client
from amfs.engine.jobs import OPEN, Effect, GiveUp, Jobs, Members, QueueSays, QueueSilent, Refused, Say, Submit, Submitted
from amfs.engine.views import overtakes
from amfs.errors import SessionError
from amfs.host import processes
from amfs.net import records
from amfs.net.records import NodeEntry, SessionRecord
from amfs.provision import autoscale, daemon, ledger
from amfs.provision.ledger import Ledger
from amfs.provision.local import START_S
from amfs.vocabulary.job_states import JobState
from amfs.vocabulary.messages import Member, View

_TURN_S = 0.5
_ASK_S = (1.0, 15.0)  # between two questions to the queue, at first and at last
_REASON_S = 10.0  # after the end of a node the queue may say why
_NEWEST_S = 30.0  # a node may answer with an older view for so long; afterwards those that have a newer one are gone
_OVER_S = 60.0  # without an answer of any node, and the founder gone
_OF_A_JOB = re.compile(r"job (\S+) ((?:waits for|is given up:) .*)")
_NAMED = 3  # jobs of which the same is said


def in_few_lines(texts: Sequence[str]) -> list[str]:
    """Of jobs of which the same is said one line: a session may have many."""
    same: dict[str, list[str]] = {}  # the sentence, and its jobs
    for text in texts:
        match = _OF_A_JOB.fullmatch(text)
        same.setdefault(match[2] if match else text, []).extend([match[1]] if match else [])
    lines = []
    for said, jobs in same.items():
        if len(jobs) < 2:
            lines.append(f"job {jobs[0]} {said}" if jobs else said)
            continue
        named = jobs if len(jobs) <= _NAMED + 1 else [*jobs[:_NAMED], f"{len(jobs) - _NAMED} more"]
        verb = said.replace("waits", "wait", 1) if said.startswith("waits") else said.replace("is", "are", 1)
        lines.append(f"jobs {', '.join(named[:-1])} and {named[-1]} {verb}")
    return lines


class Keeper:
    """``tell`` gets each line for people."""

    def __init__(self, session: SessionRecord, book: Ledger, tell: Callable[[str], None] = lambda text: None) -> None:
        self.session, self.book, self.tell = session, book, tell
        self.jobs = Jobs(2 * START_S, book.jobs, book.wish)
        self.book.jobs = self.jobs.jobs
        self.is_submitting = self.is_told_to_end = False
        self._asked, self._pause = 0.0, _ASK_S[0]
        self._answered = self._heard = time.monotonic()
        self._newest: View | None = None

    def turn(self) -> None:
        """Look once at the members and, when it is time, at the queue."""
        before = msgspec.json.encode(self.book)
        if (view := self._view()) is not None:
            self._publish(view)
            self._act(self.jobs.handle(self._members(view), time.time()))
            autoscale.tend(self.session)
        for order in self.book.take_orders():
            self._act(self.jobs.handle(order, time.time()))
        if self.book.system.state and time.monotonic() >= self._asked + self._pause and self._asks():
            try:
                self._act(self.jobs.handle(QueueSays(self.book.ask()), time.time()))
            except SessionError as error:
                self._act(self.jobs.handle(QueueSilent(str(error)), time.time()))
            self._asked, self._pause = time.monotonic(), min(self._pause * 1.2, _ASK_S[1])
        if msgspec.json.encode(self.book) != before:
            self.book.save()

    def is_over(self) -> bool:
        """No node has answered for long, and the one here that founded the session has ended."""
        here = discovery.held(self.session)
        return not here and time.monotonic() - self._answered > (_OVER_S if self.jobs.in_state(*OPEN, JobState.JOINED) else _TURN_S)

    def _asks(self) -> bool:
        recent = time.time() - _REASON_S
        if self.jobs.silent_since is not None:
            return True  # nothing is submitted until it answers
        return bool(self.jobs.in_state(*OPEN) or [job for job in self.jobs.in_state(JobState.ENDED) if not job.why and job.since > recent])

    def _view(self) -> View | None:
        """None: nobody answers, or with a view that is older than one that was just heard."""
        try:
            with Client(self.session) as client:
                view = client.view(2.0)
        except SessionError:
            return None
        self._answered = time.monotonic()
        if self._newest is not None and overtakes(self._newest, view) and self._answered - self._heard < _NEWEST_S:
            return None
        self._newest, self._heard = view, self._answered
        return view

    def _members(self, view: View) -> Members:
        def those(of: Callable[[Member], bool]) -> frozenset[int]:
            return frozenset(member.node for member in view.members if of(member))

        ends = {member.node: float(member.ends) for member in view.members}
        slots, draining = those(lambda member: member.slots > 0), those(lambda member: member.draining)
        return Members(those(lambda member: True), self._joining(), slots, draining, ends)

    def _joining(self) -> dict[int, int]:
        """Which node each job has said that it would be."""
        found = {}
        for job in self.jobs.in_state(*OPEN):
            with contextlib.suppress(OSError, ValueError):
                found[job.number] = int(self.book.file(job.number, "node").read_text())
        return found

    def _publish(self, view: View) -> None:
        """The session file for other hosts names all members: any of them answers when the founder is gone."""
        known = {entry.node: entry for entry in self.session.nodes}
        entries = []
        for member in view.members:
            there = tuple(endpoint for endpoint in member.endpoints if not endpoint.startswith("ipc://"))
            mine = known.get(member.node)
            entries.append(mine if mine is not None and mine.pid else NodeEntry(member.node, there, member.host, 0, 0))
        if {entry.node for entry in entries} != known.keys():
            self.session = msgspec.structs.replace(self.session, nodes=tuple(entries))
            with contextlib.suppress(FileNotFoundError):  # the session was taken down
                records.rewrite(self.session, self.book.place)

    def _act(self, effects: list[Effect]) -> None:
        texts = []
        for effect in effects:
            if isinstance(effect, Say | GiveUp):
                texts.append(effect.text if isinstance(effect, Say) else self._give_up(effect))
                continue
            self._say_all(texts)
            texts = []
            if isinstance(effect, Submit):
                self._submit(effect)
            else:
                self._say(self.book.paused())
        self._say_all(texts)

    def _say_all(self, texts: Sequence[str]) -> None:
        for text in in_few_lines(texts):
            self._say(text)

    def _say(self, text: str) -> None:
        self.book.say(text.split("\n")[0])
        self.tell(text)

    def _submit(self, effect: Submit) -> None:
        done = 0
        refused: list[Effect] = []
        try:
            for _ in range(effect.count):
                if not self._submit_one():
                    return
                done += 1
        except SessionError as error:
            refused = self.jobs.handle(Refused(" ".join(str(error).split())), time.time())
        if done:
            why = f": {effect.why}" if effect.why else ""
            self._say(f"{done} more job{'s' if done != 1 else ''} submitted to {self.book.system.name}{why}")
        self._act(refused)
        self._pause = _ASK_S[0]

    def _submit_one(self) -> bool:
        """False: the session is taken down, and there is no job. Raises SessionError if it is refused."""
        if self.book.is_taken_down():
            return False
        number = max(self.book.jobs, default=0) + 1
        self.is_submitting = True
        try:
            job = self.book.submit_one(number)
            self.jobs.handle(Submitted(number, job), time.time())
            self.book.save()
            if not self.book.is_taken_down():
                return True
            self.book.cancel([job])  # the command that takes it down may have looked at the queue before
            return False
        except OSError as error:
            if self.book.place.exists():
                raise SessionError(f"{self.book.place}: {error.strerror}") from None
            return False
        finally:
            self.is_submitting = False
            if self.is_told_to_end:
                os._exit(0)

    def end(self) -> None:
        """This process is told to end; a job that is just being submitted is written down first."""
        if not self.is_submitting:
            os._exit(0)
        self.is_told_to_end = True

    def _give_up(self, effect: GiveUp) -> str:
        wrong = self.book.cancel([effect.job])
        end = daemon.tail(str(self.book.file(effect.number, "log")))
        return f"job {effect.job} is given up: {effect.why}" + (f"; {wrong}" if wrong else "") + end


def start(session: SessionRecord, book: Ledger) -> None:
    """Let a process of its own go on with what this one has begun."""
    with open(book.place / "keeper.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "amfs.provision.keeper", session.name], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, cwd="/", env=daemon.node_environment(),
        )  # fmt: skip
    book.keeper = (processes.host_id(), process.pid, processes.start_time(process.pid))
    book.save()


def revive(session: SessionRecord) -> bool:
    """Start another one if the one on this host has ended before the session."""
    book = ledger.load(session)
    if book is None or not book.unkept():
        return False
    start(session, book)
    return True


def main(name: str) -> int:
    """Watch until the session is over, or is taken down."""
    place = records.shared_dir(name)
    session = records.load(place / "session.json")
    book = ledger.load(session)
    if book is None:
        return 1
    written = time.monotonic() + START_S
    while (book.keeper is None or book.keeper[1] != os.getpid()) and time.monotonic() < written:
        time.sleep(0.05)  # the process that started this one writes it down, unless it was killed
        book = ledger.load(session) or book
        if not place.exists():
            return 0
    if book.keeper is not None and book.keeper[1] != os.getpid() and not book.unkept():
        return 1  # another one was started at the same time
    keeper = Keeper(session, book, lambda text: print(f"{time.strftime('%F %T')} {text}", file=sys.stderr, flush=True))
    signal.signal(signal.SIGTERM, lambda *_: keeper.end())
    while place.exists() and not keeper.is_over():
        keeper.turn()
        time.sleep(_TURN_S)
    if place.exists():
        for remark in book.end_jobs():
            print(remark, file=sys.stderr)
    end = time.monotonic() + START_S
    while discovery.held(session) and time.monotonic() < end:
        time.sleep(0.05)
    with contextlib.suppress(SessionError):
        if session.path.exists() and discovery.state_of(records.load(session.path), probe_s=0) is discovery.State.DEAD:
            records.remove_directory(session.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
