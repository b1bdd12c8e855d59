"""The timeline of a run: when each slot was busy, from the trace. Drawn for the page of ``amfs report``, and by itself for notebooks.

Owns the rows and their drawing as SVG. Reads only the trace.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable

from amfs.display.html import Drawing
from amfs.display.progress import printable
from amfs.runs.trace import Trace

TASKS_DRAWN_MAX = 20_000  # beyond, columns of the timeline show shares
ROWS_MAX = 240  # beyond, a row stands for several slots
COLUMNS = 1000
PALETTE = ("#4878a8", "#ee9b3b", "#9a6fb0", "#4fb0a5", "#d4b72f", "#8c6d5a", "#e58aa8", "#6f7fd6", "#86a83f", "#909aa5")


class Row:
    """One line of the timeline: a slot, or several when there are too many."""

    def __init__(self, name: str, slots: int) -> None:
        self.name = name
        self.slots = slots
        self.tasks: list[int] = []  # indices into the trace
        self.busy_us = 0


def timeline_rows(trace: Trace) -> list[Row]:
    """One row per slot seen, or per group of neighbouring slots when there are more than ROWS_MAX. Tasks in each by start time."""
    places = sorted(set(zip(trace.node, trace.slot, strict=True)))
    group = math.ceil(len(places) / ROWS_MAX) if places else 1
    rows: list[Row] = []
    index: dict[tuple[int, int], Row] = {}
    one_node = len({node for node, _ in places}) == 1
    for start in range(0, len(places), group):
        members = places[start : start + group]
        names = [f"slot {slot}" if one_node else f"{node}.{slot}" for node, slot in (members[0], members[-1])]
        row = Row(names[0] if group == 1 else f"{names[0]} – {names[1]}", len(members))
        rows.append(row)
        index.update(dict.fromkeys(members, row))
    for i in sorted(range(len(trace)), key=trace.start.__getitem__):
        row = index[trace.node[i], trace.slot[i]]
        row.tasks.append(i)
        row.busy_us += trace.end[i] - trace.start[i]
    return rows


def shares(trace: Trace, tasks: Iterable[int], begin: int, span: int, columns: int) -> list[float]:
    """For each of ``columns`` equal parts of the time: how many of ``tasks`` ran in it, on average."""
    cells = [0.0] * columns
    width = span / columns
    for i in tasks:
        low, high = (trace.start[i] - begin) / width, (trace.end[i] - begin) / width
        first, last = min(columns - 1, int(low)), min(columns - 1, int(high))
        if first == last:
            cells[first] += high - low
            continue
        cells[first] += first + 1 - low
        for column in range(first + 1, last):
            cells[column] += 1
        cells[last] += high - last
    return cells


def all_drawn(trace: Trace, rows: list[Row]) -> bool:
    """Does every task get a bar of its own?"""
    return len(trace) <= TASKS_DRAWN_MAX and all(row.slots == 1 for row in rows)


def stage_colours(trace: Trace) -> tuple[list[int], dict[int, str]]:
    """The stages in the order in which they began, and the colour of each."""
    order = sorted(range(len(trace.label_names)), key=lambda label: _first_start(trace, label))
    return order, {label: PALETTE[i % len(PALETTE)] for i, label in enumerate(order)}


def _first_start(trace: Trace, label: int) -> int:
    return next((trace.start[i] for i in range(len(trace)) if trace.label[i] == label), 0)


def ticks_of(span_us: float, count: int) -> list[float]:
    """Round times, in microseconds, that divide the span into about ``count`` parts."""
    raw = span_us / count
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw)
    return [step * i for i in range(int(span_us / step) + 1)]


def draw_bars(trace: Trace, rows: list[Row], span: int, colours: dict[int, str], row_height: float, bar: float, pad: float) -> str:
    """One rectangle per task, as one path per stage."""
    paths: dict[int, list[str]] = {}
    begin, scale = trace.begin_us, COLUMNS / span
    for i, row in enumerate(rows):
        y = f"{i * row_height + pad:.2f}"
        for task in row.tasks:
            width = (trace.end[task] - trace.start[task]) * scale
            width = max(0.25, width - min(0.5, width / 6))  # a hair between neighbours
            label = trace.label[task] if trace.ok[task] else -1
            x = (trace.start[task] - begin) * scale
            paths.setdefault(label, []).append(f"M{x:.2f} {y}h{width:.2f}v{bar:.2f}h-{width:.2f}z")
    return "".join(
        f'<path class="bad" d="{"".join(path)}"/>' if label < 0 else f'<path class="task" fill="{colours[label]}" d="{"".join(path)}"/>'
        for label, path in sorted(paths.items(), reverse=True)
    )


def draw_cells(trace: Trace, rows: list[Row], span: int, colours: dict[int, str], row_height: float, bar: float, pad: float) -> str:
    """Columns of time instead of tasks: for each stage, bars whose height is its share of the slot's time."""
    paths: dict[int, list[str]] = {}
    columns = COLUMNS // 2
    width = COLUMNS / columns
    for i, row in enumerate(rows):
        by_label: dict[int, list[int]] = {}
        for task in row.tasks:
            by_label.setdefault(trace.label[task] if trace.ok[task] else -1, []).append(task)
        floor = [i * row_height + pad + bar] * columns
        for label in sorted(by_label):
            for column, share in enumerate(shares(trace, by_label[label], trace.begin_us, span, columns)):
                if share > 0.004:
                    tall = min(1.0, share / row.slots) * bar
                    floor[column] -= tall
                    paths.setdefault(label, []).append(f"M{column * width:.4g} {floor[column]:.2f}h{width:.4g}v{tall:.2f}h-{width:.4g}z")
    return "".join(
        f'<path class="bad" d="{"".join(path)}"/>' if label < 0 else f'<path class="task" fill="{colours[label]}" d="{"".join(path)}"/>'
        for label, path in sorted(paths.items(), reverse=True)
    )


def draw(trace: Trace) -> Drawing:
    """The whole timeline as one picture: a row for each slot, a colour for each stage, seconds below."""
    rows = timeline_rows(trace)
    order, colours = stage_colours(trace)
    span = max(1, trace.end_us - trace.begin_us)
    row_height = max(2.0, min(22.0, 300 / max(1, len(rows))))
    bar = row_height * (0.8 if row_height > 5 else 1)
    pad = (row_height - bar) / 2
    body = (draw_bars if all_drawn(trace, rows) else draw_cells)(trace, rows, span, colours, row_height, bar, pad)
    left, below = 70, row_height * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS + left + 60}" viewBox="0 0 {COLUMNS + left + 60} {below + 56:.0f}"',
        ' style="max-width:100%;height:auto"',
        ' font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<g transform="translate({left} 4)"><style>.amfs-track{{fill:#eceef0}}.bad{{fill:#c2185b}}</style>',
    ]
    every = max(1, math.ceil(13 / row_height))
    for i, row in enumerate(rows):
        y = i * row_height
        parts.append(f'<rect class="amfs-track" x="0" y="{y + pad:.2f}" width="{COLUMNS}" height="{bar:.2f}"/>')
        if i % every == 0:
            middle = y + row_height / 2 + 4
            parts.append(f'<text x="-6" y="{middle:.1f}" text-anchor="end">{html.escape(row.name)}</text>')
            parts.append(f'<text x="{COLUMNS + 6}" y="{middle:.1f}">{100 * row.busy_us / (span * row.slots):.0f}%</text>')
    parts.append(body)
    for tick in ticks_of(span, 8):
        at = f'x="{COLUMNS * tick / span:.1f}" y="{below + 16:.1f}"'
        parts.append(f'<text {at} text-anchor="middle" fill="#68727d">{tick / 1e6:g} s</text>')
    x = 0.0
    for label in order:
        name = html.escape(printable(trace.label_names[label]))
        parts.append(f'<rect x="{x:.0f}" y="{below + 30:.1f}" width="11" height="11" fill="{colours[label]}"/>')
        parts.append(f'<text x="{x + 16:.0f}" y="{below + 40:.1f}">{name}</text>')
        x += 34 + 7 * len(name)
    return Drawing("".join([*parts, "</g></svg>"]))
