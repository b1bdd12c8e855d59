"""Numbers: arithmetic, mathematical functions, chance, and statistics of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import LARGEST, text_t
from amfs.swift.library_t.registry import T
from amfs.swift.requests import Random, Request

T.constants += [("float", "PI", math.pi), ("float", "E", math.e)]
T.types.append("type PartialStats { int n; float mean; float M2; }")


def within_64_bits(number: int, what: str) -> int:
    if not -LARGEST <= number < LARGEST:
        raise Failure(f"{what}: the result does not fit into an int of 64 bits")
    return number


def _mathematical(name: str, *names: str) -> Callable[[Callable[[float], float]], None]:
    """Declares a function of one float. Where it is not defined the result is NaN or infinite, as in C."""

    def take(function: Callable[[float], float]) -> None:
        def call(x: float) -> float:
            try:
                return float(function(x))
            except ValueError:
                return -math.inf if name.startswith(("log", "ln")) and x == 0 else math.nan
            except OverflowError:
                return math.inf

        T.function(*(f"(float o) {one}(float x)" for one in (name, *names)))(call)

    return take


for _function in (math.exp, math.log10, math.log2, math.sqrt, math.sin, math.cos, math.tan, math.asin, math.acos, math.atan):
    _mathematical(_function.__name__)(_function)
for _function in (math.sinh, math.cosh, math.tanh, math.cbrt, math.expm1, math.log1p):
    _mathematical(_function.__name__)(_function)
_mathematical("log", "ln", "log_e")(math.log)


def _to_whole(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: float(function(x)) if math.isfinite(x) else x


for _name, _whole in (("floor", math.floor), ("ceil", math.ceil), ("round", lambda x: math.copysign(math.floor(abs(x) + 0.5), x))):
    T.function(f"(float o) {_name}(float x)")(_to_whole(_whole))


@T.function("(float o) log(float x, float base)")
def log(x: float, base: float) -> float:
    if x <= 0 or base <= 0 or base == 1:
        raise Failure(f"log({text_t(x)}, {text_t(base)}) is not defined")
    return math.log(x, base)


@T.function("(float o) pow(float x, float y)", "(float o) pow_float(float x, float y)")
def power(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except ValueError:
        return math.inf if x == 0 else math.nan
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf


@T.function("(int o) pow_integer(int x, int y)", "(int o) pow_int(int x, int y)")
def pow_integer(x: int, y: int) -> int:
    if y < 0:
        if x in (1, -1):
            return x if y % 2 else 1
        raise Failure(f"pow_integer({x}, {y}): the exponent is negative")
    if abs(x) > 1 and y > 64:
        raise Failure(f"pow_integer({x}, {y}): the result does not fit into an int of 64 bits")
    return within_64_bits(x ** (y if abs(x) > 1 else y % 2 + 2 * (y > 1)), f"pow_integer({x}, {y})")


@T.function("(float o) atan2(float y, float x)")
def atan2(y: float, x: float) -> float:
    return math.atan2(y, x)


@T.function("(int o) INT_MAX()")
def int_max() -> int:
    return LARGEST - 1


@T.function("(boolean o) is_nan(float x)", "(boolean o) isnan(float x)", "(boolean o) isNaN(float x)")
def is_nan(x: float) -> bool:
    return x != x


@T.function("(boolean o) is_inf(float x)", "(boolean o) isinf(float x)")
def is_inf(x: float) -> bool:
    return math.isinf(x)


@T.function("(int o) abs(int x)", "(int o) abs_integer(int x)", "(int o) abs_int(int x)")
def abs_integer(x: int) -> int:
    return within_64_bits(abs(x), f"abs({x})")


@T.function("(float o) abs(float x)", "(float o) abs_float(float x)")
def abs_float(x: float) -> float:
    return abs(x)


@T.function(
    "(int o) max(int a, int b)",
    "(int o) max_integer(int a, int b)",
    "(float o) max(float a, float b)",
    "(float o) max_float(float a, float b)",
)
def larger(a: Any, b: Any) -> Any:
    return max(a, b)


@T.function(
    "(int o) min(int a, int b)",
    "(int o) min_integer(int a, int b)",
    "(float o) min(float a, float b)",
    "(float o) min_float(float a, float b)",
)
def smaller(a: Any, b: Any) -> Any:
    return min(a, b)


@T.function("(int o) mod(int a, int b)", "(int o) mod_integer(int a, int b)")
def modulo(a: int, b: int) -> int:
    if b == 0:
        raise Failure(f"mod({a}, 0): division by zero")
    return int(math.copysign(1, a)) * (abs(a) % abs(b))


@T.function(
    "(float o) itof(int i)", "(float o) int2float(int i)", "(float o) tofloat(int i)", "(float o) toFloat(int i)",
    "(float o) int_to_float(int i)",
)
def to_float(i: int) -> float:
    return float(i)


@T.function(
    "(int o) toint(float f)", "(int o) float2int(float f)", "(int o) ftoi(float f)", "(int o) float_to_int(float f)",
    "(int o) toInt(float f)",
)
def to_int(f: float) -> int:
    if not math.isfinite(f):
        raise Failure(f"could not convert {text_t(f)} to int")
    return within_64_bits(int(f), f"toint({text_t(f)})")


# ── chance ─────────────────────────────────────────────────────────────────────────────────────────


@T.asking("(float o) random()")
def random() -> Generator[Request, Any, float]:
    return float((yield Random()))


@T.asking("(int o) randint(int start, int end)", "(int o) random_integer(int start, int end)")
def randint(start: int, end: int) -> Generator[Request, Any, int]:
    """start <= result < end."""
    if end <= start:
        raise Failure(f"randint({start}, {end}): nothing lies between")
    return start + min(int((yield Random()) * (end - start)), end - start - 1)


# ── statistics ─────────────────────────────────────────────────────────────────────────────────────


@T.function(
    "(int o) sum(int A[])", "(int o) sum_integer(int A[])", "(int o) sum(bag<int> A)", "(int o) sum(int A[string])"
)
def sum_integer(items: Any) -> int:
    return within_64_bits(sum(_values(items)), "sum")


@T.function("(float o) sum(float A[])", "(float o) sum_float(float A[])", "(float o) sum(bag<float> A)", "(float o) sum(float A[string])")
def sum_float(items: Any) -> float:
    return float(sum(_values(items)))


def _values(items: Any) -> list[Any]:
    return list(items.values()) if isinstance(items, dict) else list(items)


def _some(items: Any, what: str) -> list[Any]:
    values = _values(items)
    if not values:
        raise Failure(f"{what} of an empty array")
    return values


def _declare_extremes() -> None:
    for name, function in (("max", max), ("min", min)):

        def call(items: Any, name: str = name, function: Callable[[Any], Any] = function) -> Any:
            return function(_some(items, name))

        T.function(
            f"(int o) {name}(int A[])",
            f"(float o) {name}(float A[])",
            f"(int o) {name}_integer(int A[])",
            f"(float o) {name}_float(float A[])",
        )(call)


_declare_extremes()


@T.function("(float o) avg(int|float A[])", "(float o) mean(int|float A[])", "(float o) avg(bag<int|float> A)")
def avg(items: Any) -> float:
    values = _some(items, "avg")
    return math.fsum(values) / len(values)


def _partial(items: Any, what: str) -> tuple[int, float, float]:
    """How many, their mean, the sum of squared differences from it."""
    values = _some(items, what)
    mean = math.fsum(values) / len(values)
    return len(values), mean, math.fsum((value - mean) ** 2 for value in values)


@T.function("(float o) std(int|float A[])", "(float o) stdev(int|float A[])")
def std(items: Any) -> float:
    """Of the population: divided by n."""
    n, _, squares = _partial(items, "std")
    return math.sqrt(squares / n)


@T.function("(float mean, float std) stats(int|float A[])")
def stats(items: Any) -> tuple[float, float]:
    n, mean, squares = _partial(items, "stats")
    return mean, math.sqrt(squares / n)


@T.function("(PartialStats o) statagg(int|float A[])")
def statagg(items: Any) -> dict[str, Any]:
    n, mean, squares = _partial(items, "statagg")
    return {"n": n, "mean": mean, "M2": squares}


@T.function("(int n, float mean, float M2) statagg(int|float A[])")
def statagg_parts(items: Any) -> tuple[int, float, float]:
    return _partial(items, "statagg")


@T.function("(int n, float mean, float std) stat_combine(PartialStats A[])")
def stat_combine(parts: Any) -> tuple[int, float, float]:
    """Chan, Golub, LeVeque: means and squares of parts give those of the whole."""
    some = _some(parts, "stat_combine")
    n = sum(part["n"] for part in some)
    if n <= 0:
        raise Failure("stat_combine of no values")
    mean = math.fsum(part["n"] * part["mean"] for part in some) / n
    squares = math.fsum(part["M2"] + part["n"] * (part["mean"] - mean) ** 2 for part in some)
    return n, mean, math.sqrt(squares / n)
