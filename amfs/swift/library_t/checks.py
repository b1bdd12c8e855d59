"""trace and the assertions."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import text_t
from amfs.swift.library_t.containers import representation
from amfs.swift.library_t.registry import T
from amfs.swift.requests import Print, Request


@T.asking("(void v) trace(any... values)")
def trace(*values: Any) -> Generator[Request, Any, None]:
    yield Print(f"trace: {','.join(map(representation, values))}\n")


def _fail(message: str, found: str = "!") -> None:
    raise Failure(f"Assertion failed{found}: {message}" if message else f"Assertion failed{found}")


@T.function('(void v) assert(boolean|int condition, string message="")')
def assert_(condition: Any, message: str) -> None:
    if not condition:
        _fail(message)


@T.function('(void v) assertEqual(int|float|string|boolean a, int|float|string|boolean b, string message="")')
def assert_equal(a: Any, b: Any, message: str) -> None:
    if not (a == b if isinstance(a, str) == isinstance(b, str) else text_t(a) == text_t(b)):
        _fail(message, f": {text_t(a)} != {text_t(b)}")


@T.function('(void v) assertNotEqual(int|float|string|boolean a, int|float|string|boolean b, string message="")')
def assert_not_equal(a: Any, b: Any, message: str) -> None:
    if a == b:
        _fail(message, f": {text_t(a)} == {text_t(b)}")


@T.function('(void v) assertLT(int|float a, int|float b, string message="")')
def assert_less(a: Any, b: Any, message: str) -> None:
    if not a < b:
        _fail(message, f": {text_t(a)} >= {text_t(b)}")


@T.function('(void v) assertLTE(int|float a, int|float b, string message="")')
def assert_less_or_equal(a: Any, b: Any, message: str) -> None:
    if not a <= b:
        _fail(message, f": {text_t(a)} > {text_t(b)}")


@T.function('(void v) assertAlmostEqual(float a, float b, float tolerance, string message="")')
def assert_almost_equal(a: float, b: float, tolerance: float, message: str) -> None:
    if not (a == b or (math.isfinite(a) and abs(a - b) <= tolerance)):
        _fail(message, f": {text_t(a)} and {text_t(b)} differ by more than {text_t(tolerance)}")
