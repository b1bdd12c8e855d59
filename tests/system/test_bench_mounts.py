"""The benchmarks of the file system on sessions and mounts of their own: every way of amfs to its files, once and small."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from amfs.bench.process import Failed
from benchmarks import directories, filecopy, layouts, modes, mounts, remote, storage, stores, striping
from benchmarks.envelope import METRICS, Place, Runner, Settings, run_places
from benchmarks.envelope_table import report_text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set"),
]

QUICK = Settings(clients=(2,), repeat=1, seconds=0.01, mib=2)


@pytest.fixture
def memory() -> Iterator[Path]:
    with directories.workplace(directories.memory_directory()) as place:
        yield place


#: The others differ from "amfs" in options of the mount, which have tests of their own.
USUAL = ("amfs", "fusepy", "staged")


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=[] if key in USUAL else pytest.mark.soak) for key in modes.KEYS if key != modes.REMOTE]
)
def test_every_mode_is_measured_and_ended(key: str, memory: Path) -> None:
    with ExitStack() as stack:
        (place,) = modes.make_places(stack, [key], [1])
        assert place.broken == ""
        found = run_places(Place("tmpfs", "tmpfs", (str(memory),)), [place], QUICK)
        there = [Path(each) for each in place.directories if each != "."]
        assert all(os.path.ismount(each) and os.listdir(each) == [] for each in there)
    assert [described.error for described in found.places] == ["", ""]
    assert all(found.find(place.key, 2, metric.key) for metric in METRICS)
    assert not any(each.exists() for each in there)
    root_or_not = {"passthrough", "copy"}
    expected = {"amfs": root_or_not, "fusepy": {""}, "staged": {"staged", "staged-huge"}}
    assert place.judged_as in expected.get(key, {"copy"})


@pytest.mark.soak
def test_clients_are_dealt_to_the_mounts_of_several_nodes(memory: Path) -> None:
    with ExitStack() as stack:
        (place,) = modes.make_places(stack, ["amfs", "copy"], [2])
        assert (place.key, place.nodes, len(place.directories)) == ("amfs@2", 2, 2)
        found = run_places(Place("tmpfs", "tmpfs", (str(memory),)), [place], QUICK)
    assert [described.error for described in found.places] == ["", ""]
    assert all(result.target is None for result in found.results)


@pytest.mark.soak  # the table is tested in tests/unit/test_bench_files.py, reading from another node in tests/native
def test_files_of_another_node() -> None:
    rows = modes.measure_remote(1, 2)
    assert [row.error for row in rows] == [""] * len(rows)
    assert [row.key for row in rows] == [line.key for line in remote.LINES]
    assert all(row.ratio is not None and row.ratio > 0 for row in rows[:6])
    by_key = {row.key: row for row in rows}
    assert by_key["small-asked"].value is not None
    assert 0 < by_key["small-asked"].value < 5
    assert by_key["small-asked-again"].value == 0


def test_what_cannot_be_started_is_said(monkeypatch: pytest.MonkeyPatch, memory: Path) -> None:
    monkeypatch.setattr(mounts, "AMFS", ("sh", "-c", "echo no session today >&2; exit 4"))
    with ExitStack() as stack:
        places = modes.make_places(stack, ["amfs", "staged"], [1])
        found = run_places(Place("tmpfs", "tmpfs", (str(memory),)), places, QUICK)
    assert ["no session today" in described.error for described in found.places] == [True, True]
    assert report_text(found).count("not measured: ") == 2
    rows = modes.measure_remote(1, 2)
    assert all("no session today" in row.error for row in rows)


def test_a_session_that_dies_is_cleared_away() -> None:
    with mounts.Session(1) as session:
        place, directory = session.mount(), session.directory
        (node,) = session_pids(session)
        os.kill(node, 9)
        deadline = time.monotonic() + 10
        while Path(f"/proc/{node}/fd/0").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    assert not os.path.ismount(place)
    assert not directory.exists()


def session_pids(session: mounts.Session) -> list[int]:
    from amfs.net.records import load

    return [node.pid for node in load(Path(session.file)).nodes]


def test_storage_in_all_ways_of_amfs(tmp_path: Path) -> None:
    with ExitStack() as stack:
        wanted = [f"amfs-{way}" for way in stores.AMFS]
        places, missed, session = stores.start(stack, wanted, 2, tmp_path, False, lambda text: None)
        assert session is not None
        settings = storage.Settings(3, (1000, 1_500_000), 2, 1)
        found = storage.run_storage(places, settings, tmp_path, env=stores.client_environment(session))
    assert (found.errors, missed) == ({}, {})
    assert [place.title for place in places] == ["amfs, whole", "amfs, striped", "amfs, mounted"]
    assert len(found.samples) == 3 * 3 * 2 * len(storage.PATTERNS)


@pytest.mark.soak
def test_filecopy_on_a_session_of_two(memory: Path) -> None:
    found = filecopy.run_filecopy(filecopy.Settings(filecopy.WAYS, (2,), 1, 1, 1, 1), directories.disk_directory(), memory)
    assert found.errors == {}
    names = [each.name for each in filecopy.CONFIGURATIONS]
    assert [row.name for row in found.results] == ["", "", *names, *names]
    assert all(min(row.write, row.read, row.whole) > 0 and len(row.samples) == 1 for row in found.results)
    assert {row.remote for row in found.results if row.name.endswith("aw")} == {0.0}
    assert filecopy.report_text(found).count("\n") == 12
    assert list(memory.iterdir()) == []


@pytest.mark.soak
def test_real_nodes_hold_what_arithmetic_says() -> None:
    workflow = layouts.aggregation(12, 1_000_000)
    expected = striping.compute(workflow, 3)
    whole = striping.measure(workflow, "whole", 3)
    assert all(abs(found - wanted) < 300_000 for found, wanted in zip(whole, expected["whole"], strict=True)), (whole, expected)
    striped = striping.measure(workflow, "striped", 3)  # the numbers of the files differ, and so do their places; not how much it is
    assert abs(sum(striped) - sum(expected["striped"])) < 300_000
    assert layouts.balance(striped) < 1.4


def test_a_client_runs_as_a_task() -> None:
    with mounts.Session(1) as session:
        directory = session.directory
        place = Place("staged", "staged", (".",), "staged", command=session.run_as_task)
        found = Runner(QUICK).operations(place, 2)
        assert set(found) == {metric.key for metric in METRICS if metric.unit == "ops/s"}
        assert mounts.store_has_huge_pages(session) == (os.geteuid() == 0)
        with pytest.raises(Failed, match="ended with status"):
            session.amfs("run", "/nonexistent")
    assert not directory.exists()
