"""How library functions are declared: a signature in Swift's own syntax, and a Python function.

::

    library = Library()

    @library.function("(float o) sqrt(float x)")
    def sqrt(x: float) -> float: ...

    @library.asking("(string s) read(file f)")  # a generator: yields requests, is sent the answers, returns the outputs
    def read(f: FileValue) -> Generator[Request, Any, str]: ...

Arguments arrive when they are known, containers when they are closed and all in them is known. As plain values: int (64 bits), float, str,
bool; blob as bytes; file as ``FileValue``; arrays as dict in the order of their keys; bags as list; structs as dict of fields; void as
None. Several signatures with one name are overloads. Outputs: one value; a tuple for several; None for none or void. An output of type file
arrives as a further keyword argument with its name (``FileValue``): the function makes the file by a request, and returns it; if it
returns another file (``input``), the variable stands for that one. A function that cannot do its work raises ``Failure``.

Signatures of both languages are in Swift/T's syntax. Type ``any`` fits everything. An output of type ``any`` takes the type of what it is
assigned to (Swift/K's ``readData``); that ``Type`` arrives as a keyword argument with the output's name. A function that is declared by
``naming`` does not wait for files among its arguments, only for their names (``filename``). A location is a ``Location``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


class Failure(Exception):
    """The library function cannot do that, and the run fails; ``str`` is a sentence for people."""


class Location(NamedTuple):
    """Where a task should run: the value of ``@location``. ``rank``: of a node; < 0: anywhere. ``hard``: there and nowhere else.
    ``node``: any worker of that node will do."""

    rank: int
    hard: bool = True
    node: bool = False


class Declared(NamedTuple):
    """``names_only``: files among the arguments need not be there. ``placed``: the value of ``@location`` is a further argument."""

    signature: str
    call: Callable[..., Any]
    asks: bool
    names_only: bool = False
    placed: bool = False


class Library:
    """The functions of one language. ``constants``: (type, name, value) of global constants. ``types``: definitions, as Swift text."""

    def __init__(self) -> None:
        self.types: list[str] = []
        self.functions: list[Declared] = []
        self.constants: list[tuple[str, str, Any]] = []
        self.refused: dict[str, str] = {}  # known names that do not exist here -> why, and what to do

    def function(self, *signatures: str) -> Callable[[_F], _F]:
        return self._declare(signatures, False)

    def asking(self, *signatures: str, names_only: bool = False, placed: bool = False) -> Callable[[_F], _F]:
        return self._declare(signatures, True, names_only, placed)

    def naming(self, *signatures: str) -> Callable[[_F], _F]:
        return self._declare(signatures, False, True)

    def _declare(
        self, signatures: tuple[str, ...], asks: bool, names_only: bool = False, placed: bool = False
    ) -> Callable[[_F], _F]:
        def take(call: _F) -> _F:
            self.functions += [Declared(signature, call, asks, names_only, placed) for signature in signatures]
            return call

        return take
