"""The machine that applies a policy: its orders, orders that it never gives, and that it comes to rest."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from amfs.engine.elasticity import Done, Elasticity, Facts, HaveNodes, Looked, NotDone, Note, floor
from amfs.engine.flapping import check
from amfs.engine.policy import Load, Policy, parse
from amfs.errors import UsageError
from amfs.provision import policies

GB = 1 << 30
MEMORY = """
min = 1
max = 8
[brake]
after_out = "10 s"
after_in = "20 s"
[[rule]]
name = "fills"
when = "memory > 80 %"
for = "5 s"
do = "grow to memory 60 %"
[[rule]]
name = "tasks wait"
when = "queue > 2"
do = "add 1"
[[rule]]
name = "empty"
when = "memory < 50 % and idle > 30 s"
do = "shrink to memory 60 %"
"""


def of(nodes: int, **more: Any) -> Facts:
    """Nodes with 1 GiB and 2 slots each."""
    return Facts(nodes, (GB,) * nodes, slots=2 * nodes, **more)


def asked(machine: Elasticity, facts: Facts, now: float) -> int:
    """The number that it asks for; 0: it asks for none."""
    found = [effect for effect in machine.handle(Looked(facts), now) if isinstance(effect, HaveNodes)]
    if found:
        machine.handle(Done(), now)
    return found[0].nodes if found else 0


def test_memory_that_stays_full_has_nodes_come_once_and_a_spike_has_none() -> None:
    machine = Elasticity(parse(MEMORY, "m"))
    assert not asked(machine, of(2, memory=9 * GB // 5), 0)
    assert not asked(machine, of(2, memory=GB), 3), "it has ended before the five seconds were over"
    assert not asked(machine, of(2, memory=9 * GB // 5), 4)
    assert not asked(machine, of(2, memory=9 * GB // 5), 8)
    assert asked(machine, of(2, memory=9 * GB // 5), 9) == 3  # 1.8 of 3 is 60 %
    assert not asked(machine, of(2, coming=1, memory=9 * GB // 5), 25), "what is on its way counts"


def test_it_waits_between_changes_and_says_so_once() -> None:
    machine = Elasticity(parse(MEMORY, "m"))
    assert asked(machine, of(1, ready=9, running=2), 0) == 2
    (note,) = machine.handle(Looked(of(2, ready=9, running=4)), 5)
    assert isinstance(note, Note) and "grew less than 10 s ago" in note.text
    assert machine.handle(Looked(of(2, ready=9, running=4)), 6) == []
    assert asked(machine, of(2, ready=9, running=4), 10) == 3


def test_an_idle_session_shrinks_to_what_its_files_need() -> None:
    machine = Elasticity(parse(MEMORY, "m"))
    assert not asked(machine, of(6, memory=GB), 0)
    assert not asked(machine, of(6, memory=GB), 29)
    assert not asked(machine, of(6, memory=GB, parked=1), 30), "a task waits for others"
    assert not asked(machine, of(6, memory=GB), 31)
    assert asked(machine, of(6, memory=GB), 62) == 2
    assert not asked(machine, of(3, memory=GB // 9, leaving=1), 100), "one drain after another"
    assert asked(machine, of(2, memory=GB // 9), 101) == 1


@pytest.mark.parametrize(
    ("facts", "least", "why"),
    [
        (of(8, memory=3 * GB), 4, "of files need 4 nodes"),
        (of(8, memory=GB, spilled=2 * GB), 4, "of files need 4 nodes"),
        (of(8, memory=5, copies=2), 2, "on 2 nodes"),
        (of(8, running=7), 4, "7 tasks that run need 4 nodes"),
        (Facts(3, (GB, 8 * GB, 8 * GB), memory=5 * GB), 2, "of files need 2 nodes"),
        (Facts(3, (GB, 0, GB), memory=5 * GB), 1, "min is 1"),
    ],
)
def test_memory_copies_and_running_tasks_hold_nodes(facts: Facts, least: int, why: str) -> None:
    found = floor(facts, parse(MEMORY, "m"))
    assert found.nodes == least and why in found.why


def test_what_does_not_answer_decides_nothing() -> None:
    machine = Elasticity(parse(MEMORY, "m"))
    (note,) = machine.handle(Looked(of(2, silent=1, ready=99)), 0)
    assert isinstance(note, Note) and "do not answer" in note.text


def test_failures_pause_longer_and_longer() -> None:
    machine = Elasticity(parse(MEMORY, "m"))
    now = 0.0
    for pause in (60, 300, 900, 3600, 3600):
        (effect,) = machine.handle(Looked(of(1, ready=9)), now)
        assert isinstance(effect, HaveNodes)
        (note,) = machine.handle(NotDone("sbatch refused"), now)
        assert isinstance(note, Note) and note.text.startswith("sbatch refused; tried again in")
        assert machine.handle(Looked(of(1, ready=9)), now + pause - 1) == []
        now += pause


def test_a_policy_has_a_first_number_and_bounds() -> None:
    machine = Elasticity(policies.load("paper-1"))
    assert asked(machine, of(1), 0) == 32
    assert asked(machine, of(70), 1) == 64
    assert asked(machine, of(64, memory=20 * GB), 2) == 48
    machine = Elasticity(policies.load("default", 2, 4))
    assert asked(machine, of(1), 0) == 2


TWO_GOALS = """
max = 20
[[rule]]
name = "fills"
when = "memory > 80 %"
do = "grow to memory 60 %"
[[rule]]
name = "tasks wait"
when = "queue > 1"
do = "grow to busy 100 %"
[[rule]]
name = "few"
when = "memory < 50 % and busy < 50 %"
do = "shrink to busy 75 %{}"
"""


def test_each_goal_of_an_action_has_the_nodes_that_it_needs() -> None:
    policy = check(parse(TWO_GOALS.format(" and memory 75 %"), "two.toml"))
    (action,) = [rule.action for rule in policy.in_]
    assert action.after(12, Load(Fraction(3), Fraction(0), Fraction(1))) == 4  # 3 / 75 %
    assert action.after(12, Load(Fraction(1), Fraction(0), Fraction(6))) == 8  # 6 / 75 %
    assert action.after(2, Load(Fraction(3), Fraction(0), Fraction(1))) == 2
    grows = parse(ONE_RULE.format("queue > 1", "grow to queue 1 and memory 50 %"), "p").out[0].action
    assert grows.after(1, Load(Fraction(3), Fraction(0), Fraction(8))) == 6
    assert grows.after(1, Load(Fraction(1), Fraction(0), Fraction(8))) == 4


def test_a_goal_that_is_left_out_lets_rules_undo_each_other() -> None:
    with pytest.raises(UsageError, match="'fills' and 'few' would undo each other"):
        check(parse(TWO_GOALS.format(""), "one.toml"))


@pytest.mark.parametrize("name", policies.SHIPPED)
def test_policies_that_are_shipped_come_to_rest(name: str) -> None:
    policy = policies.load(name)
    assert policy.title and policy.out and policy.in_


ONE_RULE = '[[rule]]\nname = "a"\nwhen = "{}"\ndo = "{}"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "p.toml: Invalid value"),
        ("max = 0\n" + ONE_RULE.format("memory > 80 %", "add 1"), "p.toml: min = 1 and max = 0"),
        ("start = 99\n" + ONE_RULE.format("memory > 80 %", "add 1"), "p.toml: start = 99 is not within 1..16"),
        ("frobs = 1\n" + ONE_RULE.format("memory > 80 %", "add 1"), "p.toml: there is no key 'frobs'; keys are rule, title, min, max, "),
        (ONE_RULE.format("busy > 80 %", "add 1").replace("name", "nam"), "p.toml: rule 1: there is no key 'nam'; did you mean 'name'?"),
        (ONE_RULE.format("busy > 80 %", "add 1") + "[brake]\nafter_inn = '1 s'\n", "there is no key 'after_inn'; did you mean 'after_in'?"),
        (ONE_RULE.format("memry > 80 %", "add 1"), "p.toml: rule 'a', when = \"memry > 80 %\""),
        (ONE_RULE.format("busy > 180 %", "add 1"), "holds always or never"),
        (ONE_RULE.format("memory > 80 %", "add some"), "p.toml: rule 'a', do = \"add some\""),
        (ONE_RULE.format("memory > 80 %", "grow to memory 60 % and spilled 5 %"), "do = \"grow to memory 60 % and spilled 5 %\""),
        (ONE_RULE.format("memory > 80 % and memory < 20 %", "add 1"), "cannot all hold at once"),
        (ONE_RULE.format("idle < 5 s", "add 1"), "idle can only be more"),
        (ONE_RULE.format("spilled > 5 %", "drain 1"), "no reason to have fewer"),
        (ONE_RULE.format("memory > 80 %", "add 1") * 2, "two rules with the name 'a'"),
        ('[brake]\nafter_in = "soon"\n' + ONE_RULE.format("memory > 80 %", "add 1"), 'p.toml: brake.after_in = "soon"'),
    ],
)
def test_faults_of_a_policy_name_the_file_and_the_rule(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, "p.toml")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def two(up: tuple[str, str], down: tuple[str, str], bounds: str = "") -> str:
    rules = zip(("up", "down"), (up, down), strict=True)
    return bounds + "".join(f'[[rule]]\nname = "{name}"\nwhen = "{when}"\ndo = "{do}"\n' for name, (when, do) in rules)


@pytest.mark.parametrize(
    ("up", "down", "bounds"),
    [
        (("memory > 90 %", "add 16"), ("memory < 50 %", "drain 16"), "min = 16\nmax = 64\n"),  # the paper's policy 1, with too few nodes
        (("memory > 90 %", "add 16"), ("memory < 50 %", "shrink to 8"), "min = 8\nmax = 64\n"),
        (("memory > 50 %", "grow to memory 60 %"), ("memory < 50 %", "drain 1"), ""),
        (("queue > 2", "add 1"), ("memory < 50 %", "drain 1"), ""),  # they look at different things
        (("spilled > 0", "add 1"), ("idle > 1 min", "shrink to 1"), ""),
        (("busy > 90 %", "add 100 %"), ("busy < 50 %", "drain 50 %"), ""),
    ],
)
def test_rules_that_undo_each_other_are_refused(up: tuple[str, str], down: tuple[str, str], bounds: str) -> None:
    with pytest.raises(UsageError, match=r"^p.toml: rules 'up' and 'down' would undo each other: with \d+ nodes?, "):
        check(parse(two(up, down, bounds), "p.toml"))


# ── any policy that passes the check comes to rest while the load stays as it is ──

SHARE = st.integers(1, 19).map(lambda part: f"{5 * part} %")
LOADS = st.one_of(
    SHARE.map(lambda share: f"memory {{}} {share}"), st.integers(1, 4).map(lambda count: f"queue {{}} {count}"),
    SHARE.map(lambda share: f"busy {{}} {share}"),
)  # fmt: skip
STEP = st.one_of(st.integers(1, 5).map(str), st.sampled_from(["25 %", "50 %", "100 %"]))
BOTH = st.tuples(SHARE, SHARE)
GROW = st.one_of(
    STEP.map("add {}".format), SHARE.map("grow to memory {}".format), st.integers(0, 2).map("grow to queue {}".format),
    BOTH.map(lambda both: f"grow to memory {both[0]} and busy {both[1]}"),
)  # fmt: skip
SHRINK = st.one_of(
    STEP.map("drain {}".format), SHARE.map("shrink to busy {}".format), st.integers(1, 4).map("shrink to {}".format),
    BOTH.map(lambda both: f"shrink to memory {both[0]} and busy {both[1]}"),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(LOADS, GROW, LOADS, SHRINK, st.integers(1, 4), st.integers(0, 8), st.data())
def test_the_check_finds_what_would_go_up_and_down(
    up: str, grow: str, down: str, shrink: str, least: int, more: int, data: st.DataObject
) -> None:
    """Followed step by step with one load after another: a policy that the check passes never goes up, down and up again."""
    text = two((up.format(">"), grow), (down.format("<"), shrink), f"min = {least}\nmax = {least + more}\n")
    try:
        policy = check(parse(text, "p"))
    except UsageError:
        return
    nodes = data.draw(st.integers(least, least + more))
    load = Load(data.draw(st.fractions(0, nodes, max_denominator=40)), Fraction(0), data.draw(st.fractions(0, 20, max_denominator=20)))
    ways: list[bool] = []
    for _ in range(4 * (more + 1)):
        moves = [(rule.action.grows, _after(policy, rule.action.after(nodes, load))) for rule in policy.rules if _holds(rule, nodes, load)]
        moves = [(grows, after) for grows, after in moves if (after > nodes) == grows and after != nodes]
        if not moves:
            break
        grows, nodes = moves[0]
        if not ways or ways[-1] != grows:
            ways.append(grows)
        assert ways.count(True) < 2 or ways[0] is False, (text, load)
    else:
        raise AssertionError(f"it does not come to rest: {text}, {load}")


def _holds(rule: object, nodes: int, load: Load) -> bool:
    box = rule.box()  # type: ignore[attr-defined]
    return box is not None and bool(box.times(nodes).holds(load))


def _after(policy: Policy, wanted: int) -> int:
    return max(policy.least, min(policy.most, wanted))


# ── the machine beside a session whose load changes as it likes ──


class Session(RuleBasedStateMachine):
    """Nodes that come and drain late, or not at all."""

    @initialize(name=st.sampled_from(["default", "lean", "small", "paper-2"]), nodes=st.integers(1, 20))
    def begin(self, name: str, nodes: int) -> None:
        self.policy = parse(MEMORY, "small") if name == "small" else policies.load(name)
        self.machine = Elasticity(self.policy)
        self.now, self.nodes, self.coming, self.leaving = 0.0, nodes, 0, 0
        self.memory = self.running = self.ready = 0
        self.grew_at = self.shrank_at = -1e9

    @rule(memory=st.integers(0, 30), running=st.integers(0, 40), ready=st.integers(0, 200))
    def the_load_changes(self, memory: int, running: int, ready: int) -> None:
        self.memory, self.running, self.ready = memory * GB // 2, min(running, 2 * self.nodes), ready

    @precondition(lambda self: self.coming)
    @rule(data=st.data())
    def a_node_comes(self, data: st.DataObject) -> None:
        self.nodes, self.coming = self.nodes + 1, self.coming - 1

    @precondition(lambda self: self.leaving)
    @rule()
    def one_has_left(self) -> None:
        self.leaving -= 1

    @precondition(lambda self: self.nodes > 1)
    @rule()
    def one_dies(self) -> None:
        self.nodes -= 1
        self.running = min(self.running, 2 * self.nodes)

    def facts(self) -> Facts:
        return Facts(
            self.nodes, (GB,) * self.nodes, min(self.memory, (self.nodes + self.leaving) * GB), 0, 2 * self.nodes, self.running, self.ready,
            coming=self.coming, leaving=self.leaving,
        )  # fmt: skip

    @rule(later=st.sampled_from([0.0, 1.0, 5.0, 61.0, 130.0]), refused=st.integers(0, 9).map(lambda number: number == 0))
    def it_looks(self, later: float, refused: bool) -> None:
        self.now += later
        facts, there = self.facts(), self.nodes + self.coming
        for effect in self.machine.handle(Looked(facts), self.now):
            if isinstance(effect, Note):
                assert effect.text
                continue
            wanted = effect.nodes
            assert wanted != there and effect.reason
            if wanted < there:
                assert wanted >= floor(facts, self.policy).nodes, "memory, copies or running tasks held more"
                assert not self.leaving, "two drains at once"
                assert wanted >= self.policy.least
            else:
                assert wanted <= self.policy.most
            by_rule = "'" in effect.reason
            if by_rule:
                assert self.now >= self.grew_at + self.policy.after_out_s
                assert wanted > there or self.now >= self.shrank_at + self.policy.after_in_s
            if wanted > there:
                self.grew_at = self.now
            else:
                self.shrank_at = self.now
            if refused:
                self.machine.handle(NotDone("no"), self.now)
                continue
            self.machine.handle(Done(), self.now)
            self.coming += max(0, wanted - there)
            cancelled = min(self.coming, max(0, there - wanted))
            gone = max(0, there - wanted - cancelled)
            self.coming, self.nodes, self.leaving = self.coming - cancelled, self.nodes - gone, self.leaving + gone
            self.running = min(self.running, 2 * self.nodes)

    @invariant()
    def it_is_sound(self) -> None:
        if hasattr(self, "machine"):
            self.machine.check_invariants()


Session.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSession = Session.TestCase


def test_one_that_goes_on_with_a_policy_does_not_start_it_anew_and_keeps_its_brakes() -> None:
    policy = parse(MEMORY.replace("max = 8", "max = 8\nstart = 4"), "m")
    assert asked(Elasticity(policy), of(6), 100) == 4
    resumed = Elasticity(policy, resumed=100)
    assert not asked(resumed, of(6, ready=60), 100), "the one before may just have added nodes"
    assert not asked(resumed, of(6, ready=60), 109)
    assert asked(resumed, of(6, ready=60), 110) == 7
