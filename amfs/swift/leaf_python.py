"""Leaf functions in Tcl that only call Python, as the modules of EMEWS queues declare them. Must not know: any other Tcl."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import Any

from amfs.swift.builtins import Location
from amfs.swift.requests import CallPython, Request
from amfs.swift.tree import Builtin, Function, Name

_TEMPLATE = re.compile(
    r"\s*(?:set\s+<<(?P<output>\w+)>>\s+(?P<bracket>\[)\s*)?"
    r"turbine::python\s+(?P<persistent>[01])(?:\s+[01])?\s+<<(?P<code>\w+)>>(?:\s+<<(?P<expression>\w+)>>)?\s*(?(bracket)\])\s*;?\s*"
)

#: Kinds of workers that every program has; others are declared by ``pragma worktypedef``.
_ORDINARY = {"WORKER", "CONTROL", "LOCAL", "ENGINE", "CONTROL_ENGINE"}


def python_leaf(function: Function, tcl: str) -> Builtin | None:
    """The function that calls Python for this one; None: its text does something else.

    A function with ``@dispatch`` to workers of a kind of its own runs in a process that only such functions use, one for each
    ``@location``: the next call finds the variables of the last.
    """
    found = _TEMPLATE.fullmatch(tcl)
    if found is None:
        return None
    outputs = [(one.name, one.type_name.name) for one in function.outputs if one.type_name.name != "void"]
    if outputs != ([(found["output"], "string")] if found["output"] else []) or len(function.outputs) > 1:
        return None
    names = [one.name for one in function.inputs]
    if found["code"] not in names or (found["expression"] or found["code"]) not in names:
        return None
    kinds = [one.value.name for one in function.annotations if one.name == "dispatch" and isinstance(one.value, Name)]
    return Builtin(
        _caller(
            names.index(found["code"]),
            names.index(found["expression"]) if found["expression"] else None,
            found["persistent"] == "1",
            next((kind for kind in kinds if kind.upper() not in _ORDINARY), ""),
            bool(outputs),
        ),
        asks=True,
        placed=True,
    )


def _caller(code: int, expression: int | None, persistent: bool, kind: str, gives: bool) -> Callable[..., Any]:
    def call(*values: Any) -> Generator[Request, Any, str | None]:
        body, text = str(values[code]), "" if expression is None else str(values[expression])
        if expression is None and gives:  # the last line is the value
            body, _, text = body.rstrip("\n").rpartition("\n")
        answer = yield CallPython(body, text, persistent, worker(kind, values))
        return str(answer) if gives else None

    return call


def worker(kind: str, values: Sequence[Any]) -> str:
    """The name of the process for a call; "" is any. A location that the call was given is the last value."""
    rank = values[-1].rank if values and isinstance(values[-1], Location) else -1
    if rank >= 0:
        return f"{kind or 'rank'}:{rank}"
    return kind
