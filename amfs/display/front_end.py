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
