"""A Makeflow in JSON, or in JX, the expression language that is evaluated to it first. Pure; see docs/reference/makeflow.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from amfs.translate.document import taken
from amfs.translate.jx_evaluate import evaluate
from amfs.translate.shell_quoting import Malformed


class File(msgspec.Struct, forbid_unknown_fields=True):
    """A file that the command knows by another name; the words for the two changed with the versions."""

    dag_name: str = ""
    task_name: str = ""
    path: str = ""
    remote_name: str = ""
    name: str = ""
    source: str = ""


class Category(msgspec.Struct):
    resources: dict[str, int | float] = {}
    environment: dict[str, str | int | float] = {}


class Nested(msgspec.Struct):
    path: str
    cwd: str = ""


class JxRule(msgspec.Struct):
    command: str | None = None
    inputs: list[str | File] | str = []
    outputs: list[str | File] | str = []
    input: list[str | File] | str = []  # not known to Makeflow, which drops them, but written by people
    output: list[str | File] | str = []
    workflow: str | None = None
    makeflow: str | Nested | None = None
    args: dict[str, msgspec.Raw] = {}
    category: str = ""
    resources: dict[str, int | float] = {}
    environment: dict[str, str | int | float] = {}
    local_job: bool = False


class JxDocument(msgspec.Struct):
    rules: list[msgspec.Raw]
    define: dict[str, msgspec.Raw] = {}
    environment: dict[str, str | int | float] = {}
    categories: dict[str, Category] = {}
    default_category: str = "default"


#: Names in ``resources`` -> variables of the make-like form.
RESOURCES = {
    "cores": "CORES", "memory": "MEMORY", "disk": "DISK", "gpus": "GPUS", "wall-time": "WALL_TIME", "mpi-processes": "MPI_PROCESSES",
}  # fmt: skip


class Document(NamedTuple):
    """The document, its rules aside; the text that its rules are written in, and their lines where it was evaluated."""

    content: JxDocument
    text: bytes
    lines: list[int] | None


def parse(data: bytes, given: Mapping[str, object] | None = None, listdir: Callable[[str], list[str]] | None = None) -> Document:
    """``given`` and ``listdir``: as ``evaluate`` has them. Raises Malformed, with what to do; NotJx with the line."""
    lines = None
    try:
        return Document(msgspec.json.decode(data, type=JxDocument), data, None)
    except msgspec.ValidationError as error:
        raise Malformed(_in_words(error)) from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        value = evaluate(data.decode("utf-8", "surrogateescape"), given, listdir)
    try:
        if isinstance(value, dict) and isinstance(value.get("rules"), list):
            lines = [getattr(rule, "line", 1) for rule in value["rules"]]
        text = msgspec.json.encode(value)
        return Document(msgspec.json.decode(text, type=JxDocument), text, lines)
    except msgspec.ValidationError as error:
        raise Malformed(_in_words(error)) from None
    except (UnicodeEncodeError, RecursionError, OverflowError):
        raise Malformed("this is neither JSON nor JX in UTF-8") from None


def rules(document: Document) -> Iterator[tuple[int, JxRule | str, list[str]]]:
    """The line of each rule; the rule, or in words what is wrong with it; its members that mean nothing."""
    at, line = 0, 1
    for number, raw in enumerate(taken(document.content.rules)):
        text = bytes(raw)
        if document.lines is not None:
            line = document.lines[number]
        elif (found := document.text.find(text, at)) >= 0:
            line += document.text.count(b"\n", at, found)
            at = found
        try:
            rule: JxRule | str = msgspec.json.decode(text, type=JxRule)
            others = [name for name in msgspec.json.decode(text, type=dict[str, msgspec.Raw]) if name not in JxRule.__struct_fields__]
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            rule, others = _in_words(error), []
        yield line, rule, others


def names(files: list[str | File] | str) -> list[tuple[str, str]]:
    """(name, name that the command knows) of each file. Raises Malformed."""
    found = []
    for file in [files] if isinstance(files, str) else files:
        if isinstance(file, str):
            pair = file, file
        else:
            name = file.dag_name or file.path or file.name
            pair = name, file.task_name or file.remote_name or file.source or name
        if not pair[0]:
            raise Malformed("a file without a name")
        found.append(pair)
    return found


def resources(given: dict[str, int | float]) -> dict[str, str]:
    """As variables. Raises Malformed."""
    found = {}
    for name, value in given.items():
        if name not in RESOURCES:
            raise Malformed(f"unknown resource {name!r} (known: {', '.join(RESOURCES)})")
        if value != int(value) or value < 0:
            raise Malformed(f"{name} must be a whole number, not {value}")
        found[RESOURCES[name]] = str(int(value))
    return found


def environment(given: dict[str, str | int | float]) -> dict[str, str]:
    """As variables. Raises Malformed."""
    for name, value in given.items():
        if not name or "=" in name or "\0" in name or "\0" in str(value):
            raise Malformed(f"{name!r} cannot be the name of an environment variable, or its value has a NUL character")
    return {name: str(value) for name, value in given.items()}


def _in_words(error: Exception) -> str:
    what, _, where = str(error).partition(" - at `$")
    field = where.rstrip("`").lstrip(".")
    what = (what[:1].lower() + what[1:]).replace("`", "'")
    return f"{field}: {what}" if field else what
