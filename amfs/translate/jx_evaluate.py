"""JX, the expression language of Makeflow: from a tree to plain values. Owns the meaning of operators and functions. Pure."""

from __future__ import annotations

import json
import math
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import lark

from amfs.translate.jx_parse import NotJx, parse
from amfs.translate.shell_quoting import quote

VALUES_MAX = 20_000_000  # that an evaluation makes on its way; a loop over loops ends with a word instead of the memory
TEXT_MAX = 1 << 24  # characters of one string

Context = Mapping[str, Any]


class Located(dict[str, Any]):
    """An object, and the line where it was written."""

    line = 0


class _Lazy:
    """A definition, evaluated when somebody looks. ``source``: of one that stands in another text, the name of that text."""

    def __init__(self, tree: lark.Tree[Any], source: str = "") -> None:
        self.tree = tree
        self.source = source
        self.busy = False


def expression(text: str, source: str) -> Any:
    """A definition for ``evaluate`` from its own text, which may use all other names. Raises NotJx."""
    return _Lazy(parse(text), source)


def definitions(text: str, source: str) -> dict[str, Any]:
    """The same for all members of an object, and for those under ``define`` in it."""
    tree = parse(text)
    machine = _Evaluator(None)
    under, members = machine.parted(tree)
    return machine.definitions(under, source) | machine.definitions(members, source)


def evaluate(text: str, given: Context | None = None, listdir: Callable[[str], list[str]] | None = None) -> Any:
    """The value of a document. ``given``: values of names, which go before those under ``define``. ``listdir``: the names in a directory;
    raises OSError. Raises NotJx, with the line."""
    machine = _Evaluator(listdir)
    under, tree = machine.parted(parse(text))
    return machine.value(tree, machine.definitions(under) | dict(given or {}))


class _Evaluator:
    def __init__(self, listdir: Callable[[str], list[str]] | None) -> None:
        self._listdir = listdir
        self._made = 0
        self._line = 1

    def parted(self, tree: lark.Tree[Any]) -> tuple[lark.Tree[Any], lark.Tree[Any]]:
        """The value of ``define`` of a document, and the document without it."""
        if tree.data == "object":
            for pair in tree.children:
                if isinstance(pair, lark.Tree) and self.value(pair.children[0], {}) == "define":
                    tree.children = [child for child in tree.children if child is not pair]
                    return cast("lark.Tree[Any]", pair.children[1]), tree
        return lark.Tree("object", []), tree

    def definitions(self, tree: Any, source: str = "") -> dict[str, Any]:
        """The names of a ``define`` or ``let``. Its values may name each other, in any order."""
        if tree.data != "object":
            raise NotJx(_line(tree, 1), "definitions are an object: {\"NAME\": VALUE, …}")
        pairs = [pair for pair in tree.children if isinstance(pair, lark.Tree)]
        return {self._text(pair.children[0]): _Lazy(pair.children[1], source) for pair in pairs}

    def _text(self, tree: Any) -> str:
        value = self.value(tree, {})
        if not isinstance(value, str):
            raise self._fault("the name of a definition is a string")
        return value

    def value(self, tree: Any, names: Context) -> Any:
        self._line = _line(tree, self._line)
        self._made += 1
        if self._made > VALUES_MAX:
            raise self._fault(f"more than {VALUES_MAX} values are made on the way")
        result = getattr(self, f"_{tree.data}")(tree, names)
        if isinstance(result, str) and len(result) > TEXT_MAX:
            raise self._fault(f"a string becomes longer than {TEXT_MAX} characters")
        return result

    def _fault(self, message: str) -> NotJx:
        return NotJx(self._line, message)

    # ── plain values ───────────────────────────────────────────────────────────────────────────────

    def _string(self, tree: Any, names: Context) -> str:
        text = str(tree.children[0])
        body = text[1:-1]
        if text[0] == "'":
            body = body.replace("\\'", "'").replace('"', '\\"')
        try:
            return str(json.loads(f'"{body}"', strict=False))
        except ValueError:
            raise self._fault(f"a string with an escape that JSON does not know: {text[:60]}") from None

    def _integer(self, tree: Any, names: Context) -> int:
        if len(tree.children[0]) > 18:
            raise self._fault("a whole number of more than 18 digits")
        return int(tree.children[0])

    def _float(self, tree: Any, names: Context) -> float:
        return self._finite(float(tree.children[0]))

    def _true(self, tree: Any, names: Context) -> bool:
        return True

    def _false(self, tree: Any, names: Context) -> bool:
        return False

    def _null(self, tree: Any, names: Context) -> None:
        return None

    def _array(self, tree: Any, names: Context) -> list[Any]:
        return self._items(tree.children[0], names)

    def _items(self, tree: Any, names: Context) -> list[Any]:
        found: list[Any] = []
        for item in tree.children if tree is not None else ():
            self._each(item.children[0], item.children[1:], names, found)
        return found

    def _each(self, tree: Any, clauses: list[Any], names: Context, found: list[Any]) -> None:
        if not clauses:
            found.append(self.value(tree, names))
            return
        name, over, condition = clauses[0].children
        values = self.value(over, names)
        if not isinstance(values, list):
            raise self._fault(f"'for {name} in' goes over a list, not {_kind(values)}")
        for value in values:
            inner = {**names, str(name): value}
            if condition is None or self._truth(condition, inner):
                self._each(tree, clauses[1:], inner, found)

    def _object(self, tree: Any, names: Context) -> Located:
        line = self._line
        found = Located()
        for pair in tree.children:
            if isinstance(pair, lark.Tree):
                key = self.value(pair.children[0], names)
                if not isinstance(key, str):
                    raise self._fault(f"the key of an object is a string, not {_kind(key)}")
                found[key] = self.value(pair.children[1], names)
        found.line = line
        return found

    def _name(self, tree: Any, names: Context) -> Any:
        return self._named(str(tree.children[0]), names)

    def _named(self, name: str, names: Context) -> Any:
        if name not in names:
            raise self._fault(f"{name} is not defined; define it in the file, under 'define', or with --jx-define {name}=EXPRESSION")
        value = names[name]
        if not isinstance(value, _Lazy):
            return value
        if value.busy:
            raise self._fault(f"the definition of {name} leads back to itself")
        value.busy = True
        line = self._line
        try:
            return self.value(value.tree, names)
        except NotJx as error:
            if not value.source:
                raise
            raise NotJx(line, f"{name}, which {value.source} defines in line {error.line}: {error}") from None
        finally:
            value.busy = False
            if value.source:
                self._line = line

    # ── operators ──────────────────────────────────────────────────────────────────────────────────

    def _truth(self, tree: Any, names: Context) -> bool:
        value = self.value(tree, names)
        if not isinstance(value, bool):
            raise self._fault(f"a condition is true or false, not {_kind(value)}")
        return value

    def _op_or(self, tree: Any, names: Context) -> bool:
        return self._truth(tree.children[0], names) or self._truth(tree.children[1], names)

    def _op_and(self, tree: Any, names: Context) -> bool:
        return self._truth(tree.children[0], names) and self._truth(tree.children[1], names)

    def _op_not(self, tree: Any, names: Context) -> bool:
        return not self._truth(tree.children[0], names)

    def _unary(self, tree: Any, names: Context) -> Any:
        sign, operand = tree.children
        value = self.value(operand, names)
        if sign == "+" and isinstance(value, str):
            return value
        if not _is_number(value):
            raise self._fault(f"'{sign}' before {_kind(value)}")
        return -value if sign == "-" else value

    def _binary(self, tree: Any, names: Context) -> Any:
        operator = str(tree.children[1])
        left, right = self.value(tree.children[0], names), self.value(tree.children[2], names)
        if operator in ("==", "!="):
            return (_same(left, right)) == (operator == "==")
        if _is_number(left) and _is_number(right):
            return self._calculate(operator, left, right)
        if isinstance(left, str) and isinstance(right, str) and operator in _ORDERS:
            return _ORDERS[operator](left.encode("utf-8", "surrogateescape"), right.encode("utf-8", "surrogateescape"))
        if operator == "+" and type(left) is type(right) and isinstance(left, (str, list)):
            return left + right
        if operator == "+" and {type(left), type(right)} == {str, int}:
            return f"{left}{right}"
        raise self._fault(f"'{operator}' between {_kind(left)} and {_kind(right)}")

    def _calculate(self, operator: str, left: Any, right: Any) -> Any:
        if operator in _ORDERS:
            return _ORDERS[operator](left, right)
        if operator in "/%" and right == 0:
            raise self._fault("division by zero")
        if operator == "/":
            if isinstance(left, int) and isinstance(right, int):
                return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)  # as C has it, and so Makeflow
            return self._finite(left / right)
        if operator == "%":
            return math.fmod(left, right) if isinstance(left, float) or isinstance(right, float) else int(math.fmod(left, right))
        result = left + right if operator == "+" else left - right if operator == "-" else left * right
        if isinstance(result, int) and abs(result) >= 1 << 63:
            raise self._fault("a whole number does not fit into 64 bits")
        return self._finite(result) if isinstance(result, float) else result

    def _finite(self, value: float) -> float:
        if not math.isfinite(value):
            raise self._fault("a number is too large")
        return value

    def _lookup(self, tree: Any, names: Context) -> Any:
        whole, key = self.value(tree.children[0], names), self.value(tree.children[1], names)
        if isinstance(whole, list) and isinstance(key, int) and not isinstance(key, bool):
            if -len(whole) <= key < len(whole):
                return whole[key]
            raise self._fault(f"there is no element {key} in a list of {len(whole)}")
        if isinstance(whole, dict) and isinstance(key, str):
            if key in whole:
                return whole[key]
            raise self._fault(f"the object has no member {key!r}")
        raise self._fault(f"{_kind(key)} is no index of {_kind(whole)}")

    def _slice(self, tree: Any, names: Context) -> Any:
        whole = self.value(tree.children[0], names)
        ends = [None if end is None else self.value(end, names) for end in tree.children[1:]]
        if not isinstance(whole, list) or any(end is not None and type(end) is not int for end in ends):
            raise self._fault("[N:M] takes a part of a list, from one whole number to another")
        return whole[ends[0] : ends[1]]

    # ── functions ──────────────────────────────────────────────────────────────────────────────────

    def _method(self, tree: Any, names: Context) -> Any:
        first, name, arguments = tree.children
        return self._apply(str(name), [self.value(first, names), *self._items(arguments, names)], names)

    def _call(self, tree: Any, names: Context) -> Any:
        name, arguments = str(tree.children[0]), tree.children[1]
        if name == "let":
            parts = [item.children[0] for item in arguments.children] if arguments is not None else []
            if len(parts) != 2:
                raise self._fault("let takes definitions and an expression")
            return self.value(parts[1], {**names, **self.definitions(parts[0])})
        return self._apply(name, self._items(arguments, names), names)

    def _apply(self, name: str, given: list[Any], names: Context) -> Any:
        line = self._line
        if name == "template":
            return self._template(given, names)
        if name == "listdir":
            return self._names_in(given)
        if name == "fetch":
            raise self._fault("fetch() is not read here; get the file before, and give its value with --jx-args FILE")
        function = _FUNCTIONS.get(name)
        if function is None:
            raise self._fault(f"there is no function {name} (known: {', '.join(sorted([*_FUNCTIONS, 'let', 'listdir', 'template']))})")
        try:
            return function(*given)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:
            self._line = line
            raise self._fault(f"{name}(): {error if isinstance(error, _Misuse) else 'wrong arguments'}") from None

    def _names_in(self, given: list[Any]) -> list[str]:
        if len(given) != 1 or not isinstance(given[0], str):
            raise self._fault("listdir(): the path of a directory")
        if self._listdir is None:
            raise self._fault("listdir() has no directory to look into here")
        try:
            found = sorted(self._listdir(given[0]))
        except (OSError, ValueError) as error:
            raise self._fault(f"listdir(): {given[0]}: {getattr(error, 'strerror', None) or error}") from None
        self._made += len(found)
        return found

    def _template(self, given: list[Any], names: Context) -> str:
        if not 1 <= len(given) <= 2 or not isinstance(given[0], str) or not all(isinstance(each, dict) for each in given[1:]):
            raise self._fault("template() takes a string, and an object of more names")
        inner = {**names, **given[1]} if len(given) == 2 else names

        def put(match: re.Match[str]) -> str:
            if match[0] in ("{{", "}}"):
                return match[0][0]
            value = self._named(match[1], inner)
            if not isinstance(value, (str, int, float)) or isinstance(value, bool):
                raise self._fault(f"{{{match[1]}}} of template() is {_kind(value)}, and must be a string or a number")
            return value if isinstance(value, str) else _number(value)

        return re.sub(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}", put, given[0], flags=re.ASCII)


class _Misuse(ValueError):
    pass


def _line(tree: Any, known: int) -> int:
    return int(getattr(tree.meta, "line", known))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    return {int: "a number", float: "a number", str: "a string", list: "a list"}.get(type(value), "an object")


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    return bool(left == right) and (_is_number(left) == _is_number(right))


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _range(*given: Any) -> list[int]:
    if not 1 <= len(given) <= 3 or any(not _is_number(each) or each != int(each) for each in given):
        raise _Misuse("one to three whole numbers")
    if len(given) == 3 and given[2] == 0:
        raise _Misuse("a step of 0")
    numbers = range(*map(int, given))
    if len(numbers) > VALUES_MAX:
        raise _Misuse(f"more than {VALUES_MAX} numbers")
    return list(numbers)


_CONVERSION = re.compile(r"%(?:%|([-+ 0#]*)(\d{0,4})(\.\d{0,3})?([a-zA-Z]))")


def _format(*given: Any) -> str:
    if not given or not isinstance(given[0], str):
        raise _Misuse("the first argument is a string")
    values = iter(given[1:])

    def put(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        how = match[4]
        value = next(values, None)
        if value is None:
            raise _Misuse("fewer values than the string asks for")
        if how == "s" and isinstance(value, str):
            return str(match[0] % value)
        if how in "di" and _is_number(value) and value == int(value):
            return match[0] % int(value)
        if how in "eEfFgG" and _is_number(value):
            return str(match[0] % value)
        raise _Misuse(f"{match[0]} does not take {_kind(value)}")

    result = _CONVERSION.sub(put, given[0])
    if next(values, None) is not None:
        raise _Misuse("more values than the string asks for")
    return result


def _join(parts: list[Any], between: str = " ") -> str:
    if not isinstance(parts, list) or not isinstance(between, str) or any(not isinstance(each, str) for each in parts):
        raise _Misuse("a list of strings, and a string to stand between them")
    return between.join(parts)


def _rounded(how: Callable[[float], int]) -> Callable[[Any], int]:
    def function(value: Any) -> int:
        if not _is_number(value):
            raise _Misuse("a number")
        return how(value)

    return function


def _basename(path: Any, suffix: str = "") -> str:
    if not isinstance(path, str) or not isinstance(suffix, str):
        raise _Misuse("a path, and a suffix to leave out")
    name = posixpath.basename(path.rstrip("/") or path)
    return name.removesuffix(suffix) if suffix and name != suffix else name


def _dirname(path: Any) -> str:
    if not isinstance(path, str):
        raise _Misuse("a path")
    return posixpath.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


def _escape(text: Any) -> str:
    if not isinstance(text, str):
        raise _Misuse("a string")
    return quote(text)


def _len(value: Any) -> int:
    if not isinstance(value, list):
        raise _Misuse("a list")
    return len(value)


def _of_object(what: Callable[[dict[str, Any]], list[Any]]) -> Callable[[Any], list[Any]]:
    def function(value: Any) -> list[Any]:
        if not isinstance(value, dict):
            raise _Misuse("an object")
        return what(value)

    return function


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "range": _range,
    "format": _format,
    "join": _join,
    "ceil": _rounded(math.ceil),
    "floor": _rounded(math.floor),
    "basename": _basename,
    "dirname": _dirname,
    "escape": _escape,
    "len": _len,
    "keys": _of_object(lambda each: list(each)),
    "values": _of_object(lambda each: list(each.values())),
    "items": _of_object(lambda each: [[key, value] for key, value in each.items()]),
}
