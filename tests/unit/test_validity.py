"""Values that no process of ours sends, in messages to a node."""

from __future__ import annotations

import pytest

from amfs.engine.validity import fault
from amfs.vocabulary.messages import Assign, Options, Submit, TaskSpec
from amfs.vocabulary.object_versions import ObjectVersion

GOOD = ObjectVersion(7, '"0123-4"', 1_700_000_000 * 10**9, False, True)


@pytest.mark.parametrize("kind", [Submit, Assign])
def test_versions_of_inputs_are_numbers_and_a_line_of_text(kind: type[Submit | Assign]) -> None:
    def said(version: ObjectVersion) -> str:
        return fault(kind(1, (TaskSpec(3, bytes(8), shared=("1/in",), options=Options(versions={"in": version})),)))

    assert said(GOOD) == ""
    bad = [{"size": -1}, {"mtime": -1}, {"mtime": 1 << 63}, {"identity": '"a"\r\nx: y'}, {"identity": "x" * 5000}]
    for values in bad:
        assert said(GOOD._replace(**values)) == "task #3 has an input in a version that cannot be"  # type: ignore[arg-type]
