"""Policies of an elastic session as data: rules with a condition, an action and a brake. Pure.

Owns the form of a policy's file and the meaning of its words. ``engine.flapping`` looks whether rules undo each other. Must not know: where
files lie; any session.

A load is what stays the same when the number of nodes changes: bytes of files, those spilled, tasks that run or wait. Each is counted in
units of one node: of its memory limit, and of its slots. So memory that is 80 % full on 4 nodes is a load of 3.2.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from amfs.errors import UsageError, unknown_key

NODES_MAX = 65536
_TIME = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?) ?(%?)")
_TERM = re.compile(r"(\w+) ?([<>]) ?(.+)")
_COUNT = re.compile(r"(\d+) ?(%?)")
_SECONDS = {"s": 1, "min": 60, "h": 3600}


class Measure(StrEnum):
    """Measures that rules look at."""

    MEMORY = "memory"  # bytes of files, in memory or spilled, of the limits of all nodes: spilled files count, for they come back to memory
    SPILLED = "spilled"  # those on disk, as a share of the same limits
    QUEUE = "queue"  # tasks that could run now and wait, per slot
    BUSY = "busy"  # slots that run a task, of all
    IDLE = "idle"  # seconds since a task ran or waited


class Load(NamedTuple):
    """Of the whole session, in nodes: see above. ``tasks``: those that run and those that wait."""

    memory: Fraction
    spilled: Fraction
    tasks: Fraction


class Span(NamedTuple):
    """Numbers between two bounds; ``None`` above: there is none. Open bounds are not in it."""

    low: Fraction = Fraction(0)
    high: Fraction | None = None
    low_open: bool = False
    high_open: bool = False

    def times(self, factor: int) -> Span:
        return Span(self.low * factor, None if self.high is None else self.high * factor, self.low_open, self.high_open)

    def meet(self, other: Span) -> Span | None:
        """The numbers in both; None: none."""
        low, low_open = max((self.low, self.low_open), (other.low, other.low_open))
        highs = [(span.high, not span.high_open) for span in (self, other) if span.high is not None]
        if not highs:
            return Span(low, None, low_open)
        high, closed = min(highs)
        if low > high or (low == high and (low_open or not closed)):
            return None
        return Span(low, high, low_open, not closed)

    def some(self) -> Fraction:
        """A number in it."""
        return self.low + 1 if self.high is None else (self.low + self.high) / 2


class Box(NamedTuple):
    """Loads, by their spans."""

    memory: Span = Span()
    spilled: Span = Span()
    tasks: Span = Span()

    def times(self, factor: int) -> Box:
        return Box(*(span.times(factor) for span in self))

    def meet(self, other: Box) -> Box | None:
        met = [mine.meet(theirs) for mine, theirs in zip(self, other, strict=True)]
        return None if None in met else Box(*[span for span in met if span is not None])

    def holds(self, load: Load) -> bool:
        return all(span.meet(Span(value, value)) is not None for span, value in zip(self, load, strict=True))


class Term(NamedTuple):
    """``measure`` is above ``bound``, or below."""

    measure: Measure
    above: bool
    bound: Fraction

    def holds(self, value: float | None) -> bool:
        """Of a measure that is not known nothing holds."""
        return value is not None and (value > self.bound if self.above else value < self.bound)

    def box(self) -> Box:
        """The loads of one node for which it holds."""
        bound = self.bound
        if self.measure is Measure.IDLE:
            return Box(tasks=Span(high=Fraction(0)))
        if self.measure is Measure.QUEUE:
            bound += 1  # tasks wait when all slots are taken
        span = Span(bound, None, True) if self.above else Span(Fraction(0), bound, False, True)
        if self.measure is Measure.MEMORY:
            return Box(memory=span)
        return Box(spilled=span) if self.measure is Measure.SPILLED else Box(tasks=span)


class Goal(NamedTuple):
    """``measure`` is to be ``bound``."""

    measure: Measure
    bound: Fraction

    def per_node(self) -> Fraction:
        """The load of one node at which it is so."""
        return self.bound + 1 if self.measure is Measure.QUEUE else self.bound

    def part(self, load: Load) -> Fraction:
        return load.memory if self.measure is Measure.MEMORY else load.tasks

    def box(self, span: Span) -> Box:
        return Box(memory=span) if self.measure is Measure.MEMORY else Box(tasks=span)


class Action(NamedTuple):
    """By how much. ``grows``: else the session shrinks. One of ``step`` and ``percent`` nodes more or fewer, ``to`` so many, or as many
    as each of ``goals`` needs; at most by ``most`` per cent at a time."""

    grows: bool
    step: int = 0
    percent: int = 0
    to: int = 0
    goals: tuple[Goal, ...] = ()
    most: int = 0

    def fixed(self, nodes: int) -> int | None:
        """Nodes afterwards, if that does not depend on the load."""
        step = self.step or -(-nodes * self.percent // 100)
        if step:
            return nodes + step if self.grows else nodes - step
        return self.to or None

    def after(self, nodes: int, load: Load) -> int:
        """How many nodes it wants, where there are ``nodes`` now; these, if it wants to go the other way."""
        wanted = self.fixed(nodes)
        if wanted is None:
            wanted = max(1, *(math.ceil(goal.part(load) / goal.per_node()) for goal in self.goals))
        return self.limited(nodes, wanted)

    def limited(self, nodes: int, wanted: int) -> int:
        if self.most:
            step = max(1, nodes * self.most // 100)
            wanted = max(nodes - step, min(wanted, nodes + step))
        return max(nodes, wanted) if self.grows else min(nodes, max(1, wanted))


class Rule(NamedTuple):
    name: str
    when: tuple[Term, ...]
    seconds: float  # for which it must hold
    action: Action

    def holds(self, value: Callable[[Measure], float | None]) -> bool:
        return all(term.holds(value(term.measure)) for term in self.when)

    def box(self) -> Box | None:
        """The loads of one node for which it holds; None: there is none."""
        box: Box | None = Box()
        for term in self.when:
            box = None if box is None else box.meet(term.box())
        return box


class Policy(NamedTuple):
    """``text``: as it was read. ``start`` 0: with whatever nodes there are."""

    source: str
    title: str
    least: int
    most: int
    start: int
    after_out_s: float
    after_in_s: float
    rules: tuple[Rule, ...]
    text: str

    @property
    def out(self) -> list[Rule]:
        return [rule for rule in self.rules if rule.action.grows]

    @property
    def in_(self) -> list[Rule]:
        return [rule for rule in self.rules if not rule.action.grows]

    def within(self, least: int, most: int) -> Policy:
        """The same between other bounds. Raises UsageError."""
        if not 1 <= least <= most <= NODES_MAX:
            raise UsageError(f"{least}..{most} nodes: the first number is at least 1, and the second not below it")
        return self._replace(least=least, most=most, start=min(max(self.start, least), most) if self.start else 0)

    @property
    def memory_mark(self) -> Fraction:
        """Fuller than this its rules want memory on no node: the lowest bound above which memory alone makes it grow; 80 % if none does."""
        marks = [rule.when[0].bound for rule in self.out if len(rule.when) == 1 and rule.when[0].measure is Measure.MEMORY]
        return min(marks, default=Fraction(4, 5))


# ── reading ──


class _Brake(msgspec.Struct, forbid_unknown_fields=True):
    after_out: str = "1 min"
    after_in: str = "2 min"


class _Rule(msgspec.Struct, forbid_unknown_fields=True, rename={"seconds": "for"}):
    name: str
    when: str
    do: str
    seconds: str = "0 s"
    at_most: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    rule: list[_Rule]
    title: str = ""
    min: int = 1
    max: int = 16
    start: int = 0
    brake: _Brake = msgspec.field(default_factory=_Brake)


def parse(text: str, source: str) -> Policy:
    """The policy in ``text``, a file named ``source``. Raises UsageError that names it, and the rule."""
    try:
        given = msgspec.convert(tomllib.loads(text), _File)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: {error}") from None
    except msgspec.ValidationError as error:
        rule = re.search(r"`\$\.rule\[(\d+)\]`$", str(error))
        part: type[msgspec.Struct] = _Rule if rule else _Brake if "`$.brake`" in str(error) else _File
        where = f"rule {int(rule[1]) + 1}: " if rule else ""
        raise UsageError(f"{source}: {where}{unknown_key(error, part.__struct_encode_fields__)}") from None
    if not 1 <= given.min <= given.max <= NODES_MAX:
        raise UsageError(f"{source}: min = {given.min} and max = {given.max}: 1 or more, and max not below min")
    if given.start and not given.min <= given.start <= given.max:
        raise UsageError(f"{source}: start = {given.start} is not within {given.min}..{given.max}")
    pauses = [_read(source, f"brake.{name}", text, _seconds) for name, text in _fields(given.brake).items()]
    rules = [_rule(source, one) for one in given.rule]
    names = [rule.name for rule in rules]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{source}: there are two rules with the name '{twice}'")
    return Policy(source, given.title, given.min, given.max, given.start, pauses[0], pauses[1], tuple(rules), text)


def _fields(brake: _Brake) -> Mapping[str, str]:
    return msgspec.structs.asdict(brake)


def _read(source: str, where: str, text: str, convert: Callable[[str], Any]) -> Any:
    try:
        return convert(" ".join(text.split()))
    except ValueError as error:
        raise UsageError(f"{source}: {where} = \"{text}\": {error}") from None


def _rule(source: str, given: _Rule) -> Rule:
    where = f"rule '{given.name}', "
    terms = _read(source, f"{where}when", given.when, _terms)
    action: Action = _read(source, f"{where}do", given.do, _action)
    if given.at_most:
        action = action._replace(most=_read(source, f"{where}at_most", given.at_most, _percent))
    rule = Rule(given.name, terms, _read(source, f"{where}for", given.seconds, _seconds), action)
    if rule.box() is None:
        raise UsageError(f"{source}: {where}when = \"{given.when}\": that cannot all hold at once")
    if not rule.action.grows and any(term.measure is Measure.SPILLED and term.above for term in terms):
        raise UsageError(f"{source}: {where}when = \"{given.when}\": what has spilled is no reason to have fewer nodes")
    return rule


def _terms(text: str) -> tuple[Term, ...]:
    return tuple([_term(part) for part in text.split(" and ")])


def _term(text: str) -> Term:
    match = _TERM.fullmatch(text.strip())
    if match is None or match[1] not in list(Measure):
        raise ValueError(f"'{text.strip()}' is not as 'memory > 80 %': {', '.join(Measure)}, then > or <, then a number")
    measure, above = Measure(match[1]), match[2] == ">"
    bound = Fraction(str(_seconds(match[3]))) if measure is Measure.IDLE else _share(match[3])
    if measure is Measure.IDLE and not above:
        raise ValueError("idle can only be more than a time, as in 'idle > 2 min'")
    if measure is Measure.BUSY and not (bound < 1 if above else 0 < bound <= 1):
        raise ValueError(f"{measure} is between 0 and 100 %: '{text.strip()}' holds always or never")
    if not above and bound == 0:
        raise ValueError(f"'{text.strip()}' holds never")
    return Term(measure, above, bound)


def _seconds(text: str) -> float:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is no time: write for example 10 s, 2 min or 1 h")
    return float(match[1]) * _SECONDS[match[2]]


def _share(text: str) -> Fraction:
    match = _SHARE.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is no number: write for example 80 % or 0.8")
    return Fraction(match[1]) / (100 if match[2] else 1)


def _percent(text: str) -> int:
    match = _COUNT.fullmatch(text)
    if match is None or not match[2] or not 0 < int(match[1]) <= 10_000:
        raise ValueError(f"'{text}' is not as '100 %', of the nodes that there are")
    return int(match[1])


def _action(text: str) -> Action:
    words = text.split(" ")
    form = "'add 2', 'add 25 %', 'grow to 8', 'grow to memory 60 % and queue 1', or the same with 'drain' and 'shrink to'"
    if words[0] in ("add", "drain") and len(words) > 1:
        match = _COUNT.fullmatch(" ".join(words[1:]))
        if match is None or not 0 < int(match[1]) <= NODES_MAX:
            raise ValueError(f"is not as {form}")
        grows = words[0] == "add"
        return Action(grows, percent=int(match[1])) if match[2] else Action(grows, step=int(match[1]))
    if words[0] not in ("grow", "shrink") or words[1:2] != ["to"] or len(words) < 3:
        raise ValueError(f"is not as {form}")
    grows, rest = words[0] == "grow", words[2:]
    if len(rest) == 1 and rest[0].isdecimal() and 0 < int(rest[0]) <= NODES_MAX:
        return Action(grows, to=int(rest[0]))
    return Action(grows, goals=tuple(_goal(part, form) for part in " ".join(rest).split(" and ")))


def _goal(text: str, form: str) -> Goal:
    name, _, rest = text.partition(" ")
    if name not in (Measure.MEMORY, Measure.QUEUE, Measure.BUSY) or not rest:
        raise ValueError(f"is not as {form}")
    measure, bound = Measure(name), _share(rest)
    if measure is not Measure.QUEUE and not 0 < bound <= 1:
        raise ValueError(f"{measure} is to be more than 0 and at most 100 %")
    return Goal(measure, bound)


def sizes_named(rules: Sequence[Rule]) -> set[int]:
    """Numbers of nodes that the rules name."""
    return {rule.action.to for rule in rules if rule.action.to}
