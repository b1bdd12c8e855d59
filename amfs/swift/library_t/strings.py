"""Strings: parts, search, replacement, joining, formats, and conversion to and from numbers."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Generator
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import format_t, is_float, is_int, parse_float, parse_int, text_t
from amfs.swift.library_t.registry import T
from amfs.swift.names import joined
from amfs.swift.requests import Environment, Print, Request


@T.function("(string o) strcat(int|float|string|boolean... parts)")
def strcat(*parts: Any) -> str:
    return "".join(map(text_t, parts))


@T.function("(int o) strlen(string s)", "(int o) length(string s)", "(int o) string_length(string s)")
def strlen(s: str) -> int:
    return len(s)


@T.function("(string o) substring(string s, int start, int length)")
def substring(s: str, start: int, length: int) -> str:
    if start < 0 or length < 0:
        raise Failure(f"substring({s!r}, {start}, {length}): start and length must not be negative")
    return s[start : start + length]


@T.function("(string o) substring(string s, int start)")
def substring_to_end(s: str, start: int) -> str:
    return substring(s, start, len(s))


def _end(s: str, end: int) -> int:
    return len(s) if end < 0 else end


@T.function("(int o) find(string s, string subs, int start_index=0, int end_index=-1)")
def find(s: str, subs: str, start: int, end: int) -> int:
    return s.find(subs, max(0, start), _end(s, end))


@T.function(
    "(int o) count(string s, string subs, int start_index=0, int end_index=-1)",
    "(int o) string_count(string s, string subs, int start_index=0, int end_index=-1)",
)
def count(s: str, subs: str, start: int, end: int) -> int:
    return s.count(subs, max(0, start), _end(s, end)) if subs else 0


@T.function("(string o) replace(string s, string substring, string rep_string, int start_index=0)")
def replace(s: str, old: str, new: str, start: int) -> str:
    start = max(0, start)
    return s[:start] + s[start:].replace(old, new, 1) if old else s


@T.function("(string o) replace_all(string s, string substring, string rep_string, int start_index=0)")
def replace_all(s: str, old: str, new: str, start: int) -> str:
    start = max(0, start)
    return s[:start] + s[start:].replace(old, new) if old else s


@T.function("(string o) replaceAll(string s, string substring, string rep_string, int start_index=0, int end_index=-1)")
def replace_within(s: str, old: str, new: str, start: int, end: int) -> str:
    """Replace in s[start:end] only."""
    start, end = max(0, start), _end(s, end)
    return s[:start] + s[start:end].replace(old, new) + s[max(start, end) :] if old else s


@T.function('(string o[]) split(string s, string delimiter=" ")')
def split(s: str, delimiter: str) -> dict[int, str]:
    return dict(enumerate(s.split(delimiter) if delimiter else list(s))) if s else {}


@T.function("(string o) trim(string s)")
def trim(s: str) -> str:
    return s.strip()


@T.function("(string o) toUpper(string s)", "(string o) toupper(string s)")
def to_upper(s: str) -> str:
    return s.upper()


@T.function("(string o) toLower(string s)", "(string o) tolower(string s)")
def to_lower(s: str) -> str:
    return s.lower()


@T.function(
    '(string o) join(int|float|string|boolean A[], string separator=" ")',
    '(string o) string_join(int|float|string|boolean A[], string separator=" ")',
    '(string o) join(int|float|string|boolean A[string], string separator=" ")',
)
def join(items: dict[Any, Any], separator: str) -> str:
    return separator.join(map(text_t, items.values()))


@T.function("(string o) join_args(string separator, int|float|string|boolean... values)")
def join_args(separator: str, *values: Any) -> str:
    return separator.join(map(text_t, values))


@T.function("(string o) string_from_floats(float A[])")
def string_from_floats(items: dict[int, float]) -> str:
    return ",".join(map(text_t, items.values()))


@T.function("(string o) dircat(string... parts)")
def dircat(*parts: str) -> str:
    """As the operator / of strings."""
    return functools.reduce(joined, parts) if parts else ""


@T.function("(int o) hash(string s)")
def hash_(s: str) -> int:
    """The same for the same text, in every run."""
    return zlib.crc32(s.encode(errors="surrogateescape"))


@T.function("(boolean o) startswith(string s, string prefix)", "(boolean o) starts_with(string s, string prefix)")
def starts_with(s: str, prefix: str) -> bool:
    return s.startswith(prefix)


@T.function("(boolean o) endswith(string s, string suffix)", "(boolean o) ends_with(string s, string suffix)")
def ends_with(s: str, suffix: str) -> bool:
    return s.endswith(suffix)


@T.function("(string o) sprintf(string format, int|float|string|boolean... values)")
def sprintf(format: str, *values: Any) -> str:
    return format_t(format, values)


@T.asking("(void v) printf(string format, int|float|string|boolean... values)")
def printf(format: str, *values: Any) -> Generator[Request, Any, None]:
    """A newline follows, as Tcl's puts writes one, unless TURBINE_PRINTF_NL is 0."""
    text = format_t(format, values)
    newline = yield Environment("TURBINE_PRINTF_NL")
    yield Print(text if newline == "0" else text + "\n")


# ── conversions ────────────────────────────────────────────────────────────────────────────────────


@T.function("(boolean o) isint(string s)", "(boolean o) is_int(string s)")
def isint(s: str) -> bool:
    return is_int(s)


@T.function("(boolean o) isfloat(string s)", "(boolean o) is_float(string s)")
def isfloat(s: str) -> bool:
    return is_float(s)


@T.function(
    "(int o) toint(string s)", "(int o) string2int(string s)", "(int o) string_to_int(string s)", "(int o) parse_int(string s)",
)
def to_int(s: str) -> int:
    return to_int_with_base(s, 10)


@T.function("(int o) parseInt(string s, int base=10)", "(int o) string2int(string s, int base)")
def to_int_with_base(s: str, base: int) -> int:
    if not 2 <= base <= 36:
        raise Failure(f"parseInt: a base is from 2 to 36, and not {base}")
    if base == 10 and s.strip().lstrip("+-")[:2].lower() in ("0x", "0o"):
        raise Failure(f"could not convert string {s!r} to int: a number of base 16 needs parseInt(…, 16)")
    return parse_int(s, base)


@T.function("(int o) toint(int i)")
def same_int(i: int) -> int:
    return i


@T.function("(int o) toint(boolean b)", "(int o) bool2int(boolean b)", "(int o) boolean2int(boolean b)", "(int o) booleantoint(boolean b)")
def of_boolean(b: bool) -> int:
    return int(b)


@T.function(
    "(float o) tofloat(string s)",
    "(float o) string2float(string s)",
    "(float o) string_to_float(string s)",
    "(float o) parseFloat(string s)",
    "(float o) parse_float(string s)",
)
def to_float(s: str) -> float:
    return parse_float(s)


@T.function(
    "(string o) fromint(int i)",
    "(string o) int2string(int i)",
    "(string o) fromfloat(float f)",
    "(string o) float2string(float f)",
    "(string o) int_to_string(int i)",
    "(string o) float_to_string(float f)",
    "(string o) tostring(int|float|string|boolean x)",
    "(string o) toString(int|float|string|boolean x)",
    "(string o) boolean2string(boolean b)",
    "(string o) bool2string(boolean b)",
    "(string o) booltostring(boolean b)",
    "(string o) fromboolean(boolean b)",
)
def to_string(x: Any) -> str:
    """Of a boolean the word, unlike ``+`` and ``trace``."""
    return ("true" if x else "false") if isinstance(x, bool) else text_t(x)


@T.function(
    "(boolean o) string2boolean(string s)", "(boolean o) string2bool(string s)", "(boolean o) parseBoolean(string s)",
    "(boolean o) toboolean(string s)",
)
def to_boolean(s: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if s.strip().lower() not in words:
        raise Failure(f"could not convert string {s!r} to boolean")
    return words[s.strip().lower()]


# ── blobs ──────────────────────────────────────────────────────────────────────────────────────────


@T.function("(int o) blob_size(blob b)")
def blob_size(b: bytes) -> int:
    return len(b)


@T.function("(blob o) blob_from_string(string s)", "(blob o) string2blob(string s)")
def blob_from_string(s: str) -> bytes:
    return s.encode(errors="surrogateescape") + b"\0"  # as C programs expect it


@T.function("(string o) string_from_blob(blob b)", "(string o) blob2string(blob b)")
def string_from_blob(b: bytes) -> str:
    return b.removesuffix(b"\0").decode(errors="surrogateescape")
