"""The jobs of a session as they are written down, in the session's directory that all hosts share: for ``amfs status`` and ``amfs down`` on
any of them. Owns that directory and the calls of the batch system. Must not know: the decisions about a job (``engine.jobs``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from amfs.engine.jobs import OPEN, Job, Order, Row, TakenDown, Wish
from amfs.errors import SessionError
from amfs.host import processes
from amfs.net import records
from amfs.net.records import SessionRecord
from amfs.provision import daemon
from amfs.provision.systems import System
from amfs.vocabulary.job_states import JobEvent, JobState

_CALL_S = 60.0  # for a command of the batch system
_END_S = 5.0  # for jobs whose nodes were told to end, before they are cancelled
_CANCEL_S = 60.0  # for the queue to be empty of jobs that were cancelled
_HEARD_S = 20.0  # for the keeper to hear of an order
_TAKEN_DOWN_S = 5.0  # or that the session is taken down
_STOP_S = _CALL_S + 5.0  # for it to end, if it is just submitting a job
_DOWN = "-down"  # ends the name of such an order
_SAID = 20  # lines that are kept


class Ledger(msgspec.Struct):
    """``jobs.json``. ``keeper``: host, process and start time of the process that watches the jobs; () before and after it."""

    session: str
    created: float  # of the session, so that another one of this name is told from it
    system: System
    jobs: dict[int, Job] = {}
    said: list[str] = []
    keeper: tuple[str, int, int] | None = None
    words: list[str] = []  # words of each job for its node; the next fields are for submitting one more, too
    time_s: int | None = None
    more: list[str] = []
    wish: Wish = msgspec.field(default_factory=Wish)

    @property
    def place(self) -> Path:
        return records.shared_dir(self.session)

    def say(self, text: str) -> None:
        self.said = [*self.said, f"{time.strftime('%H:%M:%S')} {text}"][-_SAID:]

    def save(self) -> None:
        path = self.place / "jobs.json"
        temporary = self.place / f".jobs-{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):  # the session was taken down
            temporary.write_bytes(msgspec.json.encode(self))
            os.replace(temporary, path)

    def open_jobs(self) -> int:
        """How many may still become nodes."""
        return sum(job.state in OPEN for job in self.jobs.values())

    def paused(self) -> str:
        """Why nothing is submitted now, and what a person can do; "": there is no pause."""
        if time.time() >= self.wish.until:
            return ""
        until, nodes = time.strftime("%H:%M:%S", time.localtime(self.wish.until)), max(1, self.wish.nodes)
        again = f"'amfs scale {nodes} --session {self.session}' tries again at once"
        return f"no job is submitted before {until}: {self.wish.why}; {again}"

    def unkept(self) -> str:
        """That the process that keeps the jobs has ended, as far as can be seen from this host, in words; "": it lives."""
        if self.keeper is None or self.keeper[0] != processes.host_id() or processes.is_running(*self.keeper[1:]):
            return ""
        again = f"'amfs scale {max(1, self.wish.nodes)} --session {self.session}' starts another one"
        return f"the process that keeps the jobs has ended: nothing is submitted, and jobs that end are not replaced; {again}"

    def halted(self) -> str:
        """Why no job is submitted now, and how to go on; "": one is when one is needed."""
        return "; ".join(filter(None, (self.unkept(), self.paused())))

    def order(self, order: Order, patience_s: float = _HEARD_S) -> None:
        """Let the keeper know; returns when it has heard. Raises SessionError."""
        if ended := self.unkept():
            raise SessionError(ended)
        is_last = isinstance(order, TakenDown)
        path = self.place / f"order-{time.time_ns()}-{os.getpid()}{_DOWN if is_last else ''}"
        fresh = path.with_name(f".{path.name}")
        try:
            fresh.write_bytes(msgspec.json.encode(order))
            os.replace(fresh, path)
        except OSError as error:
            raise SessionError(f"{path}: {error.strerror}") from None
        end = time.monotonic() + patience_s
        while path.exists():
            if time.monotonic() > end:
                if not is_last:
                    path.unlink(missing_ok=True)
                where = self.keeper[0].partition("/")[0] if self.keeper is not None else "the host of 'amfs up'"
                raise SessionError(f"the process that keeps the jobs of {self.session}, on {where}, does not answer: nothing was submitted")
            time.sleep(0.1)

    def take_orders(self) -> Iterator[Order]:
        """Of the keeper: its orders, in turn."""
        for path in sorted(self.place.glob("order-*")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                text = path.read_bytes()
                path.unlink()
                yield msgspec.json.decode(text, type=Order)

    def is_taken_down(self) -> bool:
        """Of the keeper, between two looks at its orders."""
        return not self.place.exists() or any(self.place.glob(f"order-*{_DOWN}"))

    def submit_one(self, number: int) -> str:
        """One more like those before."""
        return self.submit(number, self.words, self.time_s, self.more)

    def file(self, number: int, kind: str) -> Path:
        """Of one job: its script (sh), its log, or the number of its node."""
        return self.place / f"node-{number}.{kind}"

    # ── the batch system ──

    def script(self, number: int, words: Sequence[str], time_s: int | None = None) -> str:
        """The script of a job, for so long at most. It has no keys in it; those are in the session file, which only its owner can read."""
        path = daemon.node_environment().get("PYTHONPATH", "")
        node = [sys.executable, "-P", "-m", "amfs", "node", "--join", str(self.place / "session.json")]
        node += ["--tell", str(self.file(number, "node")), *words]
        first = f"export PYTHONPATH={shlex.quote(path)}\n" if path else ""
        if time_s:
            first += f"export AMFS_JOB_END=$(($(date +%s) + {time_s}))\n"
        return f"#!/bin/sh\n# Node {number} of session {self.session} of amfs.\n{first}exec {shlex.join(node)}\n"

    def command(self, number: int, time_s: int | None, more: Sequence[str]) -> list[str]:
        return self.system.submission(
            self.session, number, str(self.file(number, "sh")), str(self.file(number, "log")), time_s, more
        )  # fmt: skip

    def submit(self, number: int, words: Sequence[str], time_s: int | None, more: Sequence[str]) -> str:
        """The batch system's name of the new job. Raises SessionError with its words and the command."""
        script = self.file(number, "sh")
        script.write_text(self.script(number, words, time_s))
        script.chmod(0o700)
        command = self.command(number, time_s, more)
        said = _call(command)
        found = re.search(self.system.job_id, said)
        if found is None:
            raise SessionError(f"'{shlex.join(command)}' does not say which job it has submitted, but: {said.strip()}")
        return found.group(1)

    def ask(self) -> Mapping[str, Row]:
        """The jobs, as the queue lists them. Raises SessionError."""
        return self.system.rows(_call(self.system.asking(self.session))) if self.system.state else {}

    def cancel(self, jobs: Iterable[str]) -> str:
        """End jobs; the fault, or ""."""
        if not (chosen := list(jobs)):
            return ""
        try:
            _call(self.system.cancelling(self.session, chosen))
        except SessionError as error:
            return str(error)
        return ""

    def end_jobs(self) -> list[str]:
        """End all jobs and wait until the queue has none; failures, as lines for the person. Removes the directory then."""
        wrong = self.cancel(job.job for job in self.jobs.values() if job.state in OPEN)
        start, cancelled = time.monotonic(), set[str]()
        left = [job.job for job in self.jobs.values() if job.state is JobState.JOINED]
        while self.system.state:
            try:
                left = [job for job, row in self.ask().items() if row.event is not JobEvent.OVER and self._is_ours(job)]
                wrong = ""
            except SessionError as error:
                left = [job.job for job in self.jobs.values() if job.state in (*OPEN, JobState.JOINED)]
                wrong = str(error) if left else ""  # of no job there is nothing to be known
            waited = time.monotonic() - start
            if not (left or wrong) or waited > _CANCEL_S:
                break
            if waited > _END_S and (more := set(left) - cancelled):
                cancelled |= more
                self.cancel(sorted(more))
            time.sleep(0.2)
        if not self.system.state:
            wrong, left = self.cancel(left) or wrong, []
        if wrong or left:
            jobs = ", ".join(left) or "all"
            return [f"jobs that may still be in the queue of {self.system.name}: {jobs}" + (f"; {wrong}" if wrong else "")]
        shutil.rmtree(self.place, ignore_errors=True)
        return []

    def _is_ours(self, job: str) -> bool:
        """A question that does not name the session is answered with jobs of others, too."""
        return any("{session}" in word for word in self.system.state) or any(one.job == job for one in self.jobs.values())

    def stop_keeper(self) -> None:
        """Before the nodes end, or it would ask for others. A job that it just submits is written down, or it cancels it itself."""
        if self.keeper is None:
            return
        if self.keeper[0] == processes.host_id():
            daemon.stop([self.keeper[1:]], _STOP_S)
        else:
            with contextlib.suppress(SessionError):  # it may have ended
                self.order(TakenDown(), _TAKEN_DOWN_S)


def load(session: SessionRecord) -> Ledger | None:
    """The jobs of this session; None: its nodes are no jobs that amfs has submitted."""
    try:
        found = msgspec.json.decode((records.shared_dir(session.name) / "jobs.json").read_bytes(), type=Ledger)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.created == session.created else None


def _call(command: Sequence[str]) -> str:
    """The output of a command of the batch system. Raises SessionError with its words. A Ctrl-C does not reach the command: it would end it
    when jobs are cancelled."""
    shown = shlex.join(command)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_CALL_S, check=False, start_new_session=True
        )
    except OSError as error:
        raise SessionError(f"cannot run {command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise SessionError(f"'{shown}' does not answer within {_CALL_S:.0f} s") from None
    if done.returncode:
        words = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise SessionError(f"'{shown}' failed: {words}")
    return done.stdout
