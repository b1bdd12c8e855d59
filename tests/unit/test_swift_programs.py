"""The small programs of tests/data/swift, each of which says what comes out of it.

``//> line``: it prints this line (in any order). ``//! text``: it ends in an error that contains this. ``//= name text``: it makes this
file. ``//@ name text``: this file is there before. ``//$ words``: its command line. In texts ``\\n`` is a newline.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import amfs
from amfs.errors import AmfsError
from amfs.scripts.api import run_program
from amfs.scripts.program import read_program

PROGRAMS = Path(__file__).resolve().parent.parent / "data" / "swift"


def told(text: str, mark: str) -> list[str]:
    return [line[4:] for line in text.splitlines() if line.startswith(f"//{mark} ")]


def named(text: str, mark: str) -> list[tuple[str, str]]:
    pairs = (line.partition(" ") for line in told(text, mark))
    return [(name, content.replace("\\n", "\n")) for name, _, content in pairs]


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("[tk]/*.swift")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_program_does_what_it_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SWIFT_TEST_VARIABLE", "value")
    for name, content in named(text, "@"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    printed: list[str] = []
    error = ""
    arguments = shlex.split(" ".join(told(text, "$")))
    try:
        program = read_program(path, f"swift-{path.parent.name}")
        with amfs.Session(slots=2, base=tmp_path, retries=0) as session:
            failed = run_program(program, session, arguments=arguments, base=tmp_path, show=lambda shown, _: printed.append(shown))
            error = "; ".join(f"{handle.id}: {handle.result.detail if handle.result else ''}" for handle in failed)
    except AmfsError as raised:
        error = str(raised)
    wanted = told(text, "!")
    assert bool(error) == bool(wanted), error or f"no error; {printed}"
    assert all(part in error for part in wanted), error
    if not wanted:
        lines = [line.removeprefix("//>").removeprefix(" ") for line in text.splitlines() if line.startswith("//>")]
        assert sorted("".join(printed).splitlines()) == sorted(lines)
    for name, content in named(text, "="):
        assert (tmp_path / name).read_text() == content


def test_there_are_enough() -> None:
    assert len(list(PROGRAMS.glob("[tk]/*.swift"))) > 200
