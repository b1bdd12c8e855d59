"""Finds in a command line what bash and its like read otherwise than a plain shell (dash, ash). Pure."""

from __future__ import annotations

import re

#: Text to write instead, in words.
INSTEAD = {
    "&>": "a plain shell runs the command in the background and empties the file: write '> FILE 2>&1'",
    "|&": "write '2>&1 |'",
    "<<<": "write 'printf \"%s\\n\" WORD | COMMAND'",
    "<(…)": "write a file, or a pipe",
    ">(…)": "write a file, or a pipe",
    "[[": "write '[ … ]'",
    "{1..3}": "a plain shell takes it for a name: write the words, or $(seq 1 3)",
}

_RANGE = re.compile(r"\{(?:-?\d+\.\.-?\d+|[A-Za-z]\.\.[A-Za-z])(?:\.\.-?\d+)?\}")
_OPERATORS = re.compile(r"<<<|&>|\|&|<\(|>\(|&&|\|\||>&|<&|<<|>>|>\||<>|;;|[|&;<>()\n]")
_FOUND = {"<<<": "<<<", "&>": "&>", "|&": "|&", "<(": "<(…)", ">(": ">(…)"}
_BEFORE_COMMANDS = frozenset(("if", "then", "else", "elif", "while", "until", "do", "!", "{"))
_AFTER_REDIRECTION = frozenset((">&", "<&", "<<", ">>", ">|", "<>", "<", ">"))


def bash_only(line: str) -> str:
    """The first such construct, as ``INSTEAD`` names it; '' if there is none. Quoted text, and comments, are not looked at, but for the
    commands of ``$(…)`` and of backquotes within."""
    ends: list[str] = []  # of what is open, innermost last: ")" of $(, "))" of $((, "}" of ${, '"', "`"
    at, length = 0, len(line)
    command, word = True, 0  # may the next word be a command; where the word that is being read began
    while at < length:
        char, end = line[at], ends[-1] if ends else ""
        if char == "\\":
            at += 2
        elif end and line.startswith(end, at):
            ends.pop()
            at += len(end)
            command, word = False, at if end == ")" and ends[-1:] != ['"'] else word
        elif line.startswith("$((", at):
            ends.append("))")
            at += 3
        elif line.startswith("$(", at):
            ends.append(")")
            at += 2
            command, word = True, at
        elif line.startswith("${", at):
            ends.append("}")
            at += 2
        elif char == "`":
            ends.append("`")
            at += 1
            command, word = True, at
        elif char == '"':
            ends.append('"')
            at += 1
        elif end in ('"', "))"):
            at += 1
        elif char == "'":
            at = (line.find("'", at + 1) + 1) or length
        elif end == "}":
            at += 1
        elif char == "#" and at == word:
            at = (line.find("\n", at) + 1) or length
            command, word = True, at
        elif (operator := _OPERATORS.match(line, at)) is not None:
            if operator[0] in _FOUND:
                return _FOUND[operator[0]]
            if operator[0] == "(":
                ends.append(")")
            command = _commands_before(line[word:at], command) if operator[0] in _AFTER_REDIRECTION else True
            at = word = operator.end()
        elif char in " \t":
            if at > word:
                if command and line[word:at] == "[[":
                    return "[["
                command = _commands_before(line[word:at], command)
            at += 1
            word = at
        elif char == "{" and _RANGE.match(line, at):
            return "{1..3}"
        else:
            at += 1
    return ""


def _commands_before(word: str, command: bool) -> bool:
    """Does a command come after this word, at a place where a command may be?"""
    return command and (word in _BEFORE_COMMANDS or word == "")
