"""``amfs info`` and ``amfs graph`` as a person uses them, and Makeflow run for real."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

CORPUS = Path(__file__).parent.parent / "data" / "corpus"
MONTAGE = str(CORPUS / "pegasus5" / "montage-v3-79.yml")
Amfs = Callable[..., "subprocess.CompletedProcess[str]"]


def test_info(amfs: Amfs) -> None:
    result = amfs("info", MONTAGE)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"montage ({MONTAGE})"
    assert lines[1].split(None, 1) == ["tasks", "79 in 8 levels; at most 42 side by side (level 2)"]
    assert lines[2].split(None, 1) == ["edges", "193: 193 by files"]
    assert lines[3].split(None, 1) == ["files", "134: 22 shared inputs, 109 intermediate, 1 intermediate and kept, 2 final"]
    assert lines[4].startswith("  critical path 8 tasks: ID0000011 → ")
    assert ["mDiffFit", "42", "2", "210", "42"] in [line.split() for line in lines]
    assert "registerReplica has no meaning here" in result.stderr


def test_info_of_a_recorded_run(amfs: Amfs) -> None:
    result = amfs("info", str(CORPUS / "wfformat" / "srasearch-10a-003.json"))
    assert "bytes         16.5 GB" in result.stdout
    assert "run time" in result.stdout


def test_info_as_json(amfs: Amfs) -> None:
    shape = json.loads(amfs("info", MONTAGE, "--output", "json").stdout)
    assert (shape["tasks"], shape["edges"], shape["depth"], shape["width"]) == (79, 193, 8, 42)
    assert shape["kinds"][0]["kind"] == "mProject"
    assert any("registerReplica" in remark for remark in shape["remarks"])


def test_info_of_nothing_and_of_a_cycle(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert "none" in amfs("info", "empty").stdout
    (tmp_path / "cycle").write_text("1 -b p -i a -o b\n2 -b p -i b -o a\n")
    result = amfs("info", "cycle")
    assert result.returncode == 2
    assert result.stderr == "amfs: cycle:1: cycle of tasks, each waiting for the one before it: 1 -> 2 -> 1\n"


@pytest.mark.parametrize(
    ("name", "start"),
    [("x.svg", "<svg "), ("x.dot", "digraph "), ("x.gv", "digraph "), ("x.mmd", "---\ntitle: "), ("x.mermaid", "---\ntitle: ")],
)
def test_graph_goes_by_the_name(amfs: Amfs, tmp_path: Path, name: str, start: str) -> None:
    result = amfs("graph", MONTAGE, "-o", name)
    assert (result.returncode, result.stdout) == (0, "")
    assert (tmp_path / name).read_text().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_graph_to_stdout_is_svg(amfs: Amfs) -> None:
    root = ElementTree.fromstring(amfs("graph", MONTAGE, "--all").stdout)
    assert len(root.findall(".//{http://www.w3.org/2000/svg}rect[@rx='5']")) == 79


@pytest.mark.skipif(not shutil.which("rsvg-convert"), reason="needs rsvg-convert")
def test_graph_as_png(amfs: Amfs, tmp_path: Path) -> None:
    assert amfs("graph", MONTAGE, "-o", "x.png").returncode == 0
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_graph_refuses_what_it_cannot_do(amfs: Amfs, tmp_path: Path) -> None:
    result = amfs("graph", MONTAGE, "-o", "x.jpeg")
    assert result.returncode == 2
    assert "the name x.jpeg says no form" in result.stderr
    result = amfs("graph", MONTAGE, "-o", "gone/x.svg")
    assert result.returncode == 2
    assert "cannot write gone/x.svg" in result.stderr
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    result = amfs("graph", MONTAGE, "-o", "x.png", env={"PATH": str(bin_dir)})
    assert result.returncode == 5
    assert "PNG needs rsvg-convert" in result.stderr


MAKEFLOW = """\
# words of two texts, counted
WORDS=tr -s ' ' '\\\\n'
MAKEFLOW_OUTPUTS=a.words total
export LC_ALL=C

a.words: a.txt
\t$WORDS < a.txt > a.words
b.words->out: b.txt->in
\t@WORDS=cat
\t$WORDS in | sort > out
.MAKEFLOW CATEGORY sum
total: a.words b.words count.sh
\t./count.sh a.words b.words > total
"""


def test_a_makeflow_runs(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "Makeflow").write_text(MAKEFLOW)
    (tmp_path / "a.txt").write_text("one two  three\n")
    (tmp_path / "b.txt").write_text("z\ny\n")
    (tmp_path / "count.sh").write_text("#!/bin/sh\ncat $1 $2\n")
    (tmp_path / "count.sh").chmod(0o755)
    result = amfs("run", "Makeflow")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "total").read_text() == "one\ntwo\nthree\ny\nz\n"
    assert (tmp_path / "a.words").read_text() == "one\ntwo\nthree\n"
    assert not (tmp_path / "b.words").exists()


def test_a_pegasus_workflow_runs_with_its_catalogs_beside_it(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "numbers").write_text("3\n1\n2\n")
    (tmp_path / "replicas.yml").write_text("replicas:\n- {lfn: f.in, pfns: [{site: local, pfn: data/numbers}]}\n")
    (tmp_path / "transformations.yml").write_text(
        "transformations:\n- {name: order, sites: [{name: local, pfn: /usr/bin/sort, type: installed}]}\n"
        "- {name: first, sites: [{name: local, pfn: /usr/bin/head, type: installed}]}\n"
    )
    (tmp_path / "workflow.yml").write_text(
        "pegasus: 5.0.4\nname: w\njobs:\n"
        "- {type: job, name: first, id: B, stdout: f.out, arguments: [-n, 1, f.mid], uses: [{lfn: f.mid, type: input}, "
        "{lfn: f.out, type: output}]}\n"
        "- {type: job, name: order, id: A, arguments: [-n -o f.mid, f.in], uses: [{lfn: f.in, type: input}, "
        "{lfn: f.mid, type: output, stageOut: false}]}\n"
        "jobDependencies:\n- {id: A, children: [B]}\n"
    )
    result = amfs("run", "workflow.yml")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "f.out").read_text() == "1\n"
    assert not (tmp_path / "f.mid").exists()
    assert not (tmp_path / "f.in").exists()


@pytest.fixture
def api_workflow(tmp_path: Path) -> Callable[[str], Path]:
    """A directory with what Pegasus' own Python API wrote, as if it had been written there."""

    def make(name: str) -> Path:
        for path in (CORPUS.parent / "pegasus-api" / name).iterdir():
            (tmp_path / path.name).write_text(path.read_text().replace("/data/run", str(tmp_path)))
        (tmp_path / "f.a").write_text("3\n1\n2\n")
        (tmp_path / "alpha.csv").write_text("csv\n")
        return tmp_path

    return make


def test_what_the_api_of_pegasus_writes_runs_unchanged(amfs: Amfs, api_workflow: Callable[[str], Path]) -> None:
    where = api_workflow("everything")
    result = amfs("run", "--local", "workflow.yml")
    assert result.returncode == 0, result.stderr
    assert (where / "f.c").read_text() == (where / "f.d").read_text() == "1\n2\n3\ncsv\n"
    assert (where / "state.txt").read_text() == ""  # a checkpoint file that the program does not write
    assert not (where / "f.b").exists()
    for words in ("hooks have no", "metadata have no", "bypass has no", "registerReplica has no", "checkpoint file 'state.txt'"):
        assert words in result.stderr


def test_what_the_api_of_pegasus_writes_with_catalogs_beside_it_runs(amfs: Amfs, api_workflow: Callable[[str], Path]) -> None:
    where = api_workflow("beside")
    assert amfs("run", "--local", "-q", "workflow.yml").returncode == 0
    assert (where / "o").read_text() == "1\n2\n3\n"
    (where / "o").unlink()
    result = amfs("run", "--local", "outer.yml")
    assert result.returncode == 0, result.stderr
    assert "4 tasks finished" in result.stderr
    assert (where / "res").read_text() == "3\n2\n1\n"
    assert (where / "last").read_text() == "1\n2\n3\n"
    assert not (where / "mid").exists()


def test_strict_refuses_what_has_no_meaning_here(amfs: Amfs, api_workflow: Callable[[str], Path]) -> None:
    api_workflow("everything")
    result = amfs("translate", "--strict", "--to", "jsonl", "workflow.yml")
    assert result.returncode == 2
    assert "amfs: workflow.yml:" in result.stderr
    assert result.stdout == ""
