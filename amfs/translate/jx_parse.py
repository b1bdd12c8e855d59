"""JX, the expression language of Makeflow: from text to a tree. Owns the grammar; knows neither values nor workflows. Pure.

JX is JSON with comments, trailing commas, operators, functions, slices and comprehensions (the JX reference of Makeflow's manual).
"""

from __future__ import annotations

import functools
from typing import Any

import lark

from amfs.translate.shell_quoting import Malformed

DEPTH_MAX = 100  # of brackets and operators in one another

_GRAMMAR = r"""
start: expr
?expr: or_
?or_: and_ | or_ "or" and_ -> op_or
?and_: not_ | and_ "and" not_ -> op_and
?not_: comparison | "not" not_ -> op_not
?comparison: sum | comparison COMPARE sum -> binary
?sum: term | sum SIGN term -> binary
?term: unary | term FACTOR unary -> binary
?unary: postfix | SIGN unary -> unary
?postfix: atom
    | postfix "[" expr "]" -> lookup
    | postfix "[" [expr] ":" [expr] "]" -> slice
    | NAME "(" [items] ")" -> call
    | postfix "." NAME "(" [items] ")" -> method
?atom: STRING -> string
    | INTEGER -> integer
    | FLOAT -> float
    | NAME -> name
    | "true" -> true
    | "false" -> false
    | "null" -> null
    | "(" expr ")"
    | "[" [items] "]" -> array
    | "{" [pair ("," pair)* ","?] "}" -> object
pair: expr ":" expr
items: item ("," item)* ","?
item: expr clause*
clause: "for" NAME "in" expr ["if" expr]
COMPARE: "==" | "!=" | "<=" | ">=" | "<" | ">"
SIGN: "+" | "-"
FACTOR: "*" | "/" | "%"
NAME: /[A-Za-z_][A-Za-z_0-9]*/
STRING: /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/s
FLOAT: /[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)/
INTEGER: /[0-9]+/
%ignore /[ \t\r\n]+/
%ignore /#[^\n]*/
"""


class NotJx(Malformed):
    """A fault, and its line."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(message)


@functools.cache
def _parser() -> lark.Lark:
    return lark.Lark(_GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def parse(text: str) -> lark.Tree[Any]:
    """The tree. Raises NotJx."""
    try:
        tree = _parser().parse(text).children[0]
    except lark.exceptions.UnexpectedEOF:
        raise NotJx(text.count("\n") + 1, "the text ends in the middle of an expression of JX") from None
    except lark.exceptions.UnexpectedToken as error:
        if error.token.type == "$END":
            raise NotJx(text.count("\n") + 1, "the text ends in the middle of an expression of JX") from None
        raise NotJx(error.line, f"this is neither JSON nor JX: {str(error.token)[:40]!r} cannot stand here") from None
    except lark.exceptions.UnexpectedCharacters as error:
        raise NotJx(error.line, f"this is neither JSON nor JX: {error.char!r} cannot stand here") from None
    assert isinstance(tree, lark.Tree)
    _limit(tree)
    return tree


def _limit(tree: lark.Tree[Any]) -> None:
    """Raises NotJx for what is nested so deeply that its evaluation would end the stack."""
    level, depth = [tree], 0
    while level:
        if (depth := depth + 1) > DEPTH_MAX:
            raise NotJx(getattr(level[0].meta, "line", 1), f"expressions are nested more than {DEPTH_MAX} deep")
        level = [child for node in level for child in node.children if isinstance(child, lark.Tree)]
