"""Parts of real workflows, counted by others: jobs, files, stated edges, and edges stated or implied by files."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from amfs.translate.detect import read
from amfs.translate.document import last_writers
from amfs.workflow.workflow import Workflow

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"

#: name -> jobs, files, stated edges, all edges
DAX = {
    "Montage_25.xml": (25, 38, 45, 45),
    "CyberShake_30.xml": (30, 49, 52, 52),
    "Epigenomics_24.xml": (24, 38, 27, 27),
    "Inspiral_30.xml": (30, 47, 35, 35),
    "blackdiamond-v2.0.dax": (4, 6, 4, 4),
    "blackdiamond-v3.6-full.dax": (5, 6, 4, 4),
    "floodplain.xml": (7, 11, 10, 10),
    "fork-join-v3.6.xml": (5, 9, 6, 6),
    "merge-v3.5.dax": (4, 4, 3, 3),
    "split-v3.5.dax": (5, 9, 4, 4),
    "pipeline-v3.5.dax": (2, 2, 1, 1),
    "pipeline-datareuse-v3.4.dax": (12, 30, 12, 12),
    "rseqflow-v3.4.dax": (26, 40, 51, 51),
    "montage-mdag-v2.1.xml": (54, 122, 124, 124),
}

#: name -> jobs, files, all edges. hierarchy.yml has 3 jobs, of which two stand for sub-workflows of 4 and 2.
OTHERS = {
    "pegasus5/diamond-full.yml": (4, 7, 4),
    "pegasus5/diamond-junit.yml": (4, 6, 4),
    "pegasus5/diamond-profiles.yml": (4, 6, 4),
    "pegasus5/diamond-unicode-name.yml": (4, 6, 4),
    "pegasus5/diamond-inline-catalogs.yml": (4, 6, 4),
    "pegasus5/checkpoint.yml": (1, 2, 0),
    "pegasus5/hello-world.yml": (1, 1, 0),
    "pegasus5/synthetic-80.yml": (80, 161, 70),
    "pegasus5/wfbench-blast-43.yml": (43, 44, 120),
    "pegasus5/montage-v3-79.yml": (79, 134, 193),
    "wfformat/wfbench-blast-43-v1.6.json": (43, 44, 120),
}


def counted(workflow: Workflow) -> tuple[int, int, int]:
    tasks = workflow.tasks
    writers = last_writers(tasks)
    files = {name for task in tasks for name in (*task.inputs, *task.outputs)}
    edges = {(tasks[writers[name]].id, task.id) for task in tasks for name in task.inputs if name in writers}
    edges |= {(before, task.id) for task in tasks for before in task.after}
    return len(tasks), len(files), len(edges)


@pytest.mark.parametrize("name", DAX)
def test_dax(name: str) -> None:
    path = CORPUS / "dax" / name
    workflow, faults, _ = read(path)
    assert faults == []
    jobs, files, stated, edges = DAX[name]
    assert counted(workflow) == (jobs, files, edges)
    root = ElementTree.parse(path).getroot()
    said = {
        (parent.get("ref"), child.get("ref")) for child in root.iter() if child.tag.endswith("child") for parent in child
    }  # fmt: skip
    assert len(said) == stated
    assert {before for task in workflow.tasks for before in ((each, task.id) for each in task.after)} <= said
    assert all(task.line for task in workflow.tasks)


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    workflow, faults, _ = read(CORPUS / name)
    assert faults == []
    assert counted(workflow) == OTHERS[name]


def test_the_invalid_sample_of_the_schema_is_refused() -> None:
    faults = [fault.message for fault in read(CORPUS / "dax" / "schema-sample-v3.3-INVALID.xml").faults]
    assert "job id '-' is already taken (line 80)" in faults
    assert "job - is said to depend on itself" in faults
