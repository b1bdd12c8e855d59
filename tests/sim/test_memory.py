"""Simulated runs whose files do not fit in memory: how much the nodes keep there, and how long the disk makes them."""

from __future__ import annotations

import pytest
from fuzz.seeds import run_scenario

from amfs.config import MemoryLimits
from amfs.sim.node_io import DISK_BYTES_S, NodeIO
from amfs.sim.scenario import Scenario, Settings, SimTask
from amfs.sim.settings import Faults, Limits
from amfs.workflow.workflow import Task

MB = 10**6
SIZE = 10 * MB
COUNT = 60


def scenario(limit: int, *, nodes: int = 1, slots: int = 2, spill: str = "/disk") -> Scenario:
    """COUNT tasks make a file each; when all are there, COUNT tasks read one each, and one reads them all."""
    makers = [Task(f"make{i}", ("make",), outputs=(f"f{i}",)) for i in range(COUNT)]
    between = Task("between", ("true",), after=tuple(task.id for task in makers))
    readers = [Task(f"read{i}", ("read",), inputs=(f"f{i}",), after=("between",)) for i in range(COUNT)]
    last = Task("all", ("read",), inputs=tuple(f"f{i}" for i in range(COUNT)), after=("between",))
    settings = Settings(
        seed=1, quiet=True, nodes=nodes, slots=(slots,) * nodes, unit_size=0, data_aware=True, stage_shared=False, keep_all=False,
        fail_fast=False, limits=Limits.silent(Limits(memory=MemoryLimits(limit=limit, spill=spill))), faults=Faults(),
    )  # fmt: skip
    tasks = tuple(SimTask(task, 0.01) for task in (*makers, between, *readers, last))
    return Scenario(settings, tasks, {f"f{i}": SIZE for i in range(COUNT)})


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The most that each node had in memory."""
    found: dict[int, int] = {}

    def note(io: NodeIO) -> None:
        held = sum(size for size, _ in (*io.files.values(), *io.back.values()))
        found[io.node.id] = max(found.get(io.node.id, 0), held)

    keep, done = NodeIO.keep, NodeIO._disk_done

    def keeps(self: NodeIO, path: str, size: int, stamp: int) -> tuple[int, int]:
        there = keep(self, path, size, stamp)
        note(self)
        return there

    def disk_done(self: NodeIO, *args: object) -> None:
        done(self, *args)  # type: ignore[arg-type]
        note(self)

    monkeypatch.setattr(NodeIO, "keep", keeps)
    monkeypatch.setattr(NodeIO, "_disk_done", disk_done)
    return found


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_limit_is_kept(peaks: dict[int, int], nodes: int) -> None:
    limit = COUNT * SIZE // 5 // nodes
    run_scenario(scenario(limit, nodes=nodes))
    assert len(peaks) == nodes and max(peaks.values()) <= limit
    assert max(peaks.values()) > limit // 2, "memory is used as far as it goes"


def test_it_takes_about_as_long_as_the_disk_needs() -> None:
    """Four fifths of the bytes go to the disk and come back, while tasks run."""
    limit = COUNT * SIZE // 5
    on_disk = 2 * (COUNT * SIZE - limit) / DISK_BYTES_S
    longer = run_scenario(scenario(limit)).virtual_s - run_scenario(scenario(2 * COUNT * SIZE)).virtual_s
    assert on_disk / 2 <= longer <= on_disk


def test_with_enough_memory_nothing_goes_to_the_disk(peaks: dict[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeIO, "spill_out", lambda self, effect: pytest.fail(f"{effect} is spilled"))
    run_scenario(scenario(2 * COUNT * SIZE))
    assert peaks == {0: COUNT * SIZE}
