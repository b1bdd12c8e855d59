"""The keywords of what ``amfs.Cluster`` does with whole directories: type checkers find typos. Names as in these functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypedDict


class LoadingKeywords(TypedDict, total=False):
    """Of ``loading.load`` and ``loading.dump``."""

    way: str
    storage: str | os.PathLike[str] | None
    progress: Callable[[int], None] | None


class MoveKeywords(TypedDict, total=False):
    """Of ``collective.move``."""

    root: int | None
    algorithm: str
    nodes: Iterable[int] | None


class ShuffleKeywords(TypedDict, total=False):
    """Of ``shuffle.shuffle``."""

    key: int
    delimiter: str | bytes | None
    parts: int
    progress: bool


class ReduceKeywords(TypedDict, total=False):
    """Of ``reducing.reduce``."""

    arity: int
    progress: bool
