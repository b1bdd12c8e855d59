"""``benchmarks staging``: task lists of both ways, tasks that stage their files, real runs over a directory and S3, and the pictures."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from amfs.bench.process import Failed
from amfs.errors import SystemSetupError, UsageError
from amfs.translate.detect import load
from benchmarks import servers, stage, staging, timelines
from benchmarks.mounts import Session
from benchmarks.storage import Place
from benchmarks.storage_clients import Spot


def small(work: Path, hours: int = 2) -> list[Any]:
    """LMPS with a grid of six buses."""
    work.mkdir()
    steps: list[Any] = staging.ensemble("lmps").prepare(work, hours, 6)
    return steps


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(2) as running:
        yield running


# ── task lists ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("inputs", [[], ["1"], ["2", "a b", "0"]])
@pytest.mark.parametrize("outputs", [[], ["0"], ["3", "--", ""]])
def test_the_arguments_of_a_task_that_stages(inputs: list[str], outputs: list[str]) -> None:
    for command in (["p"], ["p", "1", "2"]):
        assert stage.parted(stage.words_of("t", inputs, outputs, command)) == ("t", inputs, outputs, command)


def test_both_lists_have_the_same_order(tmp_path: Path) -> None:
    step = staging.ensemble("steps").Step
    steps = [
        step("a", "one", "/bin/cp", ["in put", "b's"], ["in put"], ["b's", "rest"]),
        step("b", "two", "/bin/cp", ["b's", "out"], ["b's"], ["out"]),
    ]
    assert staging.outside(steps) == (["in put"], ["rest", "out"])
    (tmp_path / "staged").write_text(staging.staged_list(steps))
    first, second = load(str(tmp_path / "staged")).tasks
    assert (first.label, first.inputs, first.outputs, second.after) == ("one", (), (), ("a",))
    assert stage.parted(list(second.argv[3:])) == ("b", ["b's"], ["out"], ["/bin/cp", "b's", "out"])
    (tmp_path / "shared").write_text(staging.shared_list(steps, "s3://x/y"))
    found = load(str(tmp_path / "shared"))
    files = [(task.label, task.inputs, task.outputs) for task in found.tasks]
    assert files == [("one", ("in put",), ("b's", "rest")), ("two", ("b's",), ("out",))]
    assert staging.shared_list(steps, "") == staging.shared_list(steps, "s3://x/y").split("\n", 3)[3]  # three come from outside, or leave


def test_a_program_that_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemSetupError, match="makeblastdb is not installed"):
        staging.prepare("blast", tmp_path / "work", 2)


# ── a task ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_stages_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "store" / "in").write_text("content")
    monkeypatch.chdir(tmp_path / "sandbox")
    monkeypatch.setenv(stage.STORE, msgspec.json.encode(Spot("directory", str(tmp_path / "store"))).decode())
    monkeypatch.setenv(stage.NOTES, str(tmp_path / "notes"))
    copy = [shutil.which("cp") or "", "in", "out"]
    assert stage.stage(stage.words_of("t", ["in"], ["out"], copy)) == 0
    assert (tmp_path / "store" / "out").read_text() == "content"
    (note,) = [msgspec.json.decode(line, type=stage.Note) for line in (tmp_path / "notes").read_bytes().splitlines()]
    assert note.task == "t"
    assert len(note.marks) == 4
    assert note.marks == sorted(note.marks)
    assert stage.stage(stage.words_of("t", [], ["never"], ["/bin/sh", "-c", "touch never; exit 7"])) == 7
    assert stage.stage(stage.words_of("t", [], ["never"], ["/bin/sh", "-c", "kill -9 $$"])) == 137
    assert stage.stage(stage.words_of("t", ["absent"], ["never"], copy)) == 1
    assert "t: FileNotFoundError" in capfd.readouterr().err
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["in", "out"]
    assert len((tmp_path / "notes").read_bytes().splitlines()) == 1  # of what went well


# ── runs ───────────────────────────────────────────────────────────────────────────────────────────


def check_spans(way: str, spans: list[staging.Span], steps: list[Any]) -> None:
    assert sorted(span.task for span in spans) == sorted(step.id for step in steps)
    for span in spans:
        assert span.begun > 0  # since the command was started
        times = [time for _, begin, end in span.parts for time in (begin, end)]
        assert len(times) == (10 if way == "staged" else 2)
        assert times == sorted(times)
        assert (times[0], times[-1]) == (span.begun, span.ended)


def test_staged_tasks_over_a_directory(tmp_path: Path, session: Session) -> None:
    (tmp_path / "store").mkdir()
    place = Place("directory", (Spot("directory", str(tmp_path / "store")),))
    steps = small(tmp_path / "lmps")
    run, *spans = staging.Attempt(session, "lmps", "staged", place, tmp_path / "lmps", steps, tmp_path / "run").carry_out(0)
    assert (run.way, run.tasks, run.nodes) == ("staged", 2, 2)
    assert run.answer.startswith("2 hours, each proven optimal")
    assert run.seconds > max(span.ended for span in spans)
    check_spans("staged", spans, steps)
    assert list((tmp_path / "store").iterdir()) == []


def test_a_wrong_answer_fails(tmp_path: Path, session: Session) -> None:
    (tmp_path / "store").mkdir()
    place = Place("directory", (Spot("directory", str(tmp_path / "store")),))
    (step,) = small(tmp_path / "lmps", 1)
    wrong = step._replace(program="/bin/sh", arguments=["-c", f"echo hour,0,cost,1 >{step.outputs[0]}"])
    with pytest.raises(Failed, match=r"lmps, shared, directory: wrong: .* cost: "):
        staging.Attempt(session, "lmps", "shared", place, tmp_path / "lmps", [wrong], tmp_path / "run").carry_out(0)
    assert list((tmp_path / "store").iterdir()) == []


def test_shared_data_comes_from_a_bucket_and_goes_there(tmp_path: Path, session: Session) -> None:
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    with servers.moto(tmp_path) as running:
        place = Place(running.title, (running.spot,))
        steps = small(tmp_path / "lmps", 1)
        run, *spans = staging.Attempt(session, "lmps", "shared", place, tmp_path / "lmps", steps, tmp_path / "run").carry_out(0)
    assert run.answer.startswith("1 hours, each proven optimal")
    check_spans("shared", spans, steps)


# ── reports and pictures ───────────────────────────────────────────────────────────────────────────


def made_up(nodes: tuple[int, ...]) -> list[Any]:
    """The samples of two turns of three tasks."""
    lines: list[Any] = [staging.Head("m", "2000-01-01", 1, 2, {"lmps": 3}, 1.0)]
    for count in nodes:
        for turn in range(2):
            for number, way in enumerate(staging.WAYS):
                of = ("lmps", way, "disk", count, turn)
                lines.append(staging.Run(*of, 3, 4.0 + turn + number, "fine"))
                marks = [0.1, 0.2, 0.5, 0.6] if way == "staged" else []
                lines += [
                    staging.Span(*of, f"t{task}", "solve", task % count, 0, task + 0.0, task + 0.7, [task + mark for mark in marks])
                    for task in range(3)
                ]
    return lines


@pytest.mark.parametrize("nodes", [(2,), (1, 2)])
def test_what_was_kept_is_shown_again(tmp_path: Path, nodes: tuple[int, ...]) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in made_up(nodes)))
    report = staging.read_samples(path)
    staged, shared = report.rows()[:2]
    assert (staged.series, staged.seconds, staged.ratio) == ("staged, disk", 4.5, 1.0)
    assert staged.parts == pytest.approx({"start and end": 0.6, "stage in": 0.3, "compute": 0.9, "stage out": 0.3})
    assert (shared.series, shared.ratio) == ("shared, disk", 5.5 / 4.5)
    assert shared.parts == pytest.approx({"start and end": 0, "stage in": 0, "compute": 2.1, "stage out": 0})
    assert "fine" in staging.report_text(report)
    drawn = ElementTree.fromstring(timelines.picture(report))
    titles = [text.text or "" for text in drawn.findall(".//{*}text") if text.get("font-weight")]
    if len(nodes) > 1:
        assert titles == ["lmps, 3 tasks: seconds of the whole run (lines: medians, dots: single runs)"]
        assert [len(line.get("points", "").split()) for line in drawn.findall(".//{*}polyline")] == [2, 2]
        assert len(drawn.findall(".//{*}circle")) == len(report.runs) == 8
    else:
        assert titles[1:] == ["lmps, staged, disk: the whole run took 5.0 s", "lmps, shared, disk: the whole run took 6.0 s"]
        steps = [line.get("d", "").count("V") for line in drawn.findall(".//{*}path") if line.get("fill") == "none"]
        assert steps == [3, 3]  # one step up for each task


def test_samples_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "none").write_text("")
    with pytest.raises(UsageError, match="staging --samples"):
        staging.read_samples(tmp_path / "none")
