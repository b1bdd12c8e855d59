"""``amfs top``: runs, stages, nodes, tasks at work and failures on a terminal, again and again. Owns the terminal and its keys."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator

import click

from amfs.cli.completion import session_names
from amfs.errors import UsageError


@click.command()
@click.argument("name", required=False, shell_complete=session_names)
@click.option("--every", type=click.FloatRange(min=0.2), default=2.0, metavar="SECONDS", help="Between two looks (default 2).")
@click.option("--once", is_flag=True, help="Print one screen and end; also where there is no terminal.")
def top(name: str | None, every: float, once: bool) -> int:
    """Watch runs with their progress and time left, stages, nodes, tasks at work by age, and failures with the end of stderr.

    NAME is a session; without it, all runs and sessions of this user on this host. Keys: q ends, arrows choose a run,
    t tasks, f failures, n nodes, s stages, a all, space pauses, page keys scroll.
    """
    from rich.console import Console

    from amfs.cli.top_view import Shown, key_pressed, screen
    from amfs.live.reader import Reader

    console = Console()
    with Reader(name) as reader:
        frame, page = reader.frame(), reader.page(max(40, console.height), 40)
        shown: Shown | None = Shown()
        if once:
            console.print(screen(frame, page, Shown(once=True), max(40, console.height)))
            return 0
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError("amfs top needs a terminal: amfs top --once, or amfs status --watch, write to pipes")
        from rich.live import Live

        with _keys() as fd, Live(console=console, screen=True, auto_refresh=False) as live:
            due = time.monotonic() + every
            while shown is not None:
                live.update(screen(frame, page, shown, console.height), refresh=True)
                if select.select([fd], [], [], max(0.0, due - time.monotonic()))[0]:
                    for key in _split(os.read(fd, 64).decode(errors="replace")):
                        shown = key_pressed(shown, key, len(frame.runs)) if shown is not None else None
                    continue
                if not shown.paused:
                    frame, page = reader.frame(), reader.page(max(40, console.height) + shown.top, 40 + shown.top)
                due = time.monotonic() + every
    return 0


def _split(keys: str) -> list[str]:
    """Keys one by one; those of arrows and pages are sequences."""
    found = []
    while keys:
        length = 1
        if keys.startswith("\x1b["):
            length = next((at + 1 for at in range(2, len(keys)) if keys[at].isalpha() or keys[at] == "~"), len(keys))
        found.append(keys[:length])
        keys = keys[length:]
    return found


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Each key at once, without an echo; the terminal as it was afterwards."""
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
