"""Protocol stories: the messages of a few nodes, word by word. ``--rewrite`` writes the transcripts anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from transcript import Scenario

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    scenario = Scenario(path)
    assert scenario.head.startswith("#"), "a scenario opens with its story"
    said = scenario.run()
    if request.config.getoption("--rewrite", default=False):
        path.write_text(f"{scenario.head}\n----\n{said}", encoding="utf-8")
        return
    assert said == scenario.expected, "the nodes said something else; look at it, then: pytest tests/scenario --rewrite"
