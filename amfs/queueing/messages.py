"""Messages between a command and the queue server of a session: JSON, one message a line, over a Unix socket. Vocabulary only."""

from __future__ import annotations

import msgspec

from amfs.display.summary import Snapshot, Summary

SOCKET = "queue.sock"  # in the session's directory


class Execute(msgspec.Struct, frozen=True, tag="execute"):
    """Run what has been queued, and tell how it goes. ``batch``: go on telling of this one, after the server was started again."""

    batch: int = 0


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """End the tasks of the batches that run or wait to run. Tasks queued since stay queued."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """How does the queue stand?"""


Request = Execute | Cancel | Ask


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The batch that the asking command waits for; 0: there is nothing to run."""

    batch: int
    tasks: int = 0


class Began(msgspec.Struct, frozen=True, tag="began"):
    total: int
    nodes: int
    slots: int


class Standing(msgspec.Struct, frozen=True, tag="standing"):
    snapshot: Snapshot


class Said(msgspec.Struct, frozen=True, tag="said"):
    """A sentence for the person; ``fault``: one that is not to be hidden."""

    text: str
    fault: bool = False


class TaskOutput(msgspec.Struct, frozen=True, tag="output"):
    """The output of one task."""

    task: str
    stdout: bytes
    stderr: bytes


class TaskFailed(msgspec.Struct, frozen=True, tag="failed"):
    task: str
    detail: str
    stderr: bytes


class Over(msgspec.Struct, frozen=True, tag="over"):
    """The batch has ended; the last message about it."""

    code: int
    summary: Summary


class State(msgspec.Struct, frozen=True, tag="state"):
    """Answer to ``Ask``: tasks queued since the last execute, batches that have not ended, and how the one that runs stands."""

    queued: int
    batches: int
    snapshot: Snapshot | None = None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    error: str
    exit_code: int = 1


Event = Accepted | Began | Standing | Said | TaskOutput | TaskFailed | Over | State | Refused
