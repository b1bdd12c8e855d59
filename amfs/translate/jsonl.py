"""Workflows as JSON Lines: one typed object a line, so that a list can be written and read as a stream. Pure.

``{"type": "task", "id": …, "argv": […], …}`` has the fields of ``Task`` (but for its line number, which is that of the line),
``{"type": "file", "name": …, "state": "Shared"|"Invalid", "size": …, "path": …}`` describes a file (any of the three may be missing),
``{"type": "workflow", "name": …}`` names the whole.
Fields with their default values are left out. Names that are not UTF-8 are written as lone surrogates (``"\\udcff"``), as Python does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from amfs.translate.reader import Reader
from amfs.workflow.workflow import DeclaredState, Task, Workflow

#: Task without ``line``: made from it, so that a field added there is part of the format at once.
_FIELDS = [field for field in msgspec.structs.fields(Task) if field.name != "line"]
TaskLine = msgspec.defstruct(
    "TaskLine",
    [(field.name, field.type, field.default) if not field.required else (field.name, field.type) for field in _FIELDS],
    tag="task",
    tag_field="type",
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
)


class FileLine(msgspec.Struct, tag="file", tag_field="type", forbid_unknown_fields=True, omit_defaults=True, gc=False):
    name: str
    state: DeclaredState | None = None
    size: Annotated[int, msgspec.Meta(ge=0)] | None = None
    path: str = ""


class WorkflowLine(msgspec.Struct, tag="workflow", tag_field="type", forbid_unknown_fields=True, gc=False):
    name: str


_LINE_TYPE: Any = TaskLine | FileLine | WorkflowLine
_NAMES = [field.name for field in _FIELDS]
_STRINGS = [field.name for field in _FIELDS if field.type is str and field.name != "id"]
_TUPLES = [field.name for field in _FIELDS if field.type == tuple[str, ...]]
_REST = [field.name for field in _FIELDS if field.type is not str and field.type != tuple[str, ...]]
_KNOWN = {"task": _NAMES, "file": ["name", "state", "size", "path"], "workflow": ["name"]}


class JsonLinesReader(Reader):
    """Reads JSON Lines. Blank lines are skipped."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._decoder = msgspec.json.Decoder(_LINE_TYPE)

    def text(self, text: str, first: int) -> None:
        decode = self._decoder.decode
        for number, line in enumerate(text.split("\n"), first):
            if not line or line.isspace():
                continue
            try:
                try:
                    item = decode(line)
                except (msgspec.DecodeError, UnicodeEncodeError):
                    item = _decode_odd(line)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                self.fault(number, _in_words(error, line), line)
                continue
            if "\\u0000" in line and (field := _field_with_nul(item)):
                self.fault(number, f"field {field!r}: contains a NUL character", line)
            elif type(item) is TaskLine:
                self.tasks.append(self._task(item, number))
            elif type(item) is FileLine:
                self._file(item)
            else:
                self.name = item.name
        self.bound()

    def _file(self, item: FileLine) -> None:
        name = self.share(item.name)
        if item.state is not None:
            self.files[name] = item.state
        if item.size is not None:
            self.sizes[name] = item.size
        if item.path:
            self.paths[name] = item.path

    def _task(self, item: Any, number: int) -> Task:
        share = self.share
        fields: dict[str, Any] = {name: getattr(item, name) for name in _REST}
        for name in _STRINGS:
            if text := getattr(item, name):
                fields[name] = share(text)
        for name in _TUPLES:
            if words := getattr(item, name):
                fields[name] = tuple([share(word) for word in words])
        fields.setdefault("argv", ())
        return Task(id=item.id, line=number, **fields)


def _decode_odd(line: str) -> Any:
    """The slow way, for lone surrogates (bytes that are not UTF-8), which msgspec refuses. Raises as msgspec does."""
    if line.isascii() and "\\ud" not in line.lower():
        raise_again = msgspec.json.Decoder(_LINE_TYPE)
        return raise_again.decode(line)
    text = json.dumps(json.loads(line), ensure_ascii=False)
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("a text contains half a character (a lone surrogate)") from None
    return msgspec.convert(json.loads(data.decode("utf-8", "surrogateescape")), _LINE_TYPE)


def _field_with_nul(item: Any) -> str:
    for field in item.__struct_fields__:
        value = getattr(item, field)
        if "\0" in value if isinstance(value, str) else any("\0" in word for word in value) if isinstance(value, tuple) else False:
            return str(field)
    return ""


def _in_words(error: Exception, line: str) -> str:
    """One clear line for what msgspec or json did not like."""
    import difflib  # only for faulty lists

    text = str(error)
    if unknown := re.search(r"unknown field `(.*)`", text):
        kind = re.search(r'"type"\s*:\s*"(\w+)"', line)
        known = _KNOWN.get(kind[1] if kind else "", _NAMES)
        near = difflib.get_close_matches(unknown[1], known, 1, 0.6)
        return f"unknown field {unknown[1]!r}" + (f"; did you mean {near[0]!r}?" if near else f" (known: {', '.join(known)})")
    if missing := re.search(r"missing required field `(.*?)`", text):
        return f"field {missing[1]!r} is missing" + (" (task, file or workflow)" if missing[1] == "type" else "")
    if re.search(r"Invalid value '(.*)' - at `\$\.type`", text):
        return f"field 'type': must be task, file or workflow: {text.split(' - ')[0]}"
    if isinstance(error, msgspec.ValidationError):
        what, _, where = text.partition(" - at `$")
        field = where.rstrip("`").lstrip(".")
        if not field:
            return f"a line must be one JSON object with a 'type': {what[:1].lower()}{what[1:]}".replace("`", "")
        return f"field {field!r}: {what[:1].lower()}{what[1:]}".replace("`", "")
    if isinstance(error, RecursionError):
        return "not valid JSON: nested too deeply"
    return f"not valid JSON: {text.removeprefix('JSON is malformed: ')}"


def write(workflow: Workflow) -> Iterator[str]:
    """The lines, without newlines: the workflow (if it has a name), the file list, the tasks."""
    if workflow.name != Workflow([]).name:
        yield _encode(WorkflowLine(workflow.name))
    for name in dict.fromkeys([*workflow.files, *workflow.sizes, *workflow.paths]):
        yield _encode(FileLine(name, workflow.files.get(name), workflow.sizes.get(name), workflow.paths.get(name, "")))
    for task in workflow.tasks:
        yield encode_task(task)


def encode_task(task: Task) -> str:
    """One task as one line of JSON, without a newline."""
    return _encode(TaskLine(*[getattr(task, name) for name in _NAMES]))


def _encode(item: Any) -> str:
    try:
        return msgspec.json.encode(item).decode()
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(item))
