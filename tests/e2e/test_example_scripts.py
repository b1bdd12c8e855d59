"""The parallel scripts of examples/: their answers are right, and the same as when bash runs them without amfs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amfs.net.records import list_all

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
PATIENCE_S = 300  # only turns a hang into a failure


def run(*words: object, cwd: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=env, text=True, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


LONG = pytest.mark.soak  # iterations; the listings of the paper run in tests/system/test_shell.py


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["montecarlo", "wordlength", "blast", pytest.param("pagerank", marks=LONG), pytest.param("kmeans", marks=LONG)]
)
@pytest.mark.timeout(600)
def test_answers_are_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))  # of the programs and of list_all
    here, out = EXAMPLES / name, tmp_path / "out"
    match name:
        case "pagerank":
            graph = here / "graphs" / "wiki-Vote.txt.gz"
            given = [graph, out, 2, "3e-8"]
            checked = [graph, out]
        case "montecarlo":
            given, checked = [out, 4, 20000], [out]
        case "wordlength":
            text = here / "text" / "ulysses.txt.gz"
            given, checked = [text, out, 5], [text, out]
        case "kmeans":
            points = tmp_path / "points"
            run(sys.executable, here / "points.py", 600, points, cwd=tmp_path)
            given, checked = [points, out, 3, 4], [points, out]
        case _:
            genome, queries = here / "genome" / "lambda_virus.fa", tmp_path / "queries"
            run(sys.executable, here / "queries.py", genome, 12, queries, cwd=tmp_path)
            given, checked = [genome, queries, out, 3], [queries, out]
    run("amfs", "shell", "-N", 1, "-s", 2, here / f"{name}.sh", *given, cwd=tmp_path)
    run(sys.executable, here / "check.py", *checked, cwd=tmp_path)
    assert not list_all(), "the session is left"


@pytest.mark.parametrize("name", ["montecarlo", "wordlength"])
def test_without_amfs_they_are_ordinary_scripts(name: str, tmp_path: Path) -> None:
    here, out = EXAMPLES / name, tmp_path / "out"
    text = here / "text" / "ulysses.txt.gz"
    given, checked = ([out, 4, 20000], [out]) if name == "montecarlo" else ([text, out, 3], [text, out])
    (tmp_path / "work").mkdir()
    run("bash", "-c", '. "$0"; exec bash "$@"', EXAMPLES / "sequential.sh", here / f"{name}.sh", *given, cwd=tmp_path / "work")
    run(sys.executable, here / "check.py", *checked, cwd=tmp_path)
