"""Mappers that are told the names: single_file, fixed_array, array, csv."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.mappers.parameters import Parameters, file_names, shown
from amfs.swift.mapping import Mapped, Path
from amfs.swift.requests import ReadFile, Request
from amfs.swift.types import Array, Struct, Type, base_of, is_file


def single_file(given: Mapping[str, Any], type: Type, name: str, is_input: bool) -> Generator[Request, Any, Mapped]:
    parameters = Parameters("single_file_mapper", given)
    file = parameters.text("file") or parameters.needed("file")
    parameters.finish()
    if not is_file(base_of(type)):
        parameters.fail(f"it maps one file, and the variable is of type {type}")
    yield from ()
    return Mapped(lambda path: file, None)


def listed(mapper: str, names: list[tuple[Path, str]], is_input: bool, seen: bool = False) -> Mapped:
    known = dict(names)

    def name_of(path: Path) -> str:
        if path not in known:
            raise Failure(f"{mapper}: it has no file for {shown(path)}")
        return known[path]

    return Mapped(name_of, names if is_input else None, seen, names)


def _array_of(parameters: Parameters, type: Type) -> None:
    if not isinstance(base_of(type), Array):
        parameters.fail(f"it maps an array of files, and the variable is of type {type}")


def fixed_array(given: Mapping[str, Any], type: Type, name: str, is_input: bool) -> Generator[Request, Any, Mapped]:
    parameters = Parameters("fixed_array_mapper", given)
    files = parameters.needed("files")
    parameters.finish()
    _array_of(parameters, type)
    if isinstance(files, str):
        files = dict(enumerate(word for word in re.split(r"[\s,:]+", files) if word))
    yield from ()
    return listed(parameters.mapper, file_names(files), is_input)


def array(given: Mapping[str, Any], type: Type, name: str, is_input: bool) -> Generator[Request, Any, Mapped]:
    parameters = Parameters("array_mapper", given)
    files = parameters.needed("files")
    parameters.finish()
    _array_of(parameters, type)
    if not isinstance(files, dict):
        parameters.fail("files must be an array of strings")
    yield from ()
    return listed(parameters.mapper, file_names(files), is_input)


def csv(given: Mapping[str, Any], type: Type, name: str, is_input: bool) -> Generator[Request, Any, Mapped]:
    """Row i, column c is the file ``[i].c``."""
    parameters = Parameters("csv_mapper", given)
    file = file_names(parameters.needed("file"))[0][1]
    header = parameters.flag("header", True)
    skip = parameters.whole("skip", 0)
    delimiters = parameters.text("delim", " \t,")
    of_header = parameters.text("hdelim", delimiters)
    parameters.finish()
    wanted = base_of(type)
    element = base_of(wanted.element) if isinstance(wanted, Array) else None
    if not isinstance(element, Struct):
        parameters.fail(f"it maps an array of structs, and the variable is of type {type}")
    content: bytes = yield ReadFile(file)
    lines = [line for line in content.decode(errors="surrogateescape").splitlines()[skip:] if line.strip()]
    columns = [field for field, _ in element.fields]
    if header:
        if not lines:
            parameters.fail(f"{file} has no header")
        columns = _cut(lines.pop(0), of_header)
        if unknown := [column for column in columns if element.field(column) is None]:
            parameters.fail(f"{file}: {element} has no field {unknown[0]!r}")
    names: list[tuple[Path, str]] = []
    for index, line in enumerate(lines):
        values = _cut(line, delimiters)
        if len(values) > len(columns):
            parameters.fail(f"{file}: row {index} has {len(values)} columns, and there are {len(columns)} fields")
        names += [((index, column), value) for column, value in zip(columns, values, strict=False)]
    return listed(parameters.mapper, names, is_input)


def _cut(line: str, delimiters: str) -> list[str]:
    return [word for word in re.split(f"[{re.escape(delimiters)}]+", line.strip()) if word] if delimiters else [line]
