"""Runs over real node processes: placement, transfers small and large, stealing, reductions, and nodes and submitters that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fs_session import kill, running
from waiting import until

import amfs as package
from amfs.net.records import SessionRecord

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def nodes() -> Iterator[str]:
    """The name of a session of four nodes with one slot each, which no test harms."""
    with running(4) as session:
        yield session.name


@pytest.fixture
def doomed() -> Iterator[SessionRecord]:
    """Another one, to be harmed."""
    with running(4) as session:
        yield session


def start(here: Path, text: str) -> subprocess.Popen[str]:
    """A run that goes on by itself."""
    (here / "list").write_text(text)
    command = [sys.executable, "-m", "amfs", "run", "--session", os.environ["AMFS_SESSION"], "-q", "list"]
    return subprocess.Popen(command, cwd=here, stderr=subprocess.PIPE, text=True)


def lines(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0


def run(amfs: Run, here: Path, text: str, *options: str, status: int = 0) -> dict[str, object]:
    """The summary, as JSON."""
    (here / "list").write_text(text)
    done = amfs("run", "--session", os.environ["AMFS_SESSION"], "--output", "json", *options, "list", cwd=here)
    assert done.returncode == status, done.stderr + done.stdout
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def total(summary: dict[str, object], field: str) -> int:
    return sum(stage[field] for stage in summary["stages"])  # type: ignore[attr-defined]


def test_pairs_forced_apart_travel_and_arrive(nodes: str, amfs: Run, tmp_path: Path) -> None:
    count = 40
    text = "".join(f"p{i} -b sh -node {i % 4} -o t{i} -a -c 'echo {i} > t{i}'\n" for i in range(count))
    text += "".join(f"c{i} -b cp -node {(i + 1) % 4} -i t{i} -o o{i} -a t{i} o{i}\n" for i in range(count))
    summary = run(amfs, tmp_path, text)
    assert [(tmp_path / f"o{i}").read_text() for i in range(count)] == [f"{i}\n" for i in range(count)]
    assert total(summary, "between_nodes_bytes") == sum(len(f"{i}\n") for i in range(count))


@pytest.mark.parametrize("size", [1 << 16, (1 << 16) + 1, 5_000_000, 50_000_000])
def test_files_of_any_size_travel_whole(nodes: str, amfs: Run, tmp_path: Path, size: int) -> None:
    text = f"p -b sh -node 1 -o t -a -c 'head -c {size} /dev/urandom > t'\n"
    text += "s -b sh -node 1 -i t -o here -a -c 'md5sum < t > here'\nc -b sh -node 3 -i t -o there -a -c 'md5sum < t > there'\n"
    summary = run(amfs, tmp_path, text)
    assert (tmp_path / "here").read_text() == (tmp_path / "there").read_text()
    assert total(summary, "between_nodes_bytes") == size


def test_one_transfer_however_many_readers_a_node_has(nodes: str, amfs: Run, tmp_path: Path) -> None:
    size = 300_000
    text = f"p -b sh -node 0 -o t -a -c 'head -c {size} /dev/zero > t'\n"
    text += "".join(f"c{i} -b cat -node 2 -i t -stdout o{i} -a t\n" for i in range(10))
    assert total(run(amfs, tmp_path, text), "between_nodes_bytes") == size


def test_tasks_go_to_their_data(nodes: str, amfs: Run, tmp_path: Path) -> None:
    text = "".join(f"p{i} -b sh -node {i} -o t{i} -a -c 'head -c 1000000 /dev/zero > t{i}'\n" for i in range(4))
    text += "".join(f"c{i} -b sh -i t{i} -o o{i} -a -c 'wc -c < t{i} > o{i}'\n" for i in range(4))
    assert total(run(amfs, tmp_path, text), "between_nodes_bytes") == 0


def test_idle_nodes_steal(nodes: str, amfs: Run, tmp_path: Path) -> None:
    """One task in four is long: nodes that drew the short ones help out."""
    text = "".join(f"t{i} -b sleep -a {0.6 if i % 4 == 0 else 0.01}\n" for i in range(32))
    began = time.monotonic()
    run(amfs, tmp_path, text, "--placement", "even")
    assert time.monotonic() - began < 8 * 0.6 + 3, "one node did all the long ones"


def test_a_reduction_runs_as_a_tree_over_the_nodes(nodes: str, amfs: Run, tmp_path: Path) -> None:
    count = 30
    text = "".join(f"m{i} -b sh -node {i % 4} -o p{i} -a -c 'echo {i} > p{i}'\n" for i in range(count))
    names = " ".join(f"p{i}" for i in range(count))
    text += f"r -b sh -reduce 4 -i {names} -o all -a -c 'out=$1; shift; cat \"$@\" > $out' sh {{out}} {{in}}\n"
    run(amfs, tmp_path, text)
    assert (tmp_path / "all").read_text() == "".join(f"{i}\n" for i in range(count))


def test_a_pin_to_a_node_that_is_not_there_fails_clearly(nodes: str, amfs: Run, tmp_path: Path) -> None:
    summary = run(amfs, tmp_path, "a -b true -node 9\nb -b true -node-soft 9\n", status=1)
    assert [failure["what"] for failure in summary["failures"]] == ["must run on node 9, which is not there"]  # type: ignore[attr-defined]


def test_failures_cross_nodes(nodes: str, amfs: Run, tmp_path: Path) -> None:
    text = "bad -b sh -node 1 -o x -a -c 'echo no >&2; exit 5'\nafter -b cat -node 2 -i x -a x\nlater -b cat -node 3 -i y -a y\n"
    text = text.replace("after -b cat -node 2 -i x -a x", "after -b cat -node 2 -i x -stdout y -a x") + "fine -b true -node 0\n"
    summary = run(amfs, tmp_path, text, status=1)
    assert total(summary, "upstream_failed") == 2
    assert total(summary, "ok") == 1


@pytest.mark.parametrize("victim", [0, pytest.param(2, marks=pytest.mark.soak)])  # 2: tests/system/test_sessions.py has that, too
def test_a_node_dies_and_the_result_is_the_same(doomed: SessionRecord, tmp_path: Path, victim: int) -> None:
    """Node 0 is manager and dispatcher. Files that only the dead node had are made again."""
    width = 40
    log = tmp_path / "log"
    text = "".join(f"p{i} -b sh -o t{i} -a -c 'sleep 0.1; echo {i} > t{i}; echo >> {log}'\n" for i in range(width))
    text += "".join(
        f"c{i} -b sh -i t{i} t{(i * 7) % width} -o o{i} -a -c 'sleep 0.1; cat t{i} > o{i}; echo >> {log}'\n" for i in range(width)
    )
    text += f"s -b sh -i {' '.join(f'o{i}' for i in range(width))} -o sum -a -c 'cat o* | sort -n > sum'\n"
    going = start(tmp_path, text)
    until(lambda: lines(log) >= width * 5 // 4, "the run does not get on")
    kill(doomed, victim)
    _, said = going.communicate(timeout=90)
    assert going.returncode == 0, said
    assert (tmp_path / "sum").read_text() == "".join(f"{i}\n" for i in range(width))


def test_what_runs_again_counts_once_and_the_loss_is_told(doomed: SessionRecord, tmp_path: Path) -> None:
    """Three files lie on node 2 alone when it dies, and are still wanted."""
    text = "".join(f"p{i} -b sh -node-soft 2 -o t{i} -a -c 'echo {i} > t{i}; echo >> {tmp_path}/made'\n" for i in range(3))
    text += "".join(f"c{i} -b sh -node-soft 2 -i t{i} gate -o o{i} -a -c 'cp t{i} o{i}'\n" for i in range(3))
    text += f"g -b sh -node 3 -o gate -a -c 'touch {tmp_path}/on; until [ -e {tmp_path}/off ]; do sleep 0.05; done; echo > gate'\n"
    (tmp_path / "list").write_text(text)
    command = [sys.executable, "-m", "amfs", "run", "--session", doomed.name, "--output", "json", "--placement", "even", "list"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as going:
        until(lambda: lines(tmp_path / "made") == 3 and (tmp_path / "on").exists())
        time.sleep(1.5)  # so that progress has been told
        kill(doomed, 2)
        until(lambda: lines(tmp_path / "made") > 3, "what is lost is not made again")
        (tmp_path / "off").touch()
        output, said = going.communicate(timeout=90)
    assert going.returncode == 0, said
    events = [json.loads(line) for line in output.splitlines()]
    summary = events[-1]
    again = lines(tmp_path / "made") - 3
    assert (summary["totals"]["ok"], summary["lost_nodes"], summary["reruns"]) == (7, [2], again)
    assert any(note.startswith("node 2 was lost on the way") for note in summary["notes"])
    told = [event["text"] for event in events if event["event"] == "message"]
    assert told == ["node 2 was lost; its files that are still wanted are made again"]
    finished = [event["finished"] for event in events if event["event"] == "progress"]
    assert finished == sorted(finished)


def test_names_that_are_not_utf_8(nodes: str, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"in\xe4")).write_text("content\n")
    (tmp_path / "list").write_bytes(
        b"a\xe4 -b cp -node 1 -i in\xe4 -o t\xff -a in\xe4 t\xff\nb -b cp -node 2 -i t\xff -o out\xfe -a t\xff out\xfe\n"
        b"c\xe4 -b ls -node 3 -a no\xe4where\n"
    )
    command = [sys.executable, "-m", "amfs", "run", "--session", nodes, "list"]
    env = {**os.environb, b"ODD": b"\xf6"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=90, check=False)
    assert done.returncode == 1, done.stderr
    assert (tmp_path / os.fsdecode(b"out\xfe")).read_text() == "content\n"
    assert b"2 tasks finished, 1 failed" in done.stderr


@pytest.mark.root
@pytest.mark.parametrize("size", [40_000, 4_000_000])
def test_a_node_that_is_full_fails_the_reader_and_lives(amfs: Run, tmp_path: Path, size: int) -> None:
    """A small file comes inside a message, a large one through the data port. A half-written one is never read."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=70m", "none", place], check=True)
    try:
        with running(2, "--store", str(place), "--spill", "none") as session:
            store = next(place.glob(f"amfs-*-{session.name}-n1-*"))
            (tmp_path / "v").write_bytes(bytes(size))
            ballast = f"f -b sh -node 1 -after p -a -c 'head -c 200000000 /dev/zero > {store}/ballast; true'\n"
            text = f"p -b cp -node 0 -i v -o p -a v p\n{ballast}l -b ln -node 0 -after f -i p -o q -a p q\n"  # another name takes no room
            text += "c -b sh -node 1 -i q -o w -a -c 'wc -c < q > w'\n"
            summary = run(amfs, tmp_path, text, status=1)
            assert "cannot read its input" in (why := summary["failures"][0]["what"]) or "cannot stage input" in why  # type: ignore[index]
            assert "No space left on device" in why or "node 1 has no room for q: of the memory where its store is 0 B are free" in why
            (store / "ballast").unlink()
            run(amfs, tmp_path, text.replace(f"> {store}/ballast", "> /dev/null"))
            assert (tmp_path / "w").read_text() == f"{size}\n"
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.soak  # waits 20 s, SubmitterLimits.unreachable_s; the simulator ends all nodes, too
def test_all_nodes_die_and_the_run_ends(doomed: SessionRecord, tmp_path: Path) -> None:
    log = tmp_path / "log"
    going = start(tmp_path, "".join(f"{i} -b sh -a -c 'echo >> {log}; sleep 1'\n" for i in range(100)))
    until(lambda: lines(log) >= 4, "the run does not begin")
    for entry in doomed.nodes:
        os.kill(entry.pid, signal.SIGKILL)
    _, said = going.communicate(timeout=90)
    assert going.returncode == 3
    assert "all nodes are lost" in said


@pytest.mark.soak  # the same as in test_left_behind.py, on nodes that others use
def test_a_submitter_that_is_killed_leaves_no_task_running(nodes: str, tmp_path: Path) -> None:
    going = start(tmp_path, f"long -b sh -a -c 'echo $$ > {tmp_path}/pid; exec sleep 300'\n")
    until(lambda: lines(tmp_path / "pid"), "the task does not begin")
    going.kill()
    going.communicate()
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists(), "the nodes still run tasks of a submitter that is gone")


def test_a_python_session_reads_what_lies_on_nodes(nodes: str, tmp_path: Path) -> None:
    with package.Session(session=nodes, base=tmp_path) as session:
        session.submit("echo small > s", outputs=["s"], node=3)
        session.submit("head -c 1000000 /dev/zero > b", outputs=["b"], node=2)
        session.wait()
        assert session.read("s") == b"small\n"
        assert session.read("b") == bytes(1_000_000)
    assert (tmp_path / "s").read_text() == "small\n"


def test_two_runs_share_the_nodes(nodes: str, amfs: Run, tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    going = []
    for number, place in enumerate(places):
        place.mkdir()
        text = "".join(f"p{i} -b sh -o t{i} -a -c 'echo {number}-{i} > t{i}'\nc{i} -b cp -i t{i} -o o{i} -a t{i} o{i}\n" for i in range(30))
        going.append(start(place, text))
    for each in going:
        _, said = each.communicate(timeout=90)
        assert each.returncode == 0, said
    for number, place in enumerate(places):
        assert [(place / f"o{i}").read_text() for i in range(30)] == [f"{number}-{i}\n" for i in range(30)]


def test_a_run_is_resumed_right_after_its_submitter_was_killed(
    nodes: str, amfs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The killed one's run, whose tasks are long, does not go on beside the resumed one, whose tasks are short."""
    width, log = 48, tmp_path / "log"
    text = f"p -b sh -o t -keep t -a -c 'echo made > t; echo $LIFE p >> {log}'\n"
    script = f"echo $LIFE >> {log}; sleep $LENGTH; echo $LIFE >> {log}; cat t > "
    text += "".join(f"c{i} -b sh -i t -o o{i} -a -c '{script} o{i}'\n" for i in range(width))
    monkeypatch.setenv("LIFE", "1")
    monkeypatch.setenv("LENGTH", "2")
    going = start(tmp_path, text)
    until(lambda: lines(log) >= 8, "the run does not get on")
    going.kill()
    going.communicate()
    monkeypatch.setenv("LIFE", "2")
    monkeypatch.setenv("LENGTH", "0.01")
    done = amfs("run", "--session", os.environ["AMFS_SESSION"], "--output", "json", "--resume", "list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"o{i}").read_text() for i in range(width)] == ["made\n"] * width
    told = log.read_text().splitlines()
    assert told == sorted(told, key=lambda line: line[0]), "the two runs ran side by side"
    assert "2 p" not in told and told.count("1") < 2 * width, "the killed run was not ended"


def test_a_run_that_goes_on_cannot_be_resumed(nodes: str, amfs: Run, tmp_path: Path) -> None:
    going = start(tmp_path, f"a -b sh -a -c 'echo >> {tmp_path}/log; until test -e {tmp_path}/stop; do sleep 0.1; done'\n")
    until(lambda: lines(tmp_path / "log") == 1, "the run does not begin")
    refused = amfs("run", "--session", os.environ["AMFS_SESSION"], "--resume", "list", cwd=tmp_path)
    (tmp_path / "stop").touch()
    _, said = going.communicate(timeout=60)
    assert going.returncode == 0, said
    assert refused.returncode == 2 and "still goes on" in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr


@pytest.mark.soak  # tests/scenario/manager_dies.txt has the order of events
def test_readers_that_have_their_input_do_not_mind_that_the_managers_node_dies(doomed: SessionRecord, tmp_path: Path) -> None:
    """Three writers on node 0, readers of 4 s elsewhere: each reads the same bytes before and after."""
    text = "".join(f"w{i} -b sh -node-soft 0 -o f{i} -a -c 'echo $$ > f{i}'\n" for i in range(3))
    text += "".join(
        f"r{i} -b sh -node-soft {i + 1} -i f{i} -o o{i} -a -c 'cat f{i} > o{i}; echo >> {tmp_path}/log; sleep 4; cmp f{i} o{i}'\n"
        for i in range(3)
    )
    going = start(tmp_path, text)
    until(lambda: lines(tmp_path / "log") == 3, "the readers do not begin")
    kill(doomed, 0)
    _, said = going.communicate(timeout=90)
    assert going.returncode == 0, said


def test_a_node_that_fails_every_task_gets_no_more(doomed: SessionRecord, amfs: Run, tmp_path: Path) -> None:
    """A black hole: it would take most of the tasks, as it is done with each so soon."""
    bad = next(entry for entry in doomed.nodes if entry.node == 2)
    (tmp_path / "list").write_text("".join(f"t{i} -b sh -a -c 'test $PPID -ne {bad.pid} && sleep 0.02'\n" for i in range(200)))
    done = amfs("run", "--session", os.environ["AMFS_SESSION"], "list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "node 2 fails tasks that end well elsewhere: it gets no more tasks of this run" in done.stderr
