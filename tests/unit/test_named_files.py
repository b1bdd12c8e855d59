"""Which paths a command line names."""

from __future__ import annotations

import pytest

from amfs.vocabulary.paths import NamedFiles


@pytest.mark.parametrize(
    ("words", "path", "named"),
    [
        (["in/a", "out"], "/d/in/a", True),
        (["in/a", "out"], "/d/in", True),  # the directory is missing
        (["in/a", "out"], "/in/a", False),
        (["-query=in/a"], "/d/in/a", True),
        (["cat in/a | sort >out"], "/d/in/a", True),
        (["cat 'in/a'"], "/d/in/a", True),
        (["../up"], "/up", True),
        (["/top"], "/top", True),
        (["/somewhere/mounted/d/in/a"], "/d/in/a", True),
        (["in"], "/d/in/.hidden", False),
        (["data"], "/d/dat", False),
        ([], "/d", False),
    ],
)
def test_named(words: list[str], path: str, named: bool) -> None:
    assert NamedFiles(words, "/d").has(path) is named
