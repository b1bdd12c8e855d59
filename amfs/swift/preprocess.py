"""The C preprocessor, as far as Swift/T's scripts use it: #include, #define, #undef, #if and its relatives.

Strings, comments and multi-line strings stay as they are, also where a line in them begins with '#'. Positions in the result lead to where
the text was written. Must not know: Swift's grammar, files (the caller loads them).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from amfs.patterns import pattern
from amfs.swift.source import At, Mistake, Source

INCLUDES_MAX = 100
EXPANSIONS_MAX = 100
EXPANDED_MAX = 2 << 20

_TOKEN = pattern(
    r"""(?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
    |(?P<opaque>/\*(?:[^*]|\*(?!/))*\*/|//[^\n]*|\"\"\"(?:[^"]|"(?!""))*\"\"\"|----[ \t]*\n(?:[^-]|-(?!---))*----|"(?:[^"\\\n]|\\.)*")
    |(?P<name>[A-Za-z_]\w*)|(?P<other>[^"/\#A-Za-z_\n-]+|.|\n)""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_DIRECTIVE = pattern(r"[ \t]*#[ \t]*([A-Za-z]*)[ \t]*(.*)", re.DOTALL)
_DEFINE = pattern(r"([A-Za-z_]\w*)(\([^)]*\))?[ \t]*(.*)", re.DOTALL)
_COMMENT = pattern(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_CONDITION = pattern(r"\s*(?:defined\s*\(?\s*([A-Za-z_]\w*)\s*\)?|([A-Za-z_]\w*)|(\d+)|(\|\||&&|==|!=|<=|>=|[<>!()+-]))")


class Macro(NamedTuple):
    parameters: list[str] | None
    body: str


class _Branch:
    """An #if that is open. ``taken``: one of its branches has been used."""

    __slots__ = ("active", "at", "otherwise", "taken")

    def __init__(self, at: At, active: bool) -> None:
        self.at, self.active, self.taken, self.otherwise = at, active, active, False


def preprocess(source: Source, load: Callable[[str], Source | None]) -> Source:
    """The text after the preprocessor; the source itself if there is nothing to do. Raises ``Mistake``."""
    if not re.search(r"^[ \t]*#", source.text, re.MULTILINE):
        return source
    work = _Preprocessor(load)
    work.take(source, 0)
    return Source(source.name, "".join(work.out), work.places)


class _Preprocessor:
    def __init__(self, load: Callable[[str], Source | None]) -> None:
        self.load = load
        self.macros: dict[str, Macro] = {}
        self.out: list[str] = []
        self.size = 0
        self.spent = 0
        self.at: At
        self.places: list[tuple[int, Source, int]] = []

    def emit(self, text: str, source: Source, offset: int) -> None:
        if not text:
            return
        self.places.append((self.size, source, offset))
        self.out.append(text)
        self.size += len(text)

    def spend(self, characters: int) -> None:
        self.spent += characters
        if self.spent > EXPANDED_MAX:
            raise Mistake(self.at, "the macros make more than 2 MiB of text: do they grow without end?")

    def take(self, source: Source, depth: int) -> None:
        text = source.text
        self.at = At(source, 0, 1)
        branches: list[_Branch] = []
        run = end = 0  # text from run on has not been emitted yet; all before end has been looked at
        active = True
        for found in _TOKEN.finditer(text):
            start = found.start()
            if start < end:
                continue
            end = found.end()
            if found.lastgroup == "directive":
                if active:
                    self.emit(text[run:start], source, run)
                at = At(source, start + len(found[0]) - len(found[0].lstrip()), end)
                self.directive(found[0], at, branches, depth, active)
                active = all(branch.active for branch in branches)
                run = end
            elif active and found.lastgroup == "name" and found[0] in self.macros:
                self.at = At(source, start, end)
                use = self.use(text, found[0], end)
                if use is not None:
                    self.emit(text[run:start], source, run)
                    body, end = use
                    for piece in re.finditer(r"\w+|\W", body):  # each leads to the use of the macro
                        self.emit(piece[0], source, start)
                    run = end
        if branches:
            raise Mistake(branches[-1].at, "this #if has no #endif")
        self.emit(text[run:], source, run)

    # ── macros ─────────────────────────────────────────────────────────────────────────────────────

    def use(self, text: str, name: str, end: int, hidden: frozenset[str] = frozenset()) -> tuple[str, int] | None:
        """The text for a macro, and where its use ends; None: it takes arguments, and here are none."""
        macro = self.macros[name]
        body = macro.body
        if macro.parameters is not None:
            opening = re.compile(r"\s*\(").match(text, end)
            if opening is None:
                return None
            arguments, end = self.arguments(text, opening.end())
            if len(arguments) != len(macro.parameters):
                return None
            values = dict(zip(macro.parameters, (self.expanded(one.strip(), hidden) for one in arguments), strict=True))
            body = "".join(
                values.get(piece[0], piece[0]) if piece.lastgroup == "name" else piece[0] for piece in _TOKEN.finditer(body)
            )
        return self.expanded(body, hidden | {name}), end

    def arguments(self, text: str, start: int) -> tuple[list[str], int]:
        depth, arguments, begin = 1, [], start
        for found in re.compile(r'"(?:[^"\\\n]|\\.)*"|[(),\[\]{}]').finditer(text, start):
            sign = found[0]
            if sign in "([{":
                depth += 1
            elif sign in ")]}":
                depth -= 1
                if depth == 0:
                    arguments.append(text[begin : found.start()])
                    return ([] if arguments == [""] else arguments), found.end()
            elif sign == "," and depth == 1:
                arguments.append(text[begin : found.start()])
                begin = found.end()
        return [], len(text)

    def expanded(self, text: str, hidden: frozenset[str]) -> str:
        """With macros in it replaced, but for those that it comes from."""
        if len(hidden) > EXPANSIONS_MAX:
            return text
        self.spend(len(text))
        pieces, end = [], 0
        for found in _TOKEN.finditer(text):
            if found.start() < end:
                continue
            end = found.end()
            name = found[0]
            use = self.use(text, name, end, hidden) if name in self.macros and name not in hidden else None
            if use is None:
                pieces.append(name)
            else:
                pieces.append(use[0])
                end = use[1]
        return "".join(pieces)

    # ── directives ─────────────────────────────────────────────────────────────────────────────────

    def directive(self, line: str, at: At, branches: list[_Branch], depth: int, active: bool) -> None:
        found = _DIRECTIVE.fullmatch(line)
        assert found is not None
        word, rest = found[1], _COMMENT.sub(" ", found[2].replace("\\\n", " ")).strip()
        if word in ("if", "ifdef", "ifndef"):
            true = active and (self.condition(rest, at) if word == "if" else (rest in self.macros) == (word == "ifdef"))
            branches.append(_Branch(at, true))
            branches[-1].taken = true or not active  # in a part that is left out, nothing is used
        elif word in ("else", "elif", "endif"):
            if not branches:
                raise Mistake(at, f"this #{word} has no #if")
            branch = branches[-1]
            if word == "endif":
                branches.pop()
            elif branch.otherwise:
                raise Mistake(at, f"this #{word} stands after #else")
            else:
                branch.otherwise = word == "else"
                branch.active = not branch.taken and (word == "else" or self.condition(rest, at))
                branch.taken = branch.taken or branch.active
        elif not active or (word == "" and (not rest or rest[0].isdigit() or (rest[0] == "!" and at.start == 0))):
            pass  # the line of #!, or of a place
        elif word == "define":
            self.define(rest, at)
        elif word == "undef":
            self.macros.pop(rest, None)
        elif word == "include":
            self.include(rest, at, depth)
        elif word == "error":
            raise Mistake(at, f"#error: {rest}")
        elif word not in ("pragma", "line", "warning", "ident"):
            raise Mistake(at, f"#{word} is no directive of the preprocessor", "comments begin with //")

    def define(self, rest: str, at: At) -> None:
        found = _DEFINE.fullmatch(rest)
        if found is None:
            raise Mistake(at, "#define needs a name")
        name, parameters, body = found[1], found[2], found[3]
        if parameters is not None and "#" in body:
            raise Mistake(at, "'#' in the text of a macro is not supported")
        names = None if parameters is None else [one.strip() for one in parameters[1:-1].split(",") if one.strip()]
        self.macros[name] = Macro(names, body.strip())

    def include(self, rest: str, at: At, depth: int) -> None:
        if rest.startswith("<"):
            return  # of the library, which is there anyway
        name = rest.strip('"')
        if depth >= INCLUDES_MAX:
            raise Mistake(at, f"{name!r} is included by itself, or more than {INCLUDES_MAX} deep")
        source = self.load(name)
        if source is None:
            raise Mistake(at, f"there is no file {name!r} to include")
        self.take(source, depth + 1)

    def condition(self, text: str, at: At) -> bool:
        """Of #if. Names that are not defined are 0."""
        tokens: list[str] = []
        where = 0
        while where < len(text.rstrip()):
            found = _CONDITION.match(text, where)
            if found is None or len(tokens) > 10_000:
                raise Mistake(at, "this condition of the preprocessor is not understood")
            where = found.end()
            if found[1]:
                tokens.append("1" if found[1] in self.macros else "0")
            elif found[2]:
                value = self.expanded(found[2], frozenset()).strip()
                tokens.append(value if value.isdigit() else "0")
            else:
                tokens.append(found[3] or found[4])
        try:
            result, end = _level(tokens, 0)
        except (IndexError, ValueError, RecursionError):
            result, end = 0, -1
        if end != len(tokens):
            raise Mistake(at, "this condition of the preprocessor is not understood")
        return bool(result)


_LEVELS: list[dict[str, Callable[[int, int], int]]] = [
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {"<": lambda a, b: int(a < b), ">": lambda a, b: int(a > b), "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b)},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
]


def _level(tokens: list[str], at: int, rank: int = 0) -> tuple[int, int]:
    if rank == len(_LEVELS):
        sign = tokens[at]
        if sign in ("!", "-"):
            value, at = _level(tokens, at + 1, rank)
            return (int(not value) if sign == "!" else -value), at
        if sign == "(":
            value, at = _level(tokens, at + 1)
            if tokens[at] != ")":
                raise ValueError
            return value, at + 1
        return int(sign), at + 1
    value, at = _level(tokens, at, rank + 1)
    while at < len(tokens) and tokens[at] in _LEVELS[rank]:
        sign = tokens[at]
        right, at = _level(tokens, at + 1, rank + 1)
        value = _LEVELS[rank][sign](value, right)
    return value, at
