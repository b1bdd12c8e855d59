"""``amfs status``: which nodes have not said what they lack."""

from __future__ import annotations

from typing import Any

import pytest

from amfs.cli import status


@pytest.mark.parametrize(("epoch", "nodes", "unheard"), [
    (3, [("up", 3), ("draining", 3), ("gone", None)], []),
    (3, [("up", 3), ("up", 2), ("silent", None)], [1, 2]),
    (2, [("up", 3), ("up", 2)], [1]),  # the list of members came from a node that had not heard of the change either
    (0, [("unknown", None)], []),
])  # fmt: skip
def test_members_without_an_answer_are_unheard(epoch: int, nodes: list[tuple[str, int | None]], unheard: list[int]) -> None:
    told: list[dict[str, Any]] = [
        {"node": number, "state": state, **({} if heard is None else {"epoch": heard})} for number, (state, heard) in enumerate(nodes)
    ]
    assert status._unheard({"epoch": epoch, "nodes": told}) == unheard
