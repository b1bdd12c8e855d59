"""Output: trace, tracef, printf, fprintf; and assert."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import format_k, text_k
from amfs.swift.library_k.registry import K
from amfs.swift.requests import Print, Request, WriteFile


@K.asking("trace(any... values)")
def trace(*values: Any) -> Generator[Request, Any, None]:
    yield Print(f"SwiftScript trace: {', '.join(map(text_k, values))}\n")


@K.asking("tracef(string spec, any... values)", "printf(string spec, any... values)")
def tracef(spec: str, *values: Any) -> Generator[Request, Any, None]:
    yield Print(format_k(spec, values))


@K.asking("fprintf(string name, string spec, any... values)")
def fprintf(name: str, spec: str, *values: Any) -> Generator[Request, Any, None]:
    """Appends. The order of several calls is open."""
    text = format_k(spec, values)
    if name in ("stdout", "stderr"):
        yield Print(text, name == "stderr")
        return
    yield WriteFile(name, text.encode(errors="surrogateescape"), append=True)


@K.function('assert(any condition, string message="")')
def assert_(condition: Any, message: str) -> None:
    if condition not in (True, "true", 1):
        raise Failure(f"assertion failed{': ' + message if message else ''}")
