"""Output of the file system's commands, and how they read their options: sizes, columns, formats, tests of find."""

from __future__ import annotations

import io
import json
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.cli import fs_find, fs_list, fs_progress
from amfs.cli import main as frame
from amfs.cli.fs_common import Work, aligned, bytes_field, date_text, human, name_text, stripe_of
from amfs.client.files import Extent
from amfs.client.tree import Entry
from amfs.errors import UsageError
from amfs.vocabulary.attr import Attr

FILE = Attr(ino=7, mode=stat.S_IFREG | 0o640, nlink=2, size=1500, blocks=8, mtime=1_600_000_000_000_000_000, finished=1)


@pytest.mark.parametrize("size", [0, 1, 999, 1023, 1024, 1025, 1536, 10137, 10240, 10241, 1048575, 1048576, 10**9, 3 * 2**40 + 1, 2**63])
def test_sizes_for_people_are_those_of_coreutils(size: int) -> None:
    if shutil.which("numfmt") is None:
        pytest.skip("needs numfmt of coreutils")
    theirs = subprocess.run(["numfmt", "--to=iec", "--round=up", str(size)], capture_output=True, text=True, check=True)
    assert human(size) == theirs.stdout.strip()


@given(st.integers(0, 2**60))
def test_sizes_for_people_are_short_and_never_too_small(size: int) -> None:
    text = human(size)
    unit = 1024 ** " KMGTPE".index(text[-1]) if not text[-1].isdigit() else 1
    number = float(text.rstrip("KMGTPE"))
    assert len(text) <= 5
    assert size <= round(number * unit * 1000) / 1000 + 1e-6 * size <= size * 1.12 + 1


@given(st.lists(st.text("abcXYZ", min_size=1, max_size=12), max_size=40), st.integers(10, 120))
def test_columns_hold_every_name_once_and_fit(names: list[str], width: int) -> None:
    lines = fs_list.columns(names, width)
    assert sorted(" ".join(lines).split()) == sorted(names)
    assert all(len(line) <= width for line in lines) or len(lines) == len(names)


def test_columns_go_down_first() -> None:
    assert fs_list.columns(["a", "b", "c", "d", "e"], 8) == ["a  c  e", "b  d"]
    assert fs_list.columns([], 80) == []


def test_a_date_is_told_with_the_hour_only_while_it_is_new() -> None:
    now = time.time_ns()
    assert date_text(now) == time.strftime("%b %e %H:%M", time.localtime(now / 1e9))
    assert date_text(FILE.mtime) == time.strftime("%b %e  %Y", time.localtime(1_600_000_000))
    assert date_text(now + 10**9 * 86400 * 400).endswith(time.strftime("%Y", time.localtime(now / 1e9 + 86400 * 400)))


def test_formats_of_stat() -> None:
    assert fs_list.formatted("%n|%s|%a|%A|%h|%i|%Y|%F|%%s|%Q|", b"/caf\xe9", FILE) == (
        b"/caf\xe9|1500|640|-rw-r-----|2|7|1600000000|file|%s|?|"
    )
    assert fs_list.formatted("plain", b"/x", FILE) == b"plain"
    assert fs_list.formatted("100%", b"/x", FILE) == b"100%"


def test_names_on_a_terminal_can_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert name_text(b"a\x1b[31mb") == b"a\x1b[31mb"  # not a terminal: as it is
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert name_text(b"a\x1b[31m\nb") == b"a?[31m?b" and name_text("größe".encode()) == "größe".encode()


def test_bytes_that_are_no_text_are_not_lost_in_json() -> None:
    assert bytes_field("path", b"/a") == {"path": "/a"}
    assert bytes_field("path", b"/\xff") == {"path_base64": "L/8="}


def test_columns_of_numbers_stand_right() -> None:
    assert aligned([("a", "1", "x"), ("bbb", "22", "yy")], left=(0, 2)) == ["a    1 x", "bbb 22 yy"]
    assert aligned([]) == []


# ── find ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "size", "passes"),
    [
        ("100c", 100, True), ("100c", 101, False), ("+1k", 1024, False), ("+1k", 1025, True), ("-2k", 1024, True), ("-1k", 1, False),
        ("1", 512, True), ("1", 513, False), ("+0", 0, False), ("-1M", 0, True), ("1M", 1, True), ("+1G", 2**30 + 1, True),
    ],
)  # fmt: skip
def test_sizes_are_rounded_up_to_units_as_in_find(text: str, size: int, passes: bool) -> None:
    assert fs_find._sized(text)(b"/x", FILE._replace(size=size)) is passes


@pytest.mark.parametrize("text", ["", "k", "1.5M", "++1", "1X", "-"])
def test_a_size_that_is_none_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="write for example"):
        fs_find._sized(text)


def test_types_and_names() -> None:
    assert fs_find._typed("f,d")(b"/x", FILE) and not fs_find._typed("d")(b"/x", FILE) and fs_find._typed("")(b"/x", FILE)
    with pytest.raises(UsageError, match="a type is one of"):
        fs_find._typed("q")
    assert fs_find._named(("*.fits", "*.FIT"), False)(b"/a/b.FIT", FILE)
    assert not fs_find._named(("*.fits",), False)(b"/a.fits/b", FILE)
    assert fs_find._named(("*.fits",), True)(b"/a/B.FITS", FILE)
    assert fs_find._named(("caf*",), False)(b"/caf\xe9", FILE)


def test_a_directory_comes_after_what_is_in_it() -> None:
    paths = [b"/", b"/a", b"/a/b", b"/a.b", b"/a/b/c", b"/z"]
    assert sorted(paths, key=fs_find._after) == [b"/a/b/c", b"/a/b", b"/a", b"/a.b", b"/z", b"/"]


def test_bytes_by_node() -> None:
    parts = [Extent(0, 10, (0,)), Extent(10, 10, (1,)), Extent(20, 5, (0, 2))]
    assert fs_find.held_by(parts) == {0: 15, 1: 10, 2: 5}


# ── options and arguments ──────────────────────────────────────────────────────────────────────────


def test_stripes() -> None:
    assert stripe_of("") == 0 and stripe_of("512K") == 524288 and stripe_of("1M") == 1048576
    for text in ("3K", "1K", "2G", "100000"):
        with pytest.raises(UsageError, match="power of two"):
            stripe_of(text)


def test_paths_of_one_command_lie_in_one_session() -> None:
    work = Work("ls", None)
    assert work.path("amfs://lab/a") == b"/a" and work.path("amfs:/b") == b"/b" and work.path("/c") == b"/c"
    with pytest.raises(UsageError, match="one session"):
        work.path("amfs://other/a")
    with pytest.raises(UsageError, match="paths in the file system begin with amfs:/"):
        Work("cat", None).path("notes.txt")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cat", "notes.txt"], "amfs: cat: notes.txt: paths in the file system begin with amfs:/"),
        (["rm"], "amfs: rm: what shall be removed?"),
        (["mv", "amfs:/a"], "amfs: mv: missing destination after 'amfs:/a'"),
        (["put", "notes.txt"], "amfs: put: missing destination after 'notes.txt'"),
        (["cp", "a", "b"], "amfs: cp: neither side is in amfs"),
        (["cp", "a", "amfs:/b", "c"], "amfs: cp: the sources must all be local, or all in amfs"),
        (["find", "/", "-size", "huge"], "amfs: find: -size huge: write for example"),
        (["mkdir", "-m", "rwx", "/a"], "amfs: --mode rwx: write it in octal"),
        (["put", "a", "amfs:/a", "--stripe", "5K"], "amfs: --stripe 5K: a stripe is a power of two"),
        (["mkdir", "/a", "--layout", "whole", "--stripe", "1M"], "amfs: --stripe belongs to --layout striped"),
        (["ls", "--time", "noon"], "'noon' is not one of"),
        (["stat"], "Missing argument"),
    ],
)
def test_wrong_command_lines_say_so_and_need_no_session(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "nowhere"))
    assert frame.main(arguments) == 2
    assert words in capsys.readouterr().err


def test_without_a_session_the_person_is_told_how_to_get_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("AMFS_SESSION", raising=False)
    for arguments in (["ls"], ["cat", "/a"], ["df"], ["put", "x", "amfs:/y"]):
        assert frame.main(arguments) == 4
        assert capsys.readouterr().err == "amfs: no session is running; start one with 'amfs up'\n"


def test_progress_is_shown_only_when_it_lasts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with fs_progress.Transfer(1000, shown=True) as transfer:
        transfer.add(1000)
    assert capsys.readouterr().err == "" and transfer.done == 1000
    monkeypatch.setattr(fs_progress, "QUIET_S", 0.0)
    with fs_progress.Transfer(10**9, shown=True) as transfer:
        transfer.add(10**8)
    assert "0.1/1.0 GB" in capsys.readouterr().err


# ── tree ───────────────────────────────────────────────────────────────────────────────────────────


def entry(directory: bytes, name: bytes, mode: int) -> Entry:
    return Entry(directory, name, FILE._replace(mode=mode))


def test_a_tree_as_json_is_nested_like_its_directories() -> None:
    directory, file = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644
    children = {
        b"/t": [entry(b"/t", b"a", directory), entry(b"/t", b"b", file), entry(b"/t", b"c", directory)],
        b"/t/a": [entry(b"/t/a", b"x", file), entry(b"/t/a", b"[", file)],
    }
    text, depth = fs_list._as_json(children, b"/t", FILE._replace(mode=directory))

    def paths(node: dict[str, Any]) -> Any:
        return (node["path"], [paths(each) for each in node["contents"]]) if "contents" in node else node["path"]

    assert paths(json.loads(text)) == ("/t", [("/t/a", ["/t/a/x", "/t/a/["]), "/t/b", ("/t/c", [])])
    assert depth == 2


def test_a_tree_deeper_than_the_stack_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    deep, directory = 5000, stat.S_IFDIR | 0o755
    children, path = {}, b"/t"
    for _ in range(deep):
        children[path] = [entry(path, b"d", directory)]
        path = children[path][0].path
    printed: list[bytes] = []
    monkeypatch.setattr(fs_list, "write", printed.append)
    fs_list._print_trees([fs_list._as_json(children, b"/t", FILE._replace(mode=directory))])
    text = b"".join(printed)
    assert text.count(b'"contents":[') == deep + 1
    assert text.endswith(b"]}" * (deep + 1) + b"]\n")
