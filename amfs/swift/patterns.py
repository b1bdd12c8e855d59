"""Regular expressions as Swift/K has them (Java's), done by Python's, which agree but for possessive quantifiers and named classes."""

from __future__ import annotations

import re

from amfs.swift.builtins import Failure

_REFERENCE = re.compile(r"\\(\d)|\$(\d)|\\(.)", re.DOTALL)


def compiled(pattern: str) -> re.Pattern[str]:
    """Raises ``Failure`` for what is no pattern."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise Failure(f"{pattern!r} is no regular expression: {error}") from None


def expanded(transform: str, match: re.Match[str]) -> str:
    r"""The text with ``\1`` (and ``$1``) replaced by the groups of the match. Raises ``Failure``."""

    def group(reference: re.Match[str]) -> str:
        if reference[3] is not None:
            return reference[3]
        number = int(reference[1] or reference[2])
        if number > (match.re.groups):
            raise Failure(f"{transform!r} names group {number}, and {match.re.pattern!r} has {match.re.groups}")
        return match[number] or ""

    return _REFERENCE.sub(group, transform)


def substituted(pattern: str, transform: str, text: str) -> str:
    """Each match replaced."""
    return compiled(pattern).sub(lambda match: expanded(transform, match), text)


def transformed(pattern: str, transform: str, name: str) -> str:
    """The transform, with what the first match found. Raises ``Failure`` if nothing matches."""
    match = compiled(pattern).search(name)
    if match is None:
        raise Failure(f"{pattern!r} does not match {name!r}")
    return expanded(transform, match)


_STEP = re.compile(r"\[\s*(?:(-?\d+)|\"([^\"]*)\"|([^\]\"]+?))\s*\]|\.?([A-Za-z_]\w*)")


def parse_path(text: str) -> tuple[str | int, ...] | None:
    """``[2].field["key"]`` as its steps; None if it is no path."""
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            return None
        number, quoted, bare, field = match.groups()
        steps.append(int(number) if number is not None else next(part for part in (quoted, bare, field) if part is not None))
        at = match.end()
    return tuple(steps)
