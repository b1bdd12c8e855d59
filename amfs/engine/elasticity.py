"""How many nodes a session is to have: a policy (``engine.policy``) applied to what the nodes say of their memory and their tasks. Pure.

Owns since when each rule has held, when the number was changed last, and what was said last, so that nothing is said twice. It never asks
for fewer nodes than hold the files and the running tasks. Must not know: how nodes come and go (``engine.scaling`` says which go).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import msgspec

from amfs.display.progress import plural, size_text, time_text
from amfs.engine.policy import Load, Measure, Policy, Rule

#: After the number could not be changed so often in a row, this long nothing is tried, in seconds; then as long as the last.
PAUSES_S = (60.0, 300.0, 900.0, 3600.0)


class Facts(NamedTuple):
    """Of the nodes with slots that are members and do not drain. ``coming``: jobs that may still become nodes. ``leaving``: nodes that
    drain. ``limits``: of the memory of each, 0: it has none. ``memory``, ``spilled``: bytes, those of ``leaving`` too.
    ``copies``: nodes that shall have each file. ``silent``: that did not answer."""

    nodes: int
    limits: tuple[int, ...] = ()
    memory: int = 0
    spilled: int = 0
    slots: int = 0
    running: int = 0
    ready: int = 0
    parked: int = 0
    coming: int = 0
    leaving: int = 0
    copies: int = 1
    silent: int = 0


class Floor(NamedTuple):
    """No fewer nodes than this, and why."""

    nodes: int
    why: str


def floor(facts: Facts, policy: Policy) -> Floor:
    """The least number of nodes by memory, copies and running tasks."""
    floors = [Floor(policy.least, f"min is {policy.least}")]
    data = facts.memory + facts.spilled
    if data and all(facts.limits):
        mark, room, count = policy.memory_mark, 0, 0
        for limit in sorted(facts.limits):  # whichever nodes stay, the smallest are enough then
            if room * mark >= data:
                break
            room, count = room + limit, count + 1
        floors.append(Floor(count, f"{size_text(data)} of files need {plural(count, 'node')}"))
    if data and facts.copies > 1:
        floors.append(Floor(facts.copies, f"each file is to be on {plural(facts.copies, 'node')}"))
    if facts.running and facts.slots:
        count = -(-facts.running * facts.nodes // facts.slots)
        floors.append(Floor(count, f"{plural(facts.running, 'task')} that run need {plural(count, 'node')}"))
    return max(floors, key=lambda one: one.nodes)


# ── events ──


class Looked(msgspec.Struct, frozen=True):
    """The nodes' answers by now."""

    facts: Facts


class NotDone(msgspec.Struct, frozen=True):
    """The number that was asked for could not be had, wholly or in part."""

    why: str


class Done(msgspec.Struct, frozen=True):
    """It is so, or nodes and jobs are on their way."""


# ── effects ──


class HaveNodes(msgspec.Struct, frozen=True):
    """Bring the session to so many nodes, by the way of ``amfs scale``. Answered by Done or NotDone."""

    nodes: int
    reason: str


class Note(msgspec.Struct, frozen=True):
    """Why nothing is done, or what went wrong; only when that has changed."""

    text: str


Event = Looked | NotDone | Done
Effect = HaveNodes | Note


class Elasticity:
    """``waiting``: for the answer to HaveNodes. ``resumed``: another one has applied this policy until then, and may have changed the
    number just before; so ``start`` is past, and the brakes hold from then on."""

    def __init__(self, policy: Policy, resumed: float | None = None) -> None:
        self.policy = policy
        self.waiting = False
        self.now = 0.0
        self._held: dict[str, float] = {}  # rule -> since when it holds without a break
        self._idle_since: float | None = None
        self._grew_at = self._shrank_at = -math.inf if resumed is None else resumed
        self._begun = resumed is not None
        self._failures = 0
        self._paused_until = 0.0
        self._why = ""  # the kind of reason that was told last

    def handle(self, event: Event, now: float) -> list[Effect]:
        assert now >= self.now, "time goes on"
        self.now = now
        if isinstance(event, Looked):
            return [] if self.waiting else self._look(event.facts)
        self.waiting = False
        if isinstance(event, Done):
            self._failures = 0
            return []
        self._failures += 1
        pause = PAUSES_S[min(self._failures, len(PAUSES_S)) - 1]
        self._paused_until = now + pause
        return self._note("failed", f"{event.why}; tried again in {time_text(pause)}, or by 'amfs scale auto'", always=True)

    def check_invariants(self) -> None:
        assert self._held.keys() <= {rule.name for rule in self.policy.rules}
        assert all(since <= self.now for since in self._held.values())

    # ── a look ──

    def _look(self, facts: Facts) -> list[Effect]:
        if facts.silent or not facts.nodes:
            self._held.clear()  # a rule whose measures are unknown has not held
            return self._note("silent", f"nothing is decided: {plural(facts.silent, 'node')} do not answer")
        busy = facts.running or facts.ready or facts.parked
        if busy:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self.now
        values = self._values(facts)
        for rule in self.policy.rules:
            if rule.holds(values.get):
                self._held.setdefault(rule.name, self.now)
            else:
                self._held.pop(rule.name, None)
        if self.now < self._paused_until:
            return []
        return self._begin(facts) or self._decide(facts, values)

    def _begin(self, facts: Facts) -> list[Effect]:
        """The number at which the policy starts, and its bounds, come before its rules."""
        there, policy = facts.nodes + facts.coming, self.policy
        if policy.start and not self._begun and there != policy.start and not facts.leaving:
            self._begun = True
            wanted = policy.start if policy.start > there else max(policy.start, min(there, floor(facts, policy).nodes))
            return [] if wanted == there else self._change(there, wanted, f"the policy starts with {policy.start}")
        self._begun = True
        if there < policy.least:
            return self._change(there, policy.least, f"min is {policy.least}")
        if there > policy.most and not facts.leaving:
            held = floor(facts, policy)
            if held.nodes >= there:
                return self._note("over", f"{plural(there, 'node')}, though max is {policy.most}: {held.why}")
            return self._change(there, max(policy.most, held.nodes), f"max is {policy.most}")
        return []

    def _decide(self, facts: Facts, values: dict[Measure, float | None]) -> list[Effect]:
        there, load = facts.nodes + facts.coming, self._load(facts)
        reasons: list[tuple[str, str]] = []
        for rule in [*self.policy.out, *self.policy.in_]:
            if rule.name not in self._held:
                continue
            held_s = self.now - self._held[rule.name]
            why = f"'{rule.name}': {self._words(rule, facts, values)}"
            if held_s < rule.seconds:
                reasons.append((f"young {rule.name}", f"{why}, but not yet for {time_text(rule.seconds)}"))
                continue
            wanted, limit = self._wanted(rule, facts, there, load)
            if wanted == there:
                reasons.append((f"no {rule.name}", f"{why}; it stays at {plural(there, 'node')}: {limit}"))
                continue
            if (brake := self._brake(rule, facts)) is not None:
                reasons.append((f"brake {rule.name}", f"{why}, but {brake}"))
                continue
            return self._change(there, wanted, why + (f"; no further, since {limit}" if limit else ""))
        if reasons:
            return self._note(*reasons[0])
        return self._note("none", f"no rule holds: {self._state(facts, values)}")

    def _wanted(self, rule: Rule, facts: Facts, there: int, load: Load) -> tuple[int, str]:
        """How many nodes the rule leads to, and what keeps it from more or fewer."""
        wanted = rule.action.after(there, load)
        if rule.action.grows:
            most = max(there, self.policy.most)
            return min(wanted, most), f"max is {self.policy.most}" if wanted > most or wanted == there else ""
        held = floor(facts, self.policy)
        limit = held.why if wanted < held.nodes else ""
        wanted = min(there, max(wanted, held.nodes))
        while wanted < there and (up := self._would_grow(load, wanted)) is not None:
            wanted, limit = wanted + 1, f"'{up.name}' would hold with fewer"
        return wanted, limit or (f"that is what '{rule.name}' leads to" if wanted == there else "")

    def _would_grow(self, load: Load, nodes: int) -> Rule | None:
        """The rule by which the session would grow again at once if it had so many nodes."""
        for rule in self.policy.out:
            box = rule.box()
            if box is not None and box.times(nodes).holds(load):
                return rule
        return None

    def _brake(self, rule: Rule, facts: Facts) -> str | None:
        """Why not now."""
        if facts.leaving:
            return f"{plural(facts.leaving, 'node')} still drain"
        if facts.coming and not rule.action.grows and facts.ready:
            return f"{plural(facts.coming, 'job')} still wait, and tasks too"
        if self.now < self._grew_at + self.policy.after_out_s:
            return f"the session grew less than {time_text(self.policy.after_out_s)} ago"
        if not rule.action.grows and self.now < self._shrank_at + self.policy.after_in_s:
            return f"it shrank less than {time_text(self.policy.after_in_s)} ago"
        return None

    def _change(self, there: int, wanted: int, reason: str) -> list[Effect]:
        self._why = ""
        if wanted > there:
            self._grew_at = self.now
        else:
            self._shrank_at = self.now
        self._held.clear()
        self.waiting = True
        return [HaveNodes(wanted, f"{there} to {plural(wanted, 'node')}: {reason}")]

    def _note(self, kind: str, text: str, *, always: bool = False) -> list[Effect]:
        if kind == self._why and not always:
            return []
        self._why = kind
        return [Note(text)]

    # ── measures ──

    def _values(self, facts: Facts) -> dict[Measure, float | None]:
        """Of nodes that are on their way, too: they have room and slots as the others have."""
        share = facts.nodes / (facts.nodes + facts.coming)
        limit = sum(facts.limits) if all(facts.limits) else 0
        return {
            Measure.MEMORY: (facts.memory + facts.spilled) / limit * share if limit else None,
            Measure.SPILLED: facts.spilled / limit * share if limit else None,
            Measure.QUEUE: facts.ready / facts.slots * share if facts.slots else None,
            Measure.BUSY: facts.running / facts.slots * share if facts.slots else None,
            Measure.IDLE: 0.0 if self._idle_since is None else self.now - self._idle_since,
        }

    @staticmethod
    def _load(facts: Facts) -> Load:
        limit = sum(facts.limits) if all(facts.limits) else 0
        sizes = (facts.memory + facts.spilled, facts.spilled)
        memory, spilled = (Fraction(size * facts.nodes, limit) if limit else Fraction(0) for size in sizes)
        tasks = Fraction((facts.running + facts.ready) * facts.nodes, facts.slots) if facts.slots else Fraction(0)
        return Load(memory, spilled, tasks)

    def _words(self, rule: Rule, facts: Facts, values: dict[Measure, float | None]) -> str:
        return ", ".join(_measure(term.measure, facts, values) for term in rule.when)

    def _state(self, facts: Facts, values: dict[Measure, float | None]) -> str:
        seen = dict.fromkeys(term.measure for rule in self.policy.rules for term in rule.when)
        return ", ".join(_measure(measure, facts, values) for measure in seen)


def _measure(measure: Measure, facts: Facts, values: dict[Measure, float | None]) -> str:
    value = values[measure]
    if value is None:
        return f"{measure} not known"
    if measure is Measure.IDLE:
        return f"idle for {time_text(value)}" if value else "not idle"
    if measure is Measure.QUEUE:
        return f"{value:.1f} tasks wait for each slot"
    if measure is Measure.BUSY:
        return f"{100 * value:.0f} % of the slots busy"
    if measure is Measure.SPILLED:
        return f"{size_text(facts.spilled)} spilled"
    return f"memory {100 * value:.0f} % full ({size_text(facts.memory + facts.spilled)})"
