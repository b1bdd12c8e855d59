"""Guesses at the meaning of a user who writes Swift as another language: hints that go with a message about an unexpected word.

Must not know: grammars, trees.
"""

from __future__ import annotations

import re

#: Words of other languages, at the place of the mistake or at the beginning of the statement.
WORDS = {
    "while": "there is no while: write 'for (int i = 0; condition; i = i + 1) { … }', or 'iterate i { … } until (condition);'",
    "return": "there is no return: a function assigns its outputs, as in '(int o) f(int x) { o = x; }'",
    "const": "write 'global const …'",
    "function": "a function is '(int o) name(int x) { … }'",
    "def": "a function is '(int o) name(int x) { … }'",
    "elif": "write 'else if (…) { … }'",
    "elseif": "write 'else if (…) { … }'",
    "until": "only iterate ends with until",
    "case": "case stands in 'switch (…) { … }'",
    "else": "else follows the '}' of an if",
}

_C_FUNCTION = re.compile(r"\w+(?:\[\])*\s+\w+\s*\Z")


def hint(text: str, start: int, end: int, previous: int, redirection: str) -> str:
    """``start``, ``end``: of the word that is not expected. ``previous``: the end of the one before. ``redirection``: how
    the command of an app redirects its output, if the word stands in one."""
    word = text[start:end]
    statement = re.split(r"[;{}]", text[max(0, previous - 200) : previous])[-1].strip()
    first = re.match(r"\w*", statement)
    if redirection:
        if word == "=" and (stream := re.search(r"(stdin|stdout|stderr)\s*\Z", text[:previous][-20:])):
            return f"write '@{stream[1]}='"
        if word in (">", "<", ">>", "|", "&&", "2"):
            return f"no shell reads this line: write '{redirection}', or run \"sh\" \"-c\" \"…\""
    if re.match(r"\w", word) and text[previous - 1 : previous] == "-":
        return "an option of a program stands between double quotes"
    found = WORDS.get(word) or WORDS.get(first[0] if first else "")
    if found:
        return found
    if word == "?":
        return "write 'ternary(condition, one, other)'"
    if text[start : start + 2] in ("++", "--"):
        return f"variables have one value for ever: in the head of a for loop write 'i = i {word} 1'"
    if word == "=" and text[previous - 1 : previous] == "=":
        return "one '=' assigns, '==' compares"
    if word == "=" and re.match(r"(if|wait|switch)\b|.*\buntil\b", statement):
        return "'==' compares"
    if statement.startswith("@") and not redirection:
        return "an annotation of a call stands before it: 'x = @prio=1 f(…);'"
    if word == "(" and _C_FUNCTION.fullmatch(statement):
        return "the outputs of a function stand before its name: '(int o) name(int x) { o = x; }'"
    return ""
