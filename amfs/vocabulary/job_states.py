"""The states of a job that is to become a node, as the keeper of its session sees it; a part of ``states``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class JobState(IntEnum):
    """PENDING, RUNNING: the batch system says so. JOINED: its node is a member, whatever the batch system says. ENDED: the node was one.
    GIVEN_UP: it never was."""

    SUBMITTED = 0
    PENDING = 1
    RUNNING = 2
    JOINED = 3
    ENDED = 4
    GIVEN_UP = 5


class JobEvent(IntEnum):
    WAITS = 0
    RUNS = 1
    MEMBER = 2  # its node is in the view
    LOST = 3  # its node was in the view, and is not any more
    OVER = 4  # the batch system says that it is over
    NEVER = 5  # it waits for what will not come
    LATE = 6  # it has run for long, and is no member


JOB_TABLE: Mapping[tuple[JobState, JobEvent], JobState] = {
    (JobState.SUBMITTED, JobEvent.WAITS): JobState.PENDING,
    (JobState.SUBMITTED, JobEvent.RUNS): JobState.RUNNING,
    (JobState.SUBMITTED, JobEvent.MEMBER): JobState.JOINED,
    (JobState.SUBMITTED, JobEvent.OVER): JobState.GIVEN_UP,
    (JobState.SUBMITTED, JobEvent.NEVER): JobState.GIVEN_UP,
    (JobState.PENDING, JobEvent.WAITS): JobState.PENDING,
    (JobState.PENDING, JobEvent.RUNS): JobState.RUNNING,
    (JobState.PENDING, JobEvent.MEMBER): JobState.JOINED,
    (JobState.PENDING, JobEvent.OVER): JobState.GIVEN_UP,
    (JobState.PENDING, JobEvent.NEVER): JobState.GIVEN_UP,
    (JobState.RUNNING, JobEvent.RUNS): JobState.RUNNING,
    (JobState.RUNNING, JobEvent.WAITS): JobState.PENDING,  # the batch system took it back
    (JobState.RUNNING, JobEvent.MEMBER): JobState.JOINED,
    (JobState.RUNNING, JobEvent.OVER): JobState.GIVEN_UP,
    (JobState.RUNNING, JobEvent.NEVER): JobState.GIVEN_UP,  # likewise, for good
    (JobState.RUNNING, JobEvent.LATE): JobState.GIVEN_UP,
    (JobState.JOINED, JobEvent.LOST): JobState.ENDED,
}
