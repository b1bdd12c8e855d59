"""Waiting for what becomes true by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60.0  # only turns a hang into a failure


def until(condition: Callable[[], object], otherwise: str = "waited in vain") -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(0.01)
