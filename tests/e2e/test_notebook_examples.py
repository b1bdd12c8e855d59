"""The notebooks of examples/ run, with the answers checked in them, and PageRank goes on after a restart of its kernel."""

from __future__ import annotations

import re
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import amfs
from amfs.net.records import list_all

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*/*.ipynb"))
PATIENCE_S = 240  # only turns a hang into a failure
pytestmark = pytest.mark.timeout(300)


def client(path: Path) -> NotebookClient:
    return NotebookClient(
        nbformat.read(path, as_version=4), timeout=PATIENCE_S, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )


def text_of(notebook: nbformat.NotebookNode) -> str:
    return "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))


#: A cheap one of each kind: functions and tasks; queued tasks. The others are for soak runs. PageRank is below.
CHEAP = ("montecarlo", "wordlength")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem in CHEAP else pytest.mark.soak) for path in NOTEBOOKS if path.stem != "pagerank"],
    ids=lambda path: path.stem,
)
def test_notebooks_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_EXAMPLE_SIZE", {"kmeans": "0.1", "montecarlo": "1e6", "blast": "24"}.get(path.stem, "1"))
    client(path).execute()
    assert not list_all(), "the session is left"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_with_their_output(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count == at for at, cell in enumerate(code, 1)), "run it again: tools/run_notebooks.py"
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert (path.parent / "README.md").exists()


@pytest.mark.soak
def test_pagerank_goes_on_after_a_restart_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMFS_EXAMPLE_PAUSE", "0.05")
    first = client(EXAMPLES / "pagerank" / "pagerank.ipynb")
    first.create_kernel_manager()
    first.start_new_kernel()
    first.start_new_kernel_client()
    channel = first.kc
    assert channel is not None
    for cell in first.nb.cells:
        if cell.cell_type == "code":
            channel.execute(cell.source)
            if "found = " in cell.source:
                break
    end = time.monotonic() + PATIENCE_S

    def reached() -> int:
        try:
            with amfs.Cluster("pagerank") as cluster:
                names = [entry.name for entry in cluster.ls("/votes")]
        except (amfs.SessionError, OSError):
            return 0
        return max((int(name[5:]) for name in names if re.fullmatch(r"round\d+", name)), default=0)

    while reached() < 3:
        assert time.monotonic() < end
        time.sleep(0.1)
    first._cleanup_kernel()  # in the middle of it
    monkeypatch.setenv("AMFS_EXAMPLE_PAUSE", "0")
    again = client(EXAMPLES / "pagerank" / "pagerank.ipynb").execute()
    began = re.search(r"votes: began with round (\d+), ended", text_of(again))
    assert began is not None and int(began[1]) >= 3
    assert not list_all(), "the session is left"
