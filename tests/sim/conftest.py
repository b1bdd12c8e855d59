"""Soak tests run when asked for (``pytest -m soak``), not otherwise."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "soak" in (config.option.markexpr or ""):
        return
    soaking = [item for item in items if item.get_closest_marker("soak")]
    if soaking:
        items[:] = [item for item in items if item not in soaking]
        config.hook.pytest_deselected(items=soaking)
