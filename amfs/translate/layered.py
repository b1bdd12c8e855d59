"""A layered drawing: where boxes lie and how lines run between them, from left to right. Pure.

Sugiyama's method, simplified: columns are given, lines over several columns get a waypoint in each, the order in a column follows the
neighbours until the crossings no longer become fewer, and heights are the least squares of the lines' lengths with the distances kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

#: More waypoints than this make lines run straight from end to end.
WAYPOINTS_MAX = 4000

_SWEEPS = 12

#: Free height between boxes, and between a line and whatever is beside it.
BOX_GAP = 14.0
LINE_GAP = 9.0


class Drawing(msgspec.Struct):
    """``y``: the middle of each box. ``lines``: for each edge the heights in every column from its start to its end."""

    y: list[float]
    lines: list[list[float]]
    height: float


def lay_out(columns: Sequence[int], heights: Sequence[float], edges: Sequence[tuple[int, int]]) -> Drawing:
    """``columns[i]`` and ``heights[i]`` of box i; every edge goes to a column further right."""
    boxes = len(columns)
    column = list(columns)
    tall = list(heights)
    chains: list[list[int]] = []
    straight = sum(columns[end] - columns[start] - 1 for start, end in edges) > WAYPOINTS_MAX
    links: set[tuple[int, int]] = set()
    for start, end in edges:
        chain = [start]
        for between in range(columns[start] + 1, columns[end]) if not straight else ():
            column.append(between)
            tall.append(0.0)
            chain.append(len(column) - 1)
        chain.append(end)
        chains.append(chain)
        links.update(pairwise(chain))
    left: list[list[int]] = [[] for _ in column]
    right: list[list[int]] = [[] for _ in column]
    for start, end in sorted(links):
        right[start].append(end)
        left[end].append(start)
    layers: defaultdict[int, list[int]] = defaultdict(list)
    for node, at in enumerate(column):
        layers[at].append(node)
    ordered = _order([layers[at] for at in sorted(layers)], left, right)
    y = _heights(ordered, tall, left, right, boxes)
    top = min((y[node] - tall[node] / 2 for node in range(len(y))), default=0.0)
    y = [value - top for value in y]
    bottom = max((y[node] + tall[node] / 2 for node in range(len(y))), default=0.0)
    return Drawing(y[:boxes], [[y[node] for node in chain] for chain in chains], bottom)


def _order(layers: list[list[int]], left: list[list[int]], right: list[list[int]]) -> list[list[int]]:
    """The order of each layer with the fewest crossings that was seen."""
    place = {node: float(at) for layer in layers for at, node in enumerate(layer)}
    best = [list(layer) for layer in layers]
    fewest = _crossings(best, right)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for layer in layers if forward else reversed(layers):
            around = left if forward else right
            layer.sort(key=lambda node, around=around: _mean((place[each] for each in around[node]), place[node]))  # type: ignore[misc]
            for at, node in enumerate(layer):
                place[node] = float(at)
        crossings = _crossings(layers, right)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
        if not fewest:
            break
    return best


def _mean(values: Iterable[float], default: float) -> float:
    found = list(values)
    return sum(found) / len(found) if found else default


def _crossings(layers: list[list[int]], right: list[list[int]]) -> int:
    """Crossings between neighbouring layers, by counting inversions in a Fenwick tree."""
    total = 0
    for layer, following in pairwise(layers):
        place = {node: at for at, node in enumerate(following, 1)}
        tree = [0] * (len(following) + 1)
        seen = 0
        for node in layer:
            ends = sorted(place[each] for each in right[node] if each in place)
            for end in ends:
                at, below = end, 0
                while at:
                    below += tree[at]
                    at &= at - 1
                total += seen - below
            for end in ends:
                at = end
                while at < len(tree):
                    tree[at] += 1
                    at += at & -at
            seen += len(ends)
    return total


def _heights(
    layers: list[list[int]], tall: Sequence[float], left: list[list[int]], right: list[list[int]], boxes: int
) -> list[float]:
    y = [0.0] * len(tall)
    for layer in layers:
        _spread(layer, dict.fromkeys(layer, 0.0), tall, y, boxes)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for layer in layers if forward else reversed(layers):
            wishes = {}
            for node in layer:
                around = (left[node] if forward else right[node]) or (right[node] if forward else left[node])
                if sweep >= _SWEEPS - 2:
                    around = left[node] + right[node]
                wishes[node] = _mean((y[each] for each in around), y[node])
            _spread(layer, wishes, tall, y, boxes)
    return y


def _spread(layer: Sequence[int], wishes: dict[int, float], tall: Sequence[float], y: list[float], boxes: int) -> None:
    """Give the nodes of a layer, in their order, the heights nearest to what they wish with their distances kept."""
    offset, offsets, before = 0.0, [], -1
    for node in layer:
        if before >= 0:
            gap = BOX_GAP if node < boxes and before < boxes else LINE_GAP
            offset += (tall[before] + tall[node]) / 2 + gap
        offsets.append(offset)
        before = node
    # Pool adjacent violators: without its offset each wish must not be smaller than the one before.
    blocks: list[tuple[float, int]] = []  # (sum of wishes, how many)
    for node, distance in zip(layer, offsets, strict=True):
        total, count = wishes[node] - distance, 1
        while blocks and blocks[-1][0] * count >= total * blocks[-1][1]:
            more, others = blocks.pop()
            total, count = total + more, count + others
        blocks.append((total, count))
    at = 0
    for total, count in blocks:
        for _ in range(count):
            y[layer[at]] = total / count + offsets[at]
            at += 1
