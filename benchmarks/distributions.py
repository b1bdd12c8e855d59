"""A panel that draws all samples: the rates of single files, beside each other. SVG as in ``plots``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

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
