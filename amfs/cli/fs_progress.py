"""Progress of a transfer: a bar on the last line of the terminal, once it has lasted half a second; none without a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

QUIET_S = 0.5
STEP_S = 0.1


class Transfer:
    """Told the bytes of each piece as it is done. ``shown`` None: if standard error is a terminal. A context manager."""

    def __init__(self, total: int, shown: bool | None = None) -> None:
        self.total = total
        self.done = 0
        self.files = 0
        self.began = time.monotonic()
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._next = self.began + QUIET_S
        self._live: Any = None  # rich.progress.Progress
        self._task: Any = None

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def add(self, count: int) -> None:
        """So many bytes more."""
        self.done += count
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + STEP_S
            self._draw()

    def _draw(self) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

            parts = BarColumn(bar_width=28), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
            console = Console(file=sys.stderr, force_terminal=True)
            self._live = Progress(*parts, console=console, transient=True, auto_refresh=False)
            self._task = self._live.add_task("", total=self.total or None)
            self._live.start()
        self._live.update(self._task, completed=self.done, total=max(self.total, self.done) or None, refresh=True)
