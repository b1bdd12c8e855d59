"""Sub-workflows of Pegasus workflows: jobs that stand for the jobs of another document. See docs/reference/pegasus.md.

A document that is there is read, and its tasks take the place of the job. A document that a job of the workflow makes is read by the run
when it has been made (``MadeLater``). Either way a file of the inner workflow is the outer one's file of that name only if the job that
stands for it declares the name in its ``uses``; else it is another file, and gets another name when the names meet.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from amfs.errors import Fault, WorkflowError
from amfs.translate.document import NESTED_MAX, KeptReader, last_writers
from amfs.translate.pegasus_profiles import Profiles
from amfs.vocabulary.paths import in_namespace
from amfs.workflow.workflow import Task, Workflow, canonical

if TYPE_CHECKING:
    from amfs.translate.pegasus_catalogs import Catalogs

#: Pairs of tasks that one stated edge between two sub-workflows may become.
EDGES_MAX = 1_000_000

#: Options of the planner that are understood.
_READ_OPTIONS = ("--input-dir", "-i", "--conf")
_PROPERTY = "-Dpegasus."


class Around(NamedTuple):
    """The workflow around a sub-workflow, as that sees it. Names of files are canonical."""

    directory: str = ""  # of the document around it
    catalogs: Catalogs | None = None  # used for what its own do not know
    conf: str = ""  # properties that the planner is told, instead of those beside the document
    properties: Mapping[str, str] = {}  # single ones that the planner is told
    offered: Mapping[str, str] = {}  # files in --input-dir: lfn -> path
    declared: frozenset[str] = frozenset()  # files that the job that stands for it names in its uses
    given: frozenset[str] = frozenset()  # those of them that jobs around it make
    own: str = ""  # the job that stands for it
    makers: Mapping[str, str] = {}  # file that a job beside that one makes -> the job
    outer: Around | None = None  # the one around that workflow

    def undeclared(self, name: str) -> str:
        """The job around it that makes a file, if it was not given that; '' if there is none."""
        if name in self.declared:
            return ""
        maker = self.makers.get(name, self.own)
        return maker if maker != self.own else self.outer.undeclared(name) if self.outer is not None else ""


class Job(msgspec.Struct, gc=False):
    """The needs of a task, to be met when the catalogs are known. ``key``: of its transformation."""

    key: str
    profiles: Profiles
    file: str = ""  # of a sub-workflow
    planner: tuple[str, ...] = ()  # the arguments of a sub-workflow: options of the planner


class NestingReader(KeptReader):
    """A reader of workflows that may have sub-workflows (``pegasus.PegasusReader``)."""

    around: Around
    nested: SubWorkflows

    @property
    def catalogs(self) -> Catalogs:
        """For the sub-workflows of this one."""
        raise NotImplementedError

    def catalog_place(self, name: str) -> str:
        """Where the catalogs have a file; '' if they do not say."""
        raise NotImplementedError

    def stand_in(self, around: Around) -> None:
        """This is a sub-workflow, of what is ``around`` it."""
        raise NotImplementedError


class MadeLater:
    """A sub-workflow whose document a job makes, and all that takes it in when that job has ended. A ``workflow.workflow.Later``."""

    def __init__(self, reader: NestingReader, job: Job, makers: Mapping[str, str], document: str) -> None:
        self.document = document
        self._reader = reader
        self._job = job
        self._makers = makers

    def renamed(self, names: Mapping[str, str]) -> MadeLater:
        return MadeLater(self._reader, self._job, self._makers, names.get(self.document, self.document))

    def expand(
        self, path: str, task: Task, used: Callable[[str], bool], made: Callable[[str], bool], place: Callable[[str], str]
    ) -> Workflow:
        reader = self._reader
        child = _open(reader, path)
        if path in child.outer:
            child.fault(0, "the document contains itself")
        elif len(child.outer) > NESTED_MAX:
            child.fault(0, f"sub-workflows lie deeper than {NESTED_MAX} levels in each other")
        elif (data := child.read_beside(path, 0, "the sub-workflow")) is not None:
            if data.lstrip()[:1] == b"<":
                child = _open(reader, path, "dax")
            child.stand_in(reader.nested.around(task, self._job, self._makers))
            child.feed(data)
            child.finish()
        outside = child.names_outside()
        if child.dead or child.faults or outside:
            raise WorkflowError([*child.all_faults(), *outside])
        taken = take_in(child, task, used, made, place, child.share)
        remarks = [*child.remarks, *[Fault(child.source, 0, words) for words in taken.words]]
        return Workflow(
            taken.tasks, name=child.name, source=path, sizes=taken.sizes, paths=taken.paths, remarks=remarks, later=dict(taken.later),
            absent=child.absent,
        )  # fmt: skip


class SubWorkflows:
    """The sub-workflows of one document."""

    def __init__(self, reader: NestingReader) -> None:
        self._reader = reader
        self.private: set[str] = set()  # canonical names of files of inner workflows that are not files of this one
        self.later: dict[str, MadeLater] = {}  # job -> what it stands for

    def expand(self, tasks: list[Task], jobs: Sequence[Job], parents: dict[str, list[str]]) -> tuple[list[Task], dict[str, list[str]]]:
        """Put the tasks of sub-workflows in the place of the jobs that stand for them; the tasks, and the edges between them."""
        if not any(job.file for job in jobs):
            return tasks, parents
        reader = self._reader
        spelled = {_canonical(name): name for task in tasks for name in task.outputs}
        makers = {_canonical(name): task.id for task in tasks for name in task.outputs}
        children: dict[int, NestingReader] = {}
        found: dict[int, str] = {}  # those whose document was looked for beside this one
        for index, job in enumerate(jobs):
            if not job.file:
                continue
            task, name = tasks[index], _canonical(job.file)
            if task.argv[0] != "pegasus-plan":
                words = f"job {task.id} is a workflow of HTCondor ({job.file}), which is not read"
                reader.remark("condorWorkflow", task.line, f"{words}; the job is left as a call of condor_dagman")
            elif makers.get(name, task.id) != task.id or name in reader.around.given:
                document = spelled[name] if name in makers else job.file
                if document not in task.inputs:
                    tasks[index] = msgspec.structs.replace(task, inputs=(*task.inputs, document))
                self.later[task.id] = MadeLater(reader, job, makers, document)
            elif (child := self._child(task, job, makers, found, index)) is not None:
                children[index] = child
        self._check_found(tasks, jobs, children, found)
        if children:
            tasks, parents = self._replace(tasks, children, parents, set(makers))
        return tasks, parents

    def _replace(
        self, tasks: list[Task], children: Mapping[int, NestingReader], parents: dict[str, list[str]], made: set[str]
    ) -> tuple[list[Task], dict[str, list[str]]]:
        reader = self._reader
        used = {_canonical(name) for task in tasks for name in (*task.inputs, *task.outputs)}
        foreign = made | reader.around.declared  # names that say nothing of where a file lies
        places = {_canonical(name): where for name, where in reader.paths.items()}
        roots: dict[str, list[str]] = {}
        leaves: dict[str, list[str]] = {}
        found: list[Task] = []
        for index, task in enumerate(tasks):
            child = children.get(index)
            if child is None:
                found.append(task)
                continue
            taken = take_in(child, task, used.__contains__, foreign.__contains__, lambda name: places.get(name, ""), reader.share)
            for words in taken.words:
                reader.remark(f"in {child.source}: {words}", task.line, words)
            found += taken.tasks
            used.update(_canonical(name) for each in taken.tasks for name in (*each.inputs, *each.outputs))
            inner = {_canonical(name) for each in taken.tasks for name in each.outputs}
            made |= inner
            foreign |= inner
            self.private |= taken.private
            self.later.update(taken.later)
            reader.absent.update(child.absent)
            for lfn, where in taken.paths.items():
                reader.paths[lfn] = places[_canonical(lfn)] = where
            for lfn, size in taken.sizes.items():
                reader.set_size(lfn, size, task.line)
            roots[task.id], leaves[task.id] = _ends(taken.tasks)
        for lfn in [lfn for lfn in reader.paths if _canonical(lfn) in made]:
            del reader.paths[lfn]
        return found, self._spread(parents, roots, leaves)

    def order(self) -> None:
        """A reader of a file of a job that stands for tasks not yet known waits for all of them; their documents go to shared storage,
        where the run reads them."""
        if not self.later:
            return
        tasks = self._reader.tasks
        writers = {_canonical(name): index for index, task in enumerate(tasks) for name in task.outputs}
        for index, task in enumerate(tasks):
            ahead = [tasks[writers.get(_canonical(name), index)].id for name in task.inputs]
            if ahead := [each for each in ahead if each in self.later and each != task.id]:
                tasks[index] = msgspec.structs.replace(task, after=tuple(dict.fromkeys((*task.after, *ahead))))
        for later in self.later.values():
            at = writers.get(_canonical(later.document), -1)
            if at >= 0:
                task = tasks[at]
                name = next(name for name in task.outputs if _canonical(name) == _canonical(later.document))
                keep = task.keep if name in task.keep else (*task.keep, name)
                tasks[at] = msgspec.structs.replace(task, keep=keep, scratch=tuple([each for each in task.scratch if each != name]))

    def _child(
        self, task: Task, job: Job, makers: Mapping[str, str], found: dict[int, str], index: int
    ) -> NestingReader | None:
        """The sub-workflow of a job, read; None (and a remark or a fault) if that cannot be."""
        reader = self._reader
        said = reader.paths.get(job.file) or reader.around.offered.get(job.file) or reader.catalog_place(job.file)
        directories = [reader.directory, os.path.join(reader.directory, "input")]
        directories += [os.path.join(reader.directory, each) for each in options(job.planner, "--input-dir", "-i")]
        directories += [reader.around.directory] if reader.around.directory else []
        places = [said, *[os.path.join(directory, job.file) for directory in directories]]
        path = next((os.path.abspath(each) for each in places if each and os.path.isfile(each)), "")
        if not path:
            words = f"sub-workflow {job.file} of job {task.id} is not there, and no job makes it; the job is left as a call of pegasus-plan"
            reader.remark("sub-workflow", task.line, words)
            return None
        if not said:
            found[index] = _canonical(job.file)
            if maker := reader.around.undeclared(found[index]):
                reader.fault(task.line, _undeclared(task, job, maker, "the uses of the job around it do"))
                return None
        if path == os.path.abspath(reader.source) or path in reader.outer:
            reader.fault(task.line, f"job {task.id}: sub-workflow {job.file} contains itself")
            return None
        if len(reader.outer) >= NESTED_MAX:
            reader.fault(task.line, f"job {task.id}: sub-workflows lie deeper than {NESTED_MAX} levels in each other")
            return None
        data = reader.read_beside(path, task.line, "the sub-workflow")
        if data is None:
            return None
        child = _open(reader, path, "dax" if data.lstrip()[:1] == b"<" else "pegasus")
        child.stand_in(self.around(task, job, makers))
        given = [word for word in job.planner if word[:1] == "-" and not word.startswith(_PROPERTY)]
        if unknown := [word for word in given if word.partition("=")[0] not in _READ_OPTIONS]:
            reader.remark("planner", task.line, f"options of the planner have no meaning here: {' '.join(unknown)}")
        return child if reader.read_nested(child, data, task.line, "sub-workflow") else None

    def _check_found(
        self, tasks: list[Task], jobs: Sequence[Job], children: Mapping[int, NestingReader], found: Mapping[int, str]
    ) -> None:
        """A document that was found beside this one must not be one that another sub-workflow makes: that one would be newer."""
        names = set(found.values())
        for index, child in children.items():
            for task in child.tasks:
                for name in names.intersection(map(_canonical, task.outputs)):
                    for at in [at for at, wanted in found.items() if wanted == name and at != index]:
                        words = _undeclared(tasks[at], jobs[at], f"{tasks[index].id}.{task.id}", f"the uses of job {tasks[index].id} do")
                        self._reader.fault(tasks[at].line, words)

    def around(self, task: Task, job: Job, makers: Mapping[str, str]) -> Around:
        """This workflow, as the sub-workflow of a job sees it."""
        reader = self._reader
        declared = frozenset(map(_canonical, (*task.inputs, *task.outputs)))
        given = frozenset([name for name in map(_canonical, task.inputs) if name in makers or name in reader.around.given])
        conf = next(iter(options(job.planner, "--conf")), "")
        told = [word[2:].partition("=") for word in job.planner if word.startswith(_PROPERTY)]
        properties = {key: os.path.join(reader.directory, value) if key.endswith(".file") else value for key, _, value in told}
        offered: dict[str, str] = {}
        for name in options(job.planner, "--input-dir", "-i"):
            directory = os.path.join(reader.directory, name)
            try:
                with os.scandir(directory) as entries:
                    offered.update({entry.name: os.path.abspath(entry.path) for entry in entries if entry.is_file()})
            except OSError as error:
                reader.remark(f"input-dir {name}", 0, f"the input directory {directory} cannot be read: {error.strerror}")
        return Around(
            reader.directory, reader.catalogs, os.path.join(reader.directory, conf) if conf else "", properties, offered, declared, given,
            task.id, makers, reader.around,
        )  # fmt: skip

    def _spread(
        self, parents: dict[str, list[str]], roots: Mapping[str, list[str]], leaves: Mapping[str, list[str]]
    ) -> dict[str, list[str]]:
        """Edges to and from sub-workflows become edges to what begins in them and from what ends in them."""
        spread: dict[str, list[str]] = {}
        count = 0
        for child, stated in parents.items():
            ends = [end for parent in stated for end in leaves.get(parent, (parent,))]
            for begin in roots.get(child, (child,)):
                count += len(ends)
                if count > EDGES_MAX:
                    self._reader.end(0, f"the dependencies between sub-workflows are more than {EDGES_MAX:,}")
                    return {}
                spread.setdefault(begin, []).extend(ends)
        return spread


# ── names ──────────────────────────────────────────────────────────────────────────────────────────


class Taken(NamedTuple):
    """A sub-workflow as a part of the one around it."""

    tasks: list[Task]
    paths: dict[str, str]
    sizes: dict[str, int]
    later: dict[str, MadeLater]
    private: set[str]  # canonical names of its files that are not the outer workflow's
    words: list[str]  # lines to tell


def take_in(
    child: NestingReader, outer: Task, used: Callable[[str], bool], foreign: Callable[[str], bool], place: Callable[[str], str],
    share: Callable[[str], str],
) -> Taken:  # fmt: skip
    """The tasks of ``child`` as those of the workflow around it, in which ``outer`` stands for them.

    Of canonical names: ``used`` says which are those of files around it; ``foreign``, of which of these it is not known where they lie
    because a task makes them or they come from farther out; ``place``, where the others lie ('': where their names say).
    """
    made = {_canonical(name) for task in child.tasks for name in task.outputs}
    inputs, outputs = set(map(_canonical, outer.inputs)), set(map(_canonical, outer.outputs))
    spellings: dict[str, dict[str, None]] = {}
    for task in child.tasks:
        for name in (*task.inputs, *task.outputs):
            spellings.setdefault(_canonical(name), {})[name] = None
    where = {_canonical(name): path for name, path in child.paths.items()}
    stem = os.path.splitext(os.path.basename(child.source))[0]
    names: dict[str, str] = {}  # as written -> new
    private: set[str] = set()
    declared: set[str] = set()
    unplaced: list[str] = []
    for name in sorted(spellings):
        if name[:1] == "/" or in_namespace(name):
            continue  # the same file for everybody
        if name not in child.nested.private and (name in outputs or (name in inputs and name not in made)):
            declared.add(name)
            continue
        fresh = name
        if used(name):
            if name not in made and not foreign(name) and place(name) == where.get(name, ""):
                continue  # both read the one that is there
            if name not in made and name not in where:
                unplaced.append(name)
            fresh = _beside(name, f"{stem}.")
            while used(fresh) or fresh in spellings or fresh in private:
                fresh += "_"
            names.update(dict.fromkeys(spellings[name], fresh))
        private.add(fresh)
    words = []
    if names:
        first = next(iter(names))
        more = f" (and {len(names) - 1} more like this)" if len(names) > 1 else ""
        words.append(f"sub-workflow {stem}: its file {first!r} has the name of another workflow's; it becomes {names[first]!r}{more}")
    if unplaced:
        more = f" (and {len(unplaced) - 1} more like this)" if len(unplaced) > 1 else ""
        words.append(
            f"sub-workflow {stem} reads {unplaced[0]!r}, which the uses of job {outer.id} do not declare: so it is not the file of that "
            f"name of another workflow, and no catalog says where it lies{more}"
        )
    paths = {}
    for name, path in child.paths.items():
        if (true_name := _canonical(name)) not in declared:
            paths[names.get(name, name)] = path
        elif not foreign(true_name) and not place(true_name):
            paths[name] = path
        elif not foreign(true_name) and place(true_name) != path:
            words.append(f"file {name!r} of job {outer.id} lies at {place(true_name)}; the catalog of {stem} has it at {path}, in vain")
    paths.update((name, place(name)) for name in declared if not foreign(name) and place(name))
    ids = {task.id: share(f"{outer.id}.{task.id}") for task in child.tasks}
    return Taken(
        [_adopted(task, ids, names, outer) for task in child.tasks],
        paths,
        {names.get(name, name): size for name, size in child.sizes.items()},
        {ids[each]: later.renamed(names) for each, later in child.nested.later.items()},
        private,
        words,
    )


def _adopted(task: Task, ids: Mapping[str, str], names: Mapping[str, str], outer: Task) -> Task:
    """A task of a sub-workflow as one of the workflow around it."""

    def named(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([names.get(word, word) for word in words]) if names else words

    outputs = named(task.outputs)
    declared = {_canonical(name) for name in outer.outputs}
    kept = {_canonical(name) for name in outer.keep}
    stays = set(named(task.keep))
    keep = tuple(name for name in outputs if _canonical(name) in kept or (name in stays and _canonical(name) not in declared))
    return msgspec.structs.replace(
        task,
        id=ids[task.id],
        argv=_command(task, names) if names else task.argv,
        inputs=named(task.inputs),
        outputs=outputs,
        stdin=names.get(task.stdin, task.stdin),
        stdout=names.get(task.stdout, task.stdout),
        stderr=names.get(task.stderr, task.stderr),
        keep=keep,
        scratch=tuple(name for name in named(task.scratch) if name not in keep),
        after=tuple(ids[each] for each in task.after),
        line=outer.line,
    )


def _command(task: Task, names: Mapping[str, str]) -> tuple[str, ...]:
    """The command of a task whose files have got new names. Words that are just a name follow. A program that is not told a name in that
    way (it knows it, or has it within a longer word) finds the file under the old one: a shell gives it that before, and takes it away."""
    own = {name for name in (*task.inputs, *task.outputs) if name in names}
    hidden = []
    for name in own:
        within = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)")
        told = name in task.argv or name in (task.stdin, task.stdout, task.stderr)
        if not told or any(word != name and name in word and within.search(word) for word in task.argv):
            hidden.append(name)
    argv = tuple([names[word] if word in own and word not in hidden else word for word in task.argv])
    if not hidden:
        return argv
    link = [name for name in task.inputs if name in hidden]
    move = [name for name in task.outputs if name in hidden and name not in (task.stdout, task.stderr)]
    targets = {name: shlex.quote(posixpath.basename(names[name])) for name in link if name not in move}
    script = "".join(f"ln -s -- {target} {shlex.quote(name)} || exit; " for name, target in targets.items())
    if not move:
        return ("/bin/sh", "-c", f'{script}exec "$0" "$@"', *argv)
    moves = "; ".join(f"[ ! -e {shlex.quote(name)} ] || mv -- {shlex.quote(name)} {shlex.quote(names[name])} || exit" for name in move)
    return ("/bin/sh", "-c", f'{script}"$0" "$@" || exit; {moves}', *argv)


def _canonical(name: str) -> str:
    return canonical(name, "/") if name[:1] in "./" or "/." in name or "//" in name else name


def _beside(name: str, prefix: str) -> str:
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{prefix}{last}"


def _undeclared(task: Task, job: Job, maker: str, whose: str) -> str:
    return (
        f"job {task.id}: sub-workflow {job.file} is there, but job {maker} makes a file of that name, which {whose} not declare: "
        "declare it if it is this one, or say in the replica catalog where this one lies"
    )


def options(words: Iterable[str], *names: str) -> list[str]:
    """The comma-separated values of an option among the words of a command."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        head, equals, value = word.partition("=")
        if head in names:
            found += (value if equals else next(rest, "")).split(",")
    return [value for value in found if value]


def _open(reader: NestingReader, path: str, format: str = "pegasus") -> NestingReader:
    """A reader for a document within that of ``reader``."""
    from amfs.translate.detect import make_document_reader

    child = make_document_reader(format, path)
    child.outer = (*reader.outer, os.path.abspath(reader.source))
    return child  # type: ignore[return-value]


def _ends(tasks: list[Task]) -> tuple[list[str], list[str]]:
    """Ids of the tasks that wait for none of the others, and of those for which none of the others waits."""
    writers = last_writers(tasks)
    ahead = {task.id: {*task.after, *(tasks[writers[name]].id for name in task.inputs if name in writers)} for task in tasks}
    awaited = set().union(*ahead.values())
    return [task.id for task in tasks if not ahead[task.id]], [task.id for task in tasks if task.id not in awaited]
