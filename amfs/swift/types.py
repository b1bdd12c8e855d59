"""Types of both languages, and which value may stand where.

Types are compared by value. Must not know: syntax, programs.
"""

from __future__ import annotations

import msgspec


class Type(msgspec.Struct, frozen=True):
    """Base of all types; ``str`` is how a program writes it."""


class Basic(Type, frozen=True):
    name: str

    def __str__(self) -> str:
        return self.name


INT, FLOAT, STRING, BOOLEAN, VOID = Basic("int"), Basic("float"), Basic("string"), Basic("boolean"), Basic("void")
FILE, BLOB, URL, EXTERNAL, LOCATION = Basic("file"), Basic("blob"), Basic("url"), Basic("external"), Basic("location")
AUTO = Basic("auto")  # key of Swift/K's arrays that number their elements themselves
ANY = Basic("any")  # of a parameter of Swift/K's trace, and of what follows from a mistake: fits everything


class Array(Type, frozen=True):
    """Sparse, each element assigned once. ``key``: INT, STRING, or another basic type."""

    element: Type
    key: Type = INT

    def __str__(self) -> str:
        return f"{self.element}[{'' if self.key == INT else self.key}]"


class Bag(Type, frozen=True):
    """Values without order or keys."""

    element: Type

    def __str__(self) -> str:
        return f"bag<{self.element}>"


class Struct(Type, frozen=True):
    """By name. ``fields``: (name, type) in the order of the definition."""

    name: str
    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        return self.name

    def field(self, name: str) -> Type | None:
        return next((type for field, type in self.fields if field == name), None)


class Subtype(Type, frozen=True):
    """``type b a;``: an a may stand where a b is wanted, and not the other way round. Marker types of Swift/K are subtypes of file."""

    name: str
    base: Type

    def __str__(self) -> str:
        return self.name


class Union(Type, frozen=True):
    """One of these, of a parameter of a library function."""

    types: tuple[Type, ...]

    def __str__(self) -> str:
        return "|".join(map(str, self.types))


class Parameter(Type, frozen=True):
    """A type variable of a generic library function."""

    name: str

    def __str__(self) -> str:
        return self.name


def base_of(type: Type) -> Type:
    """The type below all subtypes."""
    while isinstance(type, Subtype):
        type = type.base
    return type


def is_file(type: Type) -> bool:
    return base_of(type) in (FILE, URL)
