"""``amfs run --synthetic``: real workflows run to their end without their programs, and every byte of every file is right."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import amfs as package
from amfs.host.processes import is_running
from amfs.libexec import program
from amfs.net.records import load
from amfs.translate.detect import load as load_workflow
from amfs.translate.synthetic import replay
from amfs.workflow.workflow import Workflow

Amfs = Callable[..., subprocess.CompletedProcess[str]]

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
FILES = sorted(
    str(path.relative_to(CORPUS))
    for kind, pattern in (("dax", "*"), ("pegasus5", "*.yml"), ("wfformat", "*.json"))
    for path in (CORPUS / kind).glob(pattern)
    if "INVALID" not in path.name
)
BYTES = 3_000_000  # of all files of a workflow together
SECONDS = 0.3  # of all tasks of a workflow together


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tempfile.mkdtemp(prefix="amfs-t-", dir="/tmp")
    monkeypatch.setenv("AMFS_RUN_DIR", home)
    monkeypatch.delenv("AMFS_SESSION", raising=False)
    yield
    shutil.rmtree(home)


@pytest.fixture
def four() -> str:
    return str(Path(os.environ["AMFS_RUN_DIR"]) / "four")


def scales(workflow: Workflow) -> tuple[float, float]:
    seconds = sum(task.runtime or 0.0 for task in workflow.tasks)
    return min(1.0, SECONDS / seconds) if seconds else 1.0, min(1.0, BYTES / (sum(workflow.sizes.values()) or 1))


def run_and_check(amfs: Amfs, name: str, place: Path, *options: str) -> dict[str, object]:
    """Replay a workflow with all its files kept, and look at each of them."""
    workflow = load_workflow(CORPUS / name)
    time_scale, size_scale = scales(workflow)
    scaled = ("--time-scale", repr(time_scale), "--size-scale", repr(size_scale))
    done = amfs("run", "--synthetic", *scaled, "--keep-all", "-C", str(place), "--output", "json", *options, str(CORPUS / name))
    assert done.returncode == 0, done.stderr + done.stdout
    summary: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    replayed, given = replay(workflow, "x", time_scale=time_scale, size_scale=size_scale)
    assert sum(stage["ok"] for stage in summary["stages"]) == len(workflow.tasks)  # type: ignore[attr-defined]
    made = {name for task in replayed.tasks for name in task.outputs}
    assert {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()} == made | given.keys()
    for file in made | given.keys():
        checked = subprocess.run([program("amfs-synthetic"), "--check", str(place / file), file, str(replayed.sizes[file])])
        assert checked.returncode == 0
    return summary


@pytest.mark.parametrize("name", FILES)
def test_embedded(amfs: Amfs, tmp_path: Path, name: str) -> None:
    run_and_check(amfs, name, tmp_path / "place", "--local", "-j", "2")


#: On several nodes: a large one of each format, and names that are not ASCII. All of them run embedded above.
SOME = [name for name in FILES if any(word in name for word in ("unicode", "CyberShake", "montage-v3", "srasearch"))]


@pytest.mark.slow
@pytest.mark.parametrize("names", [SOME, pytest.param(FILES, marks=pytest.mark.soak)], ids=["some", "all"])
def test_on_four_nodes(amfs: Amfs, tmp_path: Path, four: str, names: list[str]) -> None:
    up = amfs("up", "--nodes", "4", "--slots", "1", "--name", "four")
    assert up.returncode == 0, up.stderr
    nodes = load(Path(four) / "session.json").nodes
    try:
        moved = 0
        for number, name in enumerate(names):
            summary = run_and_check(amfs, name, tmp_path / str(number), "--session", "four")
            assert summary["nodes"] == 4
            moved += sum(stage["between_nodes_bytes"] for stage in summary["stages"])  # type: ignore[attr-defined]
        assert moved > 0, "files went from node to node"
    finally:
        amfs("down", "four")
        left = [node for node in nodes if is_running(node.pid, node.started)]
        for node in left:
            os.kill(node.pid, signal.SIGKILL)
    assert not left


# ── options, and what is refused ───────────────────────────────────────────────────────────────────

TWO = """<adag><job id="a" name="p" runtime="0.4"><uses name="in" link="input" size="5"/><uses name="d/f" link="output" size="100000"
transfer="false"/></job><job id="b" name="q" runtime="0.4"><uses name="d/f" link="input"/>
<uses name="out" link="output" size="33"/></job></adag>
"""


def test_a_replay_leaves_nothing_behind(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    done = amfs("run", "--local", "--synthetic", "--time-scale", "0", "-", input=TWO, env={"TMPDIR": str(tmp_path / "tmp")})
    assert done.returncode == 0, done.stderr
    assert "2 tasks finished" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    assert not list((tmp_path / "tmp").iterdir())


def test_times_and_sizes_are_as_recorded(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "two.dax").write_text(TWO)
    done = amfs("run", "--local", "--synthetic", "--output", "json", "-C", "place", "two.dax")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert 0.8 <= summary["wall_seconds"] < 20
    assert sorted((path.name, path.stat().st_size) for path in (tmp_path / "place").iterdir()) == [("in", 5), ("out", 33)]
    again = amfs("run", "--local", "--synthetic", "-C", "place", "two.dax")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "is not empty" in again.stderr


def test_busy_tasks(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "two.dax").write_text(TWO)
    tasks = replay(load_workflow(tmp_path / "two.dax"), "x", busy=True).workflow.tasks
    assert [task.argv[:3] for task in tasks] == [("x", "-b", "0.4")] * 2
    assert amfs("run", "--local", "--synthetic", "--busy", "--time-scale", "0.1", "two.dax").returncode == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--time-scale", "2"), "--time-scale needs --synthetic"),
        (("--busy",), "--busy needs --synthetic"),
        (("--synthetic", "--resume"), "exclude each other"),
        (("--synthetic", "--size-scale", "1e12"), "the files to begin with take"),
        (("--synthetic", "--size-scale", "-1"), "size-scale"),
        (("--synthetic", "--format", "nonsense"), "unknown format"),
    ],
)
def test_one_clear_line(amfs: Amfs, tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    (tmp_path / "two.dax").write_text(TWO)
    done = amfs("run", "--local", *options, "two.dax")
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_real_run_refuses_two_writers_and_names_them(amfs: Amfs, tmp_path: Path) -> None:
    jobs = "".join(f'<job id="{name}" name="true"><uses name="f" link="output"/></job>\n' for name in "ab")
    (tmp_path / "w.dax").write_text(f"<adag>{jobs}</adag>")
    done = amfs("run", "--local", "w.dax")
    assert (done.returncode, done.stderr) == (2, "amfs: w.dax:2: task b: output 'f' is already written by task a (line 1)\n")
    assert amfs("run", "--local", "--synthetic", "w.dax").returncode == 0


def test_strict(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "w.dax").write_text('<adag><metadata key="k">v</metadata><job id="a" name="true"/></adag>')
    done = amfs("run", "--local", "w.dax")
    assert done.returncode == 0
    assert "w.dax:1: metadata have no meaning here" in done.stderr
    done = amfs("run", "--local", "--strict", "w.dax")
    assert (done.returncode, done.stderr) == (2, "amfs: w.dax:1: metadata have no meaning here\n")


# ── real programs ──────────────────────────────────────────────────────────────────────────────────

REAL = """<adag name="real">
<file name="words"><pfn url="file://{data}" site="local"/></file>
<executable name="sorter"><pfn url="file:///usr/bin/sort" site="local"/></executable>
<job id="b" name="cat"><argument><file name="x/log"/> <file name="sorted"/></argument><stdout name="all"/>
  <uses name="x/log" link="input"/><uses name="sorted" link="input"/><uses name="all" link="output"/></job>
<job id="a" name="sorter"><argument>-r <file name="words"/></argument><stdout name="sorted"/><stderr name="x/log"/>
  <uses name="words" link="input"/><uses name="sorted" link="output" transfer="true"/><uses name="x/log" link="output" transfer="false"/>
  <uses name="maybe" link="output" optional="true"/></job>
<job id="c" name="sh"><argument>-c "test -s {base}/all"</argument></job>
<child ref="c"><parent ref="b"/></child>
</adag>"""


def test_a_dax_with_real_programs(amfs: Amfs, tmp_path: Path) -> None:
    """Catalogs, stated order (c looks at what b left on shared storage), streams, a kept, a scratch and an optional output."""
    data = tmp_path / "elsewhere"
    data.write_text("b\na\nc\n")
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "real.dax").write_text(REAL.format(data=data, base=place))
    done = amfs("run", "--local", "-C", str(place), "real.dax")
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_text() for path in place.iterdir()} == {"all": "c\nb\na\n", "sorted": "c\nb\na\n", "maybe": ""}
    done = amfs("run", "--local", "-C", str(place), "--resume", "real.dax")
    assert done.returncode == 0
    assert "3 done before" in done.stderr


def test_order_without_files_is_kept_and_failure_follows_it(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(
        f"last -b sh -after mid first -a -c 'cat {tmp_path}/log; echo last >> {tmp_path}/log'\n"
        f"mid -b sh -after first -a -c 'sleep 0.2; echo mid >> {tmp_path}/log'\n"
        f"first -b sh -a -c 'sleep 0.2; echo first >> {tmp_path}/log'\n"
        "no -b false -a x\n"
        f"never -b sh -after no -a -c 'echo never >> {tmp_path}/log'\n"
    )
    done = amfs("run", "--local", "-j", "4", "list")
    assert done.returncode == 1
    assert (tmp_path / "log").read_text() == "first\nmid\nlast\n"


def test_order_in_a_session_of_python(tmp_path: Path) -> None:
    """Tasks may name earlier ones that run, have finished or have failed."""
    log = tmp_path / "log"
    with package.Session(slots=2, base=tmp_path) as session:
        session.submit(f"sleep 0.2; echo a >> {log}", id="a")
        session.submit(f"echo b >> {log}", id="b", after=("a",))
        session.wait()
        bad = session.submit("false", id="bad", after=("a", "b"))
        never = session.submit(f"echo never >> {log}", after=("bad",))
        with pytest.raises(package.TaskFailed, match="exit status 1"):
            session.wait([bad])
        with pytest.raises(package.TaskFailed, match="task bad failed"):
            session.wait([never])
        late = session.submit(f"echo never >> {log}", after=("bad",))
        with pytest.raises(package.TaskFailed, match="task bad failed"):
            session.wait([late])
    assert log.read_text() == "a\nb\n"


@pytest.mark.soak  # the simulator ends nodes in such lists, too
def test_order_survives_a_node_that_dies(amfs: Amfs, tmp_path: Path, four: str) -> None:
    """Half of the first tasks have finished when a node, and with it a part of what is known of them, goes."""
    assert amfs("up", "--nodes", "4", "--slots", "1", "--name", "four").returncode == 0
    log = tmp_path / "log"
    lines = [f"a{i} -b sh -retries 2 -a -c 'sleep 0.3; echo a{i} >> {log}'\n" for i in range(12)]
    lines += [f"b{i} -b sh -retries 2 -after a{i} a{(i + 5) % 12} -a -c 'echo b{i} >> {log}'\n" for i in range(12)]
    lines.append(f"c -b sh -after {' '.join(f'b{i}' for i in range(12))} -a -c 'echo c >> {log}'\n")
    (tmp_path / "list").write_text("".join(lines))
    nodes = load(Path(four) / "session.json").nodes
    try:
        command = [sys.executable, "-m", "amfs", "run", "--session", "four", "-q", "list"]
        run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 60
        while not (log.exists() and log.read_text().count("\n") >= 6) and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(next(node.pid for node in nodes if node.node == 2), signal.SIGKILL)
        _, said = run.communicate(timeout=90)
        assert run.returncode == 0, said
    finally:
        amfs("down", "four")
    order = log.read_text().split()
    assert set(order) == {f"{kind}{i}" for kind in "ab" for i in range(12)} | {"c"}
    for i in range(12):
        assert order.index(f"b{i}") > max(order.index(f"a{i}"), order.index(f"a{(i + 5) % 12}"))
    assert order.index("c") > max(order.index(f"b{i}") for i in range(12))


@pytest.mark.parametrize("shared", ["in-place", "stage"])
def test_an_input_that_a_catalog_has_elsewhere(amfs: Amfs, tmp_path: Path, shared: str) -> None:
    """Tasks see it under its name; the file of that name where the user stands is not it. One that has moved away is looked for here."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "other.txt").write_text("far\n")
    (tmp_path / "in.txt").write_text("near\n")
    (tmp_path / "moved.txt").write_text("moved\n")
    paths = f"#amfs path in.txt {tmp_path}/far/other.txt\n#amfs path moved.txt /nowhere/moved.txt\n"
    (tmp_path / "list").write_text(paths + "a -b cat -i in.txt moved.txt -stdout out -a in.txt moved.txt\n")
    done = amfs("run", "--local", "--shared-inputs", shared, "list")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "far\nmoved\n"
    (tmp_path / "moved.txt").unlink()
    done = amfs("run", "--local", "list")
    assert (done.returncode, done.stderr) == (
        2, f"amfs: list:3: input 'moved.txt' of task a does not exist in {tmp_path}, and no task makes it; "
        "nor is it at /nowhere/moved.txt, where the workflow's catalog has it\n",
    )  # fmt: skip
