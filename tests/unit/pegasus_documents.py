"""Pegasus 5 documents for tests: short ways to write their parts, and to read them."""

from __future__ import annotations

from typing import Any

import yaml

from amfs.translate.pegasus import PegasusReader
from amfs.workflow.workflow import Task


def read(document: str | dict[str, Any], source: str = "/nowhere/workflow.yml") -> PegasusReader:
    reader = PegasusReader(source)
    text = document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False)
    reader.feed(text.encode())
    reader.finish()
    return reader


def job(id: str = "A", name: str = "prog", **more: Any) -> dict[str, Any]:
    return {"type": "job", "name": name, "id": id, "uses": [], **more}


def workflow(*jobs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"pegasus": "5.0.4", "name": "w", **more, "jobs": list(jobs)}


def only(reader: PegasusReader) -> Task:
    assert reader.faults == []
    (task,) = reader.tasks
    return task


def remarks(reader: PegasusReader) -> str:
    return "\n".join(str(remark) for remark in reader.remarks)


def place(site: str, pfn: str, **more: Any) -> dict[str, Any]:
    return {"name": site, "pfn": pfn, **more}


def replica(lfn: str, *pfns: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"lfn": lfn, "pfns": [{"site": site, "pfn": pfn} for site, pfn in pfns], **more}
