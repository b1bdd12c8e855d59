"""LMPS: the price of power at each bus of a grid in each hour of a year, one linear program an hour, solved by GLPK's ``glpsol``.

The grid is generated, always the same: buses in the rectangle of Illinois, lines to near ones, offers and limits by chance. Demand follows
the hour and the season. Nothing of it is measured data.
"""

from __future__ import annotations

import math
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from steps import Step, program

QUICK, FULL, UNIT = 24, 8760, "hours"
BUSES = 200
_OFFERS = (6, 11, 17, 26, 42, 70)
_PENALTY = 1000.0


def prepare(work: Path, hours: int, buses: int = BUSES) -> list[Step]:
    """The grid, the demand of each hour, and the steps. Hours are spread over the year."""
    solver = program("glpsol", "glpk-utils")
    shutil.copy(Path(__file__).with_name("lmps.mod"), work / "lmps.mod")
    chance = random.Random(2014)
    bases = grid(work / "grid.dat", buses, chance)
    steps = []
    for number in range(hours):
        hour = number * FULL // hours
        demand(work / f"demand{hour:04d}.dat", hour, bases, chance)
        files = ["lmps.mod", "grid.dat", f"demand{hour:04d}.dat"]
        out = f"prices{hour:04d}.csv"
        words = ["-m", files[0], "-d", files[1], "-d", files[2], "-y", out]
        steps.append(Step(f"hour{hour:04d}", "glpsol", solver, words, files, [out]))
    return steps


def grid(path: Path, buses: int, chance: random.Random) -> list[float]:
    """Writes the grid; the mean demand of each bus."""
    places = [(chance.uniform(-91.4, -87.6), chance.uniform(37.1, 42.4)) for _ in range(buses)]
    pairs: set[tuple[int, int]] = set()
    for bus in range(1, buses):
        near = sorted((other for other in range(buses) if other != bus), key=lambda other: math.dist(places[bus], places[other]))
        pairs.add((next(other for other in near if other < bus), bus))  # to one that came before: all are connected
        pairs.update((min(bus, other), max(bus, other)) for other in near[:2])
    lines = sorted(pairs)
    units = [(bus, chance.choice(_OFFERS), chance.uniform(120, 480)) for bus in sorted(chance.sample(range(buses), max(1, buses // 3)))]
    text = ["data;"]
    for name, count in (("buses", buses), ("units", len(units)), ("lines", len(lines))):
        text.append(f"set {name} := " + " ".join(f"{name[0]}{number}" for number in range(count)) + ";")
    text += ["param reference := b0;", "param: longitude latitude :="]
    text += [f"b{number} {x:.4f} {y:.4f}" for number, (x, y) in enumerate(places)]
    text += [";", "param: bus offer capacity :="]
    text += [f"u{number} b{bus} {offer} {capacity:.1f}" for number, (bus, offer, capacity) in enumerate(units)]
    text += [";", "param: head tail susceptance rating :="]
    for number, (one, other) in enumerate(lines):
        distance = math.dist(places[one], places[other])
        text.append(f"l{number} b{one} b{other} {90 / (0.06 + distance):.3f} {chance.uniform(70, 360):.1f}")
    path.write_text("\n".join([*text, ";", "end;", ""]))
    return [chance.uniform(15, 75) for _ in range(buses)]


def demand(path: Path, hour: int, bases: list[float], chance: random.Random) -> None:
    day = 0.72 + 0.28 * math.sin((hour % 24 - 9) * math.pi / 12)
    season = 1 + 0.12 * math.cos(4 * math.pi * hour / FULL)  # winter and summer
    values = "".join(f"b{number} {base * day * season * chance.uniform(0.94, 1.06):.4f}\n" for number, base in enumerate(bases))
    path.write_text(f"data;\nparam hour := {hour};\nparam demand :=\n{values};\nend;\n")


def check(work: Path, steps: list[Step]) -> str:
    """Raises ValueError if an answer is not optimal: a dispatch that can be, whose cost the prices prove to be the least."""
    spread, congested = [], 0
    for step in steps:
        prices, at_limit = optimal(work / step.outputs[0])
        spread.append(max(prices) - min(prices))
        congested += at_limit > 0
    found = f"{congested} with congested lines, prices up to {max(spread):.2f} apart in one hour"
    return f"{len(steps)} hours, each proven optimal by its prices; {found}"


def optimal(path: Path) -> tuple[list[float], int]:
    """The prices, and how many lines are at their limit. Raises ValueError.

    Weak duality: any prices bound the cost of every dispatch from below. So if the bound of these prices is the cost of this dispatch, no
    other is cheaper.
    """
    rows: dict[str, list[list[str]]] = defaultdict(list)
    for text in path.read_text().splitlines():
        rows[text.partition(",")[0]].append(text.split(",")[1:])
    cost = float(rows["hour"][0][2])
    buses = {name: tuple(map(float, rest[2:])) for name, *rest in rows["bus"]}  # demand, missing, angle, price
    left = {name: missing - wanted for name, (wanted, missing, _, _) in buses.items()}
    turning: dict[str, float] = defaultdict(float)  # gain of the bound by another angle: must be nothing
    spent = sum(_PENALTY * missing for _, missing, _, _ in buses.values())
    bound = sum(wanted * (price + min(0.0, _PENALTY - price)) for wanted, _, _, price in buses.values())
    at_limit = 0
    for _, bus, *numbers in rows["unit"]:
        offer, capacity, output = map(float, numbers)
        _within(path, output, 0, capacity)
        left[bus] += output
        spent += offer * output
        bound += min(0.0, offer - buses[bus][3]) * capacity
    for _, head, tail, *numbers in rows["line"]:
        susceptance, rating, flow, dual = map(float, numbers)
        _within(path, flow, -rating, rating)
        _same(path, "flow by the angles", flow, susceptance * (buses[head][2] - buses[tail][2]))
        left[head] -= flow
        left[tail] += flow
        turning[head] += susceptance * dual
        turning[tail] -= susceptance * dual
        bound -= rating * abs(buses[head][3] - buses[tail][3] - dual)
        at_limit += abs(flow) > rating - 1e-6
    for name in buses:
        _same(path, f"balance of {name}", left[name], 0)
        if name != "b0":
            _same(path, f"duals around {name}", turning[name], 0)
    _same(path, "cost", spent, cost)
    _same(path, "bound by the prices", bound, cost)
    return [price for *_, price in buses.values()], at_limit


def _within(path: Path, value: float, low: float, high: float) -> None:
    if not low - 1e-5 <= value <= high + 1e-5:
        raise ValueError(f"{path}: {value} is not from {low} to {high}")


def _same(path: Path, what: str, one: float, other: float) -> None:
    if abs(one - other) > 1e-4 + 1e-6 * abs(other):
        raise ValueError(f"{path}: {what}: {one} is not {other}")


def results(work: Path, steps: list[Step]) -> Iterator[str]:
    """A few of the answers, for people."""
    for step in steps[:: max(1, len(steps) // 3)]:
        prices, at_limit = optimal(work / step.outputs[0])
        yield f"{step.id}: prices {min(prices):.2f} to {max(prices):.2f}, {at_limit} lines at their limit"
