"""The screen of ``amfs top``: a frame and a page as tables of rich. Owns the layout and the wording. Must not know: keys, terminals."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from amfs.display.progress import plural, printable, rate_text
from amfs.live.text import at_work_rows, failure_lines, node_rows, run_line, stage_rows
from amfs.vocabulary.live import Frame, Page, Run

VIEWS = {"t": "tasks", "f": "failures", "n": "nodes", "s": "stages"}
KEYS = "q quit   ↑ ↓ run   t tasks   f failures   n nodes   s stages   a all   space pause"
HELP = "no run is going on, and there is no session. 'amfs run FILE' starts a run, 'amfs up' a session"


class Shown(NamedTuple):
    """The person's choice. ``view`` "all", or one of VIEWS; ``at``: the run in the list; ``top``: first line of the view."""

    view: str = "all"
    at: int = 0
    top: int = 0
    paused: bool = False
    once: bool = False  # printed: nobody presses keys


def key_pressed(shown: Shown, key: str, runs: int) -> Shown | None:
    """The view after a key; None: the end."""
    if key in ("q", "\x03", "\x04"):
        return None
    if key in VIEWS:
        return shown._replace(view=VIEWS[key], top=0)
    if key in ("a", "\x1b"):
        return shown._replace(view="all", top=0)
    if key == " ":
        return shown._replace(paused=not shown.paused)
    step = {"\x1b[A": -1, "k": -1, "\x1b[B": 1, "j": 1}.get(key, 0)
    page = {"\x1b[5~": -10, "\x1b[6~": 10}.get(key, 0)
    return shown._replace(at=max(0, min(runs - 1, shown.at + step)), top=max(0, shown.top + page))


def screen(frame: Frame, page: Page, shown: Shown, height: int) -> Any:
    """All of the screen, at most ``height`` lines of it in tables."""
    parts: list[Any] = [_head(frame, shown)]
    parts += [Text(note, "yellow") for note in frame.notes]
    if not frame.runs and not frame.sessions:
        return Group(*parts, Panel(f"{HELP}." if shown.once else f"{HELP}; q ends this."), *_keys(shown))
    at = min(shown.at, max(0, len(frame.runs) - 1))
    room = max(4, height - len(parts) - 2)
    shares = {"all": 4}.get(shown.view, 1)
    if shown.view == "all" or len(frame.runs) > 1:
        parts.append(_runs(frame, at, max(3, room // shares)))
        room -= min(len(frame.runs), room // shares) + 3
    if frame.sessions and not frame.runs:
        parts.append(Text("no run is going on in " + ", ".join(session.name for session in frame.sessions), "dim"))
    run = frame.runs[at] if frame.runs else None
    each = room if shown.view != "all" else max(3, room // 3 - 3)
    if run is not None and shown.view in ("all", "stages"):
        parts.append(_table(f"stages of {printable(run.source)}", stage_rows(run), shown.top, each))
    if frame.nodes and shown.view in ("all", "nodes"):
        parts.append(_table(plural(len(frame.nodes), "node"), node_rows(frame.nodes), shown.top, each))
    if shown.view in ("all", "tasks"):
        title = f"{plural(page.at_work_total, 'task')} at work, longest first"
        parts.append(_table(title, at_work_rows(page.at_work, frame.at, frame.runs), shown.top, each))
    if page.failed and shown.view in ("all", "failures"):
        parts.append(_failures(page, shown, each))
    elif shown.view == "failures":
        parts.append(Text("nothing has failed", "dim"))
    if shown.view in ("all", "nodes"):
        parts += [Text(line, "dim") for session in frame.sessions for line in session.decisions[-3:]]
    return Group(*parts, *_keys(shown))


def _keys(shown: Shown) -> list[Text]:
    return [] if shown.once else [Text(KEYS, "dim")]


def _head(frame: Frame, shown: Shown) -> Text:
    slots, running = sum(node.slots for node in frame.nodes), sum(node.running for node in frame.nodes)
    rate = sum(run.rate for run in frame.runs if not run.over)
    text = Text("amfs top ", "bold")
    text.append(f" {plural(sum(not run.over for run in frame.runs), 'run')}, {plural(len(frame.sessions), 'session')}, ")
    text.append(f"{running:,} of {plural(slots, 'slot')} busy, {rate_text(rate)}")
    return text.append("  PAUSED", "bold yellow") if shown.paused else text


def _runs(frame: Frame, at: int, most: int) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(no_wrap=True, max_width=32, overflow="ellipsis")
    table.add_column(no_wrap=True, max_width=16, overflow="ellipsis")
    table.add_column(width=20)
    table.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
    first = max(0, min(at - most + 1, len(frame.runs) - most)) if at >= most else 0
    for place, run in enumerate(frame.runs[first : first + most], first):
        style = "bold" if place == at else ""
        mark = "▶" if place == at else " "
        where = "" if run.place == run.id else run.place
        table.add_row(mark, Text(printable(run.source), style), Text(where, "cyan"), _bar(run), Text(run_line(run, frame.at), style))
    return table


def _bar(run: Run) -> ProgressBar:
    if run.total < 0:
        return ProgressBar(total=1, completed=1 if run.over else 0, width=20)
    return ProgressBar(total=max(1, run.total), completed=run.finished + run.failed, width=20)


def _table(title: str, rows: list[list[str]], top: int, most: int) -> Table:
    top = max(0, min(top, len(rows) - 1 - most))
    more = len(rows) - 1 - top - most
    caption = f"{more:,} more" if more > 0 else None
    table = Table(
        box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", caption=caption, caption_justify="left", pad_edge=False
    )
    for place, head in enumerate(rows[0]):
        words = head in ("task", "stage", "state", "host", "run")
        lines = textwrap.fill(head, 8)  # ten columns on 80 characters
        table.add_column(
            lines, justify="left" if words else "right", no_wrap=True, min_width=max(map(len, lines.split("\n"))),
            overflow="ellipsis" if place == 0 or words else "fold",
        )  # fmt: skip
    for row in rows[1 + top : 1 + top + most]:
        table.add_row(*map(Text, row))
    return table


def _failures(page: Page, shown: Shown, most: int) -> Any:
    lines: list[Any] = [Text(f"{plural(page.failed_total, 'failure')}, newest first", "bold")]
    each = 12 if shown.view == "failures" else 2
    for failed in page.failed[shown.top :]:
        head, *words = failure_lines(failed, each)
        lines += [Text(head, "red", no_wrap=True, overflow="ellipsis"), *(Text(word, "dim", no_wrap=True) for word in words)]
        if len(lines) > most:
            break
    return Group(*lines[: most + 1])
