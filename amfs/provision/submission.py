"""A session whose nodes are jobs of a batch system: a node without slots here founds it, and each job joins it.

Owns the order of the steps, and the cleaning up when one of them fails. Must not know: the commands of any batch system (``systems``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Sequence

import msgspec

from amfs.engine.jobs import OPEN, Submitted
from amfs.errors import SessionError, UsageError
from amfs.host.signals import as_exits, postponed
from amfs.net import records
from amfs.net.records import NO_SLOTS, Ready, SessionRecord
from amfs.provision import autoscale, keeper, ledger
from amfs.provision.allocation import as_words
from amfs.provision.keeper import Keeper
from amfs.provision.ledger import Ledger
from amfs.provision.local import LocalProcesses
from amfs.provision.provisioner import NodeOptions
from amfs.provision.systems import System
from amfs.vocabulary.job_states import JobState

_TURN_S = 0.3


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs to be asked for."""

    least: int = 1  # nodes that are waited for
    most: int = 1  # jobs
    time_s: int | None = None  # of each
    more: tuple[str, ...] = ()  # for the command that submits
    wait_s: float | None = None  # for ``least`` nodes; None: as long as it takes
    hosts: str = ""  # a file of hosts, where the nodes are no jobs
    at: str = ""  # the address of a cluster that is there, for nodes within it


def parse_nodes(text: str, option: str = "--nodes") -> tuple[int, int]:
    """"4", or "1..16". Raises UsageError."""
    found = re.fullmatch(r"([1-9]\d{0,4})(?:\.\.([1-9]\d{0,4}))?", text)
    if found is None or int(found[1]) > int(found[2] or found[1]):
        raise UsageError(f"{option} {text}: write a number, or from a number to a greater one, such as 1..16")
    return int(found[1]), int(found[2] or found[1])


class Submission:
    """``tell`` gets each line for people."""

    def __init__(self, system: System, wanted: Wanted, tell: Callable[[str], None] = lambda text: None) -> None:
        self.system, self.wanted, self.tell, self.speaks = system, wanted, tell, True

    def dry_run(self, name: str | None, options: NodeOptions) -> str:
        """The script and the command; nothing is done."""
        book = Ledger(records.check_name(name or "NAME"), 0.0, self.system)
        script = book.script(1, self._words(options), self.wanted.time_s)
        command = shlex.join(book.command(1, self.wanted.time_s, self.wanted.more))
        return f"# {book.file(1, 'sh')}\n{script}\n# {self.wanted.most} times, numbered\n{command}"

    def start(self, name: str | None, options: NodeOptions) -> SessionRecord:
        """Raises SessionError when the system refuses a job, or fewer than ``least`` of them can become nodes; then nothing is left."""
        if name is not None and (records.shared_dir(name) / "jobs.json").exists():
            raise SessionError(f"a session named {name} has jobs; end it with 'amfs down {name}' or choose another --name")
        if missing := self.system.missing():
            where = f"type this on a host that has the commands of {self.system.name}, such as a login host"
            raise SessionError(f"cannot run {', '.join(missing)}: no such command on this host; {where}")
        shared = records.shared_dir(name or "any").parent
        try:
            shared.mkdir(mode=0o700, parents=True, exist_ok=True)
            writable = os.access(shared, os.W_OK | os.X_OK)
        except OSError:
            writable = False
        if not writable:
            raise SessionError(f"cannot write to {shared}, where jobs find their session; make it, or set HOME to one that all hosts share")
        tcp = options.tcp or "0.0.0.0"
        founder = msgspec.structs.replace(options, slots=NO_SLOTS, tcp=tcp, expected=max(options.expected, self.wanted.most + 1))
        with as_exits():
            return self._start(LocalProcesses(1).start(name, founder), options)

    def _start(self, session: SessionRecord, options: NodeOptions) -> SessionRecord:
        place = records.shared_dir(session.name)
        book = Ledger(session.name, session.created, self.system)
        try:
            shutil.rmtree(place, ignore_errors=True)  # of an older session of this name, which had no jobs any more
            records.private_directory(place)
            records.save(session, place)
            book.words, book.time_s, book.more = list(self._words(options)), self.wanted.time_s, list(self.wanted.more)
            watch = Keeper(session, book, self.tell)
            for number in range(1, self.wanted.most + 1):
                job = book.submit_one(number)
                watch.jobs.handle(Submitted(number, job), time.time())
                book.save()
            self.tell(f"{self.wanted.most} job{'s' if self.wanted.most > 1 else ''} submitted to {self.system.name}")
            self._await_nodes(watch)
            book.wish.nodes = self.wanted.least  # from now on
            keeper.start(watch.session, book)
        except BaseException as error:
            with postponed():  # a second Ctrl-C would leave jobs in the queue
                if not isinstance(error, Exception):
                    self._tell_if_heard("cancels the jobs and ends the session; another Ctrl-C does not stop that")
                for remark in end(session, book):
                    self._tell_if_heard(remark)
            raise
        return watch.session

    def add(self, session: SessionRecord, options: NodeOptions) -> Ready:
        raise UsageError("'amfs node --join' in a job adds a node")

    def end(self, session: SessionRecord, timeout_s: float) -> list[str]:
        return end(session, ledger.load(session), timeout_s)

    def _words(self, options: NodeOptions) -> Sequence[str]:
        return as_words(msgspec.structs.replace(options, tcp=options.tcp or "0.0.0.0"))

    def _tell_if_heard(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the reader of our output has gone, as "tee" does at a Ctrl-C
            self.tell(text)

    def _await_nodes(self, watch: Keeper) -> None:
        end = None if self.wanted.wait_s is None else time.monotonic() + self.wanted.wait_s
        while (there := len(watch.jobs.in_state(JobState.JOINED))) < self.wanted.least:
            if self.wanted.wait_s == 0:
                return
            if end is not None and time.monotonic() > end:
                so_far = f"{there} of {self.wanted.least} nodes have joined after {self.wanted.wait_s:.0f} s"
                fewer = f" or take fewer (--nodes {there}..{self.wanted.most})" if there else ""
                raise SessionError(f"{so_far}; the jobs are cancelled; wait longer (--wait){fewer}")
            if there + len(watch.jobs.in_state(*OPEN)) < self.wanted.least:
                why = "; ".join(dict.fromkeys(job.why for job in watch.jobs.in_state(JobState.GIVEN_UP, JobState.ENDED) if job.why))
                few = "no node" if self.wanted.least == 1 else f"fewer than {self.wanted.least} nodes"
                raise SessionError(f"{self.system.name} gives {few}: {why}")
            watch.turn()
            time.sleep(_TURN_S)


def end(session: SessionRecord, book: Ledger | None, timeout_s: float = 10.0) -> list[str]:
    """End a session, and its jobs if ``book`` has any; failures, as lines for the person. On any host."""
    autoscale.end(session, "the session is taken down")  # or it would start nodes meanwhile
    if book is not None:
        book.stop_keeper()
        book = ledger.load(session) or book  # with what it has submitted meanwhile
    remarks = LocalProcesses().end(session, timeout_s)
    return remarks + (book.end_jobs() if book is not None else [])
