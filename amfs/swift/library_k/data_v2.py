"""read and write of stdlib v2: a value from or to a text file, in a format that is given by name."""

from __future__ import annotations

import csv
from collections.abc import Generator
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import text_k
from amfs.swift.library_k.data import from_settings, row_of, scalar, text_of
from amfs.swift.library_k.registry import K
from amfs.swift.requests import FileValue, Request, WriteFile
from amfs.swift.types import ANY, Array, Struct, Type, base_of

_FORMATS = {"none": "None", "fieldandvalue": "FV", "fv": "FV", "csv": "CSV"}


def _format(name: str, what: str) -> str:
    found = _FORMATS.get(name.lower())
    if found is None:
        raise Failure(f"{what}: the format is None, FieldAndValue, FV or CSV, and not {name!r}")
    return found


def _separator(options: Any, what: str) -> str:
    separator = text_k(options.get("separator", " ")) if isinstance(options, dict) else " "
    if len(separator) != 1:
        raise Failure(f"{what}: the separator is one character, and not {separator!r}")
    return separator


@K.asking(
    "(any o) read(any f)", "(any o) read(any f, string format)", "(any o) read(any f, string format, any options)"
)
def read(f: Any, format: str = "None", options: Any = None, *, o: Type) -> Generator[Request, Any, Any]:
    name, text = yield from text_of(f)
    form, wanted = _format(format, "read"), base_of(o)
    if form == "FV":
        return from_settings(name, text, o)
    if not isinstance(wanted, Array | Struct):
        return text if wanted == ANY else scalar(text if str(wanted) == "string" else text.strip(), wanted, name)
    if form == "None":
        raise Failure(f"read: the format None has one value, and this is of type {o}; write format=\"CSV\" or format=\"FV\"")
    element = base_of(wanted.element) if isinstance(wanted, Array) else wanted
    if not isinstance(element, Struct):
        return {index: scalar(line, element, f"{name}:{index + 1}") for index, line in enumerate(text.splitlines())}
    lines = list(csv.reader(text.splitlines(), delimiter=_separator(options, "read"), skipinitialspace=True))
    columns = [column.strip() for column in lines[0]] if lines else []
    rows = [row_of(element, columns, values, f"{name}:{number}") for number, values in enumerate(lines[1:], 2) if values]
    if isinstance(wanted, Array):
        return dict(enumerate(rows))
    if len(rows) != 1:
        raise Failure(f"{name}: one {wanted} takes a line of field names and one of values, and not {len(rows)} of them")
    return rows[0]


@K.asking(
    "(file o) write(any x)", "(file o) write(any x, string format)", "(file o) write(any x, string format, any options)"
)
def write(x: Any, format: str = "None", options: Any = None, *, o: FileValue) -> Generator[Request, Any, FileValue]:
    yield WriteFile(o.name, _written(x, _format(format, "write"), options).encode(errors="surrogateescape"))
    return o


def _written(value: Any, form: str, options: Any) -> str:
    if form == "FV":
        return "".join(f"{path or '$'} = {text}\n" for path, text in _settings(value, ""))
    if not isinstance(value, dict | list):
        return text_k(value)
    if form == "None":
        raise Failure('write: the format None has one value; write format="CSV" or format="FV"')
    items = [value] if isinstance(value, dict) and any(isinstance(key, str) for key in value) else list(_values(value))
    if not items or not isinstance(items[0], dict):
        return "".join(f"{_plain(item)}\n" for item in items)
    separator = _separator(options, "write")
    lines = [[str(column) for column in items[0]], *([_plain(part) for part in item.values()] for item in items)]
    return "".join(separator.join(_quoted(text, separator) for text in line) + "\n" for line in lines)


def _quoted(text: str, separator: str) -> str:
    return '"' + text.replace('"', '""') + '"' if separator in text or '"' in text else text


def _values(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _plain(value: Any) -> str:
    if isinstance(value, dict | list):
        raise Failure("write: a value with arrays or structs inside cannot be written as CSV")
    return text_k(value)


def _settings(value: Any, path: str) -> list[tuple[str, str]]:
    if not isinstance(value, dict | list):
        return [(path, f'"{value}"' if isinstance(value, str) else text_k(value))]
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return [
        setting
        for key, item in pairs
        for setting in _settings(item, f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}" if path else str(key))
    ]
