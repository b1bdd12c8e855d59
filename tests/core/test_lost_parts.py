"""The partitions whose records may be gone after a death, however long ago they moved."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from amfs.engine import lost_parts
from amfs.engine.lost_parts import LostParts
from amfs.vocabulary.partition import PartitionTable

TABLES = [(0, 0, 1, 1), (2, 0, 1, 1), (2, 2, 1, 1), (2, 2, 1, 1), (2, 2, 2, 1)]


def follow(parts: LostParts, tables: Sequence[Sequence[int]], dead: set[int]) -> set[int]:
    """The nodes die in the last view."""
    views = [PartitionTable(owners, version) for version, owners in enumerate(tables, 1)]
    for before, after in pairwise(views[:-1]):
        assert not parts.after(before, after, ())
    return set(parts.after(views[-2], views[-1], dead))


@pytest.mark.parametrize("late", [64, 1, 0])
def test_they_are_those_that_the_dead_have_had(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    monkeypatch.setattr(lost_parts, "_LATE", late)
    assert follow(LostParts(), [*TABLES, (2, 2, 2, 2)], {1}) == {2, 3}, "one it gave away, one it had"
    assert follow(LostParts(), [*TABLES, TABLES[-1]], {0}) == {0, 1}, "it had none by then"
    assert follow(LostParts(), [*TABLES, (1, 1, 1, 1)], {2}) == {0, 1, 2}
    assert follow(LostParts(), [*TABLES, TABLES[-1]], set()) == set()


def test_after_a_view_that_was_missed_they_are_all() -> None:
    assert LostParts().after(PartitionTable([0, 1], 1), PartitionTable([0, 1], 3), ()) == {0, 1}
    assert LostParts().after(PartitionTable([0], 1), PartitionTable([0, 1], 2), ()) == {0, 1}
