"""``benchmarks joining``: a node is added to real sessions, once and small."""

from __future__ import annotations

import pytest

from benchmarks import joining
from benchmarks.commands.joining import text

pytestmark = pytest.mark.slow


def test_what_moves_and_what_others_wait_is_measured_and_tabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "BEFORE_S", 0.2)
    monkeypatch.setattr(joining, "QUIET_S", 0.2)
    report = joining.measure(32, 1, "", (), lambda _: None)
    assert [pause.change for pause in report.pauses] == ["joins", "leaves"]
    assert all(0 < pause.moved < 32 << 20 and pause.moving_s > 0 and min(pause.longest_s.values()) > 0 for pause in report.pauses)
    (first,) = report.firsts
    assert first.task_s > 0 and first.bare_s is None
    lines = text(report).splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("joins", "leaves", "this host"))] == ["joins", "leaves", "this"]


def test_a_client_that_meets_an_error_ends_and_says_it() -> None:
    def refused() -> None:
        raise OSError(5, "Input/output error", "/data/0")

    client = joining.Client(refused)
    client.start()
    client.join(10)
    assert client.error == "Input/output error: /data/0"
