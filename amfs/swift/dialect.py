"""In which of the two languages a script is written, by what only one of them has. Must not know: grammars, the checker."""

from __future__ import annotations

import re

from amfs.patterns import pattern
from amfs.swift.builtins import Library

#: Strings and comments, which say nothing by their content. A string of several lines may be one of "quotes" or of "----".
_TEXTS = pattern(
    r'''(?P<long>"""(?:[^"]|"(?!""))*"""|^----[ \t]*\n(?:[^-]|-(?!---))*----)|(?P<string>"(?:[^"\\\n]|\\.)*")
    |/\*.*?\*/|//[^\n]*|(?P<hash>\#[^\n]*)''',
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_PREPROCESSOR = pattern(r"#\s*(?:define|undef|include|ifn?def|if|elif|else|endif|pragma|error|warning|line)\b|#[ \t]*[0-9]+[ \t]+\"")

#: Stands for a line of the C preprocessor.
_DIRECTIVE = "\x01"

#: Text that only scripts of Swift/K have. Strings are empty and comments are gone; a comment after # is one "#".
_ONLY_K = pattern(
    r"""(?x)^[ \t]*type\s+\w+\s*(?:\{\s*\}|;)|<\s*(?:\w+_mapper|\w+Mapper|ext)\s*[;>]|<\s*@
    |(?<!@)(?<!@\s)\bstd(?:in|out|err)\s*=(?!=)|\bapp\s*\{|\[\s*auto\s*\]|\[\s*\*\s*\]|\#|<<|\bprofile\s+""
    |@\w+\s*\(|\bglobal\s+(?!const\b)\w+(?:\s*\[\s*\])?\s+\w+
    |^[ \t]*(?:global\s+)?[A-Za-z_]\w*(?:\s*\[\s*\w*\s*\])+[ \t]+\w+\s*[;=<,]|[(,]\s*\w+(?:\s*\[\s*\w*\s*\])+[ \t]+\w+\s*[,)=]""",
    re.MULTILINE,
)
#: Text that only scripts of Swift/T have.
_ONLY_T = pattern(
    r"""(?x)^[ \t]*import\s+(?!stdlib\b)\w+(?:\.\w+)*\s*;|@\s*std(?:in|out|err)\s*=|^\s*main\b\s*(?:\(\s*\))?\s*\{|=>|^\s*pragma\s|\+=
    |\btypedef\s|\bbag\s*<|\*\*|@\w+\s*=|@(?:pure|deterministic|par|async|sync|checkpoint|sideeffectfree|side_effect_free|builtin_op|dispatch)\b|\bglobal\s+const\b
    |\bwait\s*(?:deep\s*)?\(|\bfor\s*\(|\x01|\)\s*""\s*""\s*(?:\[|;|"")|\w\s*\.\.\.\s*\w|\{\s*""\s*:
    |(?:\A|[;{}])\s*\w+(?:\s*\[[^\]\n;]*\])*\s*,\s*\w+\s*=(?!=)""",
    re.MULTILINE,
)
_CALLED = pattern(r"(?<![\w.@])(\w+)\s*\(")
_DEFINED = pattern(r"(?:\)|\bapp)\s*(\w+)\s*\(")
#: The program of an app, as a bare word.
_BARE = pattern(r"\bapp\b[^{;]*\{\s*([A-Za-z_]\w*)(?=[\s;}])")
_STDLIB = pattern(r'(?m)^\s*import\s+"?stdlib\b')
_NAME = pattern(r"(\w+)\(")


def signs(text: str) -> tuple[int, int]:
    """How often a script has syntax that only Swift/T has, and that only Swift/K has."""
    code = _TEXTS.sub(_emptied, text)
    bare = [word for word in _BARE.findall(code) if not re.search(rf"\bstring\s+{word}\b", code)]
    return len(_ONLY_T.findall(code)), len(_ONLY_K.findall(code)) + len(bare) + len(_STDLIB.findall(text))


def functions(text: str, library_t: Library, library_k: Library) -> tuple[int, int]:
    """How many library functions a script calls that only Swift/T has, and that only Swift/K has."""
    code = _TEXTS.sub(_emptied, text)
    called = set(_CALLED.findall(code)) - set(_DEFINED.findall(code))
    of_t, of_k = _names(library_t), _names(library_k)
    return len(called & (of_t - of_k)), len(called & (of_k - of_t))


def _names(library: Library) -> set[str]:
    found = {match[1] for declared in library.functions if (match := _NAME.search(declared.signature))}
    return found | set(library.refused)


def _emptied(match: re.Match[str]) -> str:
    if match["string"] or match["long"]:
        return '""'
    if match["hash"]:
        return _DIRECTIVE if _PREPROCESSOR.match(match["hash"]) else "#"
    return " "
