"""Arrays and bags as a whole: size, keys, membership, representation; signals."""

from __future__ import annotations

import math
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import text_t
from amfs.swift.library_t.registry import T
from amfs.swift.patterns import compiled


@T.function(
    "<K, T> (int o) size(T A[K])",
    "<T> (int o) size(bag<T> A)",
    "<T> (int o) bag_size(bag<T> A)",
    "<T> (int o) bagSize(bag<T> A)",
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


@T.function(
    "(int o[]) range(int start, int end, int step=1)", "(int o[]) range_step(int start, int end, int step)",
    "(int o[]) rangestep(int start, int end, int step)",
)
def whole_range(start: int, end: int, step: int) -> dict[int, int]:
    """Inclusive, as [start:end:step]."""
    if step == 0:
        raise Failure(f"range({start}, {end}, 0): the step must not be zero")
    return dict(enumerate(range(start, end + (1 if step > 0 else -1), step)))


@T.function("(float o[]) range_float(float start, float end)", "(float o[]) range_float_step(float start, float end, float step)")
def range_float(start: float, end: float, step: float = 1.0) -> dict[int, float]:
    if not step or not all(map(math.isfinite, (start, end, step))):
        raise Failure(f"range_float({text_t(start)}, {text_t(end)}, {text_t(step)}): this range has no end")
    count = math.floor((end - start) / step + 1e-9) + 1
    return {index: start + index * step for index in range(max(0, count))}


@T.function(
    "(string o[]) pick_integer_string(string A[], int indices[])", "(string o[]) pick_stable_integer_string(string A[], int indices[])"
)
def pick(items: dict[int, str], indices: dict[int, int]) -> dict[int, str]:
    """The elements at these indices, in the order of the indices."""
    for index in indices.values():
        if index not in items:
            raise Failure(f"pick_integer_string: the array has no element {index}")
    return dict(enumerate(items[index] for index in indices.values()))


@T.function("(string o[]) pick_regexp(string pattern, string A[])")
def pick_regexp(pattern: str, items: dict[int, str]) -> dict[int, str]:
    """The elements in which the pattern is found."""
    fits = compiled(pattern).search
    return dict(enumerate(item for item in items.values() if fits(item)))


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
@T.function("(int o) ternary_integer(boolean condition, int yes, int no)")
@T.function("(string o) ternary_string(boolean condition, string yes, string no)")
def ternary(condition: Any, yes: Any, no: Any) -> Any:
    return yes if condition else no


@T.function("(void v) makeVoid()", "(void v) make_void()", "(void v) propagate(any... x)")
def make_void(*_: Any) -> None:
    return None


@T.function("(boolean o) xor(boolean a, boolean b)")
def xor(a: bool, b: bool) -> bool:
    return a != b


@T.function("(int o) zero(void v)")
def zero(_: None) -> int:
    return 0
