"""How much is copied to other nodes side by side. Pure; knows nothing of what is copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def bounded(items: Iterable[tuple[T, int]], bytes_most: int, count_most: int) -> Iterator[list[T]]:
    """``items``, each with its bytes, in batches of at most so many bytes and items, or of one larger item."""
    batch: list[T] = []
    total = 0
    for item, size in items:
        if batch and (total + size > bytes_most or len(batch) == count_most):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch
