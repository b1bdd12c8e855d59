"""Which front end this process has: a notebook or not. Imports nothing of it."""

from __future__ import annotations

import sys
from typing import Any


def shell() -> Any:
    """IPython's shell of this process, None if it has none."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None and hasattr(module, "get_ipython") else None


def in_notebook() -> bool:
    """Does a kernel run here, so that the front end shows HTML?"""
    return getattr(shell(), "kernel", None) is not None


def cell_number() -> int:
    """The number of the cell that runs, 0 outside of notebooks."""
    return int(getattr(shell(), "execution_count", 0) or 0) if in_notebook() else 0
