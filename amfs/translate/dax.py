"""Pegasus DAX, versions 2.0 to 3.6: abstract workflows in XML. See docs/reference/dax.md.

The document goes through expat as it comes and is never held: 100,000 jobs are read in the memory of their tasks. Elements are known by
their local names, in any order, and nothing is validated: most real files break the schema. Entities are refused, so no document can
grow while it is read or name another file. Jobs and catalogs mean the same as in Pegasus 5, and are left to ``PegasusReader``.
"""

from __future__ import annotations

import os
import re
from array import array
from xml.parsers import expat

import msgspec

from amfs.translate.document import DEPTH_MAX, ELEMENT_BYTES_MAX, tolerant
from amfs.translate.pegasus import PegasusReader, command_words
from amfs.translate.pegasus_catalogs import Place, Transformation, key_of
from amfs.translate.pegasus_nested import Job
from amfs.translate.pegasus_profiles import Profiles
from amfs.workflow.workflow import Task, complete

Attributes = dict[str, str]

_DECORATION = {"level", "dv-namespace", "dv-name", "dv-version", "compound", "node-label"}
_JOB_ATTRIBUTES = {"id", "name", "namespace", "version", "file", "runtime", "cores", *_DECORATION}
_USES_ATTRIBUTES = {
    "name", "file", "link", "register", "transfer", "optional", "type", "executable", "namespace", "version", "size", "temporaryHint",
    "isTemporary", "dontRegister", "dontTransfer", "varname", "node-label",
}  # fmt: skip


class _Stop(Exception):
    """No going on; the fault is noted."""


class _Name(str):
    """The name of a file within an argument."""

    __slots__ = ()


class _Open(msgspec.Struct, gc=False):
    """The job, catalog entry or transformation that is being read."""

    kind: str
    attributes: Attributes
    line: int
    words: list[str] = []  # of the arguments: text and names of files, as they come
    uses: list[tuple[Attributes, int]] = []
    streams: dict[str, str] = {}
    profiles: Profiles = {}
    places: list[Place] = []


class DaxReader(PegasusReader):
    """Reads a workflow; ``tasks`` are complete after ``finish``."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end_element
        parser.EntityDeclHandler = self._entity
        parser.SkippedEntityHandler = self._skipped
        self._path: list[str] = []
        self._open: _Open | None = None
        self._content: list[str] | None = None  # of the element that is being read, where it matters
        self._profile = ("", "")
        self._child_ref = ""
        self._ids: dict[str, int] = {}  # of jobs -> line
        self._edges: list[str] = []  # child, parent, child, parent, …
        self._edge_lines = array("Q")
        self._plain: dict[str, Job] = {}  # jobs without profiles of their own are all the same
        self._optional: dict[str, tuple[str, ...]] = {}  # job -> outputs that may be missing
        self._needs: dict[str, tuple[str, ...]] = {}  # transformation -> data files that it takes along
        self._inline: tuple[str, ...] = ()  # catalogs that stand in the document
        self._fed = 0
        self._begin = -1  # where the element of the top that is being read begins

    # ── bytes in ───────────────────────────────────────────────────────────────────────────────────

    def feed(self, data: bytes) -> None:
        if self.count(data):
            self._fed += len(data)
            self._parse(data, False)
            begin = self._begin if self._begin >= 0 else self._parser.CurrentByteIndex
            if not self.dead and self._fed - begin > ELEMENT_BYTES_MAX:
                self.end(self._line, f"one element takes more than {ELEMENT_BYTES_MAX >> 20} MiB")

    def finish(self) -> None:
        if not self.dead:
            self._parse(b"", True)
        if self.dead:
            return
        if not self.tasks and not self.faults:
            self.fault(0, "there are no jobs in this workflow")
        self._catalogs.look_beside(self._inline)
        self._strings = {}  # the names are all shared by now
        self._check_edges()
        self._fill_in()
        self._take_along()
        self._complete()

    def _parse(self, data: bytes, last: bool) -> None:
        try:
            self._parser.Parse(data, last)
        except _Stop:
            pass
        except expat.ExpatError as error:
            self.end(error.lineno, f"not well-formed XML: {expat.ErrorString(error.code)}")
        except (ValueError, LookupError) as error:  # of an encoding that Python does not know either
            self.end(self._line, f"not readable as XML: {error}")

    @property
    def _line(self) -> int:
        return self._parser.CurrentLineNumber

    def _entity(self, name: str, *rest: object) -> None:
        self.end(self._line, f"the document declares an entity ({name[:40]}); entities are not read")
        raise _Stop

    def _skipped(self, name: str, *rest: object) -> None:
        self.end(self._line, f"the document uses an entity that it does not declare (&{name[:40]};)")
        raise _Stop

    # ── elements ───────────────────────────────────────────────────────────────────────────────────

    def _start(self, tag: str, attributes: Attributes) -> None:
        path = self._path
        name = tag.rpartition(":")[2]
        path.append(name)
        depth = len(path)
        if depth == 1:
            self._root(name, attributes)
        elif depth == 2:
            self._begin = self._parser.CurrentByteIndex
            self._top(name, attributes)
        elif depth > DEPTH_MAX:
            self.end(self._line, f"elements lie deeper than {DEPTH_MAX} in each other")
            raise _Stop
        elif self._content is not None:
            if name in ("file", "filename"):
                if name == "filename" and self._content and isinstance(self._content[-1], _Name):
                    self._content.append(" ")
                self._content.append(_Name(attributes.get("name") or attributes.get("file") or ""))
            else:
                self.remark(f"{name} in text", self._line, f"<{name}> within the text of <{path[-2]}> has no meaning here")
        elif path[1] == "child":
            if name == "parent":
                self._edges += (self._child_ref, self.share(attributes.get("ref", "")))
                self._edge_lines.append(self._line)
            else:
                self.remark(f"element {name}", self._line, f"<{name}> is not known in <child>, and is ignored")
        elif self._open is not None and depth == 3:
            self._within(self._open, name, attributes)
        elif self._open is not None and depth == 4:
            self._deeper(self._open, name, attributes)

    def _end_element(self, tag: str) -> None:
        path = self._path
        name = path.pop()
        depth = len(path) + 1
        if self._content is not None and name in ("argument", "profile", "metadata"):
            text, self._content = self._content, None
            self._parser.CharacterDataHandler = None
            if self._open is not None:
                self._text_of(self._open, name, text)
        if depth == 2:
            self._begin = -1
        if depth == 2 and self._open is not None:
            done, self._open = self._open, None
            catalogs = {"file": self._replica, "executable": self._executable, "transformation": self._transformation}
            catalogs.get(done.kind, self._add_job)(done)

    def _gather(self) -> None:
        self._content = []
        self._parser.CharacterDataHandler = self._content.append

    def _root(self, name: str, attributes: Attributes) -> None:
        if name != "adag":
            self.end(self._line, f"this is XML, but no DAX: its root is <{name[:40]}>, not <adag>")
            raise _Stop
        self.name = attributes.get("name", "")
        version = attributes.get("version", "")
        if version and not re.match(r"[23](\.|\Z)", version):
            self.remark("version", self._line, f"DAX version {version!r} is not known; it is read as 3.6")

    def _top(self, name: str, attributes: Attributes) -> None:
        line = self._line
        if name in ("job", "dax", "dag", "file", "executable", "transformation"):
            self._open = _Open(name, attributes, line, [], [], {}, {}, [])
        elif name == "child":
            self._child_ref = self.share(attributes.get("ref", ""))
        elif name == "metadata":
            self.remark("metadata", line, "metadata have no meaning here")
        elif name == "invoke":
            self.remark("invoke", line, "notifications have no meaning here: nobody is notified")
        elif name != "filename":  # of version 2: says again what the jobs say
            self.remark(f"element {name}", line, f"<{name}> is not known in a workflow, and is ignored")

    def _within(self, part: _Open, name: str, attributes: Attributes) -> None:
        line = self._line
        if name == "argument":
            self._gather()
        elif name == "profile":
            self._profile = (attributes.get("namespace", ""), attributes.get("key", ""))
            self._gather()
        elif name == "uses":
            part.uses.append((attributes, line))
        elif name in ("stdin", "stdout", "stderr"):
            part.streams[name] = self.share(attributes.get("name") or attributes.get("file") or "")
        elif name == "pfn":
            part.places.append(Place(attributes.get("site", ""), attributes.get("url", "")))
        elif name == "metadata":
            self._metadata(part, attributes)
        elif name == "invoke":
            self.remark("invoke", line, "notifications have no meaning here: nobody is notified")
        else:
            self.remark(f"element {name}", line, f"<{name}> is not known in <{part.kind}>, and is ignored")

    def _deeper(self, part: _Open, name: str, attributes: Attributes) -> None:
        if name == "profile":  # of a pfn
            self._profile = (attributes.get("namespace", ""), attributes.get("key", ""))
            self._gather()
        elif name == "metadata":
            self._metadata(part, attributes)
        else:
            self.remark(f"element {name}", self._line, f"<{name}> is not known in <{self._path[-2]}>, and is ignored")

    def _metadata(self, part: _Open, attributes: Attributes) -> None:
        if attributes.get("key") == "size" and (self._path[-2] == "uses" or part.kind == "file"):
            self._gather()
        else:
            self.remark("metadata", self._line, "metadata have no meaning here")

    def _text_of(self, part: _Open, name: str, text: list[str]) -> None:
        if name == "argument":
            part.words = text
        elif name == "metadata":
            used = part.uses[-1][0] if self._path[-1] == "uses" and part.uses else part.attributes
            used.setdefault("size", "".join(text))
        else:
            profiles = part.places[-1].profiles if self._path[-1] == "pfn" and part.places else part.profiles
            if not profiles and profiles is not part.profiles:
                profiles = part.places[-1].profiles = {}
            profiles[self._profile] = "".join(text).strip()

    # ── catalogs ───────────────────────────────────────────────────────────────────────────────────

    def _replica(self, part: _Open) -> None:
        lfn = self.share(part.attributes.get("name", ""))
        if not lfn:
            self.fault(part.line, "a <file> without a name")
            return
        for place in part.places:
            self._catalogs._replica(lfn, place.site, place.pfn)
        if "size" in part.attributes:
            self._size(lfn, part.attributes["size"], part.line)
        self._inline = ("replicaCatalog", *self._inline) if "replicaCatalog" not in self._inline else self._inline

    def _executable(self, part: _Open) -> None:
        attributes = part.attributes
        if not attributes.get("name"):
            self.fault(part.line, "an <executable> without a name")
            return
        key = self._key(attributes)
        installed = attributes.get("installed", "true").strip().lower() != "false"
        known = self._catalogs.transformations.setdefault(key, Transformation([], {}))
        known.places += [msgspec.structs.replace(place, installed=installed) for place in part.places]
        known.profiles = known.profiles | part.profiles
        if "transformationCatalog" not in self._inline:
            self._inline = ("transformationCatalog", *self._inline)

    def _transformation(self, part: _Open) -> None:
        """A program and what it needs: other programs, and data files that every job of it gets as inputs."""
        if not part.attributes.get("name"):
            self.fault(part.line, "a <transformation> without a name")
            return
        key = self._key(part.attributes)
        known = self._catalogs.transformations.setdefault(key, Transformation([], {}))
        programs = [use for use, _ in part.uses if _true(use.get("executable", "true"))]
        known.requires += tuple(each for use in programs if (each := self._key(use)) != key and each not in known.requires)
        data = tuple(name for use, _ in part.uses if not _true(use.get("executable", "true")) and (name := self.share(use.get("name", ""))))
        if data:
            self._needs[key] = self._needs.get(key, ()) + data

    def _key(self, attributes: Attributes) -> str:
        name = attributes.get("name") or attributes.get("file") or ""
        return self.share(key_of(attributes.get("namespace", ""), name, attributes.get("version", "")))

    def _take_along(self) -> None:
        if self._needs:
            for index, (task, job) in enumerate(zip(self.tasks, self._jobs, strict=True)):
                needs = self._needs.get(job.key, ())
                if needs:
                    self.tasks[index] = complete(msgspec.structs.replace(task, inputs=(*task.inputs, *needs)))

    # ── jobs ───────────────────────────────────────────────────────────────────────────────────────

    def _add_job(self, part: _Open) -> None:
        attributes, line = part.attributes, part.line
        task_id = self.share(attributes.get("id", ""))
        name = self.share(attributes.get("name") or attributes.get("file") or "")
        if not task_id:
            self.fault(line, f"a <{part.kind}> without an id")
        elif task_id in self._ids:
            self.fault(line, f"job id {task_id!r} is already taken (line {self._ids[task_id]})")
        elif not name:
            self.fault(line, f"job {task_id}: has no {'name' if part.kind == 'job' else 'file'}")
        else:
            self._ids[task_id] = line
            self._task(part, task_id, name)

    def _task(self, part: _Open, task_id: str, name: str) -> None:
        attributes, line, share = part.attributes, part.line, self.share
        for attribute in attributes.keys() - (_JOB_ATTRIBUTES - _DECORATION):
            self.remark(f"job attribute {attribute}", line, f"the attribute {attribute!r} of a job has no meaning here")
        inputs, outputs, keep, scratch = self._files(part, task_id)
        words = [share(word) for word in self._words(part)]
        streams = {stream: text for stream, text in part.streams.items() if text}
        fields: dict[str, object] = dict(streams)
        if "runtime" in attributes:
            fields["runtime"] = self.runtime(_number(attributes["runtime"], -1.0), line)
        if "cores" in attributes:
            cores = _number(attributes["cores"], 0.0)
            if 1 <= cores < 1 << 31 and cores.is_integer():
                fields["cores"] = int(cores)
            else:
                self.remark("cores", line, f"job {task_id} is said to need {attributes['cores']!r} cores; taken as 1")
        label = name
        if part.kind == "job":
            key = self._key(attributes)
            job = Job(key, part.profiles) if part.profiles else self._plain.setdefault(key, Job(key, {}))
            argv = (name, *words)
        else:
            job = Job("", part.profiles, name, tuple(words))
            argv = ("pegasus-plan" if part.kind == "dax" else "condor_dagman", *words, name)
            label = share(os.path.basename(name))
        task = Task(
            task_id, argv, inputs, outputs, label=label, keep=outputs if len(keep) == len(outputs) else keep,
            scratch=outputs if len(scratch) == len(outputs) else scratch, line=line, **fields,  # type: ignore[arg-type]
        )  # fmt: skip
        task = complete(task)
        optional = self._optional.pop(task_id, ())
        self.tasks.append(tolerant(task, optional) if optional and part.kind == "job" else task)
        self._jobs.append(job)

    def _words(self, part: _Open) -> list[str]:
        """The argument as one string, as Pegasus joins text and names of files, and that as words. Where text begins or ends in white
        space there is one blank; so it is wherever a line ends."""
        return command_words(self, re.sub(r"\s*\n\s*", " ", "".join(part.words)), part.line) if part.words else []

    def _files(self, part: _Open, task_id: str) -> tuple[tuple[str, ...], ...]:
        """(inputs, outputs, those for shared storage, those not)."""
        inputs: dict[str, bool] = {}  # -> whether the job changes it
        outputs: dict[str, bool] = {}  # -> whether it goes to shared storage
        optional: dict[str, None] = {}
        for use, line in part.uses:
            name = self.share(use.get("name") or use.get("file") or "")
            link = use.get("link", "none").strip().lower()
            if not name:
                self.fault(line, f"job {task_id}: a <uses> without a name")
                continue
            if _true(use.get("executable", "")) or use.get("type", "") == "executable":
                words = f"job {task_id} uses the program {name!r}: it must be where its own program looks for it, such as on PATH"
                self.remark("uses executable", line, words)
                continue
            if len(use) > 2 and not _USES_ATTRIBUTES.issuperset(use):
                for attribute in use.keys() - _USES_ATTRIBUTES:
                    self.remark(f"uses attribute {attribute}", line, f"the attribute {attribute!r} of <uses> has no meaning here")
            if "size" in use:
                self._size(name, use["size"], line)
            transfer, may_miss = _transfer(use)
            if link in ("input", "inout"):
                inputs[name] = inputs.get(name, False) or link == "inout"
                if may_miss and link == "input":
                    self.remark("optional input", line, f"{name!r} is an optional input; here it must be there")
            if link in ("output", "inout", "checkpoint"):
                outputs[name] = transfer or outputs.get(name, False)
                if link == "checkpoint":
                    self.remark("checkpoint", line, f"checkpoint file {name!r}: a task that is run again begins anew, without it")
                if may_miss or link == "checkpoint":
                    optional[name] = None
                    words = f"{name!r} is an optional output; if its task does not make it, it becomes an empty file"
                    self.remark("optional output", line, words)
            if link == "none":
                self.remark("link none", line, f"job {task_id} uses {name!r} neither as input nor as output; that is ignored")
            elif link not in ("input", "inout", "output", "checkpoint"):
                self.fault(line, f"job {task_id}: link must be input, output, inout, checkpoint or none, not {link[:40]!r}")
        for name in [name for name, changed in inputs.items() if name in outputs and not changed]:
            # As mDAG writes it: a file that is to be staged out again, not one that the program makes.
            words = f"job {task_id} names {name!r} once as input and once as output; taken as an input that stays as it is"
            self.remark("input and output", part.line, words)
            del outputs[name]
            optional.pop(name, None)
        if optional:
            self._optional[task_id] = tuple(optional)
        keep = tuple([name for name, out in outputs.items() if out])
        return tuple(inputs), tuple(outputs), keep, tuple([name for name, out in outputs.items() if not out])

    def _size(self, name: str, text: str, line: int) -> None:
        size = _number(text, float("nan"))
        if -(1 << 62) < size < 1 << 62:
            self.set_size(name, int(size), line)
        else:
            self.remark("size", line, f"the size of {name!r} is {text.strip()[:40]!r}, which is no number of bytes")

    # ── edges ──────────────────────────────────────────────────────────────────────────────────────

    def _check_edges(self) -> None:
        known = self._ids
        edges = iter(self._edges)
        for child, parent, line in zip(edges, edges, self._edge_lines, strict=True):
            unknown = child if child not in known else parent if parent not in known else None
            if unknown is not None:
                self.fault(line, f"a dependency names job {unknown!r}, which there is not" if unknown else "a dependency without a ref")
            elif child == parent:
                self.fault(line, f"job {child} is said to depend on itself")
            else:
                self._parents.setdefault(child, []).append(parent)
        self._edges, self._edge_lines, self._ids = [], array("Q"), {}


def _true(text: str) -> bool:
    return text.strip().lower() in ("true", "1")


def _number(text: str, otherwise: float) -> float:
    try:
        number = float(text)
    except ValueError:
        return otherwise
    return number


def _transfer(use: Attributes) -> tuple[bool, bool]:
    """(goes to shared storage, may be missing) from what versions 2.0 to 3.6 have said of that."""
    word = use.get("transfer", "").strip().lower()
    if not word and "dontTransfer" in use:
        word = {"true": "false", "false": "true"}.get(use["dontTransfer"].strip().lower(), "optional")
    if not word and (_true(use.get("temporaryHint", "")) or _true(use.get("isTemporary", ""))):
        word = "false"
    return word != "false", _true(use.get("optional", "")) or word == "optional"
