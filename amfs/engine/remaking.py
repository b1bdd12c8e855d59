"""Files that a run has made and that were lost with a node: which are to be made again as what. Pure: a part of the submitter.

A file between tasks is made again when a task wants it; it does not go to shared storage a second time. A file of the session whose content
was lost is made again as such: when a task wants it, or, since people want it, at the latest when the run ends. Must not know: states of
tasks, dispatchers, shards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from amfs.vocabulary import messages as m
from amfs.vocabulary.events import FindLost
from amfs.vocabulary.paths import in_namespace
from amfs.vocabulary.states import FINISHED, SKIPPED
from amfs.workflow.workflow import Task


class Remaking:
    """The lost files of one run, as its submitter knows them."""

    def __init__(self) -> None:
        self.revived: set[int] = set()  # tasks of an earlier run that run again
        self.rereads: set[int] = set()  # tasks that are to read their inputs again, of which no shard has heard yet
        self.losses = 0  # times that nodes were lost
        self._gone: set[str] = set()  # keys of files of the session that are to be made again
        self._looked = 0  # the losses until which it is known what became of the files of the session
        self.looking = False

    def lost(self, key: str) -> None:
        """The session has lost the content of this file."""
        self._gone.add(key)

    def is_lost(self, key: str) -> bool:
        return key in self._gone

    def made(self, keys: Iterable[str]) -> None:
        """A task has ended well that makes these."""
        if self._gone:
            self._gone.difference_update(keys)

    def renewed(self, spec: m.TaskSpec, there: Collection[str]) -> tuple[int, ...]:
        """The retentions of a task that goes again. Files that are ``there``, on shared storage, are not written a second time: a task
        may be reading them."""
        kept = [
            kept & ~m.FINAL if name in there and name not in self._gone else kept
            for name, kept in zip(spec.outputs, spec.retentions, strict=True)
        ]
        if spec.tid in self.revived:  # readers were counted among the tasks that were to run
            kept = [m.retention(m.KEEP, bool(each & m.FINAL)) for each in kept]
        return tuple(kept)

    def reread(self, spec: m.TaskSpec) -> tuple[str, ...]:
        """The inputs of a task that goes out, if it had ended before and no shard has heard yet that it reads them again. A shard that
        is not told would count it as two readers, and have files dropped that a task is still to read."""
        if spec.tid not in self.rereads:
            return ()
        self.rereads.remove(spec.tid)
        return spec.inputs

    def look(self, tasks: Sequence[Task], state: Sequence[int], aliases: Mapping[str, str]) -> list[FindLost]:
        """All tasks have ended. If nodes were lost since the last look, the run looks once more for lost files before it ends.
        ``looking``: the answer is awaited."""
        if self.looking or self._looked == self.losses:
            return []
        self._looked = self.losses
        made = (task for task, how in zip(tasks, state, strict=True) if how in (FINISHED, SKIPPED))
        names = tuple([aliases.get(name, name) for task in made for name in task.outputs if in_namespace(name)])
        self.looking = bool(names)
        return [FindLost(names)] if names else []
