"""Swift scripts over real nodes: tasks run where scripts place them (Hercules, §III), and a script outlives a node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fs_session import kill, running
from waiting import until

from amfs.net.records import SessionRecord
from amfs.runs.trace import read_trace

Run = Callable[..., subprocess.CompletedProcess[str]]

FIGURE_3 = Path(__file__).parents[2] / "examples" / "swift" / "hercules.swift"

PINNED = """
import location; import io;
app (file o) make(int i) { "sh" "-c" ("head -c 200000 /dev/zero > $0; echo " + fromint(i) + " >> $0") o; }
app (file o) count(file i) { "wc" "-c" i @stdout=o; }
foreach i in [0:8] {
  file made = @location=location(i %% 3, HARD, RANK) make(i);
  location there = location(get_rank(made), HARD, NODE);
  file size<sprintf("size-%i.txt", i)> = @location=there count(made);
}
"""

DEEP = """
app (file o) step(file i, int k) { "sh" "-c" "sleep 0.02; cat $1 > $0; echo $2 >> $0" o i k; }
app (file o) first() { "echo" "start" @stdout=o; }
file chains[];
foreach i in [0:11] {
  file all[];
  all[0] = first();
  foreach k in [1:12] { all[k] = step(all[k - 1], k); }
  file last<sprintf("chain-%i.txt", i)> = all[12];
  chains[i] = last;
}
"""


@pytest.fixture(scope="module")
def nodes() -> Iterator[str]:
    with running(3) as session:
        yield session.name


@pytest.fixture
def doomed() -> Iterator[SessionRecord]:
    with running(3) as session:
        yield session


def placed(trace: Path) -> list[tuple[str, int]]:
    """(function, node) of each task."""
    found = read_trace(trace)
    return sorted(zip((found.label_names[at] for at in found.label), found.node, strict=True))


def test_figure_3_of_the_hercules_paper(nodes: str, amfs: Run, tmp_path: Path) -> None:
    done = amfs("run", "--session", nodes, "--trace", "t.json", str(FIGURE_3), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = [line.split() for line in done.stdout.splitlines() if line.startswith("file")]
    assert sorted(int(words[1]) for words in told) == list(range(8))
    assert {words[4] for words in told} <= {"0", "1", "2"}
    assert len(placed(tmp_path / "t.json")) == 16
    assert [(tmp_path / f"part-{i}.txt").read_text() for i in range(8)] == ["data\n"] * 8


def test_hard_places_are_kept_and_data_is_found(nodes: str, amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "pinned.swift").write_text(PINNED)
    done = amfs("run", "--session", nodes, "--trace", "t.json", "pinned.swift", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert placed(tmp_path / "t.json") == sorted((name, i % 3) for i in range(9) for name in ("count", "make"))
    assert [(tmp_path / f"size-{i}.txt").read_text().split()[0] for i in range(9)] == ["200002"] * 9


def test_a_file_is_made_where_set_rank_says(nodes: str, amfs: Run, tmp_path: Path) -> None:
    script = """
    app (file o) make() { "echo" "x" @stdout=o; }
    foreach i in [0:8] {
      string name = sprintf("f%i", i);
      void placed = set_rank(name, (i + 1) %% 3);
      wait (placed) { file f<name> = make(); printf("%i %i", (i + 1) %% 3, get_rank(f)); }
    }
    """
    (tmp_path / "ranks.swift").write_text(script)
    done = amfs("run", "--session", nodes, "--trace", "t.json", "ranks.swift", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert placed(tmp_path / "t.json") == [("make", node) for node in (0, 0, 0, 1, 1, 1, 2, 2, 2)]
    assert all(len(set(line.split())) == 1 for line in done.stdout.splitlines())


def test_a_rank_that_is_not_there_is_refused(nodes: str, amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "far.swift").write_text('import location; app () f() { "true" } @location=location(7, HARD, RANK) f();')
    done = amfs("run", "--session", nodes, "far.swift", cwd=tmp_path)
    assert done.returncode == 1
    assert "must run on node 7, which is not there" in done.stderr


def test_python_functions_run_on_the_nodes(nodes: str, amfs: Run, tmp_path: Path) -> None:
    script = """
    import python;
    app (file o) late(string s) { "echo" s @stdout=o; }
    string code = "import os, time; time.sleep(0.3); a = os.environ.get('AMFS_TASK_ID', 'nowhere') + ' ' + str(os.getppid())";
    foreach i in [0:5] { string s = python_persist(code, "a"); file f<sprintf("o%i", i)> = late(s); }
    """
    (tmp_path / "p.swift").write_text(script)
    done = amfs("run", "--session", nodes, "p.swift", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len({(tmp_path / f"o{i}").read_text() for i in range(6)}) == 3, "each node has one slot"
    (tmp_path / "beside.py").write_text("value = 7")
    (tmp_path / "own.swift").write_text('import python; trace(python("import beside", "beside.value"));')
    done = amfs("run", "--session", nodes, "own.swift", cwd=tmp_path)
    assert done.stdout == "trace: 7\n", done.stderr
    (tmp_path / "wrong.swift").write_text('import python; trace(python("x = 1 / 0", "x"));')
    done = amfs("run", "--session", nodes, "wrong.swift", cwd=tmp_path)
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr and "wrong.swift:1:22" in done.stderr


def test_a_script_outlives_a_node(doomed: SessionRecord, tmp_path: Path) -> None:
    """Files that only the dead node had are made again."""
    (tmp_path / "deep.swift").write_text(DEEP)
    command = [sys.executable, "-m", "amfs", "run", "--session", os.environ["AMFS_SESSION"], "-q", "--journal", "done", "deep.swift"]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    until(lambda: (tmp_path / "done").exists() and (tmp_path / "done").stat().st_size > 1000)
    kill(doomed, 1)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 0, said
    wanted = "start\n" + "".join(f"{k}\n" for k in range(1, 13))
    assert [(tmp_path / f"chain-{i}.txt").read_text() for i in range(12)] == [wanted] * 12
