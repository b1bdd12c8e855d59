"""How deep programs may nest: the one place that raises Python's limit.

A pure Python call uses no C stack, so a deep recursion costs memory only. Passes over a tree run inside ``deep``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Levels of a tree, of blocks and expressions together.
LEVELS_MAX = 20_000

#: Python calls that one level of a tree costs, at most.
CALLS_PER_LEVEL = 12


def deep(work: Callable[[], T]) -> T:
    """``work()``, which may recurse over a tree of ``LEVELS_MAX`` levels. ``RecursionError``: it went deeper."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, CALLS_PER_LEVEL * LEVELS_MAX))
    try:
        return work()
    finally:
        sys.setrecursionlimit(before)
