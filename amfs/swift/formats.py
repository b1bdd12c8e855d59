"""Values as text, and formats of printf, for both languages.

Swift/T writes values as Tcl does, and its formats are those of Tcl's ``format``. Swift/K writes them as Java does, with its own formats.
Must not know: programs, evaluation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from amfs.patterns import pattern
from amfs.swift.builtins import Failure
from amfs.swift.requests import FileValue

# ── values as text ─────────────────────────────────────────────────────────────────────────────────


def text_t(value: Any) -> str:
    """As Swift/T's trace and ``+`` with a string write it: a boolean is 0 or 1, a float always looks like one."""
    if value.__class__ is str:
        return str(value)
    if value is True or value is False:
        return "1" if value else "0"
    if isinstance(value, float):
        return _tcl_float(value)
    return _other_text(value, text_t)


def _tcl_float(value: float) -> str:
    """The shortest digits that mean this number; an exponent, without leading zeros, below 1e-4 and from 1e17 on."""
    if not math.isfinite(value):
        return "NaN" if value != value else "Inf" if value > 0 else "-Inf"
    shown = repr(value)
    if "e" not in shown:
        return shown
    digits, exponent = shown.split("e")
    if exponent != "+16":
        return f"{digits}e{int(exponent):+d}"
    whole, _, rest = digits.partition(".")
    return f"{whole}{rest:0<16}.0"


def text_k(value: Any) -> str:
    """As Swift/K's trace and ``+`` with a string write it: ``true``, ``1.0E7``."""
    if value.__class__ is str:
        return str(value)
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_float(value)
    return _other_text(value, text_k)


def _other_text(value: Any, text: Callable[[Any], str]) -> str:
    if value is None:
        return ""
    if isinstance(value, FileValue):
        return value.name
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(text, value)) + "]"
    return str(value)


def _java_float(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    size = abs(value)
    if size == 0 or 1e-3 <= size < 1e7:
        shown = repr(value)
        return shown if "e" not in shown else f"{value:f}"
    shortest = next(text for text in (f"{value:.{places}e}" for places in range(18)) if float(text) == value)
    digits, exponent = shortest.split("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


# ── text as values ─────────────────────────────────────────────────────────────────────────────────

_INT = pattern(r"\s*[+-]?(0[xX][0-9a-fA-F]+|0[oO][0-7]+|[0-9]+)\s*")
_FLOAT = pattern(r"\s*[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|inf(inity)?|nan)\s*", re.IGNORECASE)
LARGEST = 2**63


def is_int(text: str) -> bool:
    return _INT.fullmatch(text) is not None


def parse_int(text: str, base: int = 10) -> int:
    """The whole number that the text is, within 64 bits. Raises ``Failure``."""
    number: int | None = None
    if base != 10:
        try:
            number = int(text.strip(), base)
        except ValueError:
            raise Failure(f"could not convert string {text!r} to int with base {base}") from None
    elif match := _INT.fullmatch(text):
        negative = text.lstrip().startswith("-")
        digits = match[1].lower()
        # A number with leading zeros is decimal: scripts number files like that.
        number = int(digits, 0) if digits[:2] in ("0x", "0o") else int(digits) if len(digits) < 4000 else LARGEST
        number = -number if negative else number
    if number is None:
        raise Failure(f"could not convert string {text!r} to int")
    if not -LARGEST <= number < LARGEST:
        raise Failure(f"{text[:40]!r} does not fit into an int of 64 bits")
    return number


def is_float(text: str) -> bool:
    return _FLOAT.fullmatch(text) is not None


def parse_float(text: str) -> float:
    """The number that the text is. Raises ``Failure``."""
    if not is_float(text):
        raise Failure(f"could not convert string {text!r} to float")
    return float(text)


# ── formats ────────────────────────────────────────────────────────────────────────────────────────

_SPEC = pattern(r"%(?:(\d+)\$)?([-+ 0#]*)(\*|\d+)?(?:\.(\*|\d+)?)?(?:hh|h|ll|l|j|z|t|L)?(.?)", re.DOTALL)
WIDEST = 1_000_000


def format_t(format: str, values: Sequence[Any]) -> str:
    """Tcl's ``format``: C's conversions, with ``%i``, ``%b``, ``%*d``, ``%2$s``. Raises ``Failure``."""
    pieces: list[str] = []
    at = taken = 0

    def take(number: str | None = None) -> Any:
        nonlocal taken
        if number:
            index = int(number) - 1
        else:
            index, taken = taken, taken + 1
        if not 0 <= index < len(values):
            raise Failure(f"not enough arguments for the format {format!r}: it has {len(values)}")
        return values[index]

    while (found := format.find("%", at)) >= 0:
        pieces.append(format[at:found])
        match = _SPEC.match(format, found)
        assert match
        at = match.end()
        if match[0] == "%%":
            pieces.append("%")
            continue
        flags, conversion = match[2], match[5]
        width = match[3]
        if width == "*":
            asked = _whole(take(), format)
            flags, width = (flags + "-" if asked < 0 else flags), str(abs(asked))
        precision = match[4] if "." in match[0] else None
        if precision == "*":
            precision = str(max(0, _whole(take(), format)))
        elif precision is None and "." in match[0].removesuffix(conversion):
            precision = "0"
        if int(width or 0) > WIDEST or int(precision or 0) > WIDEST:
            raise Failure(f"a width of more than {WIDEST} in the format {format!r}")
        if not conversion:
            raise Failure(f"the format {format!r} ends in the middle of a conversion")
        pieces.append(_convert(format, flags, width or "", precision, conversion, take(match[1])))
    pieces.append(format[at:])
    return "".join(pieces)


def _convert(format: str, flags: str, width: str, precision: str | None, conversion: str, value: Any) -> str:
    point = "" if precision is None else f".{precision}"
    spec = f"%{''.join(dict.fromkeys(flags))}{width}{point}"
    if conversion == "s":
        return _pad(text_t(value)[: None if precision is None else int(precision)], flags, width)
    if conversion in "di":
        return (spec + "d") % _whole(value, format)
    if conversion in "uoxX":
        number = _whole(value, format)
        number += 2 * LARGEST if number < 0 else 0  # as C: without a sign
        shown = (spec + ("d" if conversion == "u" else conversion)) % number
        return shown.replace("0o", "0", 1) if conversion == "o" else shown
    if conversion in "feEgGaA":
        number_f = _number(value, format)
        if conversion in "aA":
            shown = number_f.hex()
            return _pad(shown.upper() if conversion == "A" else shown, flags, width)
        if not math.isfinite(number_f):
            return _pad(text_t(number_f), flags, width)
        return (spec + conversion) % number_f
    if conversion == "c":
        return _pad(chr(_whole(value, format) % 0x110000) if not isinstance(value, str) else value[:1], flags, width)
    if conversion == "b":
        return _pad(f"{_whole(value, format):b}".zfill(int(precision or 0)), flags, width)
    raise Failure(f"bad conversion %{conversion} in the format {format!r}")


def _pad(text: str, flags: str, width: str) -> str:
    return text.ljust(int(width or 0)) if "-" in flags else text.rjust(int(width or 0))


def _whole(value: Any, format: str) -> int:
    if isinstance(value, float):
        raise Failure(f"the format {format!r} wants an int, and got the float {text_t(value)}")
    if isinstance(value, str) and not is_int(value):
        raise Failure(f"the format {format!r} wants an int, and got {value!r}")
    return parse_int(value) if isinstance(value, str) else int(value)


def _number(value: Any, format: str) -> float:
    if isinstance(value, str) and not is_float(value):
        raise Failure(f"the format {format!r} wants a number, and got {value!r}")
    return parse_float(value) if isinstance(value, str) else float(value)


_KINDS_K = {"s": (str, "a string"), "i": (int, "an int"), "d": (int, "an int"), "f": (float, "a float"), "b": (bool, "a boolean")}


def format_k(format: str, values: Sequence[Any]) -> str:
    """Swift/K's: ``%s %i %f %b`` demand their type, ``%p`` takes any, ``%q`` an array, ``%M`` the name of a file, ``%k`` skips a
    value. Raises ``Failure``."""
    pieces: list[str] = []
    at, index = 0, 0
    while (found := format.find("%", at)) >= 0:
        pieces.append(format[at:found])
        match = _SPEC.match(format, found)
        assert match
        at, conversion = match.end(), match[5]
        if match[0] == "%%":
            pieces.append("%")
            continue
        if not conversion:
            raise Failure(f"the format {format!r} ends in the middle of a conversion")
        if index >= len(values):
            raise Failure(f"missing argument for %{conversion} in the format {format!r}: it has {len(values)}")
        value = values[index]
        index += 1
        pieces.append(_convert_k(format, match, conversion, value))
    pieces.append(format[at:])
    if index < len(values):
        raise Failure(f"too many arguments for the format {format!r}: {len(values)}, and it takes {index}")
    return "".join(pieces)


def _convert_k(format: str, match: re.Match[str], conversion: str, value: Any) -> str:
    if conversion == "k":
        return ""
    if conversion == "p":
        return text_k(value)
    if conversion == "M":
        if not isinstance(value, FileValue):
            raise Failure(f"%M in the format {format!r} wants a file, and got {text_k(value)}")
        return value.name
    if conversion == "q":
        if not isinstance(value, dict | list):
            raise Failure(f"%q in the format {format!r} wants an array, and got {text_k(value)}")
        return "[" + ",".join(map(text_k, value.values() if isinstance(value, dict) else value)) + "]"
    if conversion not in _KINDS_K:
        raise Failure(f"bad conversion %{conversion} in the format {format!r}")
    kind, wanted = _KINDS_K[conversion]
    if conversion == "f" and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise Failure(f"%{conversion} in the format {format!r} wants {wanted}, and got {text_k(value)}")
    if match[2] or match[3] or match[4]:
        return format_t(match[0][:-1] + {"b": "s", "i": "d"}.get(conversion, conversion), [text_k(value) if conversion == "b" else value])
    return text_k(value) if conversion != "f" else f"{value:f}"
