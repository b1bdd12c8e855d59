"""Open files of a session against files of Python's own: any sequence of reads, writes, seeks and truncations gives the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from fs_session import running
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amfs.client import open_file
from amfs.client.files import Files

START = bytes(range(256)) * 40  # the file at first: ten small pieces and a rest


@pytest.fixture(scope="module")
def files() -> Iterator[Files]:
    with running(2), Files() as files:
        yield files


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that files of some kilobytes take many calls, as files of many megabytes do."""
    monkeypatch.setattr(open_file, "CHUNK", 1000)
    monkeypatch.setattr(open_file, "BUFFER", 300)


sizes = st.one_of(st.integers(0, 50), st.sampled_from([1, 20, 250, 999, 1000, 1001]), st.integers(0, 12_000))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), sizes),
        st.tuples(st.just("readline"), sizes),
        st.tuples(st.just("readall"), st.just(0)),
        st.tuples(st.just("readinto"), sizes),
        st.tuples(st.just("write"), sizes),
        st.tuples(st.just("seek"), sizes),
        st.tuples(st.just("skip"), st.integers(-300, 300)),
        st.tuples(st.just("end"), st.integers(-300, 300)),
        st.tuples(st.just("truncate"), sizes),
        st.tuples(st.just("tell"), st.just(0)),
        st.tuples(st.just("flush"), st.just(0)),
    ),
    max_size=25,
)


def do(file: IO[bytes], step: str, number: int, salt: int) -> Any:
    """The result of a step, be it an error."""
    try:
        if step == "read":
            return file.read(number)
        if step == "readline":
            return file.readline(number)
        if step == "readall":
            return file.read()
        if step == "readinto":
            room = bytearray(number)
            count = file.readinto(room)  # type: ignore[attr-defined]
            return count, bytes(room)
        if step == "write":
            return file.write(bytes((salt + each) % 251 for each in range(number)))
        if step in ("seek", "skip", "end"):
            return file.seek(number, {"seek": os.SEEK_SET, "skip": os.SEEK_CUR, "end": os.SEEK_END}[step])
        if step == "truncate":
            return file.truncate(number)
        if step == "tell":
            return file.tell()
        return file.flush()
    except (OSError, ValueError) as error:
        return type(error).__name__ if not isinstance(error, OSError) or error.errno is None else error.errno


@pytest.mark.usefixtures("small_pieces")
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mode=st.sampled_from(["r+b", "rb", "r+b", "w+b", "r+b", "wb", "ab", "a+b"]), buffering=st.sampled_from([0, 0, -1, 64]),
    layout=st.sampled_from(["whole", "striped"]), steps=steps,
)  # fmt: skip
def test_any_use_of_a_file_is_as_with_open(
    files: Files, tmp_path: Path, mode: str, buffering: int, layout: str, steps: list[tuple[str, int]]
) -> None:
    local = tmp_path / "file"
    local.write_bytes(START)
    files.write_bytes("/file", START, layout=layout)
    theirs_buffering = open_file.BUFFER if buffering == -1 else buffering  # how far a flushed append moves the position depends on it
    with open(local, mode, theirs_buffering) as theirs, files.open("/file", mode, buffering) as ours:
        for salt, (step, number) in enumerate(steps):
            expected, got = do(theirs, step, number, salt), do(ours, step, number, salt)  # type: ignore[arg-type]
            assert got == expected, f"step {salt}: {step} {number}"
    assert files.read_bytes("/file") == local.read_bytes()
    files.unlink("/file")


@pytest.mark.usefixtures("small_pieces")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=200), max_size=40),
    newline=st.sampled_from([None, "", "\n", "\r\n"]), encoding=st.sampled_from(["utf-8", "utf-16"]),
    buffering=st.sampled_from([-1, 1, 80]),
)  # fmt: skip
def test_any_text_is_as_with_open(
    files: Files, tmp_path: Path, lines: list[str], newline: str | None, encoding: str, buffering: int
) -> None:
    local = tmp_path / "text"
    how: dict[str, Any] = {"buffering": buffering, "encoding": encoding, "newline": newline}
    with open(local, "w", **how) as theirs, files.open("/text", "w", **how) as ours:
        for file in (theirs, ours):
            file.writelines(line + "\n" for line in lines)
    assert files.read_bytes("/text") == local.read_bytes()
    with open(local, encoding=encoding, newline=newline) as theirs, files.open("/text", encoding=encoding, newline=newline) as ours:
        assert list(ours) == list(theirs)
        theirs.seek(0)
        ours.seek(0)
        assert (ours.readline(), ours.tell()) == (theirs.readline(), theirs.tell())
        assert ours.read() == theirs.read()
