"""HTML for notebooks: tables, headings, drawings. Text in, HTML out; styles are inline, so that nothing around them changes."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence

from amfs.display.progress import failure_text, plural, printable, size_text, stage_rows, tail_lines, verdict
from amfs.display.summary import Snapshot, Summary

esc = html.escape
FAILURES_SHOWN = 5
_CELL = "text-align:right;padding:2px 10px;font-variant-numeric:tabular-nums;white-space:nowrap"
_GOOD, _BAD, _SOFT = "#2e7d32", "#c2185b", "#808890"


class Drawing:
    """An SVG picture that notebooks show. ``svg`` is its text."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto;background:#fff;color:#222;max-width:100%">{self.svg}</div>'

    def __repr__(self) -> str:
        return f"<amfs drawing, {len(self.svg):,} characters of SVG>"

    def save(self, path: str) -> None:
        """Write it to a file. Raises OSError."""
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(self.svg)


def table(rows: Sequence[Sequence[str]], *, total: bool = False) -> str:
    """The first row is the head; the first column stands to the left. ``total``: the last row is one."""
    parts = []
    for at, row in enumerate(rows):
        tag = "th" if at == 0 else "td"
        weight = ";font-weight:600" if total and at == len(rows) - 1 else ";font-weight:500" if at == 0 else ""
        sides = [";text-align:left", *[""] * (len(row) - 1)]
        cells = [f'<{tag} style="{_CELL}{weight}{side}">{esc(cell)}</{tag}>' for cell, side in zip(row, sides, strict=True)]
        parts.append(f"<tr>{''.join(cells)}</tr>")
    return f'<table style="border-collapse:collapse">{"".join(parts)}</table>'


def headed(title: str, detail: str, body: str = "", *, good: bool | None = None) -> str:
    """A title in bold with a sentence behind it, and what belongs below."""
    mark = "" if good is None else f'<span style="color:{_GOOD if good else _BAD}">{"✔" if good else "✘"}</span> '
    return f'<div>{mark}<b>{esc(title)}</b> <span style="color:{_SOFT}">{esc(detail)}</span>{body}</div>'


def summary_html(summary: Summary, ended: bool = True) -> str:
    """The summary of a run: how it ended (unless that was said already), the table of its stages, the first failures with their last
    words."""
    rows = stage_rows(summary)
    body = table(rows, total=len(rows) > 2) if rows else ""
    for failure in summary.failures[:FAILURES_SHOWN]:
        first, _, rest = failure_text(failure, 20).partition("\n")
        words = f'<pre style="margin:2px 0 6px">{esc(rest)}</pre>' if rest else ""
        body += f'<details open><summary style="color:{_BAD}">{esc(first)}</summary>{words}</details>'
    more = len(summary.failures) - FAILURES_SHOWN + summary.failures_omitted
    if more > 0:
        body += f"<div>and {more:,} more failed</div>"
    body += "".join(f"<div>{esc(note)}</div>" for note in summary.notes)
    return headed(summary.outcome, verdict(summary), body, good=summary.exit_code == 0) if ended else f"<div>{body}</div>"


def progress_html(shot: Snapshot, words: str) -> str:
    """A bar with a line of words beside it."""
    ended = shot.finished + shot.failed
    value = f' value="{ended}" max="{max(1, shot.total)}"' if shot.total is not None else ""
    return f'<div><progress{value} style="width:16em;vertical-align:middle"></progress> <span>{esc(words)}</span></div>'


def session_html(tasks: Sequence[tuple[str, str]], ended: str, shown: int = 8) -> str:
    """An open run: how many tasks are in which state, and the last few of them."""
    counts = Counter(state for _, state in tasks)
    detail = ", ".join(f"{count:,} {state}" for state, count in counts.items()) or "no tasks yet"
    body = table([("task", "state"), *((printable(name), state) for name, state in tasks[-shown:])]) if tasks else ""
    if len(tasks) > shown:
        body = f"<div>the last {shown} of {len(tasks):,}:</div>{body}"
    return headed("session", detail + ended, body)


def task_html(name: str, state: str, argv: Sequence[str], failure: tuple[str, bytes] | None) -> str:
    """One task: its state, its command, and why it failed."""
    command = printable(" ".join(argv))
    body = f"<div><code>{esc(command if len(command) <= 200 else command[:199] + '…')}</code></div>"
    if failure is not None:
        words = esc("\n".join(tail_lines(failure[1], 20)))
        body += f'<div style="color:{_BAD}">{esc(printable(failure[0]))}</div>' + (f"<pre>{words}</pre>" if words else "")
    return headed(f"task {printable(name)}", state, body, good=failure is None if state.startswith(("finished", "failed")) else None)


def cluster_html(name: str, nodes: Sequence[tuple[int, str, int, int, int, int]]) -> str:
    """A session: of each node number, host, slots, files, bytes used and capacity (0: not limited)."""
    rows = [("node", "host", "slots", "files", "bytes", "room")]
    rows += [
        (str(node), host, str(slots), f"{files:,}", size_text(used), size_text(capacity - used) if capacity else "")
        for node, host, slots, files, used, capacity in nodes
    ]
    slots = sum(each[2] for each in nodes)
    return headed(f"cluster {name}", f"{plural(len(nodes), 'node')}, {plural(slots, 'slot')}", table(rows))
