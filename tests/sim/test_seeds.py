"""Random clusters, workflows and faults: a sample of the seeds in every run, 2,000 of each kind when asked for (``make sim``)."""

from __future__ import annotations

import pytest
from daily import daily
from fuzz.hunt import hunt
from fuzz.seeds import Finding, run_seed
from fuzz.swarm import FAULTS, LIMITS, PLOTS, WORKFLOWS, draw

from amfs.sim.scenario import FaultEvent

CHUNK = 10


def check(first: int, count: int, *, quiet: bool) -> None:
    for seed in range(first, first + count):
        try:
            run_seed(seed, quiet=quiet)
        except Finding as finding:
            pytest.fail(finding.report, pytrace=False)


@pytest.mark.parametrize("first", daily(range(0, 20, CHUNK), 0))
def test_with_faults(first: int) -> None:
    check(first, CHUNK, quiet=False)


@pytest.mark.parametrize("first", daily(range(0, 20, CHUNK), 0))
def test_in_quiet_mode_everything_finishes_without_the_help_of_a_timer(first: int) -> None:
    check(first, CHUNK, quiet=True)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("quiet", [False, True], ids=["faults", "quiet"])
def test_soak(quiet: bool) -> None:
    said: list[str] = []
    assert hunt(range(2000), quiet=quiet, say=said.append) == 0, said[0]


@pytest.mark.parametrize("quiet", [False, True], ids=["faults", "quiet"])
def test_a_seed_is_replayed_event_by_event(quiet: bool) -> None:
    for seed in (3, 45):
        first: list[str] = []
        second: list[str] = []
        once = run_seed(seed, quiet=quiet, tell=first.append)
        again = run_seed(seed, quiet=quiet, tell=second.append)
        assert first == second
        assert once == again
        assert once.events > 20


def test_seeds_differ_and_reach_all_kinds_of_faults() -> None:
    digests = {run_seed(seed, quiet=True).digest for seed in range(10)}
    assert len(digests) == 10
    scenarios = [draw(seed, quiet=False) for seed in range(400)]
    drawn = [scenario.settings.faults for scenario in scenarios] + [draw(seed, quiet=True).settings.faults for seed in range(50)]
    for name in drawn[0].__struct_fields__:
        assert any(getattr(faults, name) for faults in drawn), f"no seed has {name}"
        if name != "clog_s":
            assert any(not getattr(faults, name) for faults in drawn), f"every seed has {name}"
    befell = [one for scenario in scenarios for one in scenario.fault_events]
    assert {one.what for one in befell} == {"crash", "drain", "join", "stall", "cut", "client dies", "client stops"}
    for name in FaultEvent.__struct_fields__:
        assert len({getattr(one, name) for one in befell}) > 1, f"{name} is always the same"
    quiet = [draw(seed, quiet=True).settings.faults for seed in range(50)]
    assert not any(faults.in_the_network or faults.nodes_may_go or faults.client_dies for faults in quiet)


def test_most_seeds_vary_few_things_and_those_strongly() -> None:
    drawn = [draw(seed, quiet=False).settings.faults for seed in range(400)]
    kinds = [
        sum(
            bool(getattr(faults, name))
            for name in faults.__struct_fields__
            if name not in ("clog_s", "stall_s", "restarts", "partition_for_good")
        )
        for faults in drawn
    ]
    assert sum(count <= 3 for count in kinds) > 200
    assert sum(count > 4 for count in kinds) > 10, "and some vary everything"
    assert sum(faults.loss > 0.03 for faults in drawn if faults.loss) > sum(faults.loss > 0 for faults in drawn) / 2


def test_every_theme_and_every_plot_can_be_drawn() -> None:
    """All that they speak of are faults, limits, options and parts of workflows that there are."""
    import random

    from fuzz.shapes import Mix

    from amfs.config import DispatcherLimits, SubmitterLimits, WorkerLimits
    from amfs.sim.scenario import Settings
    from amfs.sim.settings import Faults

    limits = {*WorkerLimits.__struct_fields__, *DispatcherLimits.__struct_fields__, *SubmitterLimits.__struct_fields__, "lent"}
    known = {"fault": set(Faults.__struct_fields__), "limit": limits | set(Settings.__struct_fields__), "mix": set(Mix.__struct_fields__)}
    for seed in range(20):
        rng = random.Random(seed)
        for themes, kinds in ((FAULTS, ("fault",)), (LIMITS, ("limit",)), (WORKFLOWS, ("mix",)), (PLOTS, ("fault", "limit", "mix"))):
            for name, theme in themes.items():
                named = set(theme(rng)) - ({"on", "nodes", "cut", "delays"} if themes is PLOTS else set())
                assert named <= set().union(*(known[kind] for kind in kinds)), f"{name} speaks of {named}"


def test_a_finding_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from amfs.engine.fls import FlsShard

    monkeypatch.setattr(FlsShard, "_at", lambda self, record: 1 / 0)
    said: list[str] = []
    assert hunt(range(5), quiet=True, say=said.append) == 1
    assert "ZeroDivisionError" in said[0] and "seed = " in said[0] and "last events" in said[0]
    assert said[1].startswith("replay: python -m fuzz --quiet-mode --seeds ")


def test_the_module_is_a_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from fuzz.__main__ import command

    from amfs.engine.fls import FlsShard

    assert command(["--seeds", "0-3", "--quiet-mode"]) == 0
    assert "4 seeds in quiet mode found nothing" in capsys.readouterr().out
    assert command(["--seeds", "3", "--verbose"]) == 0
    shown = capsys.readouterr().out
    assert "RunBegin" in shown and "faults = " in shown and "Verdict" in shown
    monkeypatch.setattr(FlsShard, "_at", lambda self, record: 1 / 0)
    assert command(["--seeds", "0-9", "--quiet-mode"]) == 1
