"""The lexical side of Makeflow: logical lines, variables, quotes, escapes, redirections. Pure.

A value is expanded when it is assigned. ``'…'`` keeps ``$`` as it is; ``\\$`` is a dollar sign; a backslash at the end of a line joins it
with the next one, as a blank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator

from amfs.translate.document import taken
from amfs.translate.shell_quoting import Malformed, Word, joined, split

#: Characters of one value, and of all the expansions of a document: ``A=$A$A`` thirty times must not fill the memory.
VALUE_MAX = 1 << 20
EXPANDED_MAX = 256 << 20

_SPECIAL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PIECE = re.compile(
    r"""
      (?P<plain>[^\\'"\#$]+)
    | \\(?P<escaped>.)
    | '(?P<single>(?:[^'\\]|\\.)*)'
    | (?P<double>")
    | \#(?P<comment>.*)
    | \$(?P<bare>[A-Za-z_][A-Za-z0-9_]*)
    | \$\((?P<round>[^()\s]+)\)
    | \$\{(?P<curly>[^{}\s]+)\}
    """,
    re.VERBOSE | re.DOTALL,
)
_REDIRECTION = re.compile(
    r"(?<![^ \t])(?P<what><|1?>|2>)[ \t]*(?P<name>[\w@%+=:,./-]+)(?=[ \t]|\Z)|(?<![^ \t])(?P<join>2>&1)(?=[ \t]|\Z)"
)


def logical_lines(pieces: list[bytes]) -> Iterator[tuple[int, str]]:
    """Lines with those that a backslash continues joined, each with the number of its first. Empties the list as it goes."""
    joined: list[str] = []
    first = 0
    for number, line in enumerate(_lines(pieces), 1):
        if not joined:
            first = number
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2 and not _in_comment(line):
            joined.append(line[:-1])
            continue
        joined.append(line)
        yield first, " ".join(joined) if len(joined) > 1 else line
        joined = []
    if joined:
        yield first, " ".join(joined)


def _lines(pieces: list[bytes]) -> Iterator[str]:
    """The lines of a text, one at a time: a list of all of them may take far more memory than the text."""
    begun: list[bytes] = []  # of the line that is not complete yet
    for piece in taken(pieces):
        at = 0
        while (end := piece.find(b"\n", at)) >= 0:
            begun.append(piece[at:end])
            yield b"".join(begun).removesuffix(b"\r").decode("utf-8", "surrogateescape")
            begun.clear()
            at = end + 1
        begun.append(piece[at:])
    yield b"".join(begun).decode("utf-8", "surrogateescape")


def _in_comment(line: str) -> bool:
    return line.lstrip()[:1] == "#"


class Expander:
    """Replaces variables. ``lookup`` gives a value or None."""

    def __init__(self) -> None:
        self._expanded = 0

    def expand(self, text: str, lookup: Callable[[str], str | None], *, escapes: bool) -> str:
        """``text`` without its comment and with variables replaced; ``escapes``: also without the backslashes that protect characters.

        Raises Malformed for a variable without a value, for quotes that do not match, and when it becomes too long.
        """
        if not any(mark in text for mark in "$\\#'\""):
            return text
        pieces: list[str] = []
        quoted = False
        at, end, length = 0, len(text), 0
        while at < end:
            if quoted and text[at] in "'#":
                pieces.append(text[at])
                at += 1
                continue
            match = _PIECE.match(text, at)
            if match is None:
                raise Malformed(_what_is_wrong(text, at))
            kind, value = match.lastgroup, match[match.lastgroup or 0]
            at = match.end()
            if kind == "escaped":
                value = _SPECIAL.get(value, value) if escapes else f"\\{value}"
            elif kind == "single":
                value = "'" + (re.sub(r"\\(.)", r"\1", value) if escapes else value) + "'"
            elif kind == "double":
                quoted = not quoted
            elif kind == "comment":
                break
            elif kind != "plain":
                found = lookup(value)
                if found is None:
                    raise Malformed(f"variable {value!r} has no value yet")
                value = found
            pieces.append(value)
            length += len(value)
            if length > VALUE_MAX:
                raise Malformed(f"with its variables replaced this is longer than {VALUE_MAX >> 20} MiB")
        if quoted:
            raise Malformed('a quote " is not closed')
        self._expanded += length
        if self._expanded > EXPANDED_MAX:
            raise TooLong(f"variables expand the document to more than {EXPANDED_MAX >> 20} MiB")
        return joined(pieces)


class TooLong(Malformed):
    """There is no going on."""


def _what_is_wrong(text: str, at: int) -> str:
    if text[at] == "'":
        return "a quote ' is not closed"
    if text[at] == "\\":
        return "a backslash ends the document"
    return f"after $ a variable is named: $NAME, ${{NAME}} or $(NAME) (write \\$ for a dollar sign): {text[at : at + 20]!r}"


def split_head(line: str) -> tuple[str, str] | None:
    """The two sides of the colon of a rule; None if there is none outside of quotes."""
    quote = ""
    at = 0
    while at < len(line):
        letter = line[at]
        if letter == "\\":
            at += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#":
            return None
        elif letter == ":":
            return line[:at], line[at + 1 :]
        at += 1
    return None


#: Text that may stand around an arrow, or be one by its looks.
_ARROW = re.compile(r"""('[^']*'|"(?:[^"\\]|\\.)*"|\\.)|->""", re.DOTALL)


def file_names(text: str) -> list[tuple[str, str]]:
    """(name, name that the command knows) of each file in a list; the two differ where ``name->other`` is written."""
    words = split(_ARROW.sub(lambda found: found[1] or " -> ", text), ansi=False)
    arrows = [word == "->" and not isinstance(word, Word) for word in words]
    found = []
    at, end = 0, len(words)
    while at < end:
        name, renamed = words[at], at + 1 < end and arrows[at + 1]
        other = name if not renamed else words[at + 2] if at + 2 < end and not arrows[at + 2] else ""
        if arrows[at] or not name or not other:
            said = "".join(words[max(0, at - arrows[at]) : at + 2 + renamed]) if arrows[at] or renamed else name
            raise Malformed(f"{said!r} is no file name" + (" (written NAME->OTHER)" if arrows[at] or renamed else ""))
        found.append((str(name), str(other)))
        at += 3 if renamed else 1
    return found


def redirected(command: str, inputs: Container[str], outputs: Container[str]) -> tuple[str, dict[str, str]]:
    """The command without its redirections, and these as fields of a task; ('', {}) unless all are of declared files, after any quotes.

    So ``prog a > b`` needs no shell to open a file. Whether the rest needs one for other reasons is to be asked of the rest.
    """
    cut = max(command.rfind(mark) for mark in "'\"\\") + 1
    head, tail = command[:cut], command[cut:]
    fields: dict[str, str] = {}
    joined = False
    last_stdout = -1
    for match in _REDIRECTION.finditer(tail):
        if match["join"]:
            if joined or last_stdout < 0:
                return "", {}  # where stderr goes depends on the order
            joined = True
            continue
        field = {"<": "stdin", "2>": "stderr"}.get(match["what"], "stdout")
        name = match["name"]
        if field in fields or (name not in (inputs if field == "stdin" else outputs) and name != "/dev/null"):
            return "", {}
        fields[field] = name
        if field == "stdout":
            last_stdout = match.start()
    if not fields or (joined and "stderr" in fields):
        return "", {}
    if joined:
        fields["stderr"] = fields["stdout"]
    return (head + " ".join(_REDIRECTION.sub(" ", tail).split(" "))).strip(), fields
