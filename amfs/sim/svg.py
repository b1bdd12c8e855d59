"""A line chart as SVG, of what the standard library has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 74, 130, 40, 52
COLOURS = ("#1b6ca8", "#c8553d", "#3f8f4f", "#8a5aa8", "#b8860b", "#5f6b76")


class Axis(NamedTuple):
    """``log``: the base of a logarithmic axis, 0: linear."""

    title: str
    log: int = 0


def chart(title: str, x: Axis, y: Axis, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """The chart of ``lines`` (name -> points in order of x) as an SVG document."""
    points = [point for line in lines.values() for point in line]
    x_low, x_high = _range([px for px, _ in points], x.log)
    y_low, y_high = _range([py for _, py in points], y.log)
    if not y.log:
        y_low, y_high = 0.0, y_high * 1.05 or 1.0

    def across(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(value, x_low, x_high, x.log)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(value, y_low, y_high, y.log)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for value in _ticks(y_low, y_high, y.log):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(value):.1f}" y2="{up(value):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{up(value) + 4:.1f}" text-anchor="end">{_number(value)}</text>')
    for value in sorted({px for px, _ in points}) if x.log else _ticks(x_low, x_high, 0):
        out.append(f'<text x="{across(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{_number(value)}</text>')
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    out.append(f'<text x="{middle:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x.title)}</text>')
    half = TOP + (HEIGHT - TOP - BOTTOM) / 2
    out.append(f'<text x="16" y="{half:.0f}" text-anchor="middle" transform="rotate(-90 16 {half:.0f})">{escape(y.title)}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across(px):.1f},{up(py):.1f}" for px, py in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.extend(f'<circle cx="{across(px):.1f}" cy="{up(py):.1f}" r="3" fill="{colour}"/>' for px, py in line)
        row = TOP + 12 + 18 * number
        out.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{row - 9}" width="14" height="4" fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 32}" y="{row - 3}">{escape(name)}</text>')
    frame = f'x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"'
    out.append(f'<rect {frame} fill="none" stroke="#888"/>')
    return "\n".join([*out, "</svg>", ""])


def _range(values: Sequence[float], log: int) -> tuple[float, float]:
    low, high = min(values), max(values)
    if log:
        low = max(low, high / log**6) if low <= 0 else low
        return low, high if high > low else low * log
    return low, high if high > low else low + 1


def _share(value: float, low: float, high: float, log: int) -> float:
    if log:
        return math.log(max(value, low) / low) / math.log(high / low)
    return (value - low) / (high - low)


def _ticks(low: float, high: float, log: int) -> list[float]:
    if log:
        first = math.ceil(math.log10(low) - 1e-9)
        return [10.0**power for power in range(first, math.floor(math.log10(high) + 1e-9) + 1)]
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    return [low + step * number for number in range(int((high - low) / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:g}"
