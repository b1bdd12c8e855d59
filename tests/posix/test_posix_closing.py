"""Close-to-open beside processes that make and remove directories on the reader's mount (closing.py has the steps)."""

from __future__ import annotations

import closing
import mounting
import pytest
from daily import daily

#: Before these were told apart about every tenth step was seen wrong.
STEPS, MAKERS = 60, 2
MODES = {"default": {}, "striped": {mounting.LAYOUT: "--layout striped"}, "open": {mounting.OPTIONS: "--cache open"}}


@pytest.mark.parametrize(
    ("mode", "load"),
    daily([("striped", "load"), ("open", "load"), ("default", "steps"), ("default", "load")], ("striped", "load"), several=True),
)
def test_changes_are_seen_at_once_beside_makers_of_directories(mode: str, load: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in MODES[mode].items():
        monkeypatch.setenv(name, value)
    with mounting.mounted(2) as tops:
        seen = closing.run(tops, STEPS, MAKERS, 29, load)
    assert seen.steps == STEPS and not seen.wrong, "\n".join(seen.first)
