"""Command lines of ``amfs map``: a template, in which replacement strings stand for arguments. Pure.

The replacement strings are those of GNU parallel: ``{}`` ``{.}`` ``{/}`` ``{//}`` ``{/.}`` ``{#}``, and with the number of an argument
``{1}`` ``{2.}`` ``{-1/}`` and so on. An argument is quoted where it is put in, by the quotes around it in the template, so that the shell
has it as one word, unchanged. Where no quoting can do that (a backslash before it, backquotes, ``$((…))``, ``${…}``, ``$'…'``, comments,
here-documents) the template is refused.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import NamedTuple

from amfs.translate.shell_quoting import Malformed

_REPLACEMENT = re.compile(r"\{(?:(#)|(-?[1-9]\d{0,8})?(/\.|//|/|\.)?)\}")
_NOT_HERE = re.compile(r"\{(?:%\}|=|\.\.\}|\+[/.]+\})")
_SAFE = re.compile(r"[A-Za-z0-9_@%+:,./-]+")
_KEYWORDS = frozenset(
    ("case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then", "time", "until")
) | {"while"}

#: Quoting at a place of a template.
NONE, SINGLE, DOUBLE = "", "'", '"'


class Piece(NamedTuple):
    """A replacement string: which argument (from 1, negative from the end; 0: all), what of it, and the quotes around it."""

    number: int
    part: str  # "", ".", "/", "//", "/.", or "#": the number of the job
    quotes: str


def part_of(argument: str, part: str) -> str:
    """A part of an argument: "" all, "." without extension, "/" the last component, "//" the directory, "/." the last without extension."""
    if part == "//":
        bare = argument.rstrip("/")
        return posixpath.dirname(bare) or ("/" if argument[:1] == "/" and not bare else ".")
    head, slash, tail = argument.rpartition("/")
    if part in ("/", "/."):
        head, slash = "", ""
    if part in (".", "/."):
        stem, dot, _ = tail.rpartition(".")
        tail = stem if dot else tail
    return head + slash + tail


def quoted(text: str, quotes: str = NONE, *, always: bool = False) -> str:
    """``text`` so that a shell has it as a part of one word, within the quotes ``quotes``. ``always``: even if it is safe."""
    if _SAFE.fullmatch(text) and text not in _KEYWORDS and not always:
        return text
    word = "'" + text.replace("'", "'\"'\"'") + "'"
    return f"{quotes}{word}{quotes}"


class Template:
    """The text of a command, or of a file's name (``command=False``: nothing is quoted). Raises Malformed."""

    def __init__(self, text: str, *, command: bool = True) -> None:
        if "\0" in text:
            raise Malformed("a NUL character cannot be part of a command")
        if match := _NOT_HERE.search(text):
            raise Malformed("of GNU parallel's replacement strings {%}, {= =}, {..}, {+/} and {+.} do not exist here")
        self.command = command
        self.texts: list[str] = []  # the text before, between and behind the pieces: one more than these
        self.pieces: list[Piece] = []
        quotes = _quotes_at(text) if command else {}
        at = 0
        for match in _REPLACEMENT.finditer(text):
            around = quotes.get(match.start(), NONE)
            if len(around) > 1:
                raise Malformed(f"{match[0]} stands {around}, where no argument can be quoted: {_INSTEAD[around]}")
            self.texts.append(text[at : match.start()])
            self.pieces.append(Piece(int(match[2] or 0), match[1] or match[3] or "", around))
            at = match.end()
        self.texts.append(text[at:])
        self.least, self.most = (f(piece.number for piece in [Piece(0, "", ""), *self.pieces]) for f in (min, max))

    def needs(self) -> int:
        """How many arguments there must be at least."""
        return max(self.most, -self.least)

    def __call__(self, arguments: Sequence[str], number: int) -> str:
        """The text with the arguments of job ``number``. Raises Malformed if there are too few, or one holds what no command can."""
        if self.needs() > len(arguments):
            asked = self.most if self.most > len(arguments) else self.least
            have = "there is 1 argument" if len(arguments) == 1 else f"there are {len(arguments)} arguments"
            raise Malformed(f"{{{asked}}} is asked for, but {have}")
        out = [self.texts[0]]
        for at, (piece, text) in enumerate(zip(self.pieces, self.texts[1:], strict=True), 1):
            if piece.part == "#":
                words = [str(number)]
            else:
                chosen = arguments if not piece.number else [arguments[piece.number - (piece.number > 0)]]
                words = [part_of(argument, piece.part) for argument in chosen]
            before_more = text[:1] in ("<", ">") or (not text and at < len(self.pieces))
            out += [self._joined(words, piece.quotes, before_more), text]
        line = "".join(out)
        if "\0" in line:
            raise Malformed("a NUL character cannot be part of a command")
        return line

    def _joined(self, words: Sequence[str], quotes: str, before_more: bool) -> str:
        if not self.command:
            return " ".join(words)
        if quotes:  # they are one word there
            return quoted(" ".join(words), quotes)
        # a number before > would be that of a descriptor
        return " ".join([quoted(word, always=before_more and word.isdigit()) for word in words])


#: Places where an argument cannot be quoted -> what to write instead.
_INSTEAD = {
    "behind a backslash": "leave the backslash out",
    "within `…`": "write $(…)",
    "within $((…))": "write 'n={}; … $((n))'",
    "within ${…}": "write 'x={}; … ${x…}'",
    "within $'…'": "close the quotes before it",
    "in a comment": "leave the comment out",
    "in a here-document": "write printf … |",
    "behind ' in ${…}, quotes in `…`, case in $(…) or )#": "write the command as a script",
}
_LOST = next(reversed(_INSTEAD))  # shells differ, or only a whole parser of theirs could tell
_HERE = re.compile(r"(?<!<)<<-?(?!<)")


#: Closing characters -> the quotes, or the place, that they end.
_PLACES = {
    "'": SINGLE, '"': DOUBLE, "`": "within `…`", "))": "within $((…))", "}": "within ${…}", "$'": "within $'…'", "#": "in a comment",
}  # fmt: skip


def _quotes_at(text: str) -> dict[int, str]:
    """The quotes around each ``{`` of a command line, or words from ``_INSTEAD`` where nothing can be quoted."""
    found: dict[int, str] = {}
    open_: list[str] = []  # open brackets and quotes, innermost last, each by its end
    at, begins, here, lost = 0, True, False, False  # may a word begin at this place; is there a here-document; see _LOST
    while at < len(text):
        char, end = text[at], open_[-1] if open_ else ""
        width, next_begins = 1, False
        if char == "{":
            worst = next((_PLACES[each] for each in open_ if each in _PLACES and len(_PLACES[each]) > 1), "")
            found[at] = _LOST if lost else worst or ("in a here-document" if here and "\n" in text[:at] else _PLACES.get(end, NONE))
        lost = lost or (char in "'\"" and ("`" in open_ or (char == "'" and end == "}" and '"' in open_)))
        lost = lost or (begins and ")" in open_ and text.startswith("case", at)) or text.startswith(")#", at)
        if end in ("'", "$'"):
            if char == "\\" and end == "$'":
                width = 2
            elif char == "'":
                open_.pop()
        elif end == "#":
            if char == "\n":
                open_.pop()
                next_begins = True
        elif char == "\\":
            width = 2
            if text.startswith("{", at + 1):
                found[at + 1] = "behind a backslash"
        elif end and text.startswith(end, at):
            open_.pop()
            width = len(end)
        elif text.startswith("$((", at):
            open_.append("))")
            width = 3
        elif text.startswith("$(", at):
            open_.append(")")
            width, next_begins = 2, True
        elif text.startswith("${", at):
            open_.append("}")
            width = 2
            found[at + 1] = _PLACES["}"]
        elif char in '"`':
            open_.append(char)
        elif end in ('"', "))"):
            pass
        elif text.startswith("$'", at):
            open_.append("$'")
            width = 2
        elif char == "'":
            open_.append("'")
        elif char == "#" and begins and end != "}":
            open_.append("#")
        elif char == "(":
            open_.append(")")
            next_begins = True
        else:
            here = here or _HERE.match(text, at) is not None
            next_begins = char in " \t\n;&|<>"
        at += width
        begins = next_begins
    return found
