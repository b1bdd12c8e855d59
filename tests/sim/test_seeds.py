"""Random clusters, workflows and faults: a sample of the seeds in every run, 2,000 of each kind when asked for (``make sim``)."""

from __future__ import annotations

import pytest

from amfs.sim.fuzz import Finding, draw_settings, run_seed
from amfs.sim.hunt import hunt

CHUNK = 25


def check(first: int, count: int, *, quiet: bool) -> None:
    for seed in range(first, first + count):
        try:
            run_seed(seed, quiet=quiet)
        except Finding as finding:
            pytest.fail(finding.report, pytrace=False)


@pytest.mark.parametrize("first", range(0, 150, CHUNK))
def test_with_faults(first: int) -> None:
    check(first, CHUNK, quiet=False)


@pytest.mark.parametrize("first", range(0, 150, CHUNK))
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
    digests = {run_seed(seed, quiet=True).digest for seed in range(20)}
    assert len(digests) == 20
    drawn = [draw_settings(seed, quiet=False)[0].faults for seed in range(400)]
    for name in drawn[0].__struct_fields__:
        assert any(getattr(faults, name) for faults in drawn), f"no seed has {name}"
        if name != "clog_s":
            assert any(not getattr(faults, name) for faults in drawn), f"every seed has {name}"
    quiet = [draw_settings(seed, quiet=True)[0].faults for seed in range(50)]
    assert not any(faults.in_the_network or faults.nodes_may_go or faults.client_dies for faults in quiet)


def test_a_finding_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from amfs.engine.fls import FlsShard

    monkeypatch.setattr(FlsShard, "_at", lambda self, record: 1 / 0)
    said: list[str] = []
    assert hunt(range(5), quiet=True, say=said.append) == 1
    assert "ZeroDivisionError" in said[0] and "seed = " in said[0] and "last events" in said[0]
    assert said[1].startswith("replay: python -m amfs.sim --quiet-mode --seeds ")


def test_the_module_is_a_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from amfs.engine.fls import FlsShard
    from amfs.sim.__main__ import command

    assert command(["--seeds", "0-3", "--quiet-mode"]) == 0
    assert "4 seeds in quiet mode found nothing" in capsys.readouterr().out
    assert command(["--seeds", "3", "--verbose"]) == 0
    shown = capsys.readouterr().out
    assert "RunBegin" in shown and "faults = " in shown and "Verdict" in shown
    monkeypatch.setattr(FlsShard, "_at", lambda self, record: 1 / 0)
    assert command(["--seeds", "0-9", "--quiet-mode"]) == 1
