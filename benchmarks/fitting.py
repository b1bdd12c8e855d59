"""Least squares for cost models: times as sums of known amounts times unknown costs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def fit(amounts: Sequence[Sequence[float]], times: Sequence[float]) -> tuple[list[float], float]:
    """(costs, error): the costs, none negative, whose sums come relatively closest to the times, and the median relative error of that.

    A cost that would be negative is 0. Raises ValueError if there are fewer times than costs.
    """
    count = len(amounts[0]) if amounts else 0
    if not amounts or len(times) < count:
        raise ValueError("there are fewer times than costs")
    used = list(range(count))
    costs = [0.0] * count
    while used:
        rows = [[row[at] / time for at in used] for row, time in zip(amounts, times, strict=True)]  # relative errors count
        found = _solve(rows)
        if min(found) >= 0 or len(used) == 1:
            for at, cost in zip(used, found, strict=True):
                costs[at] = max(0.0, cost)
            break
        used.pop(found.index(min(found)))
    errors = [abs(sum(a * c for a, c in zip(row, costs, strict=True)) / time - 1) for row, time in zip(amounts, times, strict=True)]
    return costs, statistics.median(errors)


def _solve(rows: Sequence[Sequence[float]]) -> list[float]:
    """x for which every row times x is as near to 1 as can be: the normal equations by elimination. Columns are scaled first."""
    count = len(rows[0])
    scale = [max(abs(row[at]) for row in rows) or 1.0 for at in range(count)]
    scaled = [[row[at] / scale[at] for at in range(count)] for row in rows]
    matrix = [[sum(row[i] * row[j] for row in scaled) for j in range(count)] + [sum(row[i] for row in scaled)] for i in range(count)]
    for i in range(count):
        best = max(range(i, count), key=lambda at: abs(matrix[at][i]))
        matrix[i], matrix[best] = matrix[best], matrix[i]
        if abs(matrix[i][i]) < 1e-12:
            matrix[i] = [0.0] * (count + 1)
            matrix[i][i] = 1.0
            continue
        for below in range(count):
            if below != i:
                factor = matrix[below][i] / matrix[i][i]
                matrix[below] = [a - factor * b for a, b in zip(matrix[below], matrix[i], strict=True)]
    return [matrix[i][count] / matrix[i][i] / scale[i] for i in range(count)]
