"""The assertions of stdlib v2."""

from __future__ import annotations

import math
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import text_k
from amfs.swift.library_k.registry import K

_MESSAGE = 'string msg="assertion failed"'


def _check(good: bool, message: str, a: Any, sign: str, b: Any) -> None:
    if not good:
        raise Failure(f"{message}: {text_k(a)} {sign} {text_k(b)}")


@K.function(*(f"assertEqual({type} v1, {type} v2, {_MESSAGE})" for type in ("string", "int", "boolean", "float")))
def assert_equal(a: Any, b: Any, message: str) -> None:
    _check(a == b, message, a, "!=", b)


@K.function(f"assertAlmostEqual(float v1, float v2, float tolerance=0.0, {_MESSAGE})")
def assert_almost_equal(a: float, b: float, tolerance: float, message: str) -> None:
    _check(a == b or (math.isfinite(a) and abs(a - b) <= tolerance), message, a, "!=", b)


@K.function(f"assertLT(int v1, int v2, {_MESSAGE})", f"assertLT(float v1, float v2, {_MESSAGE})")
def assert_less(a: Any, b: Any, message: str) -> None:
    _check(a < b, message, a, ">=", b)


@K.function(f"assertLTE(int v1, int v2, {_MESSAGE})", f"assertLTE(float v1, float v2, {_MESSAGE})")
def assert_less_or_equal(a: Any, b: Any, message: str) -> None:
    _check(a <= b, message, a, ">", b)
