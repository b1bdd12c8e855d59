"""Sub-workflows whose documents jobs of the workflow make: they run when they have been made, and nothing old is taken for them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import amfs as package

Amfs = Callable[..., subprocess.CompletedProcess[str]]

HEAD = "pegasus: '5'\nname: x\njobs:\n"


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))


def job(id: str, script: str, reads: str = "", writes: str = "", scratch: str = "") -> dict[str, Any]:
    """A job that runs a script; it also notes in ``log`` that it ran."""
    uses: list[dict[str, Any]] = [{"lfn": each, "type": "input"} for each in reads.split()]
    uses += [{"lfn": each, "type": "output", "stageOut": each not in scratch.split()} for each in writes.split()]
    return {"type": "job", "name": "sh", "id": id, "uses": uses, "script": script}


def sub(id: str, file: str, reads: str = "", writes: str = "") -> dict[str, Any]:
    return {**job(id, "", reads, writes), "type": "pegasusWorkflow", "file": file}


class Place:
    """A directory with an outer workflow and documents that its jobs copy as if they made them."""

    def __init__(self, path: Path, amfs: Amfs) -> None:
        self.path = path
        self.amfs = amfs
        (path / "src").mkdir()

    def write(self, name: str, *jobs: dict[str, Any], **more: Any) -> str:
        found = []
        for each in jobs:
            script = each.pop("script")
            if each["type"] == "job":
                logged = f"echo {name}:{each['id']} >> {self.path}/log; {script}"
                each["arguments"] = ["-c", "'" + logged.replace("'", '"') + "'"]
            found.append(each)
        (self.path / name).write_text(json.dumps({"pegasus": "5.0.4", "name": "w", **more, "jobs": found}))
        return name

    def maker(self, made: str, id: str = "M", **more: str) -> dict[str, Any]:
        return job(id, f"cp {self.path}/src/{made} {made}" + more.pop("then", ""), writes=f"{made} {more.get('also', '')}", scratch=made)

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self.amfs("run", "--local", "-j", "2", *options, "outer.yml")

    def ran(self) -> list[str]:
        """The tasks that have run since last asked."""
        log = self.path / "log"
        found = sorted(log.read_text().split()) if log.exists() else []
        log.unlink(missing_ok=True)
        return found

    def text(self, name: str) -> str:
        return (self.path / name).read_text()


@pytest.fixture
def place(tmp_path: Path, amfs: Amfs) -> Place:
    return Place(tmp_path, amfs)


def ordinary(place: Place) -> None:
    """M makes the document and a file; S reads that file and makes two; R reads one of them and T comes after all."""
    inner = [job("p", "cat a > mid", "a", "mid", scratch="mid"), job("q", "cat mid mid > out", "mid", "out"), job("z", "sleep 0.3")]
    place.write("src/made.yml", *inner)
    place.write("made.yml", job("ancient", "echo ancient > out", writes="out"))
    maker = place.maker("made.yml", then="; echo A > a", also="a")
    maker["uses"][-1]["stageOut"] = False
    after = [{"id": "S", "children": ["T"]}]
    reads = job("R", "cat out > result", "out", "result")
    jobs = [reads, job("T", ""), sub("S", "made.yml", "a", "out"), maker]
    place.write("outer.yml", *jobs, jobDependencies=after)


def test_a_made_workflow_runs_when_it_is_made(place: Place) -> None:
    ordinary(place)
    done = place.run()
    assert done.returncode == 0, done.stderr
    assert place.text("result") == "A\nA\n"
    ran = place.text("log").split()
    assert set(ran[-2:]) == {"outer.yml:R", "outer.yml:T"}, "who depends on the sub-workflow waits for all of it"
    assert sorted(ran[:-2]) == ["outer.yml:M", "src/made.yml:p", "src/made.yml:q", "src/made.yml:z"]
    assert "7 tasks finished" in done.stderr


def test_resumed_it_does_the_rest_only(place: Place) -> None:
    ordinary(place)
    source = place.text("src/made.yml")
    (place.path / "src" / "made.yml").write_text(source.replace("cat mid mid > out", "cat mid mid > out; test -e $HOME/good"))
    env = {"HOME": str(place.path)}
    done = place.amfs("run", "--local", "-j", "2", "outer.yml", env=env)
    assert done.returncode == 1
    assert "task S.q failed: " in done.stderr
    assert not (place.path / "result").exists()
    place.ran()
    (place.path / "good").touch()
    done = place.amfs("run", "--local", "--resume", "outer.yml", env=env)
    assert done.returncode == 0, done.stderr
    assert place.text("result") == "A\nA\n"
    ran = place.ran()
    assert "src/made.yml:z" not in ran, "what is done in the sub-workflow is done"
    assert {"src/made.yml:q", "outer.yml:R", "outer.yml:T"} <= set(ran)
    done = place.amfs("run", "--local", "--resume", "outer.yml", env=env)
    assert (done.returncode, place.ran()) == (0, [])


def test_a_document_that_has_changed_since_is_made_again(place: Place) -> None:
    ordinary(place)
    assert place.run().returncode == 0
    place.ran()
    (place.path / "made.yml").write_text("tampered with")
    assert place.run("--resume").returncode == 0
    ran = place.ran()
    assert "outer.yml:M" in ran
    assert "src/made.yml:q" in ran, "with its document its tasks are made again"


def test_a_document_made_again_and_not_as_it_was_fails_its_job(place: Place) -> None:
    ordinary(place)
    assert place.run().returncode == 0
    changed = place.text("src/made.yml").replace("cat mid mid > out", "cat mid > out")
    (place.path / "src" / "made.yml").write_text(changed)
    (place.path / "out").unlink()
    done = place.run("--resume")
    assert done.returncode == 1
    assert "its sub-workflow made.yml, made by task M, cannot be run: it was made again, and not as it was" in done.stderr


def test_documents_of_which_nothing_can_be_made_fail_their_jobs(place: Place) -> None:
    documents = {
        "made.yml:": "",
        "{name}:4: job A: a job needs a name": f"{HEAD}- {{id: A}}\n",
        "{name}:1: ": "{{{",
        "program 'no-such-program' of task {job}.A was not found": f"{HEAD}- {{id: A, name: no-such-program}}\n",
        "input 'gone' of task {job}.A does not exist": f"{HEAD}- {{id: A, name: 'true', uses: [{{lfn: gone, type: input}}]}}\n",
        "output '../x' lies outside of the directory": f"{HEAD}- {{id: A, name: 'true', uses: [{{lfn: ../x, type: output}}]}}\n",
        "{name}:1: job A: has no name": "<adag name='x'><job id='A'/></adag>",
        "it does not make 'out.7', which the job declares and other tasks read": f"{HEAD}- {{id: A, name: 'true'}}\n",
    }
    jobs = []
    for number, document in enumerate(documents.values()):
        (place.path / "src" / f"{number}.made.yml").write_text(document)
        jobs += [place.maker(f"{number}.made.yml", f"M{number}"), sub(f"S{number}", f"{number}.made.yml", "", f"out.{number}")]
        jobs.append(job(f"R{number}", "", f"out.{number}", f"r.{number}"))
    place.write("outer.yml", *jobs, job("X", "echo fine > x", "", "x"))
    done = place.run("--no-journal")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for number, says in enumerate(documents):
        start = f"amfs: task S{number} failed: its sub-workflow {number}.made.yml, made by task M{number}, cannot be run: "
        (line,) = [line for line in done.stderr.splitlines() if line.startswith(start)]
        assert says.format(name=f"{number}.made.yml", job=f"S{number}") in line
        assert not (place.path / f"r.{number}").exists()
    assert place.text("x") == "fine\n", "what does not depend on them runs"


def test_a_made_document_that_contains_itself(place: Place) -> None:
    place.write("src/made.yml", sub("A", "made.yml", "made.yml", "out"))
    place.write("outer.yml", place.maker("made.yml"), sub("S", "made.yml", "", "out"), job("R", "", "out", "r"))
    done = place.run("--no-journal")
    assert done.returncode == 1
    assert "task S.A failed: its sub-workflow made.yml, made by task M, cannot be run: " in done.stderr
    assert "the document contains itself" in done.stderr


def test_a_document_that_is_not_made(place: Place) -> None:
    ordinary(place)
    (place.path / "src" / "made.yml").unlink()
    done = place.run("--no-journal")
    assert done.returncode == 1
    assert "task M failed: did not make: made.yml" in done.stderr
    assert not (place.path / "result").exists(), "the old document is not run"
    assert place.ran() == ["outer.yml:M"]


def test_a_file_that_the_sub_workflow_does_not_make(place: Place) -> None:
    place.write("src/made.yml", job("p", ""))
    place.write("outer.yml", place.maker("made.yml"), sub("S", "made.yml", "", "out"), job("R", "", "out", "r"))
    done = place.run("--no-journal")
    assert done.returncode == 1
    assert "task S failed: its sub-workflow made.yml, made by task M, cannot be run: it does not make 'out'" in done.stderr


def test_documents_made_within_made_documents(place: Place) -> None:
    own = {"replicas": [{"lfn": "own", "pfn": f"{place.path}/own.c"}]}
    place.write("src/c.yml", job("x", "cat f own > g", "f own", "g"), replicaCatalog=own)
    makes = job("m", f"cp {place.path}/src/c.yml c.yml", writes="c.yml", scratch="c.yml")
    # The name own means something else in b: only what is declared is the same file.
    others = [job("own", "echo b > own", writes="own", scratch="own"), job("y", "cat own g > h", "own g", "h")]
    place.write("src/b.yml", makes, sub("T", "c.yml", "f", "g"), *others)
    (place.path / "data").mkdir()
    (place.path / "data" / "f").write_text("f\n")
    (place.path / "own.c").write_text("c\n")
    found = {"replicas": [{"lfn": "f", "pfn": "data/f"}]}
    place.write("outer.yml", place.maker("b.yml"), sub("S", "b.yml", "f", "h"), job("R", "cat h > r", "h", "r"), replicaCatalog=found)
    done = place.run()
    assert done.returncode == 0, done.stderr
    assert place.text("r") == "b\nf\nc\n"
    place.ran()
    (place.path / "r").unlink()
    done = place.run("--resume")
    assert done.returncode == 0, done.stderr
    assert place.ran() == ["outer.yml:R"]


def test_documents_that_make_themselves_for_ever_end(place: Place) -> None:
    again = job("m", f"cp {place.path}/src/made.yml made.yml", writes="made.yml")
    place.write("src/made.yml", again, sub("S", "made.yml", "made.yml"))
    place.write("outer.yml", place.maker("made.yml"), sub("S", "made.yml", "made.yml"))
    done = place.run("--no-journal")
    assert done.returncode == 1
    assert "sub-workflows lie deeper than 10 levels in each other" in done.stderr


def test_more_tasks_behind_a_made_workflow_than_there_are_credits(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import amfs.config as config
    from amfs.engine import submitter

    ordinary(place)
    monkeypatch.chdir(place.path)
    limits = config.SubmitterLimits(window=2, window_per_slot=1, parked_max=2, batch=2)
    monkeypatch.setattr(submitter, "SubmitterLimits", lambda: limits)
    text = json.loads(place.text("outer.yml"))
    waiting = [{**text["jobs"][1], "id": f"T{i}", "arguments": []} for i in range(20)]
    text["jobs"] = waiting + text["jobs"]
    text["jobDependencies"][0]["children"] += [each["id"] for each in waiting]
    (place.path / "outer.yml").write_text(json.dumps(text))
    result = package.run("outer.yml", slots=2)
    assert result.ok, str(result)
    assert place.text("result") == "A\nA\n"


def test_a_replay_takes_a_made_workflow_for_one_task(place: Place) -> None:
    ordinary(place)
    done = place.run("--synthetic")
    assert done.returncode == 0, done.stderr
    assert "a replay makes no documents, so it is replayed as one task" in done.stderr
    assert "4 tasks finished" in done.stderr


def test_on_the_nodes_of_a_session(place: Place) -> None:
    own = {"replicas": [{"lfn": "own", "pfn": f"{place.path}/own.c"}]}
    place.write("src/made.yml", job("p", "cat a own > out", "a own", "out"), replicaCatalog=own)
    (place.path / "own.c").write_text("c\n")
    maker = place.maker("made.yml", then="; echo A > a", also="a")
    place.write("outer.yml", maker, sub("S", "made.yml", "a", "out"), job("R", "cat out > result", "out", "result"))
    up = place.amfs("up", "--nodes", "2", "--slots", "1", "--name", "made")
    assert up.returncode == 0, up.stderr
    try:
        for shared in ("in-place", "stage"):
            options = ("--no-journal", "--shared-inputs", shared, "--hashed-outputs", "3")
            done = place.amfs("run", "--session", "made", *options, "outer.yml")
            assert done.returncode == 0, done.stderr
            (result,) = place.path.rglob("result")
            assert result.read_text() == "A\nc\n"
            result.unlink()
    finally:
        place.amfs("down", "made")
