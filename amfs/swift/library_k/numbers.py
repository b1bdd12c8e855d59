"""Mathematical functions. Where one is not defined its result is NaN or infinite, as in Java."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.library_k.registry import K

K.constants += [("float", "PI", math.pi)]


def _declare(name: str, function: Callable[[float], float]) -> None:
    def call(x: float) -> float:
        try:
            return float(function(x))
        except ValueError:
            return -math.inf if x == 0 else math.nan
        except OverflowError:
            return math.inf

    K.function(f"(float o) {name}(float x)")(call)


for _function in (math.sin, math.cos, math.tan, math.asin, math.acos, math.atan, math.exp, math.sqrt, math.cbrt):
    _declare(_function.__name__, _function)
_declare("ln", math.log)
_declare("log", math.log10)


def _declare_rounding(name: str, function: Callable[[float], float]) -> None:
    def call(x: float) -> int:
        if not math.isfinite(x):
            raise Failure(f"{name} of a number that is not finite")
        return int(function(x))

    K.function(f"(int o) {name}(float x)")(call)


for _name, _round in (("floor", math.floor), ("ceil", math.ceil), ("round", lambda x: math.floor(x + 0.5))):
    _declare_rounding(_name, _round)


@K.function("(float o) pow(float x, float y)")
def power(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.inf


@K.function("(int o) abs(int x)", "(float o) abs(float x)")
def absolute(x: Any) -> Any:
    return abs(x)


@K.function("(int o) min(int a, int b)", "(float o) min(float a, float b)")
def smaller(a: Any, b: Any) -> Any:
    return min(a, b)


@K.function("(int o) max(int a, int b)", "(float o) max(float a, float b)")
def larger(a: Any, b: Any) -> Any:
    return max(a, b)


@K.function("(int o) sum(int A[])", "(float o) sum(float A[])")
def total(items: dict[int, Any]) -> Any:
    return sum(items.values())


@K.function("(float o) avg(int|float A[])")
def average(items: dict[int, Any]) -> float:
    if not items:
        raise Failure("avg of an empty array")
    return math.fsum(items.values()) / len(items)


@K.function("(boolean o) isNaN(float x)")
def is_nan(x: float) -> bool:
    return x != x
