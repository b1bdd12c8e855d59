"""Arrays and bags as a whole: size, keys, membership, representation; signals."""

from __future__ import annotations

from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import text_t
from amfs.swift.library_t.registry import T


@T.function(
    "<K, T> (int o) size(T A[K])",
    "<T> (int o) size(bag<T> A)",
    "<K, T> (int o) length(T A[K])",
)
def size(items: Any) -> int:
    return len(items)


@T.function(
    "<T> (boolean o) contains(T A[], int key)",
    "<T> (boolean o) contains(T A[string], string key)",
    "<T> (boolean o) exists(T A[], int key)",
    "<T> (boolean o) exists(T A[string], string key)",
    "<T> (boolean o) exists_key(T A[], int key)",
    "<T> (boolean o) exists_key(T A[string], string key)",
)
def contains(items: dict[Any, Any], key: Any) -> bool:
    return key in items


@T.function("(boolean o) contains(string s, string subs)")
def contains_text(s: str, subs: str) -> bool:
    return subs in s


@T.function("<T> (string o[]) keys_string(T A[string])")
def keys_string(items: dict[str, Any]) -> dict[int, str]:
    return dict(enumerate(items))


@T.function("<T> (int o[]) keys_integer(T A[])")
def keys_integer(items: dict[int, Any]) -> dict[int, int]:
    return dict(enumerate(items))


@T.function("(int o[]) range(int start, int end, int step=1)", "(int o[]) rangestep(int start, int end, int step)")
def whole_range(start: int, end: int, step: int) -> dict[int, int]:
    """Inclusive, as [start:end:step]."""
    if step == 0:
        raise Failure(f"range({start}, {end}, 0): the step must not be zero")
    return dict(enumerate(range(start, end + (1 if step > 0 else -1), step)))


def representation(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text_t(key)}:{representation(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(representation, value)) + "]"
    return text_t(value)


@T.function("(string o) repr(any x)")
def repr_(value: Any) -> str:
    return representation(value)


@T.function("<T> (string o[]) array_repr(T A[])", "<T> (string o[string]) array_repr(T A[string])", "<T> (string o[]) array_repr(bag<T> A)")
def array_repr(items: Any) -> dict[Any, str]:
    pairs = items.items() if isinstance(items, dict) else enumerate(items)
    return {key: representation(value) for key, value in pairs}


@T.function("<T> (T o) ternary(boolean condition, T yes, T no)", "<T> (T o) ternary(int condition, T yes, T no)")
def ternary(condition: Any, yes: Any, no: Any) -> Any:
    return yes if condition else no


@T.function("(void v) makeVoid()", "(void v) make_void()", "(void v) propagate(any... x)")
def make_void(*_: Any) -> None:
    return None


@T.function("(int o) zero(void v)")
def zero(_: None) -> int:
    return 0
