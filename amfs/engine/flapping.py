"""Whether the rules of a policy undo each other: a session whose load stays as it is must come to rest. Pure.

While the load stays the same, each rule leads from a number of nodes to another one. To go up and down for ever there would have to be a
rule that adds nodes, then some that take nodes away, then one that adds nodes again. ``check`` looks for these, for all loads at once: it
follows the loads for which a rule holds as spans of numbers, so it needs no examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from amfs.display.progress import plural
from amfs.engine.policy import Action, Box, Load, Measure, Policy, Rule, Span, sizes_named
from amfs.errors import UsageError

#: A step is a larger part of few nodes than of many, and so is what is due to rounding. All of the first numbers are looked at, and some
#: others.
FIRST = 48
OTHERS = 4


def check(policy: Policy) -> Policy:
    """The same policy. Raises UsageError in which two of its rules are named, if it would flap."""
    for nodes in _numbers(policy):
        for up in policy.out:
            for after, box in _steps(policy, up, nodes, None):
                _follow(policy, (up, nodes), after, box, [])
    return policy


def _numbers(policy: Policy) -> list[int]:
    """Of nodes, from which it is looked at what the rules do."""
    least, most = policy.least, policy.most
    numbers = set(range(least, min(most, least + FIRST) + 1))
    numbers |= {size + step for size in sizes_named(policy.rules) for step in (-1, 0, 1)}
    numbers |= {least + (most - least) * part // OTHERS for part in range(OTHERS + 1)}
    return sorted(number for number in numbers if least <= number <= most)


def _follow(policy: Policy, begin: tuple[Rule, int], nodes: int, box: Box, path: list[tuple[Rule, int]]) -> None:
    """Where the rules that take nodes away lead from here; a rule that adds some must not hold there."""
    if path:
        for up in policy.out:
            for _, found in _steps(policy, up, nodes, box):
                raise UsageError(_words(policy, begin, path, up, nodes, found))
    for down in policy.in_:
        for after, smaller in _steps(policy, down, nodes, box):
            _follow(policy, begin, after, smaller, [*path, (down, nodes)])


def _steps(policy: Policy, rule: Rule, nodes: int, box: Box | None) -> Iterator[tuple[int, Box]]:
    """The steps of a rule from ``nodes``: other numbers, each with the loads in ``box`` for which it does so."""
    of_one = rule.box()
    if of_one is None:
        return
    where = of_one.times(nodes).meet(Box() if box is None else box)
    if where is None:
        return
    fixed = rule.action.fixed(nodes)
    if fixed is not None:
        outcomes = [(_clamped(policy, rule.action, nodes, fixed), where)]
    else:
        outcomes = list(_by_load(policy, rule.action, nodes, where))
    for after, found in outcomes:
        if after != nodes:
            yield after, found


def _clamped(policy: Policy, action: Action, nodes: int, wanted: int) -> int:
    inside = max(policy.least, min(policy.most, action.limited(nodes, wanted)))
    return max(nodes, inside) if action.grows else min(nodes, inside)


def _by_load(policy: Policy, action: Action, nodes: int, box: Box) -> Iterator[tuple[int, Box]]:
    lowest, highest = (nodes, policy.most) if action.grows else (policy.least, nodes)
    last = _clamped(policy, action, nodes, highest if action.grows else lowest)
    for after in range(nodes, last + 1) if action.grows else range(last, nodes + 1):
        for wanted in _for(action, after, after == last):
            if (found := box.meet(wanted)) is not None:
                yield after, found


def _for(action: Action, after: int, is_last: bool) -> Iterator[Box]:
    """The loads for which the goals lead to ``after``: one goal needs so many nodes, and no other needs more. Where the action goes no
    further (``is_last``) it may want more, if it grows, or fewer."""
    for goal in action.goals:
        each = goal.per_node()
        low, high = each * (after - 1), each * after
        if is_last and action.grows:
            yield goal.box(Span(low, None, after > 1))
            continue
        found: Box | None = goal.box(Span(Fraction(0), high) if is_last else Span(low, high, after > 1))
        for other in action.goals:
            if found is not None and other is not goal:
                found = found.meet(other.box(Span(Fraction(0), other.per_node() * after)))
        if found is not None:
            yield found


def _words(policy: Policy, begin: tuple[Rule, int], path: list[tuple[Rule, int]], again: Rule, nodes: int, box: Box) -> str:
    up, first = begin
    load = Load(*[span.some() for span in box])
    seen = {term.measure for rule, _ in (begin, *path, (again, 0)) for term in rule.when}
    state = [f"{100 * float(load.memory / first):.0f} % of the memory full"] if Measure.MEMORY in seen else []
    if Measure.SPILLED in seen:
        state.append(f"{100 * float(load.spilled / first):.0f} % spilled")
    if seen & {Measure.QUEUE, Measure.BUSY}:
        state.append(f"{float(load.tasks / first):.2g} tasks a slot")
    ways = "".join(f"then '{rule.name}' from {number} to {after}, " for (rule, number), after in zip(path, _ends(path, nodes), strict=True))
    rules = f"rules '{up.name}' and '{path[0][0].name}' would undo each other"
    return (
        f"{policy.source}: {rules}: with {plural(first, 'node')}, {', '.join(state) or 'idle'}: "
        f"'{up.name}' leads to {path[0][1]}, {ways}where '{again.name}' holds again"
    )


def _ends(path: list[tuple[Rule, int]], last: int) -> list[int]:
    return [number for _, number in path[1:]] + [last]
