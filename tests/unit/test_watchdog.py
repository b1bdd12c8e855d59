"""Work that takes too long is named once, and again when it has taken twice as long."""

from __future__ import annotations

import pytest

from amfs.node.watchdog import Entry, Watchdog


def test_what_goes_on_is_said_again_after_twice_the_time() -> None:
    watchdog = Watchdog(())
    watchdog.stop()
    said = [watchdog.look([("a", seconds), ("b", 30.0)]) for seconds in (10.0, 15.0, 19.0, 20.0, 39.0, 41.0)]
    assert [len(lines) for lines in said] == [2, 0, 0, 1, 0, 1]
    assert said[3] == ["a has taken 20 s and goes on"]


def test_what_has_ended_and_begun_again_is_new() -> None:
    watchdog = Watchdog(())
    watchdog.stop()
    assert watchdog.look([("a", 30.0)])
    assert not watchdog.look([("a", 40.0)])
    assert watchdog.look([("a", 10.0)])
    assert not watchdog.look([])
    assert watchdog.look([("a", 11.0)])


def test_a_source_that_fails_neither_ends_the_watch_nor_hides_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def broken(longer_s: float) -> list[Entry]:
        raise OSError("gone")

    watchdog = Watchdog((broken, lambda longer_s: [("a", 30.0)]))
    watchdog.stop()
    assert watchdog.ask() == watchdog.ask() == [("a", 30.0)]
    assert [record.getMessage() for record in caplog.records] == ["the watchdog cannot ask one of its sources: gone"]
