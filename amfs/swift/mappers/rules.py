"""Mappers that make names by a rule: simple, concurrent, filesys, regexp, structured_regexp."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Any

from amfs.swift.mappers.lists import listed
from amfs.swift.mappers.parameters import Parameters, file_names, in_directory
from amfs.swift.mapping import Mapped, Path
from amfs.swift.names import is_url
from amfs.swift.patterns import transformed
from amfs.swift.requests import Glob, Request
from amfs.swift.types import INT, Array, Struct, Type, base_of

#: Where files lie that nobody has named.
CONCURRENT = "_concurrent"


# ── simple, concurrent ─────────────────────────────────────────────────────────────────────────────


def joined_path(path: Path, padding: int, separator: str) -> str:
    """Fields and indices with points between, the last two with the separator."""
    steps = [str(step).zfill(padding) if isinstance(step, int) else step for step in path]
    return ".".join(steps[:-1]) + (separator if len(steps) > 1 else "") + (steps[-1] if steps else "")


def leaves(type: Type) -> list[list[Array | str]]:
    """Where files stand in a variable of that type: each place as fields, and arrays for keys."""
    type = base_of(type)
    if isinstance(type, Array):
        return [[type, *rest] for rest in leaves(type.element)]
    if isinstance(type, Struct):
        return [[field, *rest] for field, inner in type.fields for rest in leaves(inner)]
    return [[]]


def _expression(leaf: list[Array | str], separator: str) -> str:
    steps = [f"({re.escape(step)})" if isinstance(step, str) else r"(\d+)" if step.key == INT else r"(.+?)" for step in leaf]
    return r"\.".join(steps[:-1]) + (re.escape(separator) if len(steps) > 1 else "") + (steps[-1] if steps else "")


def _quoted(text: str) -> str:
    """For a glob pattern."""
    return re.sub(r"([*?[])", r"[\1]", text)


def simple(given: Mapping[str, Any], type: Type, name: str, is_input: bool) -> Generator[Request, Any, Mapped]:
    parameters = Parameters("simple_mapper", given)
    location, prefix = parameters.text("location", "."), parameters.text("prefix")
    suffix, pattern = _suffix(parameters), parameters.text("pattern")
    padding, separator = parameters.whole("padding", 4), parameters.text("separator", "_")
    parameters.finish()

    def name_of(path: Path) -> str:
        return in_directory(location, prefix + joined_path(path, padding, separator) + suffix)

    if not is_input:
        return Mapped(name_of, None)
    base = base_of(type)
    if not isinstance(base, Array | Struct):
        return Mapped(name_of, [((), name_of(()))])
    if is_url(location):
        parameters.fail(f"location {location!r} is a URL, where files are not looked for; bring them by an app, or by a task list")
    if pattern:
        # Names that no rule has made: numbered.
        found = yield Glob(in_directory(_quoted(location), pattern))
        return listed(parameters.mapper, [((index,), one) for index, one in enumerate(found)], True, True)
    found = yield Glob(f"{in_directory(_quoted(location), _quoted(prefix))}*{_quoted(suffix)}")
    known: dict[Path, str] = {}
    for leaf in leaves(base):
        whole = re.compile(re.escape(in_directory(location, prefix)) + _expression(leaf, separator) + re.escape(suffix))
        for one in found:
            if match := whole.fullmatch(one):
                steps = zip(match.groups(), leaf, strict=True)
                known[tuple(int(text) if isinstance(step, Array) and step.key == INT else text for text, step in steps)] = one
    return Mapped(name_of, sorted(known.items(), key=lambda item: [(isinstance(step, str), step) for step in item[0]]), True)


def _suffix(parameters: Parameters) -> str:
    parameters.flag("noauto", True)  # says that no point is to be added: none is
    return parameters.text("suffix")


def concurrent(given: Mapping[str, Any], type: Type, name: str, is_input: bool) -> Generator[Request, Any, Mapped]:
    """A name that no other variable has."""
    parameters = Parameters("concurrent_mapper", given)
    parameters.value("pattern")  # the names that it gives fit
    location, prefix, suffix = parameters.text("location", CONCURRENT), parameters.text("prefix"), _suffix(parameters)
    padding, separator = parameters.whole("padding", 4), parameters.text("separator", "_")
    parameters.finish()
    start = f"{prefix}-{name}" if prefix else name

    def name_of(path: Path) -> str:
        rest = joined_path(path, padding, separator)
        return in_directory(location, start + ("-" if rest else "") + rest + suffix)

    yield from ()
    return Mapped(name_of, [] if is_input else None)


# ── filesys ────────────────────────────────────────────────────────────────────────────────────────


def filesys(given: Mapping[str, Any], type: Type, name: str, is_input: bool) -> Generator[Request, Any, Mapped]:
    """Existing files, numbered in the order of their names."""
    parameters = Parameters("filesys_mapper", given)
    location, pattern = parameters.text("location", "."), parameters.text("pattern")
    prefix, suffix = parameters.text("prefix"), _suffix(parameters)
    parameters.finish()
    if not isinstance(base_of(type), Array):
        parameters.fail(f"it maps an array of files, and the variable is of type {type}")

    def name_of(path: Path) -> str:
        # Of an array that an app returns: the app decides on names, they are found when it has ended.
        return in_directory(location, prefix + joined_path(path, 4, "_") + suffix)

    if not is_input:
        return Mapped(name_of, None)
    if is_url(location):
        parameters.fail(f"location {location!r} is a URL, where files are not looked for; bring them by an app, or by a task list")
    directory = in_directory(_quoted(location), "")
    found: list[str] = yield Glob(directory + (pattern or f"{_quoted(prefix)}*{_quoted(suffix)}"))
    start = in_directory(location, "")
    fitting = [one for one in found if not pattern or (one.removeprefix(start).startswith(prefix) and one.endswith(suffix))]
    return listed(parameters.mapper, [((index,), one) for index, one in enumerate(fitting)], True, True)


# ── regexp ─────────────────────────────────────────────────────────────────────────────────────────


def regexp(given: Mapping[str, Any], type: Type, name: str, is_input: bool) -> Generator[Request, Any, Mapped]:
    """One file, its name made from another's."""
    parameters = Parameters("regexp_mapper", given)
    sources = file_names(parameters.needed("source"))
    match, transform = parameters.text("match", "(.*)"), parameters.text("transform", r"\1")
    location = parameters.text("location")
    parameters.finish()
    if len(sources) != 1:
        parameters.fail(f"the source is one file or string, and not {len(sources)}; structured_regexp_mapper takes several")
    file = in_directory(location, transformed(match, transform, sources[0][1]))
    yield from ()
    return Mapped(lambda path: file, None)


def structured_regexp(given: Mapping[str, Any], type: Type, name: str, is_input: bool) -> Generator[Request, Any, Mapped]:
    """Of the shape of the source."""
    parameters = Parameters("structured_regexp_mapper", given)
    sources = file_names(parameters.needed("source"))
    match, transform = parameters.text("match", "(.*)"), parameters.text("transform", r"\1")
    location = parameters.text("location")
    parameters.finish()
    names = [(path, in_directory(location, transformed(match, transform, one))) for path, one in sources]
    yield from ()
    return listed(parameters.mapper, names, is_input)
