"""The words of ``amfs map``'s command line behind its options: the command, and the input sources. Pure.

``::: A B`` are arguments, ``:::: FILE`` files of them, one a line; ``:::+`` and ``::::+`` are linked with the source before. Without a
source, standard input is the one. Each combination of the sources' arguments is a job; the last source changes fastest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from amfs.translate.shell_quoting import Malformed

STDIN = "-"
_SEPARATORS = {":::": (False, False), ":::+": (False, True), "::::": (True, False), "::::+": (True, True)}


class Source(NamedTuple):
    """Where arguments come from: ``words`` themselves, or the lines of ``file``."""

    words: tuple[str, ...] = ()
    file: str | None = None
    linked: bool = False  # with the source before


class Argument(NamedTuple):
    """An argument, and the number of the line on which it stood; 0: on the command line."""

    text: str
    line: int = 0


def split_words(words: Sequence[str], files: Sequence[str] = ()) -> tuple[str, list[Source]]:
    """(the command, the sources); ``files`` are those of options, before the others. Raises Malformed."""
    begin = next((at for at, word in enumerate(words) if word in _SEPARATORS), len(words))
    sources = [Source(file=file) for file in files]
    at = begin
    while at < len(words):
        separator = words[at]
        is_file, linked = _SEPARATORS[separator]
        end = next((place for place in range(at + 1, len(words)) if words[place] in _SEPARATORS), len(words))
        found = tuple(words[at + 1 : end])
        if linked and not sources:
            raise Malformed(f"{separator} is linked with the source before it, and there is none")
        if not is_file:
            sources.append(Source(found, linked=linked))
        elif not found:
            raise Malformed(f"{separator} needs a file")
        elif linked and len(found) > 1:
            raise Malformed(f"{separator} takes one file, not {len(found)}")
        else:
            sources += [Source(file=file, linked=linked) for file in found]
        at = end
    if not sources:
        sources = [Source(file=STDIN)]
    if sum(source.file == STDIN for source in sources) > 1:
        raise Malformed("standard input can be one source only")
    return " ".join(words[:begin]), sources


def combined(sources: Sequence[Iterable[Argument]], linked: Sequence[bool]) -> Iterator[tuple[Argument, ...]]:
    """The arguments of each job. A single source is not read ahead. Linked ones end with the shortest of them."""
    if len(sources) == 1:
        yield from ((argument,) for argument in sources[0])
        return
    groups: list[list[Iterable[Argument]]] = []
    for source, joins in zip(sources, linked, strict=True):
        if joins and groups:
            groups[-1].append(source)
        else:
            groups.append([source])
    for chosen in itertools.product(*[list(zip(*group, strict=False)) for group in groups]):
        yield tuple(argument for group in chosen for argument in group)


def columns_of(separator: str) -> re.Pattern[str]:
    """The regular expression between columns. Raises Malformed."""
    try:
        return re.compile(separator)
    except re.error as error:
        raise Malformed(f"'{separator}' is no regular expression: {error}") from None


def in_columns(arguments: Iterable[str], separator: re.Pattern[str] | None) -> list[str]:
    """The arguments, each split into its columns."""
    if separator is None:
        return list(arguments)
    return [column or "" for argument in arguments for column in separator.split(argument)]
