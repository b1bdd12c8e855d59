"""The last steps with the files of a list that grew. Pure; a part of the submitter.

Nobody can count the readers of a file while tasks may still join, so the nodes keep all files. When the list is closed and its tasks have
ended, files that no task reads go to shared storage (finals), and the others are dropped. Must not know: credits, dispatchers.
"""

from __future__ import annotations

from collections.abc import Sequence

from amfs.vocabulary import messages as m
from amfs.vocabulary.partition import PartitionTable
from amfs.workflow.checks import Plan
from amfs.workflow.workflow import Task


class Closing:
    """The files of one open list, once it is closed."""

    def __init__(self, open: bool = True) -> None:
        self.open = open  # more tasks may be added
        self.finals: list[str] = []
        self.drops: list[str] = []
        self.begun = False  # the shards were told
        self.awaited: set[str] = set()  # finals of which we have not heard that they are on shared storage
        self.on_shared: set[str] = set()  # finals of which we have
        self.unsaved: set[str] = set()  # made by an earlier run, and only in the store

    def close(self, tasks: Sequence[Task], plan: Plan) -> None:
        """No more tasks will come: all readers are known."""
        self.open = False
        aliases, readers = plan.aliases, plan.readers
        scratch = {aliases.get(name, name) for task in tasks for name in task.scratch}
        for name in plan.writers:
            (self.drops if readers.get(name) or name in scratch else self.finals).append(name)

    def begin(self, run: int, scope: str, finals: Sequence[str], table: PartitionTable) -> list[tuple[int, m.FinalizeFiles]]:
        """The messages by which the shards have ``finals`` copied out and the rest dropped."""
        self.begun = True
        self.awaited = set(finals)
        kept = table.group([scope + name for name in finals])
        dropped = table.group([scope + name for name in self.drops])
        return [
            (shard, m.FinalizeFiles(run, tuple(kept.get(shard, ())), tuple(dropped.get(shard, ())))) for shard in {**kept, **dropped}
        ]

    def again(self) -> None:
        """A node is gone, and holders with it; publications may have gone to another shard than our request."""
        self.awaited.clear()
        self.begun = False

    def flushed(self, name: str, error: str) -> None:
        """A file has reached shared storage, or cannot."""
        if self.awaited:
            self.awaited.discard(name)
            if not error:
                self.on_shared.add(name)
