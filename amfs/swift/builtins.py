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
arrives as a further keyword argument with its name (``FileValue``): the function makes the file by a request, and returns it. A function
that cannot do its work raises ``Failure``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Failure(Exception):
    """The library function cannot do that, and the run fails; ``str`` is a sentence for people."""


class Declared(NamedTuple):
    signature: str
    call: Callable[..., Any]
    asks: bool


class Library:
    """The functions of one language. ``constants``: (type, name, value) of global constants."""

    def __init__(self) -> None:
        self.functions: list[Declared] = []
        self.constants: list[tuple[str, str, Any]] = []
        self.refused: dict[str, str] = {}  # known names that do not exist here -> why, and what to do

    def function(self, *signatures: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return self._declare(signatures, False)

    def asking(self, *signatures: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return self._declare(signatures, True)

    def _declare(self, signatures: tuple[str, ...], asks: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def take(call: Callable[..., Any]) -> Callable[..., Any]:
            self.functions += [Declared(signature, call, asks) for signature in signatures]
            return call

        return take
