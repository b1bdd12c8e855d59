"""Pictures of ``benchmarks staging``: finished tasks over time, the work of each slot over time, and how long runs took with more nodes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from benchmarks.plots import COLOURS, LEFT, RIGHT, WIDTH, Panel, document
from benchmarks.staging import PARTS, Report, Run, Span

_PART_COLOURS = dict(zip(PARTS, ("#c9ced6", "#7fb8e0", "#3f8f4f", "#e0a13c"), strict=True))
_TOP, _BOTTOM, _PANEL = 64, 44, 300
_ROW = 16


def _step(most: float, parts: int) -> float:
    """A round number that divides ``most`` into at most so many parts."""
    unit = 10.0 ** math.floor(math.log10(most / parts))
    return next(unit * factor for factor in (1, 2, 5, 10) if most / (unit * factor) <= parts)


class Scale:
    """Seconds from left to right, with round numbers below."""

    def __init__(self, longest: float, left: int) -> None:
        self.longest, self.left = longest, left

    def across(self, seconds: float) -> float:
        return self.left + (WIDTH - RIGHT - self.left) * seconds / self.longest

    def marks(self, top: int, bottom: int) -> list[str]:
        step = _step(self.longest, 8)
        out = []
        for number in range(int(self.longest / step + 1e-9) + 1):
            x = self.across(number * step)
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="#ddd"/>')
            out.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{number * step:g} s</text>')
        return out


def picture(report: Report) -> str:
    """Of one number of nodes: for each application the paper's figures 8 and 9 (11 and 12). Of several: its figure 13."""
    groups = report.groups()
    panels: list[Panel] = []
    for application in report.head.sizes:
        counts = list(dict.fromkeys(nodes for name, nodes, _ in groups if name == application))
        if len(counts) > 1:
            panels.append(makespans(report, application, counts))
        elif counts:
            typical = {series: runs[len(runs) // 2] for (name, _, series), runs in groups.items() if name == application}
            panels += application_panels(report, application, typical)
    return document(panels)


def makespans(report: Report, application: str, counts: Sequence[int]) -> Panel:
    """A line through the medians of each series, a dot for each single run; from zero."""
    groups = {key: runs for key, runs in report.groups().items() if key[0] == application}
    bottom, room = _PANEL - _BOTTOM, (WIDTH - LEFT - RIGHT) / len(counts)
    longest = max(run.seconds for runs in groups.values() for run in runs)
    tasks = next(iter(groups.values()))[0].tasks
    title = f"{application}, {tasks} tasks: seconds of the whole run (lines: medians, dots: single runs)"
    out = [f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>']

    def up(seconds: float) -> float:
        return bottom - (bottom - _TOP) * seconds / longest

    step = _step(longest, 6)
    for number in range(int(longest / step + 1e-9) + 1):
        out += _across(up(number * step), f"{number * step:g}")
    middle = {count: LEFT + room * (number + 0.5) for number, count in enumerate(counts)}
    for count, x in middle.items():
        out.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{count} node{"s" if count > 1 else ""}</text>')
    names = list(dict.fromkeys(series for _, _, series in groups))
    out += _legend(names, COLOURS)
    for name, colour in zip(names, COLOURS, strict=False):
        mine = [(middle[nodes], runs) for (_, nodes, series), runs in groups.items() if series == name]
        points = " ".join(f"{x:.1f},{up(statistics.median(run.seconds for run in runs)):.1f}" for x, runs in mine)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"><title>{escape(name)}</title></polyline>')
        out += [f'<circle cx="{x:.1f}" cy="{up(run.seconds):.1f}" r="3" fill="{colour}"/>' for x, runs in mine for run in runs]
    return _PANEL, out


def _across(y: float, label: str) -> list[str]:
    return [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>',
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>',
    ]


def _legend(names: Sequence[str], colours: Sequence[str]) -> list[str]:
    out, x = [], float(LEFT)
    for name, colour in zip(names, colours, strict=False):
        out.append(f'<rect x="{x:.0f}" y="33" width="12" height="10" fill="{colour}"/><text x="{x + 17:.0f}" y="42">{escape(name)}</text>')
        x += 40 + 7.0 * len(name)
    return out


def application_panels(report: Report, application: str, typical: Mapping[str, Run]) -> list[Panel]:
    """``typical``: series -> the run that is drawn."""
    spans = {series: report.spans_of(run) for series, run in typical.items()}
    longest = max(run.seconds for run in typical.values())
    first = next(iter(typical.values()))
    title = f"{application}: finished of {first.tasks} tasks over time, {first.nodes} nodes"
    panels = [cumulative(title, {series: sorted(span.ended for span in each) for series, each in spans.items()}, longest)]
    for series, each in spans.items():
        run = typical[series]
        panels.append(timeline(f"{application}, {series}: the whole run took {run.seconds:.1f} s", each, longest, run.seconds))
    return panels


def cumulative(title: str, ends: Mapping[str, Sequence[float]], longest: float) -> Panel:
    """``ends``: name -> when each task ended, in order. One step up for each."""
    scale = Scale(longest, LEFT)
    bottom = _PANEL - _BOTTOM
    most = max((len(each) for each in ends.values()), default=1) or 1
    out = [f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>', *scale.marks(_TOP, bottom)]

    def up(count: float) -> float:
        return bottom - (bottom - _TOP) * count / most

    for count in range(0, most + 1, max(1, round(_step(most, 6)))):
        out += _across(up(count), str(count))
    out += _legend(list(ends), COLOURS)
    for number, (name, each) in enumerate(ends.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = "".join(f"H{scale.across(end):.1f}V{up(count):.1f}" for count, end in enumerate(each, 1))
        out.append(f'<path d="M{LEFT} {bottom}{path}" fill="none" stroke="{colour}" stroke-width="2"><title>{escape(name)}</title></path>')
    return _PANEL, out


def timeline(title: str, spans: Sequence[Span], longest: float, seconds: float) -> Panel:
    """A row for each slot, a bar for each part of a task, a line where the whole run ended."""
    rows = sorted({(span.node, span.slot) for span in spans})
    several = len({slot for _, slot in rows}) > 1
    scale = Scale(longest, LEFT)
    top = _TOP - 14
    bottom = top + _ROW * len(rows) + 4
    out = [f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>', *scale.marks(top, bottom)]
    seen = [part for part in PARTS if any(part == name for span in spans for name, _, _ in span.parts)]
    out += _legend(seen, [_PART_COLOURS[part] for part in seen])
    for number, (node, slot) in enumerate(rows):
        name = f"node {node}.{slot}" if several else f"node {node}"
        out.append(f'<text x="{LEFT - 6}" y="{top + _ROW * number + 13}" text-anchor="end" font-size="11">{name}</text>')
    for part in seen:
        bars = []
        for span in spans:
            y = top + _ROW * rows.index((span.node, span.slot)) + 2
            for name, begin, end in span.parts:
                if name == part:
                    width = max(0.3, scale.across(end) - scale.across(begin))
                    bars.append(f"M{scale.across(begin):.1f} {y}h{width:.1f}v{_ROW - 3}h-{width:.1f}z")
        out.append(f'<path d="{"".join(bars)}" fill="{_PART_COLOURS[part]}"><title>{part}</title></path>')
    out.append(f'<path d="M{scale.across(seconds):.1f} {top}V{bottom}" stroke="#444" stroke-dasharray="3 3"/>')
    return bottom + 34, out
