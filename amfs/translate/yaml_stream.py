"""YAML as a stream of events, safely: plain values with line numbers, the elements of a long list one at a time.

libyaml does the parsing. Nothing but mappings, lists and text comes out (numbers and booleans stay as they were written, so that ``4.0`` is
not ``4``); tags are refused, so no object is ever made; depth, and the growth by aliases, are bounded. Raises ``YamlError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yaml import YAMLError
from yaml.cyaml import CParser
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from amfs.translate.document import DEPTH_MAX, ELEMENT_BYTES_MAX

#: Values that aliases may add, all of them together: a text of some kilobytes must not become gigabytes.
ALIASED_MAX = 5_000_000

#: Values within one that is asked for as a whole: a job, or a catalog.
VALUES_MAX = 10_000_000

#: Texts up to so long, and so many of them, are kept once.
_SHARED_CHARACTERS = 40
_SHARED_WORDS = 1 << 14

_NUL = "a text contains a NUL character"
_NULL = ("", "~", "null", "Null", "NULL")
_STANDARD = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_STANDARD + kind for kind in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp")} | {"!"}


class YamlError(ValueError):
    """The text is not YAML, or not YAML that we read. ``line`` counts from 1; 0 if not known."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class Map(dict[str, Any]):
    """A mapping, with the line on which it begins."""

    __slots__ = ("line",)

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _Pieces:
    """The bytes of a document as a file that forgets what has been read, but for the last piece, by which errors are placed."""

    def __init__(self, pieces: list[bytes]) -> None:
        pieces.reverse()
        self._pieces = pieces
        self._piece = b""
        self._start = 0  # of the piece in the document, and the lines before it
        self._lines = 0
        self._at = 0
        self.given = 0  # bytes since the parser last came to an end of something

    def read(self, size: int) -> bytes:
        if self.given > ELEMENT_BYTES_MAX:
            return b""  # the parser must not hold more of one text; the reader says why the document ends here
        if self._at >= len(self._piece) and self._pieces:
            self._lines += self._piece.count(b"\n")
            self._start += len(self._piece)
            self._piece, self._at = self._pieces.pop(), 0
        data = self._piece[self._at : self._at + size]
        self._at += len(data)
        self.given += len(data)
        return data

    def line_at(self, position: int) -> int:
        return self._lines + self._piece.count(b"\n", 0, max(0, position - self._start)) + 1


class YamlDocument:
    """One document whose top is a mapping. Walk it with ``pairs``; for each key take ``value`` or ``elements``, or it is skipped.

    The list of pieces is taken over, and empty when the document has been read.
    """

    def __init__(self, pieces: list[bytes]) -> None:
        self._source = _Pieces([piece for piece in pieces if piece])
        pieces.clear()
        self._words: dict[str, str] = {}  # short texts, so that equal ones are kept once
        self._begin = 0  # where the element that is being read begins, in characters
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0  # made so far, those behind aliases counted each time
        self._aliased = 0
        self._limit = VALUES_MAX  # the most of ``_nodes`` within the value that is being read
        self._pending: Any = None  # event that starts the value of the current key
        try:
            self._parser = CParser(self._source)
        except YAMLError as error:
            raise self._error(error) from None

    def pairs(self) -> Iterator[tuple[str, int]]:
        """The keys of the top mapping, each with its line; the value is asked for before the next one."""
        event = self._next()
        if not isinstance(event, StreamStartEvent):
            raise YamlError(1, "no YAML document")
        event = self._next()
        if isinstance(event, StreamEndEvent):
            raise YamlError(0, "the document is empty")
        assert isinstance(event, DocumentStartEvent)
        top = self._next()
        if not isinstance(top, MappingStartEvent):
            raise YamlError(_line(top), "the document must be a mapping (key: value)")
        self._check_tag(top)
        seen: set[str] = set()
        while True:
            event = self._next()
            if type(event) is MappingEndEvent:
                break
            key = self._key(event)
            if key in seen:
                raise YamlError(_line(event), f"key {key!r} appears twice")
            seen.add(key)
            self._pending = self._next()
            yield key, _line(event)
            if self._pending is not None:
                event, self._pending = self._pending, None
                self._limit = self._nodes + VALUES_MAX
                self._skip(event, 1)
        if not isinstance(self._next(), DocumentEndEvent) or not isinstance(event := self._next(), StreamEndEvent):
            raise YamlError(_line(event), "a second YAML document begins; only one is read")

    def value(self) -> Any:
        """The whole value of the current key: Map, list, str or None."""
        event, self._pending = self._pending, None
        self._limit = self._nodes + VALUES_MAX
        return self._value(event, 1)

    def elements(self) -> Iterator[tuple[int, Any]]:
        """The elements of the list at the current key, each with its line; an empty value is an empty list."""
        event, self._pending = self._pending, None
        if type(event) is not SequenceStartEvent or event.anchor is not None:
            self._limit = self._nodes + VALUES_MAX
            value = self._value(event, 1)
            if value is not None and not isinstance(value, list):
                raise YamlError(_line(event), "a list is expected here")
            for element in value or ():
                yield getattr(element, "line", _line(event)), element
            return
        self._check_tag(event)
        while True:
            event = self._next()
            if type(event) is SequenceEndEvent:
                return
            self._limit = self._nodes + VALUES_MAX
            self._begin = event.start_mark.index
            yield _line(event), self._value(event, 2)
            self._begin = 0

    # ── values ─────────────────────────────────────────────────────────────────────────────────────

    def _value(self, event: Any, depth: int) -> Any:
        kind = type(event)
        self._nodes += 1
        before = self._nodes
        if before > self._limit:
            raise YamlError(_line(event), f"more than {VALUES_MAX:,} values in one")
        if self._begin and event.end_mark.index - self._begin > ELEMENT_BYTES_MAX:
            raise YamlError(_line(event), f"one element of a list takes more than {ELEMENT_BYTES_MAX >> 20} MiB")
        value: Any
        if kind is ScalarEvent:
            value = event.value
            if "\0" in value:
                raise YamlError(_line(event), _NUL)
            if value in _NULL and not event.style:
                value = None
            elif type(value) is str:
                value = self._share(value)
            if event.tag is None and event.anchor is None:
                return value
        elif kind is AliasEvent:
            return self._alias(event)
        elif depth > DEPTH_MAX:
            raise YamlError(_line(event), f"nested deeper than {DEPTH_MAX} levels")
        elif kind is MappingStartEvent:
            value = self._mapping(event, depth)
        else:
            value = []
            while type(inner := self._next()) is not SequenceEndEvent:
                value.append(self._value(inner, depth + 1))
        self._check_tag(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._nodes - before + 1
        return value

    def _skip(self, event: Any, depth: int) -> None:
        """Read past a value. Only values with anchors are kept: aliases after it may stand for it."""
        kind = type(event)
        if event.anchor is not None or kind is AliasEvent:
            self._value(event, depth)
            return
        if kind is ScalarEvent:
            self._check_tag(event)
            return
        if depth > DEPTH_MAX:
            raise YamlError(_line(event), f"nested deeper than {DEPTH_MAX} levels")
        self._check_tag(event)
        while type(inner := self._next()) not in (SequenceEndEvent, MappingEndEvent):
            self._skip(inner, depth + 1)

    def _share(self, text: str) -> str:
        """A short text as the one object for all like it: documents of tiny values are mostly the same few words."""
        if len(text) > _SHARED_CHARACTERS:
            return text
        if len(self._words) > _SHARED_WORDS:
            self._words.clear()
        return self._words.setdefault(text, text)

    def _mapping(self, event: Any, depth: int) -> Map:
        value = Map(event.start_mark.line + 1)
        merged: list[Map] = []
        while type(inner := self._next()) is not MappingEndEvent:
            if type(inner) is ScalarEvent and inner.value == "<<" and not inner.style:
                merged += self._merged(inner, depth)
                continue
            key = self._key(inner)
            if key in value:
                raise YamlError(_line(inner), f"key {key!r} appears twice")
            value[key] = self._value(self._next(), depth + 1)
        for other in merged:
            for key in other:
                value.setdefault(key, other[key])
        return value

    def _merged(self, event: Any, depth: int) -> list[Map]:
        value = self._value(self._next(), depth + 1)
        found = value if isinstance(value, list) else [value]
        if not all(isinstance(each, Map) for each in found):
            raise YamlError(_line(event), "only mappings can be merged with <<")
        return found

    def _key(self, event: Any) -> str:
        if type(event) is AliasEvent:
            value = self._alias(event)
            if isinstance(value, str):
                return value
        elif type(event) is ScalarEvent:
            self._check_tag(event)
            text: str = event.value
            if "\0" in text:
                raise YamlError(_line(event), _NUL)
            if event.anchor is not None:
                self._anchors[event.anchor] = text, 1
            return self._share(text)
        raise YamlError(_line(event), "a key must be a word")

    def _alias(self, event: Any) -> Any:
        known = self._anchors.get(event.anchor)
        if known is None:
            raise YamlError(_line(event), f"alias *{event.anchor} stands for nothing before it")
        value, nodes = known
        self._nodes += nodes
        self._aliased += nodes
        if self._aliased > ALIASED_MAX:
            raise YamlError(_line(event), f"aliases multiply the document to more than {ALIASED_MAX:,} values")
        return value

    def _check_tag(self, event: Any) -> None:
        tag = event.tag
        if tag is not None and tag not in _PLAIN_TAGS:
            name = tag.replace(_STANDARD, "!!", 1)
            raise YamlError(_line(event), f"the tag {name} is not allowed: only plain values are read")

    # ── events ─────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> Any:
        self._source.given = 0
        try:
            event = self._parser.get_event()
        except YAMLError as error:
            if self._source.given <= ELEMENT_BYTES_MAX:
                raise self._error(error) from None
        except RecursionError:
            raise YamlError(0, "nested too deeply") from None
        if self._source.given > ELEMENT_BYTES_MAX:
            raise YamlError(0, f"one text takes more than {ELEMENT_BYTES_MAX >> 20} MiB")
        return event

    def _error(self, error: YAMLError) -> YamlError:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        words = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).split("\n", 1)[0]
        if mark is not None:
            return YamlError(mark.line + 1, f"not valid YAML: {words} (column {mark.column + 1})")
        position = getattr(error, "position", None)
        line = self._source.line_at(position) if isinstance(position, int) else 0
        return YamlError(line, f"not valid YAML: {words}")


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1
