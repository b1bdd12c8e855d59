"""Tasks that read and make files of the session, under faults: files left by a run are whole. And three faults planted on purpose."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from fuzz import seeds as fuzz
from fuzz.seeds import Finding, run_seed
from fuzz.session_seeds import draw_session

from amfs.engine.file_table import FileTable
from amfs.engine.fls import FileRecord, FlsShard
from amfs.engine.remaking import Remaking
from amfs.engine.worker_records import File, Run
from amfs.vocabulary import messages as m

SEEDS = (21, 19)  # in which files of the session are lost, missed, and made again


@pytest.mark.parametrize("quiet", [False, True], ids=["faults", "quiet"])
def test_what_a_run_leaves_in_the_session_is_whole(quiet: bool) -> None:
    for seed in range(5):
        try:
            run_seed(seed, quiet=quiet, kind="session")
        except Finding as finding:
            pytest.fail(finding.report, pytrace=False)


def test_seeds_reach_all_kinds_of_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost files are missed by tasks, and found at the end; they are made again, with what they need."""
    missed: list[str] = []
    found: list[str] = []
    real_missed, real_lost = FileTable._gone_from_session, Remaking.lost

    def gone(self: FileTable, run: Run, file: File) -> None:
        missed.append(file.name)
        real_missed(self, run, file)

    def lost(self: Remaking, key: str) -> None:
        found.append(key)
        real_lost(self, key)

    monkeypatch.setattr(FileTable, "_gone_from_session", gone)
    monkeypatch.setattr(Remaking, "lost", lost)
    for seed in SEEDS:
        run_seed(seed, quiet=False, kind="session")
    assert missed and len(found) > len(missed)
    assert any(one.task.inputs and "amfs:/" in one.task.inputs[0] for seed in SEEDS for one in draw_session(seed, quiet=False).tasks)


def losses_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Remaking, "look", lambda self, tasks, state, aliases: [])


def what_is_made_again_is_no_file_of_the_session(patch: pytest.MonkeyPatch) -> None:
    def renewed(self: Remaking, spec: m.TaskSpec, there: Collection[str]) -> tuple[int, ...]:
        return tuple([kept & ~m.FINAL if name in there else kept for name, kept in zip(spec.outputs, spec.retentions, strict=True)])

    patch.setattr(Remaking, "renewed", renewed)


def a_lost_file_is_still_said_to_be_there(patch: pytest.MonkeyPatch) -> None:
    def lose(self: FlsShard, run: int, record: FileRecord) -> None:
        pass

    patch.setattr(FlsShard, "_lose_shared", lose)


@pytest.mark.parametrize(
    "plant", [losses_are_not_looked_for, what_is_made_again_is_no_file_of_the_session, a_lost_file_is_still_said_to_be_there],
)  # fmt: skip
def test_a_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "EVENT_BUDGET", 12_000)
    plant(monkeypatch)
    with pytest.raises(Finding):
        for seed in SEEDS:
            run_seed(seed, quiet=False, kind="session")
