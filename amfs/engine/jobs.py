"""The jobs that a session has asked a batch system for: which wait and why, which have become nodes, which are given up.

The truth about a node is that it is a member. The queue is asked for the reasons. A job that the queue does not name, or a queue that does
not answer, concludes nothing. Pure. Must not know: any batch system; the process that submits and cancels.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from amfs.vocabulary.job_states import JobEvent, JobState
from amfs.vocabulary.states import JOB_NEXT, illegal

OPEN = (JobState.SUBMITTED, JobState.PENDING, JobState.RUNNING)
#: What the queue's word stands for.
WAITS, RUNS, OVER = JobEvent.WAITS, JobEvent.RUNS, JobEvent.OVER


class Job(msgspec.Struct):
    """One job. ``number``: ours. ``job``: as the batch system names it."""

    number: int
    job: str
    state: JobState = JobState.SUBMITTED
    why: str = ""  # it waits, or ended
    node: int = -1
    since: float = 0.0  # in this state


class Row(msgspec.Struct, frozen=True):
    """What the queue says of one job."""

    event: JobEvent  # WAITS, RUNS or OVER
    why: str = ""
    never: bool = False  # the reason will not pass by itself


# ── events ──


class Submitted(msgspec.Struct, frozen=True):
    number: int
    job: str


class QueueSays(msgspec.Struct, frozen=True):
    rows: Mapping[str, Row]


class QueueSilent(msgspec.Struct, frozen=True):
    words: str


class Members(msgspec.Struct, frozen=True):
    """The nodes of the view, and which job said that it would be which node."""

    nodes: frozenset[int]
    joining: Mapping[int, int]


class Target(msgspec.Struct, frozen=True):
    """So many nodes are to be there, or on their way. An order, which is carried out once: a job that ends later is not replaced."""

    nodes: int


# ── effects ──


class Submit(msgspec.Struct, frozen=True):
    """Ask the batch system for so many more jobs."""

    count: int


class Say(msgspec.Struct, frozen=True):
    text: str


class GiveUp(msgspec.Struct, frozen=True):
    """Cancel a job that will be no node, and say why, with the end of its log."""

    number: int
    job: str
    why: str


Effect = Say | GiveUp | Submit
Event = Submitted | QueueSays | QueueSilent | Members | Target


class Jobs:
    """All jobs of a session. ``patience_s``: for a job that runs to become a member."""

    def __init__(self, patience_s: float, known: Mapping[int, Job] | None = None) -> None:
        self.patience_s = patience_s
        self.jobs: dict[int, Job] = dict(known or {})
        self.silent_since: float | None = None

    def handle(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Submitted):
            self.jobs[event.number] = Job(event.number, event.job, since=now)
            return []
        if isinstance(event, Members):
            return self._members(event, now)
        if isinstance(event, Target):
            return self._target(event.nodes, now)
        if isinstance(event, QueueSilent):
            first, self.silent_since = self.silent_since is None, now if self.silent_since is None else self.silent_since
            return [Say(f"the batch system does not answer: {event.words}; jobs go on")] if first else []
        said: list[Effect] = [] if self.silent_since is None else [Say("the batch system answers again")]
        self.silent_since = None
        for job in self.jobs.values():
            if (row := event.rows.get(job.job)) is not None:
                said += self._row(job, row, now)
        return said

    def _target(self, nodes: int, now: float) -> list[Effect]:
        there, waiting = len(self.in_state(JobState.JOINED)), self.in_state(*OPEN)
        if nodes > there + len(waiting):
            return [Submit(nodes - there - len(waiting))]
        spare = sorted(waiting, key=lambda job: -job.number)[: there + len(waiting) - nodes]  # the last ones have waited least
        return [effect for job in spare for effect in self._give_up(job, OVER, "fewer nodes are wanted", now)]

    def in_state(self, *states: JobState) -> list[Job]:
        return [job for job in self.jobs.values() if job.state in states]

    def check_invariants(self) -> None:
        assert all(job.number == number for number, job in self.jobs.items())
        assert all(job.node >= 0 for job in self.in_state(JobState.JOINED, JobState.ENDED))

    def _row(self, job: Job, row: Row, now: float) -> list[Effect]:
        if job.state is JobState.ENDED and row.event is OVER and row.why != job.why:
            job.why = row.why
            return [Say(f"job {job.job}, node {job.node}, ended: {row.why}")] if row.why else []
        if job.state not in OPEN:
            return []
        if row.never or row.event is OVER:
            return self._give_up(job, JobEvent.NEVER if row.event is WAITS else OVER, row.why or "it ended before it was a node", now)
        before, why = job.state, job.why
        self._move(job, row.event, now)
        job.why = row.why if row.event is WAITS else ""
        if row.event is WAITS:
            return [Say(f"job {job.job} waits for {job.why}")] if job.why and job.why != why else []
        late = before is JobState.RUNNING and now - job.since >= self.patience_s
        return self._give_up(job, JobEvent.LATE, f"it is no node after {self.patience_s:.0f} s", now) if late else []

    def _members(self, event: Members, now: float) -> list[Effect]:
        said: list[Effect] = []
        for number, job in self.jobs.items():
            if job.state in OPEN and (node := event.joining.get(number, -1)) in event.nodes:
                self._move(job, JobEvent.MEMBER, now)
                job.node, job.why = node, ""
                said.append(Say(f"job {job.job} is node {node}"))
            elif job.state is JobState.JOINED and job.node not in event.nodes:
                self._move(job, JobEvent.LOST, now)
        return said

    def _give_up(self, job: Job, event: JobEvent, why: str, now: float) -> list[Effect]:
        self._move(job, event, now)
        job.why = why
        return [GiveUp(job.number, job.job, why)]

    def _move(self, job: Job, event: JobEvent, now: float) -> None:
        to = JOB_NEXT[job.state][event]
        if to is None:
            raise illegal("job", job.number, job.state, event)
        if to is not job.state:
            job.state, job.since = to, now
