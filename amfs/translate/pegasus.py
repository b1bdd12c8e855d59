"""Pegasus 5 workflows in YAML (schema 5.0): jobs, files, dependencies, catalogs inline or beside. See docs/reference/pegasus.md.

The jobs are read one at a time from a stream of events; their needs of the catalogs, which may stand after them, are filled in at the
end. Sub-workflows are taken in by ``pegasus_nested``.
"""

from __future__ import annotations

import os
import re
from array import array
from typing import Any

import msgspec

from amfs.translate.document import FAULTS_MAX, DocumentReader, last_writers, tolerant, with_after
from amfs.translate.pegasus_catalogs import Catalogs, Place, Transformation, expand, key_of
from amfs.translate.pegasus_nested import Around, Job, NestingReader, SubWorkflows
from amfs.translate.pegasus_profiles import Profiles, apply, merge
from amfs.translate.shell_quoting import QuotingError, split
from amfs.translate.yaml_stream import Map, YamlDocument, YamlError
from amfs.workflow.workflow import Task

_TYPES = ("job", "pegasusWorkflow", "condorWorkflow")
_CATALOGS = ("siteCatalog", "replicaCatalog", "transformationCatalog")
_JOB_KEYS = {
    "type", "id", "name", "namespace", "version", "file", "nodeLabel", "arguments", "stdin", "stdout", "stderr", "uses", "profiles",
    "hooks", "metadata",
}  # fmt: skip
_USE_KEYS = {
    "lfn", "type", "stageOut", "registerReplica", "bypass", "optional", "size", "metadata", "forPlanning", "namespace", "version",
    "executable",
}  # fmt: skip


class PegasusReader(NestingReader):
    """Reads a workflow; ``tasks`` are complete after ``finish``."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._jobs: list[Job] = []
        self._parents: dict[str, list[str]] = {}
        self._stated: list[str] = []  # parent, child, parent, child, …
        self._stated_lines = array("Q")
        self._plain: dict[str, Job] = {}  # jobs without profiles of their own are all the same
        self._profiles: Profiles = {}
        self._catalogs = Catalogs(self)
        self._staging: dict[tuple[str, str], Task] = {}  # (path, name) of an executable that must be copied to be run -> the task that does
        self.around = Around()
        self.nested = SubWorkflows(self)
        self.later = self.nested.later

    def finish(self) -> None:
        if self.dead:
            return
        try:
            inline = self._read(YamlDocument(self._parts))
        except YamlError as error:
            self.end(error.line, str(error))
            return
        self._catalogs.look_beside(inline)
        self._strings = {}  # the names are all shared by now
        self._check_dependencies()
        self._fill_in()
        self._complete()

    @property
    def catalogs(self) -> Catalogs:
        """For the sub-workflows of this one."""
        return self._catalogs

    def catalog_place(self, name: str) -> str:
        """Where the catalogs have a file; '' if they do not say."""
        return self._catalogs.replica(name)

    def stand_in(self, around: Around) -> None:
        """This is a sub-workflow, of what is ``around`` it."""
        self.around = around
        self._catalogs.told(around.conf, around.properties, around.catalogs)

    def _complete(self) -> None:
        """The jobs are as they will be: find their inputs, and take sub-workflows in."""
        self._add_staging()
        self._locate_inputs()
        self.tasks = with_after(*self.nested.expand(self.tasks, self._jobs, self._parents))
        self._jobs, self._parents = [], {}
        self.nested.order()

    # ── the document ───────────────────────────────────────────────────────────────────────────────

    def _read(self, document: YamlDocument) -> set[str]:
        """Everything in the document; which catalogs stand in it."""
        seen: set[str] = set()
        inline: set[str] = set()
        for key, line in document.pairs():
            seen.add(key)
            if key == "jobs":
                for at, node in document.elements():
                    if isinstance(node, Map):
                        self._job(node)
                    else:
                        self.fault(at, "a job must be a mapping")
                    if len(self.faults) >= FAULTS_MAX:
                        raise YamlError(at, "so many faults are enough: the rest is not read")
            elif key == "jobDependencies":
                for at, node in document.elements():
                    self._dependency(node, at)
            elif key in _CATALOGS:
                if self._catalogs.take(key, document.value(), line):
                    inline.add(key)
            elif key == "profiles":
                self._profiles = self._catalogs.profiles(_wrapped(key, document.value(), line))
            elif key == "hooks":
                self.remark("hooks", line, "hooks have no meaning here: nobody is notified")
            elif key in ("name", "pegasus"):
                value = document.value()
                if not isinstance(value, str) or not value:
                    self.fault(line, f"{key!r} must be a word")
                elif key == "name":
                    self.name = value
                elif not value.startswith("5"):
                    self.remark("version", line, f"this is written for Pegasus {value}; it is read as 5.0")
            elif key == "metadata":
                self.remark("metadata", line, "metadata have no meaning here")
            elif not key.startswith("x-") and key != "version":
                self.remark(f"key {key}", line, f"{key!r} is not known in a workflow, and is ignored")
        if "jobs" not in seen:
            self.fault(0, "there are no jobs in this workflow")
        if "pegasus" not in seen:
            self.remark("version", 0, "the document does not say 'pegasus: VERSION'; it is read as 5.0")
        return inline

    def _dependency(self, node: Any, line: int) -> None:
        if not isinstance(node, Map):
            self.fault(line, "a dependency must be a mapping with an id and children")
            return
        parent = self.share(self._text(node, "id"))
        if not parent:
            self.fault(node.line, "a dependency without an id")
            return
        for child in self._list(node, "children"):
            if isinstance(child, str):
                self._stated += (parent, self.share(child))
                self._stated_lines.append(node.line)
            else:
                self.fault(node.line, f"the children of job {parent!r} must be ids")

    def _check_dependencies(self) -> None:
        known = {task.id for task in self.tasks}
        pairs = iter(self._stated)
        for parent, child, line in zip(pairs, pairs, self._stated_lines, strict=True):
            if parent not in known:
                self.fault(line, f"jobDependencies name a job {parent!r}, which there is not")
            elif child not in known:
                self.fault(line, f"jobDependencies name a child {child!r} of job {parent!r}, which there is not")
            elif child == parent:
                self.fault(line, f"job {child} is said to depend on itself")
            else:
                self._parents.setdefault(child, []).append(parent)
        self._stated, self._stated_lines = [], array("Q")

    # ── jobs ───────────────────────────────────────────────────────────────────────────────────────

    def _job(self, node: Map) -> None:
        line = node.line
        task_id = self._text(node, "id")
        if not task_id:
            self.fault(line, "a job without an id")
            return
        kind = self._text(node, "type") or "job"
        name = self._text(node, "name")
        file = self._text(node, "file")
        if kind not in _TYPES:
            self.fault(line, f"job {task_id}: the type must be one of {', '.join(_TYPES)}, not {kind!r}")
            return
        if not (name if kind == "job" else file):
            self.fault(line, f"job {task_id}: a {kind} needs a {'name' if kind == 'job' else 'file'}")
            return
        if not _JOB_KEYS.issuperset(node):
            for key in node.keys() - _JOB_KEYS:
                if not key.startswith("x-"):
                    self.remark(f"job key {key}", line, f"{key!r} is not known in a job, and is ignored")
        if "hooks" in node:
            self.remark("hooks", line, "hooks have no meaning here: nobody is notified")
        if node.get("metadata"):
            self.remark("metadata", line, "metadata have no meaning here")
        share = self.share
        words = [share(word) for word in self._arguments(node, task_id)]
        inputs, outputs, keep, scratch, optional = self._uses(node, task_id)
        streams: dict[str, Any] = {stream: share(text) for stream in ("stdin", "stdout", "stderr") if (text := self._text(node, stream))}
        kept = outputs if len(keep) == len(outputs) else keep
        scratch = outputs if len(scratch) == len(outputs) else scratch
        profiles = self._catalogs.profiles(node) if "profiles" in node else {}
        if kind == "job":
            key = share(key_of(self._text(node, "namespace"), name, self._text(node, "version")))
            job = Job(key, profiles) if profiles else self._plain.setdefault(key, Job(key, {}))
            program = share(name)
        else:
            job = Job("", profiles, file, tuple(words))
            program = "pegasus-plan" if kind == "pegasusWorkflow" else "condor_dagman"
            words.append(file)
            name = os.path.basename(file)
        task = Task(share(task_id), (program, *words), inputs, outputs, label=share(name), keep=kept, scratch=scratch, line=line, **streams)
        self.tasks.append(tolerant(task, optional) if optional and kind == "job" else task)
        self._jobs.append(job)

    def _arguments(self, node: Map, task_id: str) -> list[str]:
        """The words of the command line: all elements joined by blanks, then split; quotes hold words together, nothing is expanded."""
        found = self._list(node, "arguments")
        if not found:
            return []
        if not all(isinstance(word, str) for word in found):
            if any(isinstance(word, (Map, list)) for word in found):
                self.fault(node.line, f"job {task_id}: arguments must be words and numbers")
                return []
            found = ["" if word is None else word for word in found]
        text = " ".join(found)
        return command_words(self, text, node.line)

    def _uses(self, node: Map, task_id: str) -> tuple[tuple[str, ...], ...]:
        """(inputs, outputs, those to stage out, those not to, those that may be missing)."""
        inputs: dict[str, bool] = {}  # -> whether the job changes it
        outputs: dict[str, None] = {}
        optional: dict[str, None] = {}
        staged: dict[str, bool] = {}
        for use in self._list(node, "uses"):
            if not isinstance(use, Map):
                self.fault(node.line, f"job {task_id}: each of its uses must be a mapping")
                continue
            lfn = self.share(self._text(use, "lfn") or self._text(use, "name"))
            kind = self._text(use, "type") or "none"
            if not lfn:
                self.fault(use.line, f"job {task_id}: a use without an lfn")
                continue
            if len(use) > 2:
                self._use_details(use, lfn)
            if kind in ("input", "inout"):
                inputs[lfn] = inputs.get(lfn, False) or kind == "inout"
            if kind in ("output", "inout", "checkpoint"):
                outputs[lfn] = None
                staged[lfn] = self._flag(use, "stageOut", True) or staged.get(lfn, False)
            if kind == "checkpoint":
                self.remark("checkpoint", use.line, f"checkpoint file {lfn!r}: a task that is run again begins anew, without it")
            if kind == "checkpoint" or (len(use) > 2 and self._flag(use, "optional", False)):
                if lfn in outputs:
                    optional[lfn] = None
                    words = f"{lfn!r} is an optional output; if its task does not make it, it becomes an empty file"
                    self.remark("optional output", use.line, words)
                else:
                    self.remark("optional input", use.line, f"{lfn!r} is an optional input; here it must be there")
            if kind == "none":
                self.remark("use none", use.line, f"the use of {lfn!r} says neither input nor output, and is ignored")
            elif kind not in ("input", "inout", "output", "checkpoint"):
                self.fault(use.line, f"job {task_id}: a use must be input, output, inout, checkpoint or none, not {kind!r}")
        for lfn in [lfn for lfn, changed in inputs.items() if lfn in outputs and not changed]:
            words = f"job {task_id} names {lfn!r} once as input and once as output; taken as an input that stays as it is"
            self.remark("input and output", node.line, words)
            del outputs[lfn], staged[lfn]
            optional.pop(lfn, None)
        keep = tuple([lfn for lfn, out in staged.items() if out])
        return tuple(inputs), tuple(outputs), keep, tuple([lfn for lfn, out in staged.items() if not out]), tuple(optional)

    def _use_details(self, use: Map, lfn: str) -> None:
        if not _USE_KEYS.issuperset(use):
            for key in use.keys() - _USE_KEYS:
                self.remark(f"use key {key}", use.line, f"{key!r} is not known in a use, and is ignored")
        metadata = use.get("metadata")
        size = use.get("size") or (metadata.get("size") if isinstance(metadata, Map) else None)
        if size is not None:
            if isinstance(size, str) and re.fullmatch(r"-?\d{1,18}", size, re.ASCII):
                self.set_size(lfn, int(size), use.line)
            else:
                self.remark("size", use.line, f"the size of {lfn!r} is {str(size)[:40]!r}, which is no number of bytes")
        if metadata and not (isinstance(metadata, Map) and metadata.keys() <= {"size"}):
            self.remark("metadata", use.line, "metadata have no meaning here")
        if self._flag(use, "registerReplica", False):
            self.remark("registerReplica", use.line, "registerReplica has no meaning here: there is no replica catalog to write to")
        if self._flag(use, "bypass", False):
            self.remark("bypass", use.line, "bypass has no meaning here: inputs are read where they are anyway")

    # ── with the catalogs known ────────────────────────────────────────────────────────────────────

    def _fill_in(self) -> None:
        """Programs, profiles, and files that programs need."""
        shared: dict[str, tuple[str, Transformation | None, Place | None, dict[str, Any]]] = {}
        for index, (task, job) in enumerate(zip(self.tasks, self._jobs, strict=True)):
            if job.file:
                fields = self._fields(merge([job.profiles, self._profiles]), task)
                self.tasks[index] = msgspec.structs.replace(task, **fields) if fields else task
                continue
            known = shared.get(job.key) if not job.profiles else None
            if known is None:
                known = self._look_up(task, job)
                if not job.profiles:
                    shared[job.key] = known
            program, transformation, place, fields = known
            changes = dict(fields)
            at = _program_at(task)
            more: list[str] = []
            if place is not None and not place.installed and _lacks_x_bit(program):
                name = self._stage(program, re.sub(r"::?|/", "-", job.key), task)
                program = f"./{name}" if at else name
                more.append(name)
            if program != task.argv[at]:
                changes["argv"] = (*task.argv[:at], program, *task.argv[at + 1 :])
            if transformation is not None and transformation.requires:
                more += self._required(transformation, place, task, fields)
            if more:
                changes["inputs"] = (*task.inputs, *more)
            if changes:
                self.tasks[index] = msgspec.structs.replace(task, **changes)

    def _stage(self, path: str, name: str, task: Task) -> str:
        """A copy of a stageable executable that may be executed, made by a task of its own; its name among the files of the workflow."""
        known = self._staging.get((path, name))
        if known is None:
            known = self._staging[path, name] = Task(
                f"stage.{name}", ("/bin/sh", "-c", 'cp -- "$0" "$1" && chmod 755 "$1"', path, name), (), (name,), label="stage executable",
                scratch=(name,), line=task.line,
            )  # fmt: skip
        return known.outputs[0]

    def _add_staging(self) -> None:
        if self._staging:
            self.tasks[0:0] = self._staging.values()
            self._jobs[0:0] = [Job("", {})] * len(self._staging)

    def _look_up(self, task: Task, job: Job) -> tuple[str, Transformation | None, Place | None, dict[str, Any]]:
        transformation = self._catalogs.transformation(job.key)
        wanted = next((value for (space, key), value in job.profiles.items() if space == "hints" and "site" in key.lower()), "")
        place = transformation.at(wanted) if transformation is not None else None
        layers = [job.profiles, self._profiles]
        if transformation is not None:
            layers.insert(0, transformation.profiles)
        if place is not None:
            layers[0:0] = [place.profiles]
            layers.insert(2, self._catalogs.site(place.site))
        pfn = next((value for (space, key), value in job.profiles.items() if space == "hints" and key.lower() == "pfn"), "")
        program = self._program(pfn or (place.pfn if place is not None else ""), task)
        return program, transformation, place, self._fields(merge(layers), task)

    def _fields(self, profiles: Profiles, task: Task) -> dict[str, Any]:
        return apply(profiles, self.remark, task.line) if profiles else {}

    def _program(self, pfn: str, task: Task) -> str:
        name = task.argv[_program_at(task)]
        if not pfn:
            return name
        if "/" not in pfn:
            return self.share(pfn)
        path = self.beside(expand(pfn, self.directory))
        if not path:
            words = f"program {name!r} is at {pfn}: nothing is fetched, so it is looked up here by its name"
            self.remark(f"program {pfn}", task.line, words)
            return name
        return self.share(path)

    def _required(self, transformation: Transformation, place: Place | None, task: Task, fields: dict[str, Any]) -> list[str]:
        """The programs that a program starts, as files beside it: where the catalog would have them staged, and PATH does not find them."""
        found = []
        search: list[str] = next((entry[5:].split(":") for entry in fields.get("env", ()) if entry.startswith("PATH=")), [])
        for key in transformation.requires:
            other = self._catalogs.transformation(key)
            there = other.at(place.site if place is not None else "") if other is not None else None
            if there is None:
                self.remark(f"requires {key}", task.line, f"program {task.label!r} requires {key!r}, of which the catalog knows nothing")
            elif not there.installed and not (path := self.beside(expand(there.pfn, self.directory))):
                words = f"program {key!r}, which {task.label!r} requires, is at {there.pfn}: nothing is fetched, so it must be on PATH"
                self.remark(f"program {there.pfn}", task.line, words)
            elif not there.installed:
                name = self.share(re.sub(r"\A.*::|:[^:]*\Z", "", key))
                if os.path.basename(path) == name and os.path.dirname(path) in search:
                    continue
                if _lacks_x_bit(path):
                    self._stage(path, name, task)
                else:
                    self.paths[name] = path
                if name not in task.inputs:
                    found.append(name)
        return found

    def _locate_inputs(self) -> None:
        """Where the files are that are read and not made."""
        made = last_writers(self.tasks)
        for task in self.tasks:
            for name in (*task.inputs, task.stdin):
                if name and name not in made and name not in self.paths:
                    where = self.around.offered.get(name) or self._catalogs.replica(name)
                    if where:
                        self.paths[name] = where

    # ── parts ──────────────────────────────────────────────────────────────────────────────────────

    def _text(self, node: Map, key: str) -> str:
        value = node.get(key)
        if value is None or isinstance(value, str):
            return value or ""
        self.fault(node.line, f"{key!r} must be a word")
        return ""

    def _list(self, node: Map, key: str) -> list[Any]:
        value = node.get(key)
        if value is None or isinstance(value, list):
            return value or []
        self.fault(node.line, f"{key!r} must be a list")
        return []

    def _flag(self, node: Map, key: str, default: bool) -> bool:
        value = node.get(key)
        if value is None:
            return default
        word = value.lower() if isinstance(value, str) else ""
        if word in ("true", "yes", "on"):
            return True
        if word not in ("false", "no", "off"):
            self.fault(node.line, f"{key!r} must be true or false")
        return False


def command_words(reader: DocumentReader, text: str, line: int) -> list[str]:
    """The words of an argument string. Where quotes do not match, they are characters like others, and it is told."""
    if "\n" in text or "\r" in text:
        text = re.sub(r"[\r\n]", " ", text)
    try:
        return split(text, ansi=False)
    except QuotingError as error:
        reader.remark("quotes", line, f"in the arguments {error}; they are split at blanks")
        return text.split()


def _program_at(task: Task) -> int:
    """Where in argv the program stands: in front, but for a task that ``tolerant`` has wrapped."""
    return 3 if task.argv[0] == "/bin/sh" and len(task.argv) > 3 and task.argv[2].startswith('"$0" "$@" ||') else 0


def _lacks_x_bit(path: str) -> bool:
    """Is it a file here that may not be executed as it is?"""
    return path[:1] == "/" and os.path.isfile(path) and not os.access(path, os.X_OK)


def _wrapped(key: str, value: Any, line: int) -> Map:
    node = Map(line)
    node[key] = value
    return node
