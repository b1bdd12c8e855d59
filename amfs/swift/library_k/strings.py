"""Strings: joining, regular expressions, conversion."""

from __future__ import annotations

import re
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import format_k, is_float, parse_float, parse_int, text_k
from amfs.swift.library_k.registry import K
from amfs.swift.patterns import compiled, substituted


@K.function("(string o) strcat(any... parts)")
def strcat(*parts: Any) -> str:
    """A float without a fraction is written as an int: ``strcat(20.0)`` is "20"."""
    return "".join(str(int(part)) if isinstance(part, float) and part.is_integer() else text_k(part) for part in parts)


@K.function(
    "(string o) regexp(string input, string pattern, string transform)",
    "(string o) replaceAllRe(string s, string findRe, string replacementRe)",
)
def regexp(text: str, pattern: str, transform: str) -> str:
    return substituted(pattern, transform, text)


@K.function("(string o) strcut(string input, string pattern)")
def strcut(text: str, pattern: str) -> str:
    match = compiled(pattern).search(text)
    if match is None or not match.groups():
        raise Failure(f"strcut: the pattern {pattern!r} has no group that is found in {text!r}")
    return match[1] or ""


@K.function("(string o) replaceAllRe(string s, string findRe, string replacementRe, int start, int end)")
def replace_re_within(text: str, pattern: str, transform: str, start: int, end: int) -> str:
    _within(text, start, end, "replaceAllRe")
    return text[:start] + substituted(pattern, transform, text[start:end]) + text[end:]


@K.function("(string o[]) findAllRe(string s, string re)")
def find_all_re(text: str, pattern: str) -> dict[int, str]:
    """Of each match, the match and what its groups but the last have found, as Swift/K does; without groups the matches."""
    expression = compiled(pattern)
    numbers = range(max(1, expression.groups))
    return dict(enumerate(match[number] or "" for match in expression.finditer(text) for number in numbers))


def _within(text: str, start: int, end: int, what: str) -> None:
    if not 0 <= start <= end <= len(text):
        raise Failure(f"{what}: from {start} to {end} is no part of {len(text)} characters")


@K.function("(string o[]) splitRe(string s, string regexp, int maxSplit)")
def split_re_at_most(text: str, pattern: str, most: int) -> dict[int, str]:
    """The last part is the rest."""
    parts: list[str] = []
    at = 0
    for match in compiled(pattern).finditer(text):
        if len(parts) + 1 >= most:
            break
        if match.end():
            parts.append(text[at : match.start()])
            at = match.end()
    return dict(enumerate([*parts, text[at:]]))


@K.function("(string o[]) split(string s, string delimiter, int maxSplit)")
def split_at_most(text: str, delimiter: str, most: int) -> dict[int, str]:
    return split_re_at_most(text, f"(?:{re.escape(delimiter)})+", most) if delimiter else {0: text}


@K.function("(string o[]) strsplit(string input, string pattern)", "(string o[]) splitRe(string s, string regexp)")
def strsplit(text: str, pattern: str) -> dict[int, str]:
    """Empty strings at the end are left out, as Java does, and one before a match of nothing at the beginning."""
    parts, at = [], 0
    for match in compiled(pattern).finditer(text):
        if match.end():
            parts.append(text[at : match.start()])
            at = match.end()
    parts.append(text[at:])
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return dict(enumerate(parts))


@K.function("(string o[]) split(string s, string delimiter)")
def split(text: str, delimiter: str) -> dict[int, str]:
    """Delimiters that follow each other count as one."""
    return dict(enumerate(re.split(f"(?:{re.escape(delimiter)})+", text) if delimiter else list(text)))


@K.function('(string o) strjoin(any array, string delimiter="")', '(string o) join(any array, string delimiter="")')
def strjoin(items: Any, delimiter: str) -> str:
    if not isinstance(items, dict):
        raise Failure("strjoin wants an array")
    return delimiter.join(map(text_k, items.values()))


@K.function("(int o) strstr(string s, string sub)", "(int o) indexOf(string s, string sub, int start=0)")
def strstr(text: str, sub: str, start: int = 0) -> int:
    return text.find(sub, max(0, start))


@K.function("(int o) indexOf(string s, string find, int start, int end)")
def index_within(text: str, sub: str, start: int, end: int) -> int:
    """Of what begins between ``start`` and ``end``: it may end after that."""
    _within(text, start, end, "indexOf")
    return text.find(sub, start, end + len(sub) - 1)


@K.function("(int o) lastIndexOf(string s, string find, int start)", "(int o) lastIndexOf(string s, string find, int start, int end)")
def last_index_before(text: str, sub: str, start: int, end: int = 0) -> int:
    """Backwards from ``start`` (-1: from the end) to ``end``."""
    start = len(text) if start == -1 else start
    _within(text, end, start, "lastIndexOf")
    return text.rfind(sub, end, start + len(sub))


@K.function("(int o) lastIndexOf(string s, string sub)")
def last_index_of(text: str, sub: str) -> int:
    return text.rfind(sub)


@K.function("(string o) sprintf(string spec, any... values)", "(string o) format(string spec, any... values)")
def sprintf(spec: str, *values: Any) -> str:
    return format_k(spec, values)


@K.function("(string o) pad(int size, any value)")
def pad(size: int, value: Any) -> str:
    if size > 1_000_000:
        raise Failure(f"pad: a size of {size} is too large")
    return text_k(value).zfill(size)


@K.function("(string o) trim(string s)")
def trim(text: str) -> str:
    return text.strip()


@K.function("(string o) toUpper(string s)")
def to_upper(text: str) -> str:
    return text.upper()


@K.function("(string o) toLower(string s)")
def to_lower(text: str) -> str:
    return text.lower()


@K.function("(string o) substring(string s, int start, int end=-1)")
def substring(text: str, start: int, end: int) -> str:
    """Up to ``end``, not with it."""
    if start < 0 or start > len(text):
        raise Failure(f"substring({text!r}, {start}): there are {len(text)} characters")
    return text[start:] if end < 0 else text[start:end]


@K.function("(string o) replaceAll(string s, string old, string new)")
def replace_all(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


@K.function("(string o) replaceAll(string s, string find, string replacement, int start, int end)")
def replace_within(text: str, old: str, new: str, start: int, end: int) -> str:
    _within(text, start, end, "replaceAll")
    return text[:start] + replace_all(text[start:end], old, new) + text[end:]


@K.function("(boolean o) matches(string s, string pattern)")
def matches(text: str, pattern: str) -> bool:
    return compiled(pattern).fullmatch(text) is not None


@K.function("(boolean o) startsWith(string s, string prefix)")
def starts_with(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


@K.function("(boolean o) endsWith(string s, string suffix)")
def ends_with(text: str, suffix: str) -> bool:
    return text.endswith(suffix)


@K.function("(int o) toInt(any value)", "(int o) parseInt(string value)")
def to_int(value: Any) -> int:
    """Of a float, or of text like "1.0": the part before the point."""
    if isinstance(value, str) and is_float(value) and not value.strip().lstrip("+-").isdigit():
        value = parse_float(value)
    if isinstance(value, float):
        if value != value or abs(value) >= 2**63:
            raise Failure(f"could not convert {text_k(value)} to int")
        return int(value)
    return parse_int(value) if isinstance(value, str) else int(value)


@K.function("(int o) parseInt(string s, int base)")
def to_int_with_base(text: str, base: int) -> int:
    if not 2 <= base <= 36:
        raise Failure(f"parseInt: a base is from 2 to 36, and not {base}")
    return parse_int(text, base)


@K.function("(float o) toFloat(any value)", "(float o) parseFloat(string value)")
def to_float(value: Any) -> float:
    return parse_float(value) if isinstance(value, str) else float(value)


@K.function("(string o) toString(any value)")
def to_string(value: Any) -> str:
    return text_k(value)


@K.function("(int o) length(any array)")
def length(items: Any) -> int:
    if not isinstance(items, dict | list | str):
        raise Failure("length wants an array")
    return len(items)
