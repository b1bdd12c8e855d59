"""A workflow as an SVG picture, drawn without any other program: columns from left to right, text beside nothing but air. Pure."""

from __future__ import annotations

import unicodedata
import zlib
from collections import Counter
from xml.sax.saxutils import escape

from amfs.translate.layered import lay_out
from amfs.translate.shape import Picture, picture_of
from amfs.workflow.workflow import Workflow, printable

#: Light fills on which black text reads well, also for most who see colours differently; a kind always has the same.
COLOURS = (
    "#cfe3f5", "#fbe0c3", "#d5ecd0", "#f6d3d6", "#e3daf0", "#e9dfd3", "#fae0ee", "#e4e4e4", "#f2f0c0", "#cdeef0",
    "#dbe7ff", "#ffe9a8",
)  # fmt: skip
_NONE = "#ffffff"

_FONT = 12.0
_BOX = 24.0
_PAD = 10.0
_GAP = 64.0  # between columns
_MARGIN = 20.0
_TEXT_MAX = 34  # characters of a title that are shown


def write(workflow: Workflow, grouped: bool | None = None) -> str:
    """The picture. ``grouped`` as in ``shape.picture_of``."""
    return draw(picture_of(workflow, grouped))


def colour_of(kind: str) -> str:
    """The same colour for the same kind in every picture."""
    return COLOURS[zlib.crc32(kind.encode("utf-8", "surrogateescape")) % len(COLOURS)] if kind else _NONE


def colours_of(picture: Picture) -> dict[str, str]:
    """Colours of the kinds in one picture: the usual ones, but different as long as there are enough of them."""
    found: dict[str, str] = {}
    used: Counter[str] = Counter()
    for kind, _ in Counter(group.kind for group in picture.groups).most_common():
        colour = colour_of(kind)
        if kind and used[colour]:
            start = COLOURS.index(colour)
            turned = COLOURS[start:] + COLOURS[:start]
            colour = min(turned, key=lambda each: used[each])
        found[kind] = colour
        used[colour] += 1
    return found


def text_width(text: str) -> float:
    """An upper bound of the width of a text in any usual sans-serif font at our size."""
    units = 0.0
    for letter in text:
        if unicodedata.east_asian_width(letter) in "WF":
            units += 1.05
        elif letter in "il.,:;|'!() jtfrI-/":
            units += 0.42
        elif letter in "mwMW@%…":
            units += 1.02
        elif letter.isupper() or letter == "×":
            units += 0.8
        else:
            units += 0.66
    return units * _FONT


def draw(picture: Picture) -> str:
    groups = picture.groups
    colours = colours_of(picture)
    titles = [_short(printable(group.title)) for group in groups]
    columns = [group.column for group in groups]
    depth = max(columns, default=-1) + 1
    widths = [0.0] * depth
    for title, column in zip(titles, columns, strict=True):
        widths[column] = max(widths[column], text_width(title) + 2 * _PAD)
    lefts, x = [], _MARGIN
    for width in widths:
        lefts.append(x)
        x += width + _GAP
    drawing = lay_out(columns, [_BOX] * len(groups), [(edge.start, edge.end) for edge in picture.edges])
    top = _MARGIN + 2.2 * _FONT + (0.0 if picture.grouped else 2.0 * _FONT)
    # Beside the boxes: numbers of edges stand at the arrow's end in air of their own.
    width = max(x - _GAP + _MARGIN, 2 * _MARGIN + 1.25 * text_width(picture.title))
    legend, legend_width = ([], 0.0) if picture.grouped else _legend(picture, colours, _MARGIN + 2.2 * _FONT)
    width = max(width, legend_width + _MARGIN)
    height = top + drawing.height + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="Helvetica, Arial, DejaVu Sans, sans-serif" font-size="{_FONT:g}">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0.8 8 4 0 7.2z" fill="#777"/></marker></defs>',
        f'<text x="{_MARGIN:g}" y="{_MARGIN + _FONT:g}" font-size="{1.2 * _FONT:g}" font-weight="bold">{_escape(picture.title)}</text>',
        *legend,
        '<g fill="none" stroke="#777" stroke-width="1.1" stroke-opacity="0.75">',
    ]
    labels = []
    # All edges of a group end at the middle of its side; of several that are numbered there, the first stands highest.
    for edge, heights in zip(picture.edges, drawing.lines, strict=True):
        start, end = columns[edge.start], columns[edge.end]
        from_x = lefts[start] + text_width(titles[edge.start]) + 2 * _PAD
        points = [(from_x, top + heights[0])]
        if len(heights) > 2:  # through every column between, along all of its width
            for column, y in zip(range(start + 1, end), heights[1:-1], strict=True):
                points += [(lefts[column], top + y), (lefts[column] + widths[column], top + y)]
        points.append((lefts[end] - 1, top + heights[-1]))
        dash = ' stroke-dasharray="5 3"' if edge.ordered else ""
        parts.append(f'<path d="{_curve(points, lefts[start] + widths[start])}"{dash} marker-end="url(#a)"/>')
        if edge.count > 1:
            labels.append((edge.end, heights[-2], f"{edge.count:,}"))
    parts.append("</g>")
    for group, title, y in zip(groups, titles, drawing.y, strict=True):
        left = lefts[group.column]
        box = text_width(title) + 2 * _PAD
        tip = f"{printable(group.title)}\n{printable(group.detail)}" if group.detail else printable(group.title)
        parts.append(
            f"<g><title>{_escape(tip)}</title>"
            f'<rect x="{left:.1f}" y="{top + y - _BOX / 2:.1f}" width="{box:.1f}" height="{_BOX:g}" rx="5" fill="{colours[group.kind]}" '
            f'stroke="#555" stroke-width="0.8"/>'
            f'<text x="{left + box / 2:.1f}" y="{top + y + 0.35 * _FONT:.1f}" text-anchor="middle">{_escape(title)}</text></g>'
        )
    parts += _counts(labels, lefts, columns, drawing.y, top)
    return "\n".join([*parts, "</svg>", ""])


def _curve(points: list[tuple[float, float]], out: float) -> str:
    """A smooth line; level until ``out``, where the start's column ends, so that it passes no wider box of that column."""
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    if out > x + 1:
        path.append(f"H{out:.1f}")
        x = out
    for at, (to_x, to_y) in enumerate(rest):
        if at % 2 == 1 and to_y == y:  # along a column
            path.append(f"H{to_x:.1f}")
        else:
            bend = (to_x - x) / 2
            path.append(f"C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(path)


def _counts(
    labels: list[tuple[int, float, str]], lefts: list[float], columns: list[int], middles: list[float], top: float
) -> list[str]:
    """How many edges a line stands for, before the box where it ends; with several lines one sum, as they end in one point."""
    sums: dict[int, list[str]] = {}
    for end, _, text in sorted(labels, key=lambda label: label[1]):
        sums.setdefault(end, []).append(text)
    found = []
    for end, texts in sums.items():
        text = " + ".join(texts[:3]) + (" + …" if len(texts) > 3 else "")
        x, y = lefts[columns[end]] - 10, top + middles[end] - 5
        found.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="9" fill="#444" text-anchor="end" stroke="#fff" stroke-width="3" '
            f'paint-order="stroke">{escape(text)}</text>'
        )
    return found


def _legend(picture: Picture, colours: dict[str, str], y: float) -> tuple[list[str], float]:
    """Which colour is which kind, where the boxes have the names of tasks; and how far it reaches to the right."""
    parts: list[str] = []
    x = _MARGIN
    for kind, colour in colours.items():
        name = _short(printable(kind))
        if len(parts) >= len(COLOURS):
            parts.append(f'<text x="{x:.1f}" y="{y + 0.8 * _FONT:.1f}">…</text>')
            x += _FONT
            break
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{_FONT:g}" height="{_FONT:g}" rx="2" fill="{colour}" stroke="#555" stroke-width="0.8"/>'
            f'<text x="{x + 1.4 * _FONT:.1f}" y="{y + 0.85 * _FONT:.1f}">{_escape(name)}</text>'
        )
        x += 1.4 * _FONT + text_width(name) + 1.5 * _FONT
    return parts, x


def _short(text: str) -> str:
    """The beginning and the end of a long title: names of tasks differ at their ends."""
    if len(text) <= _TEXT_MAX:
        return text
    return f"{text[: _TEXT_MAX - 13]}…{text[-12:]}"


def _escape(text: str) -> str:
    """For XML, which has no lone surrogates and few control characters."""
    plain = "".join(letter if letter == "\n" or (letter >= " " and not "\ud800" <= letter <= "\udfff") else "�" for letter in text)
    return escape(plain.replace("\ufffe", "�").replace("\uffff", "�"))
