"""Pictures of the file-system benchmarks as SVG: ratios as bars (AMFS Shell's Figure 6), a table of scales (its Table 1), lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from amfs.sim.svg import COLOURS as _COLOURS
from benchmarks.envelope import EIGHT, Report
from benchmarks.envelope_table import share, table_1

COLOURS = (*_COLOURS, "#2aa39a", "#d98cb3", "#7a4a1e", "#a3b52a")
WIDTH, _PANEL = 960, 300
LEFT, RIGHT, _TOP, BOTTOM = 64, 16, 58, 44
_ROW = 22
_LETTER = 7.0  # pixels of a letter, about
Panel = tuple[int, list[str]]  # height, and elements drawn from y = 0


def document(panels: Sequence[Panel]) -> str:
    """One SVG of panels below each other."""
    height = sum(each for each, _ in panels)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    down = 0
    for each, elements in panels:
        out += [f'<g transform="translate(0 {down})">', *elements, "</g>"]
        down += each
    return "\n".join([*out, "</svg>", ""])


class Axis:
    """The logarithmic axis of a panel with a legend above: where things are."""

    def __init__(self, title: str, names: Sequence[str], values: Sequence[float], unit: str, at_least: tuple[int, int]) -> None:
        self.low = math.floor(min([at_least[0], *(math.log10(value) for value in values)]))
        self.high = max(math.ceil(max([at_least[1], *(math.log10(value) for value in values)])), self.low + 1)
        rows = _legend_rows(names)
        self.top = _TOP + 18 * (len(rows) - 1)
        self.height = _PANEL + self.top - _TOP
        self.elements = [f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>', *_legend(rows, names)]
        for power in range(self.low, self.high + 1):
            y, colour = self.up(10.0**power), "#444" if power == 0 and unit else "#ddd"
            self.elements.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>')
            self.elements.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}{unit}</text>')

    def up(self, value: float) -> float:
        inner = self.height - self.top - BOTTOM
        return self.height - BOTTOM - inner * (math.log10(value) - self.low) / (self.high - self.low)

    def below(self, x: float, text: str) -> None:
        self.elements.append(f'<text x="{x:.1f}" y="{self.height - BOTTOM + 18}" text-anchor="middle">{escape(text)}</text>')


def bars(title: str, groups: Sequence[str], series: Mapping[str, Sequence[float | None]]) -> Panel:
    """Bars of ratios, from 1 up or down, grouped; ``series``: name -> a value for each group, None: no bar."""
    axis = Axis(title, list(series), [value for line in series.values() for value in line if value], "x", (-1, 1))
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    bar = room * 0.8 / max(1, len(series))
    for column, group in enumerate(groups):
        left = LEFT + room * column
        axis.below(left + room / 2, group)
        for number, line in enumerate(series.values()):
            value = line[column]
            if not value:
                continue
            y, one = axis.up(value), axis.up(1.0)
            x = left + room * 0.1 + bar * number
            shape = f'x="{x:.1f}" y="{min(y, one):.1f}" width="{max(1.0, bar - 1):.1f}" height="{max(1.0, abs(y - one)):.1f}"'
            axis.elements.append(f'<rect {shape} fill="{COLOURS[number % len(COLOURS)]}"><title>{share(value)}</title></rect>')
    return axis.height, axis.elements


def lines(title: str, labels: Mapping[float, str], series: Mapping[str, Sequence[tuple[float, float]]]) -> Panel:
    """Lines over values of x that are equally far from each other, by their ``labels``; the other axis is logarithmic."""
    values = [value for line in series.values() for _, value in line if value > 0]
    low = math.floor(math.log10(min(values)))
    axis = Axis(title, list(series), values, "", (low, low + 1))
    step = (WIDTH - LEFT - RIGHT) / len(labels)
    across = {x: LEFT + step * (number + 0.5) for number, x in enumerate(labels)}
    for x, label in labels.items():
        axis.below(across[x], label)
    for number, line in enumerate(series.values()):
        colour = COLOURS[number % len(COLOURS)]
        points = [(across[x], axis.up(value)) for x, value in line if value > 0]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        axis.elements.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        axis.elements += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return axis.height, axis.elements


def _legend_rows(names: Sequence[str]) -> list[list[int]]:
    """Indices of the names, as many a row as fit."""
    rows: list[list[int]] = [[]]
    used = 0.0
    for index, name in enumerate(names):
        width = 34 + _LETTER * len(name)
        if rows[-1] and used + width > WIDTH - LEFT - RIGHT:
            rows.append([])
            used = 0.0
        rows[-1].append(index)
        used += width
    return rows


def _legend(rows: Sequence[Sequence[int]], names: Sequence[str]) -> list[str]:
    out = []
    for number, row in enumerate(rows):
        x, y = float(LEFT), 42 + 18 * number
        for index in row:
            out.append(f'<rect x="{x:.0f}" y="{y - 9}" width="12" height="10" fill="{COLOURS[index % len(COLOURS)]}"/>')
            out.append(f'<text x="{x + 17:.0f}" y="{y}">{escape(names[index])}</text>')
            x += 34 + _LETTER * len(names[index])
    return out


def table(title: str, rows: Sequence[Sequence[str]]) -> Panel:
    """A table whose first row is its head; all but the first column flush right."""
    widths = [max(len(row[column]) for row in rows) * _LETTER + 18 for column in range(len(rows[0]))]
    scale = min(1.0, (WIDTH - 2 * RIGHT) / sum(widths))
    out = [f'<text x="{RIGHT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>']
    for number, row in enumerate(rows):
        y = 46 + _ROW * number
        x = float(RIGHT)
        for column, cell in enumerate(row):
            anchor = f'x="{x:.0f}"' if column == 0 else f'x="{x + widths[column] * scale - 6:.0f}" text-anchor="end"'
            weight = ' font-weight="bold"' if number == 0 else ""
            out.append(f'<text {anchor} y="{y}" font-size="{12 * max(0.8, scale):.1f}"{weight}>{escape(cell)}</text>')
            x += widths[column] * scale
        if number == 0:
            out.append(f'<line x1="{RIGHT}" x2="{WIDTH - RIGHT}" y1="{y + 7}" y2="{y + 7}" stroke="#888"/>')
    return 46 + _ROW * len(rows), out


def envelope_picture(report: Report) -> str:
    """Figure 6 for each number of clients, then Table 1 for what was measured at several scales."""
    panels = []
    for clients in report.clients:
        series: dict[str, list[float | None]] = {}
        for place in report.places:
            found = [report.find(place.key, clients, metric.key) for metric in EIGHT]
            if place.key != "tmpfs" and any(found):
                series[place.title] = [result.ratio if result else None for result in found]
        if series:
            title = f"MTC Envelope, {clients} client{'s' if clients != 1 else ''}: times raw tmpfs"
            panels.append(bars(title, [metric.paper.replace("tput", "ops") for metric in EIGHT], series))
    panels += [table(title, rows) for title, rows in table_1(report)]
    return document(panels)
