"""Progress of a run in a notebook: one output of the cell, which is replaced while the run goes on.

Needs nothing but IPython, which every kernel has, and works in all front ends. The final state is what stays in the saved notebook.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import IO, Any

from amfs.display.html import headed, progress_html
from amfs.display.progress import QuietProgress, progress_line, timed, verdict
from amfs.display.summary import Meter, Snapshot, Summary

_QUIET_S = 0.3  # a run that is over by then shows only how it ended


class NotebookProgress(QuietProgress):
    """The table of the summary is for who shows the result; here one sentence stays."""

    interval = 0.25

    def __init__(self, stdout: IO[str] | None = None) -> None:
        super().__init__(stdout)
        self._meter = Meter()
        self._next = time.monotonic() + _QUIET_S
        self._handle: Any = None

    def start(self, total: int | None, nodes: int, slots: int) -> None:
        self._meter = Meter()
        self._next = time.monotonic() + _QUIET_S

    def update(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        shot = timed(snapshot, self._meter)
        if now >= self._next:
            self._next = now + self.interval
            self._show(progress_html(shot, progress_line(shot)))

    def message(self, text: str) -> None:
        self._line(f"amfs: {text}")

    def finish(self, summary: Summary) -> None:
        self._show(headed(summary.outcome, verdict(summary), good=summary.exit_code == 0))

    def _show(self, text: str) -> None:
        shown: Any = import_module("IPython.display")
        if self._handle is None:
            self._handle = shown.display(shown.HTML(text), display_id=True)
        else:
            self._handle.update(shown.HTML(text))
