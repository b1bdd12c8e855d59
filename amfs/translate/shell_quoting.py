"""Words of a line: split as a POSIX shell splits and quotes, and quoted back. Pure.

``'…'`` keeps everything; in ``"…"`` a backslash protects ``$``, `````, ``"`` and itself; outside of quotes it protects any character.
``$'…'`` knows the escapes of C (``\\n``, ``\\t``, ``\\x41`` …), so that every name has a form on one line. Nothing is expanded: ``$``,
``*`` and ``~`` are ordinary characters here. Blanks are space and tab; other white space belongs to words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from amfs.patterns import pattern

_PIECE = r"""
      (?P<blank>[ \t]++)
    | (?P<plain>[^ \t'"\\$]++)
    | '(?P<single>[^']*+)'
    | "(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)"
    | \\(?P<escaped>.)
"""
_PIECE_POSIX = pattern(_PIECE + r"| (?P<dollar>\$)", re.VERBOSE | re.DOTALL)
_PIECE_ANSI = pattern(_PIECE + r"| \$'(?P<ansi>[^'\\]*+(?:\\.[^'\\]*+)*+)' | (?P<dollar>\$(?!'))", re.VERBOSE | re.DOTALL)
_DOUBLE_ESCAPE = pattern(r'\\([$`"\\])')
_ANSI_ESCAPE = pattern(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL)
_ANSI_CHARACTERS = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip

_SAFE = pattern(r"[A-Za-z0-9_@%+=:,./{}^\-\u00a1-\ud7ff\ue000-\ufefe\uff00-\U0010ffff\udc80-\udcff]+")
_CONTROL = pattern(r"[\0-\x08\n-\x1f\x7f]")


class Malformed(ValueError):
    """A line that its format does not allow; ``str`` says why, for people."""


class QuotingError(Malformed):
    """The quoting of a line is broken."""


class Word(str):
    """A word that had quotes or backslashes in it: never an option, a comment or a keyword, whatever it looks like."""

    __slots__ = ()


def trim(line: str) -> str:
    """``line`` without blanks around it; a blank after a backslash is none."""
    bare = line.strip(" \t")
    return line.lstrip(" \t") if bare.endswith("\\") else bare


def split(line: str, *, ansi: bool = True) -> list[str]:
    """The words of ``line``; those that were quoted are ``Word``. ``ansi=False``: ``$'`` is a dollar sign and a quote, as in POSIX sh.

    Raises QuotingError for a quote that is not closed, a backslash at the end, or a NUL from an escape.
    """
    if "'" not in line and '"' not in line and "\\" not in line:
        return [word for word in line.replace("\t", " ").split(" ") if word]
    words: list[str] = []
    quoted_words: dict[str, Word] = {}  # equal ones are one object: a line may hold millions
    pieces: list[str] = []
    open_word = quoted = False
    match_piece = (_PIECE_ANSI if ansi else _PIECE_POSIX).match
    position, end = 0, len(line)
    while position < end:
        match = match_piece(line, position)
        if match is None:
            raise _broken(line, position)
        kind, text = match.lastgroup, match[match.lastgroup or 0]
        position = match.end()
        if kind == "blank":
            if open_word:
                words.append(_word(pieces, quoted_words if quoted else None))
                pieces, open_word, quoted = [], False, False
            continue
        open_word = True
        if kind == "plain" or kind == "dollar":
            pieces.append(text)
            continue
        quoted = True
        if kind == "double":
            text = _DOUBLE_ESCAPE.sub(r"\1", text)
        elif kind == "ansi":
            text = _decode_ansi(text)
        pieces.append(text)
    if open_word:
        words.append(_word(pieces, quoted_words if quoted else None))
    return words


def _word(pieces: list[str], quoted: dict[str, Word] | None) -> str:
    text = joined(pieces)
    if quoted is None:
        return text
    word = quoted.get(text)
    if word is None:
        word = quoted[text] = Word(text)
    return word


def joined(pieces: list[str]) -> str:
    """The pieces as one text; bytes of one character that stood in several of them become that character."""
    text = "".join(pieces)
    if len(pieces) == 1 or text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _broken(line: str, position: int) -> QuotingError:
    if line[position] == "\\":
        return QuotingError("a backslash ends the line, but a line cannot be continued on the next")
    position += line[position] == "$"
    return QuotingError(f"the quote {line[position]} in column {position + 1} is not closed")


def _decode_ansi(text: str) -> str:
    """Bytes are put together first: ``\\xe2\\x82\\xac`` is one character."""

    def decode(match: re.Match[str]) -> str:
        hexadecimal, short, long, octal, control, other = match.groups()
        if hexadecimal or octal:
            value = int(hexadecimal, 16) if hexadecimal else int(octal, 8) & 0xFF
            return chr(value) if value < 0x80 else chr(0xDC00 + value)
        if short or long:
            value = int(short or long, 16)
            if value > 0x10FFFF or 0xD800 <= value < 0xE000:
                raise QuotingError(f"there is no character {match[0]}")
            return chr(value)
        if control:
            return chr(ord(control.upper()) & 0x1F)
        return _ANSI_CHARACTERS.get(other, match[0])

    result = _ANSI_ESCAPE.sub(decode, text)
    if "\0" in result:
        raise QuotingError("a NUL character cannot be part of a word")
    return result.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def quote(word: str, *, option_like: bool = False) -> str:
    """``word`` so that ``split`` gives it back. ``option_like``: it stands where a leading ``-`` would make it an option.

    Raises ValueError for what no line can hold: a NUL character.
    """
    if _SAFE.fullmatch(word) and not (option_like and word[0] == "-"):
        return word
    if "\0" in word:
        raise ValueError(f"{word!r} contains a NUL character")
    if _CONTROL.search(word):
        text = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
        return "$'" + _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text) + "'"
    return "'" + word.replace("'", "'\\''") + "'"


def lines_of_words(text: str, first: int, fault: Callable[[int, str, str], None]) -> Iterator[tuple[int, str, list[str]]]:
    """(number, line, words) of each line that is neither empty nor a comment; the first has number ``first``. ``fault`` hears of a line
    that is not words."""
    for number, line in enumerate(text.split("\n"), first):
        bare = trim(line)
        if not bare or bare[0] == "#":
            continue
        try:
            words = split(bare)
        except Malformed as error:
            fault(number, str(error), line)
        else:
            yield number, line, words
