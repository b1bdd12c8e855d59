"""Which way of showing progress suits. Owns nothing but the choice."""

from __future__ import annotations

import sys
from typing import IO

from amfs.display.front_end import in_notebook
from amfs.display.progress import JsonProgress, PlainProgress, Progress, QuietProgress, TerminalProgress


def make_progress(
    *, output: str = "text", quiet: bool = False, stdout: IO[str] | None = None, stderr: IO[str] | None = None
) -> Progress:
    """The right one: ``output`` is "text" or "json"; text shows a bar in a notebook, and when stderr is a terminal."""
    if output == "json":
        return JsonProgress(stdout, stderr)
    if quiet:
        return QuietProgress(stdout, stderr)
    if stderr is None and in_notebook():
        from amfs.display.notebook import NotebookProgress

        return NotebookProgress(stdout)
    if (stderr or sys.stderr).isatty():
        return TerminalProgress(stdout, stderr)
    return PlainProgress(stdout, stderr)
