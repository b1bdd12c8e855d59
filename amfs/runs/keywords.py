"""The keywords of ``amfs.run``, ``amfs.Session`` and its ``submit``: type checkers find typos. Names as in ``RunOptions`` and ``Task``."""

from __future__ import annotations

import os
from typing import Literal, TypedDict


class CommonKeywords(TypedDict, total=False):
    """See ``RunOptions``: those of a run and of a session."""

    memory: int
    keep_all: bool
    keep_sandbox: bool
    hashed_outputs: int
    stage_shared: bool
    data_aware: bool
    retries: int
    fail_fast: int
    want_output: bool
    store: str
    store_limit: int
    high_water: float
    spill: str
    spill_limit: int
    trace: str
    source: str
    env: dict[str, str] | None


class RunKeywords(CommonKeywords, total=False):
    """Of ``amfs.run``."""

    progress: bool | None
    slots: int
    session: str | None
    base: str
    journal: str | os.PathLike[str] | None
    resume: bool | Literal["trust"]


class SessionKeywords(CommonKeywords, total=False):
    """Of ``amfs.Session``."""

    progress: bool
    slots: int | None
    session: str | None
    base: str | os.PathLike[str] | None
    journal: str | os.PathLike[str] | None
    resume: bool | Literal["trust"]


class TaskKeywords(TypedDict, total=False):
    """Of ``Session.submit``: see ``Task``."""

    stdin: str
    stdout: str
    stderr: str
    env: tuple[str, ...]
    cwd: str
    cores: int
    memory: int
    time_limit: float
    retries: int
    priority: int
    label: str
    node: int
    node_soft: bool
    reduce: int
    scratch: tuple[str, ...]
    after: tuple[str, ...]
    runtime: float | None
    staged: bool
    blind: bool
    line: int
