"""From a Task as the user wrote it to the TaskSpec that travels. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from amfs.vocabulary import messages as m
from amfs.vocabulary.object_versions import ObjectVersion
from amfs.vocabulary.paths import in_namespace, shared_path
from amfs.vocabulary.records import pack_body
from amfs.vocabulary.states import FAILED, FINISHED, PENDING, SKIPPED
from amfs.workflow.check_parts import directory_of, in_its_mount, with_parents
from amfs.workflow.checks import Plan
from amfs.workflow.tokens import token
from amfs.workflow.workflow import Task


class SpecMaker:
    """Makes the specs of one run.

    ``open_ended``: more tasks may come, so the readers of a file cannot be counted; everything is kept until the run is settled.
    ``keep_all``: every output goes to shared storage.
    """

    def __init__(self, scope: str, plan: Plan, *, open_ended: bool = False, keep_all: bool = False, default_retries: int = 0) -> None:
        self.scope = scope
        self.plan = plan
        self.open_ended = open_ended
        self.keep_all = keep_all
        self.default_retries = default_retries
        self.readers: dict[str, int] = plan.readers  # of this run; fewer than in the workflow when it is resumed
        self.was_read: dict[str, int] = plan.readers  # in the whole workflow: decides whether a file is final
        self.state: Sequence[int] = ()  # of each task, as the submitter keeps it
        self.asked: dict[int, None] = {}  # tasks for whose tokens others wait
        self.unheard: list[int] = []  # those of them that had failed before anybody asked
        self.places: dict[str, str] = {}  # shared files of tasks that joined the run later, as ``RunInfo.paths`` has those of the others
        self._filled: set[str] | None = None if not open_ended else set()  # directories with outputs; of a list that grows: so far
        self.ready: set[str] = set()  # files with a writer that need not be waited for: on shared storage from an earlier run

    def make(self, tid: int, task: Task, origin: int) -> m.TaskSpec:
        plan = self.plan
        scope = self.scope
        aliases = plan.aliases
        on_shared = plan.shared
        ready = self.ready
        made: list[str] = []
        shared: list[str] = []
        depth = 0
        for name in task.inputs:
            if aliases and name in aliases:
                depth = max(depth, _depth(name))
                name = aliases[name]
            (shared if name in on_shared or name in ready else made).append(scope + name)
        for name in task.after:
            before = plan.after[name]
            state = self.state[before] if before < len(self.state) else PENDING
            if state in (FINISHED, SKIPPED):
                continue
            if state == FAILED and before not in self.asked:
                self.unheard.append(before)
            self.asked[before] = None
            made.append(scope + token(before))
        outputs: list[str] = []
        retentions: list[int] = []
        for name in task.outputs:
            final = self.keep_all or name in task.keep or in_namespace(name)  # a task that names a place in the file system wants it there
            scratch = name in task.scratch
            if aliases and name in aliases:
                depth = max(depth, _depth(name))
                name = aliases[name]
            outputs.append(scope + name)
            if self.open_ended:
                if "/" in name:
                    self.filled.update(with_parents({directory_of(name)}))
                retentions.append(m.retention(m.KEEP, final))
            else:
                readers = m.KEEP if name in plan.unsettled else self.readers.get(name, 0)
                retentions.append(m.retention(readers, final or not (scratch or self.was_read.get(name, 0))))
        versions: dict[str, ObjectVersion] = {}
        if plan.versions:
            names = [key[len(scope):] for key in shared]
            versions = {name: seen for name in names if (seen := plan.versions.get(name)) is not None and seen.conditional}
        places = {name: self.places[name] for name in task.inputs if name in self.places} if self.places else {}
        return m.TaskSpec(
            tid,
            self.body(task),
            tuple(made),
            tuple(shared),
            tuple(outputs),
            tuple(retentions),
            self.options(task, depth, places, [key[len(scope):] for key in (*shared, *made)], versions),
            0,
            origin,
        )

    @property
    def filled(self) -> set[str]:
        """The directories in which, or below which, tasks of the run write."""
        if self._filled is None:
            self._filled = with_parents({directory_of(name) for name in self.plan.writers if "/" in name})
        return self._filled

    def is_final(self, task: Task, name: str) -> bool:
        """Did the end of the task mean that this output of it is on shared storage, or in the session's file system?"""
        if self.keep_all or not task.staged or name.startswith("/") or in_namespace(name):
            return True
        return any(self.plan.aliases.get(kept, kept) == name for kept in task.keep)

    def unmade(self, tid: int, task: Task) -> list[str]:
        """The files that a task declares which stands for others, unless one of these is known and makes them."""
        aliases, writers, scope = self.plan.aliases, self.plan.writers, self.scope
        return [scope + name for name in (aliases.get(name, name) for name in task.outputs) if writers.get(name) == tid]

    def body(self, task: Task) -> bytes:
        argv = task.argv
        program = argv[0] if in_its_mount(task) else self.plan.programs.get(argv[0], argv[0])
        if task.blind:
            return pack_body(program, argv, env=task.env, cwd=blind_directory(task))
        cwd = task.cwd
        stdin = task.stdin
        if cwd and task.staged and not program.startswith("/"):
            program = f"./{posixpath.relpath(program, cwd)}"  # a file of the workflow; the launcher looks from the working directory
        if not task.staged:
            cwd = shared_path(self.plan.base, cwd) if cwd else ""
        return pack_body(program, argv, env=task.env, cwd=cwd, stdin=stdin, stdout=task.stdout, stderr=task.stderr)

    def options(
        self, task: Task, depth: int, places: dict[str, str], inputs: Sequence[str] = (), versions: dict[str, ObjectVersion] | None = None
    ) -> m.Options | None:
        filled = tuple([name for name in inputs if name in self.filled])
        name = task.id if task.blind or any(map(in_namespace, task.outputs)) else ""
        retries = self.default_retries if task.retries < 0 else task.retries
        if (
            task.cores == 1 and not task.memory and not task.time_limit and not retries and not task.priority
            and task.node < 0 and not task.reduce and task.staged and not depth and not places
            and not name and not filled and not versions
        ):  # fmt: skip
            return None
        return m.Options(
            task.cores,
            task.memory,
            max(1, round(task.time_limit * 1000)) if task.time_limit else 0,
            retries,
            task.priority,
            task.node,
            not task.node_soft,
            task.reduce,
            not task.staged,
            depth,
            places,
            blind_directory(task) if task.blind else "",
            filled=filled,
            name=name,
            versions=versions or {},
        )


def blind_directory(task: Task) -> str:
    """Where a blind task runs, in the session's file system."""
    return "/" + posixpath.normpath("/" + task.cwd).lstrip("/")


def _depth(name: str) -> int:
    """How many directories a relative name climbs."""
    if name.startswith("/"):
        return 0
    depth = lowest = 0
    for part in name.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        lowest = min(lowest, depth)
    return -lowest
