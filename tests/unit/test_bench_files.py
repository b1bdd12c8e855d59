"""The benchmarks of the file system: the client in C, the order of turns, tables, layouts, and the commands on small directories."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from amfs.bench.process import Failed
from amfs.errors import UsageError
from amfs.vocabulary.partition import PartitionTable
from benchmarks import directories, envelope, filecopy, layouts, modes, plots, programs, striping
from benchmarks.clients import Client
from benchmarks.commands import files as bench_files
from benchmarks.commands.files import ended_by_signals
from benchmarks.envelope import METRICS, Place, Report, Runner, Sample, Settings, run_places, summarise
from benchmarks.envelope_table import matrix, rate, report_text, share, table_1, targets

QUICK = Settings(clients=(1, 4), repeat=2, seconds=0.01, mib=1)


@pytest.fixture(scope="module")
def program() -> Path:
    return programs.build()["envelope"]


@pytest.fixture
def memory() -> Iterator[Path]:
    with directories.workplace(directories.memory_directory()) as place:
        yield place


# ── the client ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clients", [1, 3, 11])
def test_every_phase_counts_what_it_did(program: Path, tmp_path: Path, clients: int) -> None:
    with Client(program, clients, "x", [tmp_path]) as client:
        assert client.phase("create", count=20).operations == 20 * clients
        assert len(list((tmp_path / "x").iterdir())) == 20 * clients
        assert client.phase("write", count=30).operations == 30 * clients
        for name in ("stat", "open", "read", "readn1"):
            done = client.phase(name, count=45, shift=1)
            assert done.operations == 45 * clients
            assert done.seconds > 0
            assert done.rate == pytest.approx(done.operations / done.seconds)
        assert client.phase("once", shift=1).operations == 30 * clients
        assert client.phase("bigwrite", count=3).operations == 3 * clients
        assert {path.stat().st_size for path in (tmp_path / "x").glob("b*")} == {3 << 20}
        assert client.phase("bigread", shift=1).operations == 3 * clients
        client.phase("drop", shift=1)
        again = client.phase("bigreadn1", seconds=0.01).operations
        assert again >= 3 * clients
        assert again % 3 == 0  # whole passes
        assert client.phase("unlink").operations == 50 * clients
        assert client.phase("clean").operations == clients
    assert list(tmp_path.iterdir()) == []


def test_phases_end_when_their_time_is_over(program: Path, memory: Path) -> None:
    with Client(program, 2, "x", [memory]) as client:
        client.phase("write", count=5)
        started = time.monotonic()
        done = client.phase("read", seconds=0.1, shift=1)
        assert 0.1 <= done.seconds <= time.monotonic() - started < 5
        assert done.operations > 10


def test_clients_are_dealt_to_the_directories(program: Path, tmp_path: Path) -> None:
    """Two paths to one directory, as two mounts of one file system are."""
    (tmp_path / "real").mkdir()
    (tmp_path / "other").symlink_to("real")
    with Client(program, 3, "x", [tmp_path / "real", tmp_path / "other"]) as client:
        client.phase("create", count=1)
        assert sorted(path.name for path in (tmp_path / "real" / "x").iterdir()) == ["c0-0", "c1-0", "c2-0"]
        client.phase("clean")


def test_wrong_content_is_found(program: Path, tmp_path: Path) -> None:
    with Client(program, 2, "x", [tmp_path]) as client:
        client.phase("write", count=2)
        (tmp_path / "x" / "w1-1").write_bytes(b"z" * 1024)
        with pytest.raises(Failed, match=r"once: client 0: wrong content in .*/x/w1-1$"):
            client.phase("once", shift=1)
    with Client(program, 2, "y", [tmp_path]) as client:
        client.phase("bigwrite", count=2)
        with (tmp_path / "y" / "b1-0").open("r+b") as file:
            file.truncate(1 << 20)
        with pytest.raises(Failed, match=r"wrong length of .*/y/b1-0$"):
            client.phase("bigread", shift=1)


def test_a_client_that_fails_says_what_and_nobody_stays(program: Path, tmp_path: Path) -> None:
    with Client(program, 4, "x", [tmp_path]) as client:
        client.phase("create", count=1)
        (tmp_path / "x" / "c2-1").touch()
        with pytest.raises(Failed, match=r"create: client 2: cannot create .*/x/c2-1: File exists"):
            client.phase("create", count=1)
        with pytest.raises(Failed):
            client.phase("create", count=1)
    assert running(str(tmp_path)) == []


def running(word: str) -> list[str]:
    """Processes with ``word`` in their command line, zombies excepted."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if word.encode() in text:
            found.append(text.decode(errors="replace"))
    return found


def test_a_client_that_cannot_start_or_hangs_is_reported(program: Path, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="No such file or directory"):
        Client(program, 1, "x", [tmp_path / "absent"])
    with pytest.raises(Failed, match="File name too long"):
        Client(program, 1, "x", [tmp_path / ("y/" * 2000)])
    with pytest.raises(Failed, match="cannot start"):
        Client(tmp_path / "absent", 1, "x", [tmp_path])
    with pytest.raises(Failed, match="no good"):
        Client(program, 1, "x", [tmp_path], command=lambda words: ["sh", "-c", "echo no good >&2; exit 3"])
    with Client(program, 2, "x", [tmp_path], hang_seconds=0.3) as client, pytest.raises(Failed, match=r"did not end create within"):
        client.phase("create", seconds=60)
    deadline = time.monotonic() + 5
    while running(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(str(tmp_path)) == []


def test_another_client_reads_what_it_is_told_to_believe_in(program: Path, tmp_path: Path) -> None:
    with Client(program, 1, "x", [tmp_path]) as writer, Client(program, 1, "x", [tmp_path]) as reader:
        writer.phase("write", count=7)
        writer.phase("bigwrite", count=2)
        reader.phase("havesmall", count=7)
        assert reader.phase("once").operations == 7
        reader.phase("havebig", count=2)
        assert reader.phase("bigread").operations == 2
        reader.phase("havesmall", count=8)
        with pytest.raises(Failed, match="cannot open"):
            reader.phase("once")
        writer.phase("clean")
    assert list(tmp_path.iterdir()) == []


def test_orders_that_are_none(program: Path, tmp_path: Path) -> None:
    for order in ("foo 0 0 0", "create", "create x 0 0", "read 0 0 -1"):
        result = subprocess.run([program, "-", "1", "x", tmp_path], input=f"{order}\n", capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout) == (2, "error not an order\n")
    for arguments in ([], ["-", "0", "x", "y"], ["-", "65", "x", "y"]):
        result = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert result.returncode == 2
        assert result.stderr.startswith("usage: envelope")


# ── directories ────────────────────────────────────────────────────────────────────────────────────


def test_file_systems_are_told_apart(memory: Path, tmp_path: Path) -> None:
    assert directories.file_system(memory) == "tmpfs"
    assert directories.file_system("/proc") == "proc"
    assert directories.file_system("/proc/self/..") == "proc"
    assert not directories.in_memory(directories.disk_directory())
    (tmp_path / "link").symlink_to(memory)
    assert directories.file_system(tmp_path / "link") == "tmpfs"


def test_a_workplace_is_gone_afterwards(tmp_path: Path) -> None:
    with directories.workplace(tmp_path) as place:
        (place / "a").mkdir()
        (place / "a" / "b").touch()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="cannot write to"), directories.workplace(tmp_path / "absent"):
        pass


# ── turns and ratios ───────────────────────────────────────────────────────────────────────────────


class Counted(Runner):
    """Rates made up from a count of calls: the order of measurements, without measuring."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def operations(self, place: Place, clients: int) -> dict[str, float]:
        self.calls.append(("operations", place.key))
        return {"create": 10.0 if place.key == "tmpfs" else 4.0}

    def bandwidths(self, place: Place, clients: int) -> dict[str, float]:
        self.calls.append(("bandwidths", place.key))
        return {"write_bw": 8.0}


TMPFS = Place("tmpfs", "tmpfs", ("/m",))
OURS = Place("ours", "ours", ("/o",), "copy")


def test_a_place_is_measured_between_its_references_in_changing_order() -> None:
    runner = Counted()
    found = envelope.measure(runner, TMPFS, OURS, 4, 0)
    envelope.measure(runner, TMPFS, OURS, 4, 1)
    keys = [key for _, key in runner.calls]
    assert keys == ["tmpfs", "ours"] * 2 + ["ours", "tmpfs"] * 2
    assert found["create"] == Sample(4.0, 10.0)
    assert found["create"].ratio == 0.4
    assert found["write_bw"].ratio == 1.0


def test_targets_hold_for_four_clients_on_one_node() -> None:
    metric = METRICS[0]
    samples = [Sample(1, 10), Sample(5, 10), Sample(30, 100)]
    place = Place("a", "a", (), "passthrough")
    result = summarise(place, 4, metric, samples)
    assert (result.ratio, result.target, result.passed) == (0.3, 0.045, True)
    assert summarise(place, 1, metric, samples).target is None
    assert summarise(place._replace(nodes=2), 4, metric, samples).target is None
    assert summarise(place._replace(judged_as=""), 4, metric, samples).passed is None
    assert summarise(place, 4, metric, [Sample(1, 100)]).passed is False


def test_every_target_is_of_a_metric() -> None:
    keys = {metric.key for metric in METRICS}
    assert len(keys) == len(METRICS) == 12
    assert len(envelope.EIGHT) == 8
    for wanted in envelope.TARGETS.values():
        assert set(wanted) <= keys


@pytest.fixture(scope="module")
def report() -> Report:
    """A small real run: tmpfs twice, a disk, and a place that is not there."""
    with (
        directories.workplace(directories.memory_directory()) as a,
        directories.workplace(directories.memory_directory()) as b,
        directories.workplace(directories.disk_directory()) as c,
    ):
        places = [
            Place("ours@1", "ours <1>", (str(b),), "passthrough", nodes=1),
            Place("ours@2", "ours <2>", (str(b),), "passthrough", nodes=2),
            Place("disk", "disk", (str(c),)),
            Place("gone", "gone", (str(c / "absent"),), "copy"),
        ]
        found = run_places(Place("tmpfs", "tmpfs", (str(a),)), places, QUICK)
        assert [list(place.iterdir()) for place in (a, b, c)] == [[], [], []]
    return found


def test_a_run_has_every_metric_of_every_place(report: Report) -> None:
    for clients in QUICK.clients:
        for place in ("tmpfs", "ours@1", "ours@2", "disk"):
            for metric in METRICS:
                result = report.find(place, clients, metric.key)
                assert result is not None
                assert result.value > 0
                assert place == "tmpfs" or len(result.samples) == QUICK.repeat
    assert {place.key: bool(place.error) for place in report.places} == {
        "tmpfs": False, "ours@1": False, "ours@2": False, "disk": False, "gone": True,
    }  # fmt: skip
    again = msgspec.json.decode(msgspec.json.encode(report), type=Report)
    assert again == report


def test_the_text_shows_rates_targets_scales_and_what_failed(report: Report) -> None:
    text = report_text(report)
    assert "gone: not measured: " in text
    assert "No such file or directory" in text
    assert {line.split()[-1] for line in targets(report)[0].splitlines()[1:]} <= {"PASS", "miss"}
    assert len(targets(report)[0].splitlines()) == 1 + len(envelope.TARGETS["passthrough"])
    (block,) = matrix(report, 1)
    assert block.splitlines()[0].split()[:3] == ["1", "client", "tmpfs"]
    assert len(block.splitlines()) == 1 + len(METRICS)
    titles = [title for title, _ in table_1(report)]
    assert titles == ["ours: nodes, 1 clients", "ours: nodes, 4 clients", "ours <1>: clients"]
    for _, rows in table_1(report):
        assert len(rows) == 3
        assert all(cell.endswith("x") for cell in rows[2][1:])


def test_wide_tables_are_broken() -> None:
    names = [Place(f"p{number}", f"a place with a long name {number}", ()) for number in range(9)]
    results = [summarise(place, 1, metric, [Sample(2.0, 1.0)]) for place in names for metric in METRICS]
    described = [envelope.Described(place.key, place.title, 0, "", "") for place in names]
    blocks = matrix(Report("m", 1, 0.1, 1, [1], described, results), 1)
    assert len(blocks) > 1
    assert all(len(line) <= 140 for block in blocks for line in block.splitlines())
    assert all(any(place.title in block for block in blocks) for place in names)


@given(value=st.floats(1e-4, 1e12))
def test_numbers_are_short(value: float) -> None:
    for text in (rate(value, "ops/s"), share(min(value, 1e4))):
        assert len(text) <= 12
    number = rate(value, "ops/s").split()
    factor = {"k": 1e3, "M": 1e6}[number[1]] if len(number) > 1 else 1.0
    assert float(number[0]) * factor == pytest.approx(value, rel=0.06, abs=0.6)


# ── pictures ───────────────────────────────────────────────────────────────────────────────────────


def test_pictures_hold_a_bar_for_each_ratio(report: Report) -> None:
    root = ElementTree.fromstring(plots.envelope_picture(report))
    space = "{http://www.w3.org/2000/svg}"
    bars = [element for element in root.iter(f"{space}rect") if element.find(f"{space}title") is not None]
    assert len(bars) == len(QUICK.clients) * 3 * 8
    words = [element.text for element in root.iter(f"{space}text")]
    assert "ours <1>" in words
    assert "Create tput" in words
    height = float(root.attrib["viewBox"].split()[3])
    for bar in bars:
        assert 0 <= float(bar.attrib["y"]) <= float(bar.attrib["y"]) + float(bar.attrib["height"]) <= height


# ── file copy ──────────────────────────────────────────────────────────────────────────────────────


@given(nodes=st.integers(1, 9), files=st.integers(1, 5), seed=st.integers(0, 99), way=st.sampled_from(filecopy.WAYS))
def test_the_four_configurations(nodes: int, files: int, seed: int, way: str) -> None:
    count = files * nodes
    evenly = sorted(number % nodes for number in range(count))
    table = PartitionTable.even(range(nodes))
    for configuration in filecopy.CONFIGURATIONS:
        placed = filecopy.plan(configuration, way, nodes, count, seed)
        data = [each.data for each in placed]
        assert sorted(data) == evenly if configuration.informed else data == [table.node_of(f"file{number}") for number in range(count)]
        assert configuration.aware or sorted(each.reader for each in placed) == evenly
        assert not configuration.aware or all(each.data == each.reader == each.writer for each in placed)
        assert way == "mounted" or all(each.data == each.writer for each in placed)
        assert way == "staged" or configuration.aware or sorted(each.writer for each in placed) == evenly


def test_filecopy_checks_what_it_reads(tmp_path: Path) -> None:
    program = programs.build()["filecopy"]

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *map(str, words)], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run("write", "f", 1_000_001, 300_000, "log").returncode == 0
    assert (tmp_path / "f").stat().st_size == 1_000_001
    assert run("read", "f", 1_000_001, 300_000, "log").returncode == 0
    assert [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()] == ["write", "read"]
    assert "wrong length of f" in run("read", "f", 1_000_000, 300_000, "log").stderr
    assert "wrong content in f" in run("read", "f", 1_000_001, 200_000, "log").stderr
    assert "No such file" in run("read", "g", 1, 1, "log").stderr
    assert run("copy", "f", 1, 1, "log").returncode == 2


def test_times_that_are_missing_are_an_error(tmp_path: Path) -> None:
    log, one = tmp_path / "log", filecopy.Settings(size=1)
    log.write_text("write 0.5\nread 0.25\nwrite 1\n")
    with pytest.raises(Failed, match="2 write and 1 read tasks of 1"):
        filecopy.sample(one, log, 1, 1.0)
    assert not log.exists()
    with pytest.raises(Failed, match="0 write and 0 read tasks"):
        filecopy.sample(one, log, 1, 1.0)
    log.write_text("write 0.5\nread 0.25\n")
    assert filecopy.sample(one, log, 1, 2.0) == filecopy.Sample(2 << 20, 4 << 20, 1 << 20)


# ── layouts ────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=30, deadline=None)
@given(tiles=st.integers(1, 40), nodes=st.integers(1, 9), kind=st.sampled_from(["montage", "aggregation"]))
def test_no_byte_is_lost_in_a_layout(tiles: int, nodes: int, kind: str) -> None:
    workflow = layouts.montage(tiles, 0.1) if kind == "montage" else layouts.aggregation(tiles, 700_001)
    placed = layouts.place(workflow, nodes)
    total = sum(workflow.sizes.values())
    striped = layouts.striped_bytes(workflow, placed, PartitionTable.even(range(nodes)))
    whole = layouts.whole_bytes(workflow, placed, nodes)
    assert sum(striped) == total
    assert sum(whole) >= total
    assert layouts.balance(striped) >= 1.0
    written = [name for task, _ in placed.tasks for name in task.outputs]
    assert sorted(written) == sorted(workflow.sizes)
    assert {name for task, _ in placed.tasks for name in task.inputs} <= set(written)


def test_stripes_are_even_where_whole_files_are_not() -> None:
    for nodes in (4, 16, 64):
        for workflow in (layouts.montage(36 * nodes), layouts.aggregation(36 * nodes, 8_000_000)):
            placed = layouts.place(workflow, nodes)
            for table in (PartitionTable.even(range(nodes)), striping.session_table(nodes)):
                assert layouts.balance(layouts.striped_bytes(workflow, placed, table)) <= 1.1
            assert layouts.balance(layouts.whole_bytes(workflow, placed, nodes)) > 1.5


def test_a_task_runs_where_its_bytes_are() -> None:
    placed = layouts.place(layouts.aggregation(7, 10), 3)
    assert [node for _, node in placed.tasks[:7]] == [0, 1, 2, 0, 1, 2, 0]
    assert placed.tasks[7][1] == 0
    assert layouts.whole_bytes(layouts.aggregation(7, 10), placed, 3) == [70 + 70, 20, 20]


def test_rows_of_striping_are_judged_by_the_fullest_node() -> None:
    assert striping.row("w", "striped", [100, 110, 90, 100], [100, 100, 100, 100]).passed is True
    uneven = striping.row("w", "striped", [100, 140, 60, 100])
    assert (uneven.passed, uneven.fullest, uneven.measured, uneven.computed) == (False, 1.4, False, None)
    assert striping.row("w", "whole", [1, 0]).target is None
    found = striping.run_striping(striping.Settings(real=0, tiles=36, nodes=(4,)))
    assert [(each.workload, each.layout, each.passed) for each in found.rows] == [
        ("Montage", "whole", None), ("Montage", "striped", True), ("N-1 aggregation", "whole", None), ("N-1 aggregation", "striped", True),
    ]  # fmt: skip
    assert len(striping.report_text(found).splitlines()) == 7


def test_stripes_lie_where_the_file_system_puts_them() -> None:
    """The arithmetic against the metadata shard itself."""
    from amfs._native import Meta

    table = PartitionTable.even(range(5))
    meta = Meta(0)
    meta.set_table(table.owners, table.version)
    for ino in (1, 77, (5 << 40) | 3, (1023 << 40) | 2**31):
        first = layouts.first_partition(ino, len(table.owners))
        for index in (0, 1, 2, 1000, 5000):
            assert meta.stripe_partition(ino, index) == (first + index) % len(table.owners)
            assert meta.owner(meta.stripe_partition(ino, index)) == table.owners[(first + index) % len(table.owners)]


# ── commands ───────────────────────────────────────────────────────────────────────────────────────


def test_the_envelope_command_measures_a_directory(memory: Path, tmp_path: Path) -> None:
    plot = tmp_path / "p.svg"
    words = ["envelope", str(memory), "--clients", "2", "--seconds", "0.01", "--size", "1", "--repeat", "1", "--plot", str(plot)]
    result = CliRunner().invoke(bench_files.envelope, [*words[1:], "--output", "json"])
    assert result.exit_code == 0, result.output
    found = msgspec.json.decode(result.stdout, type=Report)
    huge = ["huge"] if os.geteuid() == 0 else []
    assert [place.key for place in found.places] == ["tmpfs", str(memory), *huge, "disk"]
    assert found.find(str(memory), 2, "open") is not None
    ElementTree.parse(plot)
    assert list(memory.iterdir()) == []


def test_the_command_line_and_the_benchmarks_agree() -> None:
    assert bench_files.MODE_KEYS == modes.KEYS
    assert bench_files.WAYS == filecopy.WAYS
    assert {key for keys in bench_files.FUSES.values() for key in keys} <= set(modes.KEYS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_benchmark_as_ctrl_c_does(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["envelope", "/nonexistent"], "is not a directory"),
        (["envelope", "/tmp", "--clients", "1,x"], "not a list of numbers"),
        (["envelope", "/tmp", "--clients", "0"], "from 1 to 64"),
        (["envelope", "/tmp", "--judge", "x"], "there are targets for"),
        (["envelope", "/tmp", "--only", "copy"], "leave out the directories"),
        (["envelope", "--nodes", "5"], "from 1 to 4"),
        (["envelope", "--fuse", "fusepy", "--only", "staged"], "is nothing of"),
        (["filecopy", "--only", "nothing"], "Invalid value for '--only'"),
        (["storage", "/tmp", "--sizes", "1kB,x"], "a size such as"),
        (["storage", "/tmp", "--sizes", "0"], "at least one byte"),
        (["storage", "/nonexistent"], "is not a directory"),
        (["filecopy", "--nodes", "0"], "from 1 to 64"),
    ],
)
def test_commands_that_make_no_sense(words: list[str], said: str) -> None:
    result = subprocess.run([sys.executable, "-m", "benchmarks", *words], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
