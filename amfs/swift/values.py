"""The values of variables while a program is evaluated: single-assignment futures, and containers of them that close.

Owns their data only: ``evaluate.machine`` sets, waits and closes. Must not know: trees, tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from amfs.swift.mapping import Path
from amfs.swift.requests import FileValue
from amfs.swift.types import ANY, BOOLEAN, EXTERNAL, FLOAT, INT, LOCATION, STRING, VOID, Array, Bag, Struct, Type, base_of, is_file

if TYPE_CHECKING:
    from amfs.swift.source import At


class Unset:
    """The value of a future that nobody has set."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Any = Unset()


class Label(NamedTuple):
    """A cell's name for messages: a variable, or a part of another one."""

    name: str
    at: At | None = None
    of: Label | None = None
    key: Any = None

    def __str__(self) -> str:
        if self.of is None:
            return self.name
        return f"{self.of}.{self.name}" if self.name else f"{self.of}[{key_text(self.key)}]"

    @property
    def place(self) -> At | None:
        label = self
        while label.of is not None and label.at is None:
            label = label.of
        return label.at


def key_text(key: Any) -> str:
    """A key as it stands in brackets."""
    return f'"{key}"' if isinstance(key, str) else str(key)


class Blocked(Exception):
    """An expression cannot be evaluated yet. ``on``: the cell to wait for (has ``waiters``)."""

    def __init__(self, on: Any) -> None:
        self.on = on


class Cell:
    """A future of a plain value."""

    __slots__ = ("label", "value", "waiters")

    def __init__(self, label: Label | None = None, value: Any = UNSET) -> None:
        self.label = label
        self.value = value
        self.waiters: Any = None

    def get(self) -> Any:
        """The value. Raises ``Blocked``."""
        value = self.value
        if value is UNSET:
            raise Blocked(self)
        return value


class Namer:
    """Names of the files of a mapped variable. ``name_of``: once the mapper's parameters are known. ``again``: asks the mapper which files
    are there, as if the variable was an input. ``parts``: all parts and their names, if the mapper lists them."""

    __slots__ = ("again", "label", "name_of", "parts", "waiters")

    def __init__(self, label: Label, name_of: Callable[[Path], str] | None = None) -> None:
        self.label = label
        self.name_of = name_of
        self.again: Callable[[], Any] | None = None
        self.parts: list[tuple[Path, str]] | None = None
        self.waiters: Any = None


class Made(Cell):
    """A future that a task may set: void or external. ``promise``: set as soon as it is known which task will (a tuple of ids, () if
    none): other tasks can be ordered after it."""

    __slots__ = ("promise",)

    def __init__(self, label: Label | None = None, value: Any = UNSET) -> None:
        super().__init__(label, value)
        self.promise = Cell(label, () if value is not UNSET else UNSET)


class FileCell(Cell):
    """A file. Its value, a ``FileValue``, is set when the content is there. ``promise``: a cell with the same value, set as soon as it is
    known that a task will make the file: others can name it as an input. ``namer``: of a mapped file; ``path``: of which part."""

    __slots__ = ("namer", "path", "promise")

    def __init__(self, label: Label | None = None, value: Any = UNSET, namer: Namer | None = None, path: Path = ()) -> None:
        super().__init__(label, value)
        self.promise = Cell(label, value)
        self.namer = namer
        self.path = path

    def mapped_name(self) -> str | None:
        """The name that the program gave it, None if it gave none. Raises ``Blocked``, ``Failure``."""
        namer = self.namer
        if namer is None:
            return None
        if namer.name_of is None:
            raise Blocked(namer)
        return namer.name_of(self.path)


class Group:
    """Base of what has parts and closes. ``holds``: statements that may still write a part. ``owned``: a part that was assigned as a whole:
    it closes by its own holds, not with what it is a part of."""

    __slots__ = ("closed", "holds", "label", "namer", "owned", "path", "waiters")

    def __init__(self, label: Label | None, namer: Namer | None, path: Path) -> None:
        self.label = label
        self.namer = namer
        self.path = path
        self.holds = 0
        self.owned = False
        self.closed = False
        self.waiters: Any = None


class Container(Group):
    """An array or a bag (whose keys are numbers in the order of appearance). ``wanted``: parts that somebody has asked for before they were
    assigned. ``watchers``: are told of each part that appears, and of the end. ``lent``: keys of parts with parts that are another's, too:
    that one closes them."""

    __slots__ = ("elements", "is_bag", "lent", "make_part", "wanted", "watchers")

    def __init__(
        self, make_part: Maker, is_bag: bool, label: Label | None = None, namer: Namer | None = None, path: Path = ()
    ) -> None:
        super().__init__(label, namer, path)
        self.make_part = make_part
        self.is_bag = is_bag
        self.elements: dict[Any, Any] = {}
        self.wanted: dict[Any, Any] | None = None
        self.watchers: list[Any] | None = None
        self.lent: set[Any] | None = None

    def take(self, key: Any, cell: Any) -> None:
        """A cell that exists becomes a part. The watchers are the caller's to tell."""
        self.elements[key] = cell
        if isinstance(cell, Group):
            self.lent = self.lent or set()
            self.lent.add(key)

    def _new(self, key: Any) -> Any:
        label = Label("", None, self.label, key) if self.label is not None else None
        return self.make_part(label, self.namer, (*self.path, key) if self.namer is not None else ())

    def part(self, key: Any) -> Any:
        """The cell of a part, to read. Raises KeyError: it is not there and will never be."""
        cell = self.elements.get(key)
        if cell is not None:
            return cell
        if self.closed:
            raise KeyError(key)
        if self.wanted is None:
            self.wanted = {}
        cell = self.wanted.get(key)
        if cell is None:
            cell = self.wanted[key] = self._new(key)
        return cell

    def add(self, key: Any) -> Any:
        """The cell of a part that is not there yet, to write. The watchers are the caller's to tell."""
        cell = self.wanted.pop(key, None) if self.wanted else None
        if cell is None:
            cell = self._new(key)
        self.elements[key] = cell
        return cell

    def sorted_items(self) -> list[tuple[Any, Any]]:
        """In the order of the keys; a bag as it is."""
        if self.is_bag:
            return list(self.elements.items())
        try:
            return sorted(self.elements.items(), key=_key)
        except TypeError:
            return list(self.elements.items())


def _key(item: tuple[Any, Any]) -> Any:
    return item[0]


class StructCell(Group):
    """A struct: all its fields are there from the beginning, as futures."""

    __slots__ = ("fields",)

    def __init__(
        self, makers: tuple[tuple[str, Maker], ...], label: Label | None = None, namer: Namer | None = None, path: Path = ()
    ) -> None:
        super().__init__(label, namer, path)
        self.fields = {
            name: make(
                Label(name, None, label) if label is not None else None, namer, (*path, name) if namer is not None else ()
            )
            for name, make in makers
        }


#: (label, namer, path) -> a cell
Maker: TypeAlias = Callable[[Label | None, Namer | None, Path], Any]


def _make_cell(label: Label | None, namer: Namer | None, path: Path) -> Cell:
    return Cell(label)


def _make_file(label: Label | None, namer: Namer | None, path: Path) -> FileCell:
    return FileCell(label, UNSET, namer, path)


def _make_signal(label: Label | None, namer: Namer | None, path: Path) -> Made:
    return Made(label)


def maker(type: Type, known: dict[Type, Maker]) -> Maker:
    """The function that makes cells of a type. ``known``: those made before."""
    make = known.get(type)
    if make is None:
        make = known[type] = _maker(base_of(type), known)
    return make


def _maker(base: Type, known: dict[Type, Maker]) -> Maker:
    if is_file(base):
        return _make_file
    if base in (VOID, EXTERNAL):
        return _make_signal
    if isinstance(base, Array | Bag):
        part, is_bag = maker(base.element, known), isinstance(base, Bag)
        return lambda label, namer, path: Container(part, is_bag, label, namer, path)
    if isinstance(base, Struct):
        fields = tuple((name, maker(type, known)) for name, type in base.fields)
        return lambda label, namer, path: StructCell(fields, label, namer, path)
    return _make_cell


def is_group(type: Type | None) -> bool:
    """Do cells of the type have parts?"""
    return type is not None and isinstance(base_of(type), Array | Bag | Struct)


def is_scalar(type: Type | None) -> bool:
    """Are cells of the type plain futures?"""
    return type is not None and base_of(type) in (INT, FLOAT, STRING, BOOLEAN, LOCATION, ANY)


# ── plain values ───────────────────────────────────────────────────────────────────────────────────


def plain(cell: Any, names_only: bool = False) -> Any:
    """The value for library functions of a cell, all in which is known. ``names_only``: files need only be promised."""
    if isinstance(cell, Container):
        items = cell.sorted_items()
        if cell.is_bag:
            return [plain(part, names_only) for _, part in items]
        return {key: plain(part, names_only) for key, part in items}
    if isinstance(cell, StructCell):
        return {name: plain(part, names_only) for name, part in cell.fields.items()}
    if names_only and isinstance(cell, FileCell):
        value = cell.promise.value
        if value is UNSET and cell.namer is not None:
            return FileValue(cell.mapped_name() or "")
        return value
    return cell.value


def files_of(cell: Any) -> list[FileCell]:
    """All files in a cell, in the order of keys and fields."""
    found: list[FileCell] = []
    todo = [cell]
    while todo:
        one = todo.pop()
        if isinstance(one, FileCell):
            found.append(one)
        elif isinstance(one, Container):
            todo += [part for _, part in reversed(one.sorted_items())]
        elif isinstance(one, StructCell):
            todo += reversed(one.fields.values())
    return found
