"""Shared by the stories about tasks: one run, short ways to write tasks and how they ended."""

from __future__ import annotations

from typing import Any

from amfs.vocabulary import messages as m
from amfs.vocabulary.records import pack_body

RUN = 7
SCOPE = "7/"
CLIENT = m.CLIENT_ID_MIN + 5
BASE = "/home/u"


def key(name: str) -> str:
    return SCOPE + name


def keys(names: str) -> tuple[str, ...]:
    """The keys of names separated by spaces."""
    return tuple(SCOPE + name for name in names.split())


def info(**more: Any) -> m.RunInfo:
    return m.RunInfo(SCOPE, BASE, ("HOME=/home/u",), **more)


def begin(**more: Any) -> m.RunBegin:
    return m.RunBegin(RUN, CLIENT, info(**more), 1)


def spec(
    tid: int,
    inputs: str = "",
    outputs: str = "",
    *,
    readers: int = 1,
    final: bool = False,
    shared: str = "",
    attempt: int = 0,
    origin: int = 0,
    argv: tuple[str, ...] = (),
    **options: Any,
) -> m.TaskSpec:
    """Task ``tid``, whose command is /bin/t<tid>. All its outputs have the same fate."""
    made = keys(outputs)
    retentions = (m.retention(readers, final),) * len(made)
    packed = m.Options(**options) if options else None
    body = pack_body(f"/bin/t{tid}", argv or (f"t{tid}",))
    return m.TaskSpec(tid, body, keys(inputs), keys(shared), made, retentions, packed, attempt, origin)


def result(tid: int, outcome: int = 0, *, attempt: int = 0, node: int = 0, detail: str = "") -> m.Result:
    return m.Result(tid, attempt, outcome, node=node, detail=detail)
