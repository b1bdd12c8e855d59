"""The jobs that a session has asked a batch system for: which wait and why, which have become nodes, which are given up; and how many more
it asks for.

The truth about a node is that it is a member. The queue is asked for the reasons. A job that the queue does not name, or a queue that does
not answer, concludes nothing. The number of nodes is a standing wish: a node that ends by itself is replaced, one that was told to leave is
not. Where jobs come to nothing, it pauses. Pure. Must not know: any batch system; the process that submits and cancels.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import msgspec

from amfs.engine.drain import BEFORE_END_S, PART_OF_JOB
from amfs.vocabulary.job_states import JobEvent, JobState
from amfs.vocabulary.states import JOB_NEXT, illegal

OPEN = (JobState.SUBMITTED, JobState.PENDING, JobState.RUNNING)
#: The meanings of the queue's words.
WAITS, RUNS, OVER = JobEvent.WAITS, JobEvent.RUNS, JobEvent.OVER

#: Pauses after jobs came to nothing, the last one again and again.
PAUSES_S = (60.0, 300.0, 900.0, 3600.0)
ROUNDS = 3  # of jobs, one after the other, that came to nothing: then it pauses; after a refusal at once
STAYED_S = 60.0  # a node that was there for so long did not come to nothing
SHORT_S = 10.0  # nor one that was there for half of the time that its job had, but for longer than this
_LAST = 20  # jobs of which the wait is known


class Job(msgspec.Struct):
    """One job. ``number``: ours. ``job``: as the batch system names it."""

    number: int
    job: str
    state: JobState = JobState.SUBMITTED
    why: str = ""  # it waits, or ended
    node: int = -1
    since: float = 0.0  # in this state
    asked: float = 0.0  # when it was submitted
    joined: float = 0.0  # when its node was first seen
    ends: float = 0.0  # when the batch system ends it; 0: not known
    round: int = 0  # jobs that were submitted at a time have one number


class Wish(msgspec.Struct):
    """``nodes``: so many are to be there or on their way, at least. 0: none needs to."""

    nodes: int = 0
    round: int = 0  # of the last submission
    failed: int = 0  # rounds in a row that came to nothing
    counted: int = -1  # no job up to this round counts any more
    until: float = 0.0  # nothing is submitted before that time
    why: str = ""  # it pauses


class Row(msgspec.Struct, frozen=True):
    """One job, as the queue lists it."""

    event: JobEvent  # WAITS, RUNS or OVER
    why: str = ""
    never: bool = False  # the reason will not pass by itself


# ── events ──


class Submitted(msgspec.Struct, frozen=True):
    number: int
    job: str


class Refused(msgspec.Struct, frozen=True):
    """The batch system did not take a job; no more of this ``Submit`` are tried."""

    words: str


class QueueSays(msgspec.Struct, frozen=True):
    rows: Mapping[str, Row]


class QueueSilent(msgspec.Struct, frozen=True):
    words: str


class Members(msgspec.Struct, frozen=True):
    """The nodes of the view, and which job said that it would be which node."""

    nodes: frozenset[int]
    joining: Mapping[int, int]
    slots: frozenset[int] = frozenset()  # those that run tasks
    draining: frozenset[int] = frozenset()
    ends: Mapping[int, float] = {}  # node -> when its job ends, where that is known


class Target(msgspec.Struct, frozen=True, tag=True):
    """So many nodes are wanted from now on. ``again``: a person says so, and a pause is over."""

    nodes: int
    again: bool = True


class Told(msgspec.Struct, frozen=True, tag=True):
    """These nodes are about to be told to leave."""

    nodes: tuple[int, ...]


class TakenDown(msgspec.Struct, frozen=True, tag=True):
    """The session is about to be ended: nothing is submitted any more."""


# ── effects ──


class Submit(msgspec.Struct, frozen=True):
    """Ask the batch system for so many more jobs. Each is answered by Submitted, or the rest by Refused."""

    count: int
    why: str = ""


class Say(msgspec.Struct, frozen=True):
    text: str


class GiveUp(msgspec.Struct, frozen=True):
    """Cancel a job that will be no node, and say why, with the end of its log."""

    number: int
    job: str
    why: str


class Paused(msgspec.Struct, frozen=True):
    """Nothing is submitted until the time in ``Wish``: say so, and how to go on."""


Effect = Say | GiveUp | Submit | Paused
Order = Target | Told | TakenDown
Event = Submitted | Refused | QueueSays | QueueSilent | Members | Order


class Jobs:
    """All jobs of a session. ``patience_s``: for a job that runs to become a member."""

    def __init__(self, patience_s: float, known: Mapping[int, Job] | None = None, wish: Wish | None = None) -> None:
        self.patience_s = patience_s
        self.jobs: dict[int, Job] = dict(known or {})
        self.wish = wish or Wish()
        self.silent_since: float | None = None
        self.stay = frozenset(job.node for job in self.in_state(JobState.JOINED))  # nodes that count: no end of theirs is known
        self._told: set[int] = set()
        self._over = False

    def handle(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Submitted):
            self.jobs[event.number] = Job(event.number, event.job, since=now, asked=now, round=self.wish.round)
            return []
        if isinstance(event, Members):
            return self._members(event, now)
        if isinstance(event, Target):
            return self._target(event, now)
        if isinstance(event, Told):
            return self._tell(event)
        if isinstance(event, Refused):
            return self._in_vain(self.wish.round, event.words, now, for_sure=True)
        if isinstance(event, TakenDown):
            self._over = True
            return []
        if isinstance(event, QueueSilent):
            first, self.silent_since = self.silent_since is None, now if self.silent_since is None else self.silent_since
            return [Say(f"the batch system does not answer: {event.words}; jobs go on")] if first else []
        said: list[Effect] = [] if self.silent_since is None else [Say("the batch system answers again")]
        self.silent_since = None
        for job in self.jobs.values():
            if (row := event.rows.get(job.job)) is not None:
                said += self._row(job, row, now)
        return said

    def in_state(self, *states: JobState) -> list[Job]:
        return [job for job in self.jobs.values() if job.state in states]

    @property
    def expected(self) -> int:
        """Nodes that are there to stay, or on their way."""
        return len(self.stay) + len(self.in_state(*OPEN))

    def check_invariants(self) -> None:
        assert all(job.number == number and job.round <= self.wish.round for number, job in self.jobs.items())
        assert all(job.node >= 0 for job in self.in_state(JobState.JOINED, JobState.ENDED))
        assert self.wish.nodes >= 0 and self.wish.counted <= self.wish.round
        assert bool(self.wish.until) <= (self.wish.failed >= ROUNDS)
        assert not self.stay & self._told

    # ── how many ──

    def _target(self, event: Target, now: float) -> list[Effect]:
        self.wish.nodes = event.nodes
        if event.again:
            self.wish.failed, self.wish.until, self.wish.counted = 0, 0.0, self.wish.round
            self.silent_since = None  # the user who asks wants to hear it again
        waiting = self.in_state(*OPEN)
        if (many := self.expected - event.nodes) <= 0:
            return self._more(now)
        spare = sorted(waiting, key=lambda job: -job.number)[:many]  # the last ones have waited least
        return [effect for job in spare for effect in self._give_up(job, OVER, "fewer nodes are wanted", now)]

    def _more(self, now: float, why: str = "") -> list[Effect]:
        missing = self.wish.nodes - self.expected
        if missing <= 0 or now < self.wish.until or self.silent_since is not None or self._over:
            return []
        self.wish.round += 1
        return [Submit(missing, why)]

    def _tell(self, event: Told) -> list[Effect]:
        for node in self.stay & set(event.nodes):
            if self.expected <= self.wish.nodes:
                self.wish.nodes -= 1  # else there are more than are wanted, and none would take its place
            self.stay -= {node}
            self._told.add(node)
        return []

    def _in_vain(self, round: int, why: str, now: float, *, for_sure: bool = False) -> list[Effect]:
        """A job of this round came to nothing. Others of the round may do so for the same reason, at the same time: they count once."""
        wish = self.wish
        if round <= wish.counted or self.expected >= wish.nodes or self._over:
            return []
        wish.counted, wish.why = round, why
        wish.failed = max(wish.failed + 1, ROUNDS if for_sure else 0)
        if wish.failed < ROUNDS:
            return []
        wish.counted = wish.round  # jobs submitted before the pause say no more
        wish.until = now + PAUSES_S[min(wish.failed - ROUNDS, len(PAUSES_S) - 1)]
        return [Paused()]

    def _ending(self, joined: Mapping[int, Job], now: float) -> set[int]:
        """Nodes so near their end that others are asked for: as long before it as the drain takes, and a job to be a node."""
        known = {node: job for node, job in joined.items() if job.ends}
        if not known:
            return set()
        wait = median([job.joined - job.asked for job in self.jobs.values() if job.node >= 0][-_LAST:])
        lives = {node: job.ends - job.joined for node, job in known.items()}
        leads = {node: min(min(BEFORE_END_S, PART_OF_JOB * life) + wait, life / 2) for node, life in lives.items()}
        return {node for node, job in known.items() if now >= job.ends - leads[node]}

    def _was_short(self, job: Job, now: float) -> bool:
        lived = now - job.joined
        enough = STAYED_S if not job.ends else min(STAYED_S, max(SHORT_S, (job.ends - job.joined) / 2))
        return lived < enough

    # ── what is seen ──

    def _row(self, job: Job, row: Row, now: float) -> list[Effect]:
        if job.state is JobState.ENDED and row.event is OVER and row.why != job.why:
            job.why = row.why
            return [Say(f"job {job.job}, node {job.node}, ended: {row.why}")] if row.why else []
        if job.state not in OPEN:
            return []
        if row.never or row.event is OVER:
            event = JobEvent.NEVER if row.event is WAITS else OVER
            return self._fail(job, event, row.why or "it ended before it was a node", now)
        before, why = job.state, job.why
        self._move(job, row.event, now)
        job.why = row.why if row.event is WAITS else ""
        if row.event is WAITS:
            return [Say(f"job {job.job} waits for {job.why}")] if job.why and job.why != why else []
        late = before is JobState.RUNNING and now - job.since >= self.patience_s
        return self._fail(job, JobEvent.LATE, f"it is no node after {self.patience_s:.0f} s", now) if late else []

    def _members(self, event: Members, now: float) -> list[Effect]:
        said: list[Effect] = []
        for number, job in self.jobs.items():
            if job.state in OPEN and (node := event.joining.get(number, -1)) in event.nodes:
                self._move(job, JobEvent.MEMBER, now)
                job.node, job.why, job.joined, job.ends = node, "", now, event.ends.get(node, 0.0)
                said.append(Say(f"job {job.job} is node {node}"))
            elif job.state is JobState.JOINED and job.node not in event.nodes:
                self._move(job, JobEvent.LOST, now)
        ours = {job.node: job for job in self.in_state(JobState.JOINED)}
        self._told &= event.nodes
        before, self.stay = self.stay, (event.nodes & (event.slots | ours.keys())) - event.draining - self._told - self._ending(ours, now)
        if any(job.round > self.wish.counted and now - job.joined >= STAYED_S for node, job in ours.items() if node in self.stay):
            self.wish.failed, self.wish.until = 0, 0.0
        for job in self.in_state(JobState.JOINED, JobState.ENDED):
            if job.node in before - self.stay and self._was_short(job, now):
                said += self._in_vain(job.round, f"node {job.node} of job {job.job} ended after {now - job.joined:.0f} s", now)
        stays = len(self.stay)
        return said + self._more(now, f"of {self.wish.nodes} nodes {stays} stay{'s' if stays == 1 else ''}")

    def _fail(self, job: Job, event: JobEvent, why: str, now: float) -> list[Effect]:
        given_up = self._give_up(job, event, why, now)
        return given_up + self._in_vain(job.round, f"job {job.job} was no node: {why}", now, for_sure=event is JobEvent.NEVER)

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
