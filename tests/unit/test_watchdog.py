"""What takes too long is named once, and again when it has taken twice as long."""

from __future__ import annotations

from amfs.node.watchdog import Watchdog


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
