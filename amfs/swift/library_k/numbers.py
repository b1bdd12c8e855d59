"""Mathematical functions. Where one is not defined its result is NaN or infinite, as in Java."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.library_k.registry import K

K.constants += [("float", "PI", math.pi), ("float", "E", math.e)]


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
_declare("log10", math.log10)


@K.function("(float o) log(float x, float b)")
def log(x: float, b: float) -> float:
    if x < 0 or b <= 0 or b == 1:
        return math.nan
    return math.log(x, b) if x else -math.inf


@K.function("(float o) atan2(float y, float x)")
def atan2(y: float, x: float) -> float:
    return math.atan2(y, x)


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


@K.function("(float o) moment(int|float A[], int n, float center)")
def moment(items: dict[int, Any], n: int, center: float) -> float:
    if not items:
        raise Failure("moment of an empty array")
    try:
        return math.fsum((value - center) ** n for value in items.values()) / len(items)
    except (OverflowError, ZeroDivisionError):
        return math.inf


# ── chance: the same arguments give the same number, in every run ──────────────────────────────────


def _chance(seed: int, number: int, what: str) -> float:
    """0 <= x < 1."""
    digest = hashlib.sha256(f"{what} {seed} {number}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


@K.function("(int o) randomInt(int seed, int sequenceNum, int min, int max)")
def random_int(seed: int, number: int, least: int, most: int) -> int:
    if most < least:
        raise Failure(f"randomInt: nothing lies between {least} and {most}")
    return least + int.from_bytes(hashlib.sha256(f"int {seed} {number}".encode()).digest(), "big") % (most - least + 1)


@K.function("(float o) randomFloat(int seed, int sequenceNum, float min, float max)")
def random_float(seed: int, number: int, least: float, most: float) -> float:
    return least + (most - least) * _chance(seed, number, "float")


@K.function("(float o) randomGaussian(int seed, int sequenceNum)")
def random_gaussian(seed: int, number: int) -> float:
    """With mean 0 and variance 1, by Box and Muller."""
    return math.sqrt(-2 * math.log(1 - _chance(seed, number, "radius"))) * math.cos(2 * math.pi * _chance(seed, number, "angle"))


@K.function("(boolean o) isNaN(float x)")
def is_nan(x: float) -> bool:
    return x != x
