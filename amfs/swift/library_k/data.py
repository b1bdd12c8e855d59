"""readData, readStructured, writeData, readCSV: values from and to text files."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import parse_float, parse_int, text_k
from amfs.swift.library_k.registry import K
from amfs.swift.library_k.system import names_in
from amfs.swift.patterns import parse_path
from amfs.swift.requests import FileValue, ReadFile, Request, WriteFile
from amfs.swift.types import ANY, BOOLEAN, FLOAT, INT, STRING, Array, Struct, Type, base_of, is_file


def text_of(value: Any) -> Generator[Request, Any, tuple[str, str]]:
    """(name, content)."""
    name = names_in(value)[0]
    data: bytes = yield ReadFile(name)
    return name, data.decode(errors="surrogateescape")


def scalar(text: str, type: Type, where: str) -> Any:
    """The text as a value of that type. Raises ``Failure``."""
    base = base_of(type)
    try:
        if base == INT:
            return parse_int(text)
        if base == FLOAT:
            return parse_float(text)
    except Failure as failure:
        raise Failure(f"{where}: {failure}") from None
    if base in (STRING, ANY):
        return text
    if base == BOOLEAN:
        if text.strip() not in ("true", "false"):
            raise Failure(f"{where}: {text!r} is neither true nor false")
        return text.strip() == "true"
    if is_file(base):
        return FileValue(text.strip())
    raise Failure(f"{where}: a value of type {type} cannot be read")


# ── readData ───────────────────────────────────────────────────────────────────────────────────────


@K.asking("(any o) readData(any f)")
def read_data(f: Any, o: Type) -> Generator[Request, Any, Any]:
    name, text = yield from text_of(f)
    wanted = base_of(o)
    lines = text.splitlines()
    of_parts = isinstance(base_of(wanted.element) if isinstance(wanted, Array) else wanted, Struct)
    if of_parts and lines and "=" in lines[0]:  # lines "path = value", as readStructured takes them
        return (yield from read_structured(f, o))
    if isinstance(wanted, Struct):
        rows = _rows(lines, wanted, name)
        if len(rows) != 1:
            raise Failure(f"{name}: one {wanted} takes a line of field names and one of values, and not {len(rows)} of them")
        return rows[0]
    if isinstance(wanted, Array):
        element = base_of(wanted.element)
        if isinstance(element, Struct):
            return dict(enumerate(_rows(lines, element, name)))
        return {index: scalar(line, element, f"{name}:{index + 1}") for index, line in enumerate(lines) if line or element == STRING}
    if wanted in (STRING, ANY):
        return text.removesuffix("\n")
    return scalar(text, wanted, name)


@K.asking("(int o) extractInt(any f)")
def extract_int(f: Any) -> Generator[Request, Any, Any]:
    """The older name of readData for one number."""
    name, text = yield from text_of(f)
    return scalar(text, INT, name)


@K.asking("(float o) extractFloat(any f)")
def extract_float(f: Any) -> Generator[Request, Any, Any]:
    name, text = yield from text_of(f)
    return scalar(text, FLOAT, name)


#: Of a line: words, and strings between quotes.
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"(?!\S)|\S+')


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word[1:-1]) if len(word) > 1 and word[0] == word[-1] == '"' else word


def _rows(lines: list[str], struct: Struct, name: str) -> list[dict[str, Any]]:
    """The first line names the columns."""
    if not lines:
        raise Failure(f"{name}: the line with the names of the fields is missing")
    columns = lines[0].split()
    if unknown := [column for column in columns if struct.field(column) is None]:
        raise Failure(f"{name}:1: {struct} has no field {unknown[0]!r}")
    if missing := [field for field, _ in struct.fields if field not in columns]:
        raise Failure(f"{name}:1: the field {missing[0]!r} of {struct} is missing")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        if values := [_unquoted(word) for word in _WORD.findall(line)]:
            rows.append(row_of(struct, columns, values, f"{name}:{number}"))
    return rows


def row_of(struct: Struct, columns: list[str], values: list[str], where: str) -> dict[str, Any]:
    if len(values) != len(columns):
        raise Failure(f"{where}: {len(values)} values for {len(columns)} fields")
    given = dict(zip(columns, values, strict=True))
    if missing := [field for field, _ in struct.fields if field not in given]:
        raise Failure(f"{where}: the field {missing[0]!r} of {struct} is missing")
    return {field: scalar(given[field], type, where) for field, type in struct.fields}


# ── readStructured ─────────────────────────────────────────────────────────────────────────────────

_SETTING = re.compile(r"\s*(\S+?)\s*=\s*(.*?)\s*")


@K.asking("(any o) readStructured(any f)", "(any o) readData2(any f)")
def read_structured(f: Any, o: Type) -> Generator[Request, Any, Any]:
    name, text = yield from text_of(f)
    return from_settings(name, text, o)


def from_settings(name: str, text: str, o: Type) -> Any:
    """Lines ``path = value``, or ``$ = value`` for a single value."""
    whole: Any = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{name}:{number}"
        match = _SETTING.fullmatch(line)
        if match and match[1] == "$" and not isinstance(base_of(o), Array | Struct):
            return scalar(match[2].strip('"'), o, where)
        path = parse_path(match[1]) if match else None
        if match is None or not path:
            raise Failure(f"{where}: a line is 'path = value', and not {line.strip()[:80]!r}")
        place, type = whole, o
        for depth, step in enumerate(path):
            below = _part(base_of(type), step)
            if below is None:
                raise Failure(f"{where}: {type} has no part {step!r}")
            type = below
            if depth + 1 < len(path):
                place = place.setdefault(step, {})
                if not isinstance(place, dict):
                    raise Failure(f"{where}: {match[1]} is inside of what has a value")
            elif step in place:
                raise Failure(f"{where}: {match[1]} has a value already")
            else:
                value = match[2]
                if len(value) >= 2 and value[0] == value[-1] == '"':
                    value = value[1:-1]
                place[step] = scalar(value, type, where)
    return _ordered(whole)


def _part(type: Type, step: str | int) -> Type | None:
    if isinstance(type, Array):
        return type.element if isinstance(step, int) == (base_of(type.key) == INT) else None
    return type.field(step) if isinstance(type, Struct) and isinstance(step, str) else None


def _ordered(value: Any) -> Any:
    """Keys of arrays in their order."""
    if not isinstance(value, dict):
        return value
    keys = sorted(value) if all(isinstance(key, int) for key in value) else list(value)
    return {key: _ordered(value[key]) for key in keys}


# ── writeData ──────────────────────────────────────────────────────────────────────────────────────


@K.asking("(file o) writeData(any x)")
def write_data(x: Any, o: FileValue) -> Generator[Request, Any, FileValue]:
    yield WriteFile(o.name, written(x).encode(errors="surrogateescape"))
    return o


def written(value: Any) -> str:
    """The values that ``readData`` reads."""
    if not isinstance(value, dict | list):
        return text_k(value)
    items = list(value.values()) if isinstance(value, dict) else value
    if items and all(isinstance(item, dict) for item in items):
        columns = list(items[0])
        if any(list(item) != columns for item in items) or not all(isinstance(column, str) for column in columns):
            raise Failure("writeData: an array of arrays cannot be written")
        return _line(columns) + "".join(_line(map(_field, item.values())) for item in items)
    if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
        return _line(value) + _line(map(_field, items))
    return "".join(f"{_single(item)}\n" for item in items)


def _single(value: Any) -> str:
    if isinstance(value, dict | list):
        raise Failure("writeData: a value with arrays or structs inside cannot be written")
    return text_k(value)


def _line(values: Any) -> str:
    return "\t".join(values) + "\n"


def _field(value: Any) -> str:
    text = _single(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else text


@K.asking("(any o) readCSV(any f)")
def read_csv(f: Any, o: Type) -> Generator[Request, Any, Any]:
    """As readData, with commas."""
    name, text = yield from text_of(f)
    wanted = base_of(o)
    element = base_of(wanted.element) if isinstance(wanted, Array) else None
    if not isinstance(element, Struct):
        raise Failure(f"readCSV makes an array of structs, and not {o}")
    return dict(enumerate(_rows([line.replace(",", " ") for line in text.splitlines()], element, name)))
