"""The keywords of methods that hand them on to others: type checkers find typos. Names as in ``Files.open`` and ``Files.put_file``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict


class LayoutKeywords(TypedDict, total=False):
    """How a file that is made lies on the nodes."""

    layout: str | None
    stripe: int
    rank: int | None


class OpenKeywords(LayoutKeywords, total=False):
    """Of ``Files.open`` beyond those of Python's ``open``."""

    permissions: int


class PutKeywords(LayoutKeywords, total=False):
    """Of ``Files.put_file``."""

    exclusive: bool
    progress: Callable[[int], None] | None
