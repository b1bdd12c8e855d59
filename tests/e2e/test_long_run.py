"""Runs that last longer than any of the time-outs by which nodes and submitters notice each other's death."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import amfs
from amfs.config import MemberLimits
from amfs.engine import membership

REAL = msgspec.structs.asdict(MemberLimits())


@pytest.mark.parametrize("scale", [0.3, pytest.param(1.0, marks=pytest.mark.soak)])
def test_an_embedded_run_outlives_every_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    limits = MemberLimits(**{name: value * scale for name, value in REAL.items()})
    made = []
    monkeypatch.setattr(membership, "MemberLimits", lambda: made.append(limits) or limits)
    with amfs.Session(slots=1, base=tmp_path) as session:
        session.submit(f"sleep {limits.client_dead_s + 1.0}; echo first > first", outputs=["first"])
        session.wait([session.submit("cat first > second", inputs=["first"], outputs=["second"])])
    assert made, "the run has other limits"
    assert limits.client_dead_s == max(msgspec.structs.asdict(limits).values())
    assert (tmp_path / "second").read_text() == "first\n"
