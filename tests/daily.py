"""Cases of one test that are tried each time, and those that wait for a soak: the suite has ten minutes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def daily(values: Iterable[Any], *each_time: Any, several: bool = False) -> list[Any]:
    """All values as parameters; those that are not among ``each_time`` are marked ``soak``. ``several``: each is a tuple of parameters."""
    values = list(values)
    assert all(value in values for value in each_time), f"{each_time} are not all among {values}"
    return [
        value if value in each_time else pytest.param(*(value if several else (value,)), marks=pytest.mark.soak) for value in values
    ]  # fmt: skip
