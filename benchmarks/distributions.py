"""Panels that draw all samples: rates of single files beside each other, tasks over time, a matrix as a heat map. SVG as in ``plots``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from benchmarks.plots import BOTTOM, COLOURS, LEFT, RIGHT, WIDTH, Axis, Panel

_GOLDEN = 0.6180339887  # its multiples are spread evenly, in any number: where a dot stands in its column


def dots(title: str, groups: Sequence[str], series: Mapping[str, Mapping[str, Sequence[float]]]) -> Panel:
    """``series``: name -> group -> values, all of them drawn, in columns beside each other; a bar at each median. Logarithmic."""
    values = [value for line in series.values() for each in line.values() for value in each if value > 0]
    low = math.floor(math.log10(min(values)))
    axis = Axis(title, list(series), values, "", (low, low + 1))
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    column = room * 0.86 / max(1, len(series))
    for at, group in enumerate(groups):
        left = LEFT + room * at
        axis.below(left + room / 2, group)
        if at:
            axis.elements.append(f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{axis.top}" y2="{axis.height - BOTTOM}" stroke="#eee"/>')
        for number, line in enumerate(series.values()):
            found = [value for value in line.get(group, ()) if value > 0]
            if not found:
                continue
            x, colour = left + room * 0.07 + column * number, COLOURS[number % len(COLOURS)]
            path = "".join(
                f"M{x + column * (0.1 + 0.7 * (index * _GOLDEN % 1)):.1f} {axis.up(value):.1f}h0" for index, value in enumerate(found)
            )
            axis.elements.append(f'<path d="{path}" stroke="{colour}" stroke-width="3" stroke-linecap="round" stroke-opacity="0.45"/>')
            y = axis.up(statistics.median(found))
            axis.elements.append(f'<path d="M{x:.1f} {y:.1f}h{column * 0.9:.1f}" stroke="{colour}" stroke-width="2.5"/>')
    return axis.height, axis.elements


def heat(title: str, values: Sequence[Sequence[float | None]], unit: str, names: Sequence[str]) -> Panel:
    """A square of values, from row to column; dark is much."""
    found = [value for row in values for value in row if value is not None]
    low, high = min(found), max(found)
    cell = min(64.0, (WIDTH - 160) / max(1, len(names)))
    out = [f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>']
    for across, name in enumerate(names):
        out.append(f'<text x="{LEFT + 60 + cell * (across + 0.5):.1f}" y="48" text-anchor="middle">{escape(name)}</text>')
    for down, row in enumerate(values):
        y = 56 + cell * down
        out.append(f'<text x="{LEFT + 52}" y="{y + cell / 2 + 4:.1f}" text-anchor="end">{escape(names[down])}</text>')
        for across, value in enumerate(row):
            x = LEFT + 60 + cell * across
            if value is None:
                out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell - 1:.1f}" height="{cell - 1:.1f}" fill="#eee"/>')
                continue
            part = 0.5 if high == low else (value - low) / (high - low)
            colour = "#" + "".join(f"{round(light + (dark - light) * part):02x}" for light, dark in ((232, 8), (241, 64), (250, 129)))
            out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell - 1:.1f}" height="{cell - 1:.1f}" fill="{colour}"/>')
            ink = "#fff" if part > 0.5 else "#222"
            text = f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
            where = f'x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}" text-anchor="middle" font-size="{min(12.0, cell / 4.5):.1f}"'
            out.append(f'<text {where} fill="{ink}">{text}</text>')
    bottom = 56 + cell * len(names)
    out.append(f'<text x="{LEFT}" y="{bottom + 20:.0f}">{escape(unit)}; rows: from, columns: to</text>')
    return round(bottom + 36), out


def completions(title: str, series: Mapping[str, Sequence[float]], total: int) -> Panel:
    """Tasks that have ended over seconds; ``series``: name -> the seconds of the ends."""
    frame = _Seconds(title, list(series), max(end for ends in series.values() for end in ends))
    height = 300 - 58 - BOTTOM
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = 58 + height * (1 - share)
        frame.elements.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        frame.elements.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{total * share:.0f}</text>')
    frame.ticks(300 - BOTTOM)
    for number, ends in enumerate(series.values()):
        points = " ".join(f"{frame.across(end):.1f},{58 + height * (1 - (at + 1) / total):.1f}" for at, end in enumerate(sorted(ends)))
        colour = COLOURS[number % len(COLOURS)]
        frame.elements.append(
            f'<polyline points="{frame.across(0):.1f},{58 + height} {points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
    return 300, frame.elements


def lanes(title: str, rows: Sequence[str], bars: Sequence[tuple[int, float, float, int]], kinds: Sequence[str], end: float) -> Panel:
    """What each of ``rows`` did over seconds; ``bars``: row, beginning, end, index of its kind."""
    frame = _Seconds(title, kinds, end)
    row = max(8.0, min(22.0, 400 / len(rows)))
    bottom = 58 + row * len(rows)
    for number, name in enumerate(rows):
        frame.elements.append(f'<text x="{LEFT - 6}" y="{58 + row * (number + 0.5) + 4:.1f}" text-anchor="end">{escape(name)}</text>')
    paths: dict[int, list[str]] = {}
    for number, begun, ended, kind in bars:
        x, width = frame.across(begun), max(0.4, frame.across(ended) - frame.across(begun) - 0.2)
        paths.setdefault(kind, []).append(f"M{x:.1f} {58 + row * number + 1:.1f}h{width:.1f}v{row - 2:.1f}h-{width:.1f}z")
    for kind, found in sorted(paths.items()):
        frame.elements.append(f'<path d="{"".join(found)}" fill="{COLOURS[kind % len(COLOURS)]}"/>')
    frame.ticks(bottom)
    return round(bottom + BOTTOM), frame.elements


class _Seconds:
    """A panel over seconds: title, legend, and where a second stands."""

    def __init__(self, title: str, names: Sequence[str], end: float) -> None:
        self.end = end or 1.0
        self.elements = [f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>']
        x = float(LEFT)
        for number, name in enumerate(names):
            self.elements.append(f'<rect x="{x:.0f}" y="33" width="12" height="10" fill="{COLOURS[number % len(COLOURS)]}"/>')
            self.elements.append(f'<text x="{x + 17:.0f}" y="42">{escape(name)}</text>')
            x += 34 + 7.0 * len(name)

    def across(self, second: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * second / self.end

    def ticks(self, y: float) -> None:
        step = 10.0 ** math.floor(math.log10(self.end))
        step = next(each for each in (step / 5, step / 2, step, 2 * step) if self.end / each <= 10)
        for number in range(int(self.end / step) + 1):
            second = number * step
            self.elements.append(f'<text x="{self.across(second):.1f}" y="{y + 16:.1f}" text-anchor="middle">{second:g}</text>')
        self.elements.append(f'<text x="{WIDTH - RIGHT}" y="{y + 34:.1f}" text-anchor="end">seconds</text>')
