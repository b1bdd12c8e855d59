"""Mapped variables: which files stand for them, and inputs that are there from the beginning."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from amfs.swift import tree
from amfs.swift.builtins import Failure
from amfs.swift.evaluate.calls import Calls, part_of
from amfs.swift.evaluate.expressions import Closure, Frame
from amfs.swift.evaluate.machine import all_missing
from amfs.swift.mapping import Mapped, Mapper, Path
from amfs.swift.names import local
from amfs.swift.requests import FileValue, Stat
from amfs.swift.source import At, Mistake
from amfs.swift.types import BOOLEAN, FLOAT, INT, Array, Struct, Type, base_of, is_file
from amfs.swift.values import Container, FileCell, Group, is_group, plain


class Mappings(Calls):
    """The part of the compiler that knows mapped variables."""

    def mapping(self, symbol: tree.Symbol, mapping: tree.Mapping) -> Closure:
        """Begin to find the names. The groups of an input are held, and let go when its parts are there."""
        fetch, at, machine = self.fetch(symbol), mapping.at, self.machine
        is_input, names_only = not symbol.assigned, True
        if mapping.name is not None:
            if isinstance(mapping.name, tree.Literal) and symbol.assigned:
                self.machine.named.setdefault(str(mapping.name.value), False)
            given: list[tuple[str, Closure]] = [("file", self.cell(mapping.name))]
            mapper: Mapper = _named
        else:
            from amfs.swift.mappers import NAMES, READING, find, normal  # few programs have mappers
            from amfs.swift.source import suggestion

            found = find(mapping.mapper)
            if found is None:
                raise Mistake(at, f"there is no mapper {mapping.mapper}", suggestion(mapping.mapper, NAMES))
            given, mapper = [(name, self.cell(value)) for name, value in mapping.parameters], found
            names_only = normal(mapping.mapper) not in READING
        prelude = tuple(self.prelude)

        def begin(frame: Frame) -> None:
            for start in prelude:
                start(frame)
            cells = [(name, cell(frame)) for name, cell in given]
            machine.when(all_missing([cell for _, cell in cells], names=names_only), partial(find_names, fetch(frame), cells), at)

        def find_names(target: Any, cells: list[tuple[str, Any]]) -> None:
            parameters = {name: plain(cell, True) for name, cell in cells}
            if mapping.name is None:
                target.namer.again = partial(mapper, parameters, symbol.type, symbol.name, True)
            machine.ask(_found(mapper, parameters, symbol, is_input), partial(known, target), at)

        def known(target: Any, found: tuple[Mapped, set[str]]) -> None:
            mapped, absent = found
            target.namer.name_of = mapped.name_of
            target.namer.parts = mapped.parts
            machine.wake(target.namer)
            if not is_input:
                return
            if mapped.existing is not None:
                for path, name in mapped.existing:
                    type = part_type(symbol.type, path)
                    if not is_file(base_of(type)):  # a column of csv_mapper that is no file
                        fill_value(target, path, value_of(name, type, at))
                        continue
                    part = part_of(machine, target, path, at)
                    if name in absent:
                        machine.miss(part, f"{symbol.name}: the input file {name!r} does not exist")
                    else:
                        machine.arrive(part, FileValue(name), at)
                if isinstance(target, Group):
                    machine.release(target)
            elif absent:
                machine.miss(target, f"{symbol.name}: the input file {min(absent)!r} does not exist")
            elif isinstance(target, FileCell):
                machine.arrive(target, FileValue(mapped.name_of(())), at)
            elif is_group(symbol.type):
                machine.release(target)

        def fill_value(target: Any, path: Path, value: Any) -> None:
            for step in path:
                target = machine.enter(target, step, at) if isinstance(target, Container) else target.fields[str(step)]
            machine.set(target, value, at)

        return begin


def part_type(type: Type, path: Path) -> Type:
    for step in path:
        type = base_of(type)
        if isinstance(type, Array):
            type = type.element
        elif isinstance(type, Struct):
            type = dict(type.fields)[str(step)]
    return type


def value_of(text: str, type: Type, at: At) -> Any:
    """Raises ``Mistake``."""
    text = text.strip()
    try:
        if base_of(type) == INT:
            return int(text)
        if base_of(type) == FLOAT:
            return float(text)
    except ValueError:
        raise Mistake(at, f"{text!r} is no {type}") from None
    return text.lower() == "true" if base_of(type) == BOOLEAN else text


def _named(given: Any, type: Any, name: str, is_input: bool) -> Generator[Any, Any, Mapped]:
    """``<"name">``."""
    file = given["file"]
    file = file.name if isinstance(file, FileValue) else file
    yield from ()
    if not file:
        raise Failure(f"{name} is mapped to an empty name")

    def name_of(path: Path) -> str:
        if path:
            raise Failure(f"{name} is mapped to one file, {file!r}, and has several")
        return str(file)

    return Mapped(name_of, None)


def _found(mapper: Mapper, parameters: dict[str, Any], symbol: tree.Symbol, is_input: bool) -> Generator[Any, Any, tuple[Mapped, set[str]]]:
    """The names; and which of an input's files are not there."""
    mapped = yield from mapper(parameters, symbol.type, symbol.name, is_input)
    given = mapped.name_of

    def names_file(path: Path) -> bool:
        return is_file(base_of(part_type(symbol.type, path)))

    mapped = mapped._replace(
        name_of=lambda path: local(given(path)),
        existing=mapped.existing and [(path, local(name) if names_file(path) else name) for path, name in mapped.existing],
        parts=mapped.parts and [(path, local(name)) for path, name in mapped.parts],
    )  # fmt: skip
    names: list[str] = []
    if is_input and not mapped.seen:
        names = [name for path, name in mapped.existing or [] if names_file(path)]
        if mapped.existing is None and not is_group(symbol.type):
            names = [mapped.name_of(())]
    absent = set()
    for name in names:
        if "://" not in name and (yield Stat(name)) is None:
            absent.add(name)
    return mapped, absent
