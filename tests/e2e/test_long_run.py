"""Runs that last longer than any of the time-outs by which nodes and submitters notice each other's death."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import amfs
from amfs.config import MemberLimits


@pytest.mark.slow
def test_an_embedded_run_outlives_every_time_out(tmp_path: Path) -> None:
    longest = max(msgspec.structs.asdict(MemberLimits()).values())
    with amfs.Session(slots=1, base=tmp_path) as session:
        session.submit(f"sleep {longest + 2.0}; echo first > first", outputs=["first"])
        session.wait([session.submit("cat first > second", inputs=["first"], outputs=["second"])])
    assert (tmp_path / "second").read_text() == "first\n"
