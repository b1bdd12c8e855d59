"""The benchmarks of the cloud storage study: samples, servers, pairs of nodes, tasks that stage their files. All small and real."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from amfs.bench.process import Failed
from amfs.client.files import Files
from amfs.errors import AmfsError, UsageError
from benchmarks import directories, heatmap, network, servers, storage
from benchmarks.mounts import Session
from benchmarks.storage_clients import Spot, is_url, spot_of, store_of
from benchmarks.storage_worker import Order, Timed, Worker


@pytest.fixture
def memory() -> Iterator[Path]:
    with directories.workplace(directories.memory_directory()) as place:
        yield place


# ── storage ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["directory", "url"])
@pytest.mark.parametrize("size", [1, 7, 8, 1000, (1 << 20) - 1, 1 << 20, (2 << 20) + 3])
def test_a_file_is_what_was_written(tmp_path: Path, kind: str, size: int) -> None:
    worker = Worker()
    store = store_of(spot_of(f"file://{tmp_path}/x" if kind == "url" else f"{tmp_path}/x"))
    store.prepare()
    source, read = str(tmp_path / "source"), str(tmp_path / "read")
    for number in (3, 4):
        worker.make(source, number, size)
        store.put(f"file{number}", source)
        assert (tmp_path / "x" / f"file{number}").read_bytes() == Path(source).read_bytes()
        store.get(f"file{number}", read)
        worker.check(read, number, size)
    with pytest.raises(AmfsError, match="bytes instead of"):
        worker.check(read, 4, size + 8)
    with pytest.raises(AmfsError, match="file 3 has wrong content"):
        worker.check(read, 3, size)
    store.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["read", "source"]


def test_urls_and_directories_are_told_apart() -> None:
    assert is_url("s3://a/b")
    assert is_url("simplecache::file:///a")
    assert not is_url("/a/b")
    assert not is_url("a:b")
    assert [spot_of(place).kind for place in ("/a", "s3://b/c", "webhdfs://h:1/d", "sftp://h/d")] == ["directory", "s3", "webhdfs", "url"]


def test_storage_measures_all_places_and_goes_on_after_a_bad_one(memory: Path, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "url").mkdir()
    places = [
        storage.Place("tmpfs", (Spot("directory", str(memory)),)),
        storage.Place("url", (Spot("url", f"file://{tmp_path}/url"),)),
        storage.Place("bad", (Spot("url", "nonsense://x"),)),
        storage.Place("proc", (Spot("directory", "/proc"),)),
    ]
    kept: list[storage.Head | storage.Sample | storage.Missed] = []
    report = storage.run_storage(places, storage.Settings(5, (1000, 2_000_000), 2, 2, 8_000_000), tmp_path / "local", keep=kept.append)
    assert set(report.errors) == {"bad", "proc"}
    assert "nonsense" in report.errors["bad"]
    by_key = {(one.place, one.pattern, one.size): one for one in report.results()}
    sizes = (1000, 2_000_000)
    assert set(by_key) == {(title, pattern, size) for title in ("tmpfs", "url") for pattern in storage.PATTERNS for size in sizes}
    assert {one.size: one.files for one in by_key.values()} == {1000: 10, 2_000_000: 8}  # four of the large ones fit, and two turns
    assert all(one.rate > 0 and one.quartiles[0] <= one.quartiles[1] <= one.quartiles[2] for one in by_key.values())
    assert [one.ratio for one in by_key.values() if one.place == "tmpfs"] == [1.0] * 6
    assert list(memory.iterdir()) == list((tmp_path / "url").iterdir()) == []
    text = storage.report_text(report)
    assert "bad: not measured:" in text
    assert "read after write" in text
    drawn = storage.picture(report)
    ElementTree.fromstring(drawn)
    (tmp_path / "kept").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in kept))
    again = storage.read_samples(tmp_path / "kept")
    assert (storage.picture(again), storage.report_text(again)) == (drawn, text)


def test_a_client_reads_what_another_has_written() -> None:
    class Recorded:
        def __init__(self) -> None:
            self.orders: list[tuple[str, list[list[int]]]] = []

        def run(self, orders: Sequence[Order]) -> list[list[Timed]]:
            self.orders.append((orders[0].what, [order.numbers for order in orders]))
            return [[Timed(number, 0.0, 1.0) for number in order.numbers] for order in orders]

    clients = Recorded()
    place = storage.Place("x", (Spot("directory", "/a"), Spot("directory", "/b")))
    found = storage.measure(clients, place, "n", Path("/l"), storage.dealt(5, 3), 10, 0)  # type: ignore[arg-type]
    mine, next_ones = [[0, 3], [1, 4], [2]], [[1, 4], [2], [0, 3]]
    assert clients.orders == [
        ("prepare", [[]]), ("write", mine), ("read", next_ones), ("check", next_ones), ("raw", mine), ("check", mine), ("remove", [[]]),
    ]  # fmt: skip
    assert [(one.client, one.number) for one in found if one.pattern == "read"] == [(0, 1), (0, 4), (1, 2), (2, 0), (2, 3)]
    assert storage.together(found[:5]) == 5 * 10


def test_samples_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        storage.read_samples(tmp_path / "absent")
    (tmp_path / "x").write_text("{}\n")
    with pytest.raises(UsageError, match="x:1: "):
        storage.read_samples(tmp_path / "x")
    (tmp_path / "x").write_text("")
    with pytest.raises(UsageError, match="does not say what was measured"):
        storage.read_samples(tmp_path / "x")


def test_a_server_that_does_not_come_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(Failed, match="sh does not listen: no room"),
        servers.server(["sh", "-c", "echo no room >&2"], servers.free_port(), tmp_path / "log"),
    ):
        raise AssertionError("it has begun")


def test_files_to_s3_and_back(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    (tmp_path / "local").mkdir()
    with servers.moto(tmp_path) as running:
        place = storage.Place(running.title, (running.spot,))
        report = storage.run_storage([place], storage.Settings(2, (1000, 9_000_000), 2, 1), tmp_path / "local")
    assert report.errors == {}
    assert len(report.samples) == 2 * 2 * len(storage.PATTERNS)


def test_sizes_in_words() -> None:
    assert [storage.size_words(size) for size in (1, 1000, 1500, 10**6, 2 * 10**9)] == ["1 B", "1 kB", "1.5 kB", "1 MB", "2 GB"]


# ── network ────────────────────────────────────────────────────────────────────────────────────────


def test_every_node_fetches_from_every_other_one(tmp_path: Path) -> None:
    kept: list[network.Head | network.Sample] = []
    with Session(3) as session:
        report = network.run_network(session.file, network.Settings(300_000, 1), keep=kept.append)
        with Files(session.file, node=1) as files:
            assert files.listdir("/") == []
            files.write_bytes("/x", b"content", rank=0)
            inode = files.info("/x").ino
            with pytest.raises(Failed, match="node 1 could not fetch from node 2"):
                network.fetch(files, 2, inode)  # which has it not
            assert network.fetch(files, 0, inode) > 0
            assert [extent.nodes for extent in files.locate("/x")] == [(0,)]
    pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert [(pair.source, pair.target) for pair in report.pairs()] == pairs
    assert all(pair.rate > 0 and pair.latency_s > 0 for pair in report.pairs())
    assert sorted((one.source, one.target) for one in report.samples if one.size == 300_000) == pairs
    assert set(report.questions()) == {0, 1, 2}
    (tmp_path / "kept").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in kept))
    again = network.read_samples(tmp_path / "kept")
    assert (network.picture(again), network.report_text(again)) == (network.picture(report), network.report_text(report))
    assert len(ElementTree.fromstring(network.picture(report)).findall(".//{*}title")) == 2 * len(pairs)
    (tmp_path / "none").write_text("")
    with pytest.raises(UsageError, match="network --samples"):
        network.read_samples(tmp_path / "none")


@pytest.mark.parametrize("less", [False, True])
def test_the_best_cell_of_a_heat_map_has_the_deepest_colour(less: bool) -> None:
    height, elements = heatmap.heat("t", ["node 0", "node 1"], {(0, 1): 5.0, (1, 0): 2000.0}, less_is_better=less)
    found = {cell[0].text: cell.get("fill") for cell in ElementTree.fromstring(f"<g>{''.join(elements)}</g>").iter("rect") if len(cell)}
    deep, pale = "#1b6ca8", "#f7fbff"
    assert found == {"node 0 to node 1: 5": deep if less else pale, "node 1 to node 0: 2,000": pale if less else deep}
    assert max(float(cell.get("y", 0)) for cell in ElementTree.fromstring(f"<g>{''.join(elements)}</g>").iter("rect")) < height
