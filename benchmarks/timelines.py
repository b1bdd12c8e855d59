"""Pictures of ``benchmarks staging``: finished tasks over time, what each slot did when, and how long runs took with more nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from benchmarks.plots import COLOURS, LEFT, RIGHT, WIDTH, Panel, document, lines
from benchmarks.staging import PARTS, Report, Run, Span

_PART_COLOURS = dict(zip(PARTS, ("#c9ced6", "#7fb8e0", "#3f8f4f", "#e0a13c"), strict=True))
_TOP, _BOTTOM, _PANEL = 64, 44, 300
_ROW = 16


class Scale:
    """Seconds from left to right, with round numbers below."""

    def __init__(self, longest: float, left: int) -> None:
        self.longest, self.left = longest, left

    def across(self, seconds: float) -> float:
        return self.left + (WIDTH - RIGHT - self.left) * seconds / self.longest

    def marks(self, top: int, bottom: int) -> list[str]:
        unit = 10 ** math.floor(math.log10(self.longest / 4))
        step = next(unit * factor for factor in (1, 2, 5, 10) if self.longest / (unit * factor) <= 8)
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
    rows = [row for row in report.rows() if row.application == application]
    series = {row.series: [(float(one.nodes), one.seconds) for one in rows if one.series == row.series] for row in rows}
    labels = {float(count): f"{count} node{'s' if count > 1 else ''}" for count in counts}
    return lines(f"{application}, {rows[0].tasks} tasks: seconds of the whole run (median of {report.head.repeat})", labels, series)


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

    for quarter in range(5):
        count = most * quarter / 4
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(count):.1f}" y2="{up(count):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{up(count) + 4:.1f}" text-anchor="end">{count:g}</text>')
    x = float(LEFT)
    for number, (name, each) in enumerate(ends.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = "".join(f"H{scale.across(end):.1f}V{up(count):.1f}" for count, end in enumerate(each, 1))
        out.append(f'<path d="M{LEFT} {bottom}{path}" fill="none" stroke="{colour}" stroke-width="2"><title>{escape(name)}</title></path>')
        out.append(f'<rect x="{x:.0f}" y="33" width="12" height="10" fill="{colour}"/><text x="{x + 17:.0f}" y="42">{escape(name)}</text>')
        x += 40 + 7.0 * len(name)
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
    x = float(LEFT)
    for part in seen:
        out.append(f'<rect x="{x:.0f}" y="31" width="12" height="10" fill="{_PART_COLOURS[part]}"/>')
        out.append(f'<text x="{x + 17:.0f}" y="40">{part}</text>')
        x += 40 + 7.0 * len(part)
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
