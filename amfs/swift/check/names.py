"""Names that a piece of a program sees: variables by block, types, functions of the program and of its library.

Must not know: statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from amfs.swift.builtins import Declared, Library
from amfs.swift.parse_t import SYNTAX, BuilderT, signature
from amfs.swift.source import At, Mistake, Source, suggestion
from amfs.swift.tree import (
    Block,
    Builtin,
    Formal,
    Function,
    Mapping,
    Program,
    Scope,
    Symbol,
    TypeDefinition,
    TypeName,
)
from amfs.swift.types import (
    ANY,
    AUTO,
    BLOB,
    BOOLEAN,
    EXTERNAL,
    FILE,
    FLOAT,
    INT,
    LOCATION,
    STRING,
    URL,
    VOID,
    Array,
    Bag,
    Parameter,
    Struct,
    Subtype,
    Type,
    Union,
    base_of,
)

BASIC: dict[str, Type] = {
    str(one): one for one in (INT, FLOAT, STRING, BOOLEAN, VOID, FILE, BLOB, URL, EXTERNAL, LOCATION)
}
KEYS = (INT, STRING, FLOAT, BOOLEAN)


def can_be_key(type: Type) -> bool:
    return base_of(type) in (*KEYS, ANY) or isinstance(type, Parameter)


_NAME_OF_SIGNATURE = re.compile(r"\s*(?:<[^>]*>\s*)?(?:\([^)]*\)\s*)?(\w+)\s*\(")


#: The branch of an if or switch in which something stands, and the branch around that; None: it is in none. Compared by identity.
Branches = tuple[Any, object, int] | None


class Frame:
    """Names visible in one block. ``scope``: where its variables live. ``block``: which lists them. ``branches``: the conditions under
    which it runs."""

    __slots__ = ("block", "born", "branches", "names", "parent", "scope", "undeclared")

    def __init__(self, parent: Frame | None, scope: Scope, block: Block | None, branches: Branches = None) -> None:
        self.parent = parent
        self.scope = scope
        self.block = block
        self.branches = branches
        self.names: dict[str, Symbol] = {}
        self.born: dict[Symbol, Branches] = {} if parent is None else parent.born  # where each variable is declared
        self.undeclared: dict[str, Any] = {}  # names that a statement of this block declares by assigning -> that statement

    def find(self, name: str) -> Symbol | None:
        frame: Frame | None = self
        while frame is not None:
            found = frame.names.get(name)
            if found is not None:
                return found
            frame = frame.parent
        return None

    def holder(self, name: str) -> Frame | None:
        """The innermost frame that has the name, declared or not yet."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names or name in frame.undeclared:
                return frame
            frame = frame.parent
        return None

    def visible(self) -> Iterable[str]:
        frame: Frame | None = self
        while frame is not None:
            yield from frame.names
            frame = frame.parent

    def add(self, name: str, type: Type, at: At, mapping: Mapping | None = None) -> Symbol:
        symbol = Symbol(name, type, at, self.scope, len(self.scope.symbols), mapping=mapping)
        self.scope.symbols.append(symbol)
        self.names[name] = symbol
        self.born[symbol] = self.branches
        return symbol


class Types:
    """The types of a program, by name."""

    def __init__(self, program: Program, library: Library) -> None:
        self._definitions: dict[str, TypeDefinition] = {}
        self._known: dict[str, Type] = dict(BASIC)
        self._making: set[str] = set()
        self._library = library
        self._library_read = not library.types
        self.mistakes: list[Mistake] = []
        for definition in program.types:
            before = self._definitions.get(definition.name)
            if before is not None and all(part is None for one in (before, definition) for part in (one.base, one.fields)):
                continue  # two files of one program may both say that there is such a type
            if before is not None:
                self.mistakes.append(Mistake(definition.at, f"type {definition.name} is defined a second time"))
            elif definition.name == "file" and definition.base is None and definition.fields is None:
                continue  # Swift/K's programs define it, and have it anyway
            elif definition.name in BASIC:
                self.mistakes.append(Mistake(definition.at, f"type {definition.name} exists already"))
            self._definitions.setdefault(definition.name, definition)

    def check_all(self) -> None:
        for definition in list(self._definitions.values()):
            try:
                self.named(definition.name, definition.at)
            except Mistake as mistake:
                self.mistakes.append(mistake)
                self._known[definition.name] = ANY

    def get(self, name: str) -> Type | None:
        """The type of that name, or None."""
        if name not in self._known and name not in self._definitions and not self._read_library(name):
            return None
        return self.named(name, None)

    def _read_library(self, name: str) -> bool:
        if not self._library_read:
            self._library_read = True
            for text in self._library.types:
                builder = BuilderT(Source("(library)", text))
                SYNTAX.parse(builder, "start")
                for definition in builder.types:
                    self._definitions.setdefault(definition.name, definition)
        return name in self._definitions

    def named(self, name: str, at: At | None) -> Type:
        known = self._known.get(name)
        if known is not None:
            return known
        if name not in self._definitions and not self._read_library(name):
            assert at is not None
            if name.startswith("updateable"):
                raise Mistake(at, f"variables that can be updated ({name}) are not supported")
            hint = suggestion(name, [*self._known, *self._definitions])
            raise Mistake(at, f"there is no type {name!r}", "the type is called boolean" if name in ("bool", "Boolean") else hint)
        definition = self._definitions[name]
        if name in self._making:
            raise Mistake(definition.at, f"type {name} contains itself")
        self._making.add(name)
        try:
            made: Type
            if definition.fields is None:
                base = FILE if definition.base is None else self.resolve(definition.base)
                made = base if definition.alias else Subtype(name, base)
            else:
                fields: dict[str, Type] = {}
                for type_name, field in definition.fields:
                    if field in fields:
                        raise Mistake(type_name.at, f"type {name} has two fields {field}")
                    fields[field] = self.resolve(type_name)
                made = Struct(name, tuple(fields.items()))
        finally:
            self._making.discard(name)
        self._known[name] = made
        return made

    def resolve(self, name: TypeName, parameters: Iterable[str] = (), wide: bool = False) -> Type:
        """``wide``: the types of parameters of library functions are there too."""
        if name.name == "array":
            element, key = name.parts
            assert element is not None
            if key is not None and key.name == "auto":
                return Array(self.resolve(element, parameters, wide), AUTO)
            key_type = INT if key is None else self.resolve(key, parameters, wide)
            if not can_be_key(key_type):
                raise Mistake(key.at if key is not None else name.at, f"a value of type {key_type} cannot be a key")
            return Array(self.resolve(element, parameters, wide), key_type)
        if name.name == "bag":
            assert name.parts[0] is not None
            return Bag(self.resolve(name.parts[0], parameters, wide))
        if name.name == "union":
            return Union(tuple(self.resolve(part, parameters, wide) for part in name.parts if part is not None))
        if name.name in parameters:
            return Parameter(name.name)
        if name.name == "any" and wide:
            return ANY
        return self.named(name.name, name.at)

    def defined_at(self, name: str) -> At | None:
        """Where the program defines it."""
        definition = self._definitions.get(name)
        return None if definition is None or definition.at.source.name == "(library)" else definition.at

    def names(self) -> list[str]:
        return [*self._known, *self._definitions]


class Functions:
    """The functions of a program and of its library. Those of the library are read when their name is used for the first time: reading all
    at every start would take longer than most scripts."""

    def __init__(self, program: Program, library: Library, types: Types) -> None:
        self._types = types
        self._own: dict[str, list[Function]] = {}
        for function in program.functions:
            self._own.setdefault(function.name, []).append(function)
        self._declared: dict[str, list[Declared]] = {}
        for declared in library.functions:
            found = _NAME_OF_SIGNATURE.match(declared.signature)
            assert found is not None, declared.signature
            self._declared.setdefault(found[1], []).append(declared)
        self._read: dict[str, list[Function]] = {}
        self._lower: dict[str, str] | None = None
        self._any_case = program.language == "swift-k"
        self.refused = library.refused

    def own(self, name: str) -> list[Function]:
        return self._own.get(name, [])

    def library(self, name: str) -> list[Function]:
        name = self._spelling(name)
        if name not in self._read:
            self._read[name] = [self._function(declared) for declared in self._declared.get(name, ())]
        return self._read[name]

    def _spelling(self, name: str) -> str:
        """Swift/K's functions are found whatever the case of their names."""
        if name in self._declared or not self._any_case:
            return name
        if self._lower is None:
            self._lower = {one.lower().replace("_", ""): one for one in self._declared}
        return self._lower.get(name.lower().replace("_", ""), name)

    def _function(self, declared: Declared) -> Function:
        function = signature(declared.signature)
        function.builtin = Builtin(declared.call, declared.asks, declared.names_only, declared.placed)
        for formal in [*function.outputs, *function.inputs]:
            resolve_formal(self._types, formal, function.type_parameters, wide=True)
        return function

    def suggest(self, name: str) -> str:
        return suggestion(name, [*self._own, *self._declared])


def resolve_formal(types: Types, formal: Formal, parameters: Iterable[str] = (), wide: bool = False) -> Type:
    formal.type = types.resolve(formal.type_name, parameters, wide)
    return formal.type
