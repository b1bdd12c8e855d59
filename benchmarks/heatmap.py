"""A panel that shows a number for each pair as the colour of a cell, and the number itself where there is room. SVG as in ``plots``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from benchmarks.plots import LEFT, Panel

_TOP, _CELL_MAX, _WIDTH_MAX, _MAP_MAX = 64, 46, 96, 800
_NUMBERS_AT = 40  # pixels of a cell: fewer have no room for a number
_GOOD, _BAD = (27, 108, 168), (247, 251, 255)  # from the deepest colour to nearly white


def heat(title: str, names: Sequence[str], values: Mapping[tuple[int, int], float], less_is_better: bool = False) -> Panel:
    """``values``: (row, column) -> number; a pair without one stays grey. The best value has the deepest colour; the scale is linear, and
    ends at the least and the largest value."""
    count = len(names)
    width, height = min(_WIDTH_MAX, _MAP_MAX // count), min(_CELL_MAX, max(8, 500 // count))
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    left = LEFT + 16
    out = [f'<text x="16" y="20" font-size="14" font-weight="bold">{escape(title)}</text>']
    for number, name in enumerate(names):
        label = escape(name if width >= _NUMBERS_AT else name.split()[-1])
        out.append(f'<text x="{left + width * (number + 0.5):.0f}" y="{_TOP - 8}" text-anchor="middle">{label}</text>')
        out.append(f'<text x="{left - 8}" y="{_TOP + height * (number + 0.5) + 4:.0f}" text-anchor="end">{label}</text>')
    for row in range(count):
        for column in range(count):
            value = values.get((row, column))
            x, y = left + width * column, _TOP + height * row
            colour, words = "#ddd", ""
            if value is not None:
                depth = 1.0 if high == low else (value - low) / (high - low)
                depth = 1.0 - depth if less_is_better and high > low else depth
                colour = _mixed(depth)
                words = f"<title>{escape(names[row])} to {escape(names[column])}: {value:,.4g}</title>"
            shape = f'x="{x}" y="{y}" width="{width - 1}" height="{height - 1}"'
            out.append(f'<rect {shape} fill="{colour}">{words}</rect>' if words else f'<rect {shape} fill="{colour}"/>')
            if value is not None and width >= _NUMBERS_AT:
                ink = "white" if depth > 0.55 else "black"
                place = f'x="{x + width / 2:.0f}" y="{y + height / 2 + 4:.0f}" text-anchor="middle" fill="{ink}"'
                out.append(f"<text {place}>{value:,.3g}</text>" if value < 1000 else f"<text {place}>{value:,.0f}</text>")
    return _TOP + height * count + 24, out


def _mixed(depth: float) -> str:
    mixed = (round(bad + (good - bad) * depth) for good, bad in zip(_GOOD, _BAD, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
