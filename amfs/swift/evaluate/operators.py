"""Operators on plain values, in each language. Pure functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import format_k, format_t, text_k, text_t

#: Texts of values, and formats, by language.
TEXT = {"swift-t": text_t, "swift-k": text_k}
FORMAT = {"swift-t": format_t, "swift-k": format_k}

_LARGEST = 1 << 63


def whole(value: int) -> int:
    """An int within its 64 bits. Raises ``Failure``."""
    if -_LARGEST <= value < _LARGEST:
        return value
    raise Failure("the result does not fit into an int of 64 bits")


def _int(call: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    def checked(left: int, right: int) -> int:
        value = call(left, right)
        return value if -_LARGEST <= value < _LARGEST else whole(value)

    return checked


def _divide(left: Any, right: Any) -> float:
    try:
        return float(left / right)
    except ZeroDivisionError:
        return math.nan if not left or left != left else math.copysign(math.inf, left) * math.copysign(1.0, right)


def _power(left: Any, right: Any) -> float:
    try:
        return math.pow(left, right)
    except OverflowError:
        return math.inf if left > 0 or right % 2 == 0 else -math.inf
    except ValueError:
        return math.inf if not left else math.nan


def _quotient(left: int, right: int) -> int:
    """Towards zero, as C and Java do."""
    if not right:
        raise Failure("division by zero")
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _remainder(left: int, right: int) -> int:
    return left - right * _quotient(left, right)


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip

_INT: dict[str, Callable[[Any, Any], Any]] = {
    "+": _int(operator.add), "-": _int(operator.sub), "*": _int(operator.mul), "/": _divide, "**": _power,
}  # fmt: skip

_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divide, "**": _power,
}  # fmt: skip

_DIVISION: dict[str, Callable[[Any, Any], Any]] = {"%/": _int(_quotient), "%%": _remainder}


def binary(language: str, operator: str, meaning: str) -> Callable[[Any, Any], Any]:
    """The operator on two plain values. It may raise ``Failure``."""
    if operator in ("&&", "||"):
        return (lambda left, right: bool(left and right)) if operator == "&&" else (lambda left, right: bool(left or right))
    if operator in _COMPARE:
        return _COMPARE[operator]
    if meaning == "string":
        text = TEXT[language]
        return lambda left, right: text(left) + text(right)
    if meaning == "path":
        text = TEXT[language]
        return lambda left, right: f"{text(left)}/{text(right)}"
    if operator in _DIVISION:
        return _DIVISION[operator]
    return (_INT if meaning == "int" else _FLOAT)[operator]
