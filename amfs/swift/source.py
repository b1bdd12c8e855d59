"""Texts of Swift programs, places in them, and mistakes at such places.

Owns how a mistake is shown: file, line, column, the line itself with a caret. Must not know: languages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from amfs.errors import Fault, WorkflowError


class Source:
    """One text. ``name``: as the user knows the file. ``places``: for a text that a preprocessor has made, sorted (offset in ``text``,
    source, offset there) from which on each piece comes; empty: the text is the file."""

    __slots__ = ("_starts", "name", "places", "text")

    def __init__(self, name: str, text: str, places: Iterable[tuple[int, Source, int]] = ()) -> None:
        self.name = name
        self.text = text
        self.places = list(places)
        self._starts: list[int] | None = None

    def origin(self, offset: int) -> tuple[Source, int]:
        """The file, and the offset there, that this offset comes from."""
        source = self
        while source.places:
            start, other, there = source.places[max(0, bisect_right(source.places, offset, key=lambda place: place[0]) - 1)]
            source, offset = other, there + max(0, offset - start)
        return source, min(offset, len(source.text))

    def line_column(self, offset: int) -> tuple[int, int]:
        """Both counted from 1, the column in characters. Of a file itself, not of a preprocessor's text."""
        if self._starts is None:
            starts, at = [0], self.text.find("\n")
            while at >= 0:
                starts.append(at + 1)
                at = self.text.find("\n", at + 1)
            self._starts = starts
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line_text(self, line: int) -> str:
        self.line_column(0)
        assert self._starts is not None
        start = self._starts[line - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)]


class At(NamedTuple):
    """A piece of a text: where a construct stands."""

    source: Source
    start: int
    end: int

    def __str__(self) -> str:
        """"file:line:column", as in messages."""
        source, offset = self.source.origin(self.start)
        line, column = source.line_column(offset)
        return f"{source.name}:{line}:{column}"

    @property
    def line(self) -> int:
        source, offset = self.source.origin(self.start)
        return source.line_column(offset)[0]


class Mistake(Exception):
    """Something is wrong with a program, at a place. ``hint``: the user's likely meaning, a sentence without a full stop, or ""."""

    def __init__(self, at: At, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.at = at
        self.message = message
        self.hint = hint

    def fault(self) -> Fault:
        """With column, line and caret, for people."""
        source, offset = self.at.source.origin(self.at.start)
        line, column = source.line_column(offset)
        text = source.line_text(line).replace("\t", " ")
        width = max(1, min(self.at.end - self.at.start, len(text) - column + 1))
        shown = text if len(text) <= 160 else ""  # a generated line of a megabyte helps nobody
        picture = f"\n    {shown}\n    {' ' * (column - 1)}{'^' * width}" if shown.strip() else ""
        hint = f"\n    {self.hint}" if self.hint else ""
        return Fault(source.name, line, f"{self.message}{picture}{hint}", column)


def refuse(mistakes: Iterable[Mistake]) -> WorkflowError:
    """The error with all these mistakes, in the order of the text."""
    ordered = sorted(mistakes, key=lambda one: (one.at.source.origin(one.at.start)[0].name, one.at.start))
    return WorkflowError([mistake.fault() for mistake in ordered])


def suggestion(name: str, known: Iterable[str], said: str = "") -> str:
    """"did you mean 'x'?" if one of the known names is close, else "". ``said``: how to write the name."""
    from difflib import get_close_matches  # only for mistakes

    near = get_close_matches(name, known, 1, 0.7)
    if near and said:
        return f"did you mean: {said.format(near[0])}"
    return f"did you mean {near[0]!r}?" if near else ""
