"""JSON: parts of a text by path, and texts from values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import format_t, is_float, parse_float, parse_int, text_t
from amfs.swift.library_t.registry import T
from amfs.swift.library_t.strings import to_boolean

_TYPES = {str: "string", bool: "boolean", int: "int", float: "float", list: "array", dict: "object", type(None): "null"}


# ── parts of a text ────────────────────────────────────────────────────────────────────────────────


def _part(text: str, path: str, what: str) -> Any:
    """The value at ``a,0,b``: names of objects and indices of arrays, between commas."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{what}: this is no JSON: {error}") from None
    for step in filter(None, path.split(",")):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, ValueError, TypeError):
            raise Failure(f"{what}: there is no {step!r} in the path {path!r}") from None
    return value


def _shown(value: Any) -> str:
    """Arrays and objects as JSON; booleans as Python writes them."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "null" if value is None else str(value)


@T.function('(string o) json_type(string J, string path="")')
def json_type(text: str, path: str) -> str:
    return _TYPES[type(_part(text, path, "json_type"))]


@T.function('(string o) json_get(string J, string path="")')
def json_get(text: str, path: str) -> str:
    return _shown(_part(text, path, "json_get"))


@T.function('(int o) json_get_int(string J, string path="")')
def json_get_int(text: str, path: str) -> int:
    return parse_int(_shown(_part(text, path, "json_get_int")))


@T.function('(float o) json_get_float(string J, string path="")')
def json_get_float(text: str, path: str) -> float:
    return parse_float(_shown(_part(text, path, "json_get_float")))


@T.function('(boolean o) json_get_boolean(string J, string path="")')
def json_get_boolean(text: str, path: str) -> bool:
    return to_boolean(_shown(_part(text, path, "json_get_boolean")))


@T.function('(int o) json_array_size(string J, string path="")')
def json_array_size(text: str, path: str) -> int:
    value = _part(text, path, "json_array_size")
    if not isinstance(value, list | dict | str):
        raise Failure(f"json_array_size: at the path {path!r} is no array")
    return len(value)


@T.function('(string o) json_object_names(string J, string path="")')
def json_object_names(text: str, path: str) -> str:
    """With commas between."""
    value = _part(text, path, "json_object_names")
    if not isinstance(value, dict):
        raise Failure(f"json_object_names: at the path {path!r} is no object")
    return ",".join(value)


# ── texts from values ──────────────────────────────────────────────────────────────────────────────


@T.function("(string o) json_arrayify(string text)")
def json_arrayify(text: str) -> str:
    return f"[{text}]"


@T.function("(string o) json_objectify(string text)")
def json_objectify(text: str) -> str:
    return f"{{{text}}}"


def _plain(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise Failure(f"{text_t(value)} cannot be written as JSON")
    return text_t(value) if type(value) in (int, float) else json.dumps(value, ensure_ascii=False)


def _number(value: Any, wanted: str) -> float:
    if isinstance(value, str) and not is_float(value):
        raise Failure(f"json_encode: {value!r} cannot be made {wanted}")
    return parse_float(value) if isinstance(value, str) else float(value)


def _typed(value: Any, kind: str) -> str:
    """As a type (int, float, string, boolean, array, object, json, null), or a conversion of printf (%i, %0.2f, %s, %B, %A, %O, %J, %N)."""
    name = {"i": "int", "f": "float", "s": "string", "B": "boolean", "A": "array", "O": "object", "J": "json", "N": "null"}
    wanted = name.get(kind[-1:], "") if kind.startswith("%") else kind
    form = kind if kind.startswith("%") else ""
    if wanted == "int":
        whole = value if isinstance(value, int) else int(_number(value, "int"))
        return format_t(form, [whole]) if form else str(int(whole))
    if wanted == "float":
        return format_t(form, [_number(value, "float")]) if form else text_t(_number(value, "float"))
    if wanted == "string":
        return json.dumps(format_t(form, [value]) if form else text_t(value), ensure_ascii=False)
    if wanted == "boolean":
        true = to_boolean(value) if isinstance(value, str) and not is_float(value) else _number(value, "boolean") != 0
        return "true" if true else "false"
    around = {"array": "[%s]", "object": "{%s}", "json": "%s", "null": "null"}.get(wanted)
    if around is None:
        raise Failure(f"json_encode: {kind!r} is no type of JSON")
    return around.replace("%s", text_t(value))


def _encoded(values: tuple[Any, ...], names: Iterable[str] | None, kinds: Iterable[str] | None) -> str:
    names = None if names is None else list(names)
    kinds = None if kinds is None else list(kinds)
    for given, what in ((names, "names"), (kinds, "types")):
        if given is not None and len(given) != len(values):
            raise Failure(f"json_encode: there are {len(given)} {what} for {len(values)} values")
    texts = list(map(_plain, values)) if kinds is None else list(map(_typed, values, kinds))
    if names is not None:
        texts = [f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in zip(names, texts, strict=True)]
    return ", ".join(texts)


def _declare_encoders() -> None:
    values = "int|float|string|boolean... values"
    for thing, opening, closing in (("array", "[", "]"), ("object", "{", "}")):
        names = "string names[], " if thing == "object" else ""
        for suffix, left, right in (("", opening, closing), ("_contents", "", "")):

            def plain(*given: Any, named: bool = bool(names), left: str = left, right: str = right) -> str:
                first, rest = (given[0].values(), given[1:]) if named else (None, given)
                return left + _encoded(rest, first, None) + right

            def typed(*given: Any, named: bool = bool(names), left: str = left, right: str = right) -> str:
                first, (kinds, *rest) = (given[0].values(), given[1:]) if named else (None, given)
                return left + _encoded(tuple(rest), first, kinds.split() if isinstance(kinds, str) else kinds.values()) + right

            start = f"(string o) json_encode_{thing}{suffix}"
            T.function(f"{start}({names}{values})")(plain)
            T.function(f"{start}_retype({names}string types[], {values})", f"{start}_format({names}string format, {values})")(typed)


_declare_encoders()
