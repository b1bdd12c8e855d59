"""The parts of the file system's Python face that need no session: paths, keys, modes, layouts, attributes, copies between descriptors."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.client import transfer
from amfs.client.connection import failure
from amfs.client.files import layout_of, stat_result
from amfs.client.keyvalue import key_of, path_of
from amfs.client.open_file import flags_of
from amfs.client.paths import Place, below, clean, join, parse
from amfs.client.transfer import Layout, copy_descriptor
from amfs.client.tree import has_magic
from amfs.host.umask import umask
from amfs.vocabulary.attr import Attr


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/", b"/"),
        ("", b"/"),
        ("a", b"/a"),
        ("//a///b/", b"/a/b"),
        ("/a/./b", b"/a/b"),
        ("/a/../b", b"/b"),
        ("/../..", b"/"),
        ("amfs:/x/y/", b"/x/y"),
        ("amfs:///x", b"/x"),
        ("amfs://lab/x", b"/x"),
        (b"/caf\xe9", b"/caf\xe9"),
        (Path("/p/q"), b"/p/q"),
    ],
)
def test_paths_travel_absolute_and_plain(text: str | bytes | Path, path: bytes) -> None:
    assert clean(text) == path


def test_a_nul_in_a_path_is_refused_as_python_does() -> None:
    with pytest.raises(ValueError, match="embedded null byte"):
        clean("/a\0b")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/a", None),
        ("file:/a", None),
        ("amfs:/a/b", Place(None, b"/a/b")),
        ("amfs:/a/", Place(None, b"/a", True)),
        ("amfs:a", Place(None, b"/a")),
        ("amfs:", Place(None, b"/", True)),
        ("amfs:///a", Place(None, b"/a")),
        ("amfs://lab", Place("lab", b"/", True)),
        ("amfs://lab/", Place("lab", b"/", True)),
        ("amfs://lab/a b", Place("lab", b"/a b")),
    ],
)
def test_what_begins_with_amfs_names_a_session_and_a_path(text: str, place: Place | None) -> None:
    assert parse(text) == place


@given(st.binary(min_size=1).filter(lambda raw: b"\0" not in raw))
def test_cleaning_twice_changes_nothing(raw: bytes) -> None:
    once = clean(b"/" + raw)
    assert clean(once) == once and once.startswith(b"/") and (once == b"/" or not once.endswith(b"/"))
    assert not {b"", b".", b".."} & set(once.split(b"/")[1:]) or once == b"/"


def test_below_is_about_whole_names() -> None:
    assert below(b"/a/b", b"/a") and below(b"/a", b"/a") and below(b"/a", b"/") and not below(b"/ab", b"/a")
    assert join(b"/", b"x") == b"/x" and join(b"/a", b"x") == b"/a/x"


# ── keys ───────────────────────────────────────────────────────────────────────────────────────────


@given(st.binary(min_size=1, max_size=1200))
def test_every_key_has_a_path_of_its_own(key: bytes) -> None:
    path = path_of(key)
    assert key_of(path) == key
    assert clean(path) == path
    pieces = path.split(b"/")[2:]
    assert all(0 < len(piece) <= 255 and not piece.startswith((b".", b"%~")) for piece in pieces)
    # A piece that is a directory can be no key's last one, so that no key stands in another's way.
    assert [piece.endswith(b"%+") for piece in pieces] == [True] * (len(pieces) - 1) + [False]


@given(st.lists(st.binary(min_size=1, max_size=300), unique=True, max_size=8))
def test_two_keys_never_share_a_path(keys: list[bytes]) -> None:
    assert len({path_of(key) for key in keys}) == len(keys)


def test_ordinary_keys_are_their_own_names() -> None:
    assert path_of("results-2026.csv") == b"/.kv/results-2026.csv"
    assert path_of("a/b") == b"/.kv/a%2Fb" and path_of(".") == b"/.kv/%2E" and path_of("..") == b"/.kv/%2E."
    assert path_of("é") == b"/.kv/%C3%A9"


@pytest.mark.parametrize("key", ["", "x" * 4097])
def test_a_key_must_have_a_sensible_length(key: str) -> None:
    with pytest.raises(ValueError, match="1 to 4096 bytes"):
        path_of(key)


# ── open ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mode", "flags"),
    [
        ("r", os.O_RDONLY),
        ("rb", os.O_RDONLY),
        ("w", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        ("wb+", os.O_RDWR | os.O_CREAT | os.O_TRUNC),
        ("r+b", os.O_RDWR),
        ("a", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        ("xt", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    ],
)
def test_modes_mean_what_they_mean_to_open(mode: str, flags: int) -> None:
    assert flags_of(mode) == flags


@given(st.text("rwaxbt+U", max_size=5))
def test_a_mode_is_good_exactly_when_python_takes_it(mode: str) -> None:
    """Against a file that is not there: a good mode fails for that reason, or makes it."""
    try:
        with open("/dev/null/nowhere", mode, **({} if "b" in mode else {"encoding": "ascii"})):  # type: ignore[call-overload]
            good = True
    except OSError:
        good = True
    except ValueError:
        good = False
    if good:
        flags_of(mode)
    else:
        with pytest.raises(ValueError, match="mode"):
            flags_of(mode)


def test_layouts() -> None:
    assert layout_of(None) == Layout(-1, 0, -1) and not layout_of(None).chosen
    assert layout_of("whole") == Layout(0, 0, -1)
    assert layout_of(None, 4096) == Layout(1, 4096, -1) and layout_of("striped").chosen
    assert layout_of(None, rank=0) == Layout(-1, 0, 0) and layout_of(None, rank=0).chosen
    with pytest.raises(ValueError, match="whole or striped"):
        layout_of("round")
    with pytest.raises(ValueError, match="stripe size"):
        layout_of("whole", 4096)


def test_attributes_as_os_stat_gives_them(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 5000)
    os.utime(file, ns=(1_700_000_000_123_456_789, 1_600_000_000_987_654_321))
    facts = os.stat(file)
    attr = Attr(
        ino=facts.st_ino, mode=facts.st_mode, nlink=facts.st_nlink, uid=facts.st_uid, gid=facts.st_gid, size=facts.st_size,
        blocks=facts.st_blocks, atime=facts.st_atime_ns, mtime=facts.st_mtime_ns, ctime=facts.st_ctime_ns,
    )  # fmt: skip
    given = stat_result(attr)
    names = [name for name in dir(facts) if name.startswith("st_") and name not in ("st_dev", "st_blksize")]
    assert {name: getattr(given, name) for name in names} == {name: getattr(facts, name) for name in names}
    assert given[stat.ST_MTIME] == facts[stat.ST_MTIME] and stat.S_ISREG(given.st_mode)


def test_errors_are_of_the_classes_that_python_uses() -> None:
    missing = failure(errno.ENOENT, (b"/caf\xe9",))
    assert type(missing) is FileNotFoundError and missing.filename == os.fsdecode(b"/caf\xe9") and missing.strerror
    both = failure(errno.EEXIST, ("/a", "/b"))
    assert type(both) is FileExistsError and (both.filename, both.filename2) == ("/a", "/b")
    assert str(both) == "[Errno 17] File exists: '/a' -> '/b'"
    assert failure(errno.EIO, (), "because").strerror == "because"


def test_the_umask_is_read_without_a_change() -> None:
    old = os.umask(0o027)
    try:
        assert umask() == 0o027
        assert umask() == 0o027
    finally:
        os.umask(old)


def test_patterns_are_known_by_their_signs() -> None:
    assert has_magic(b"/a*") and has_magic(b"/a?") and has_magic(b"/[ab]") and not has_magic(b"/a{b}")


# ── between descriptors ────────────────────────────────────────────────────────────────────────────


def copied(source: Path, target: Path) -> int:
    total = 0

    def add(count: int) -> None:
        nonlocal total
        total += count

    with open(source, "rb", buffering=0) as one, open(target, "wb", buffering=0) as other:
        size = copy_descriptor(one.fileno(), other.fileno(), add)
    assert size == target.stat().st_size
    assert total <= size
    return total


def test_a_copy_keeps_holes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with open(source, "wb") as file:
        file.seek(8 << 20)
        file.write(b"middle")
        file.truncate(32 << 20)
    copied(source, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == source.read_bytes()
    assert (tmp_path / "target").stat().st_blocks <= source.stat().st_blocks + 16


@pytest.mark.parametrize("size", [0, 1, 4096, 3_000_001])
def test_a_copy_is_the_same_and_told_in_full(tmp_path: Path, size: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(size))
    assert copied(source, tmp_path / "target") == size
    assert (tmp_path / "target").read_bytes() == source.read_bytes()


def test_a_copy_works_where_the_kernel_has_no_short_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> int:
        raise OSError(errno.EXDEV, "no")

    source = tmp_path / "source"
    source.write_bytes(os.urandom(2_500_000))
    monkeypatch.setattr(os, "copy_file_range", refuse)
    assert copied(source, tmp_path / "by-sendfile") == 2_500_000
    monkeypatch.setattr(os, "sendfile", refuse)
    assert copied(source, tmp_path / "by-hand") == 2_500_000
    assert (tmp_path / "by-sendfile").read_bytes() == (tmp_path / "by-hand").read_bytes() == source.read_bytes()


def test_files_without_a_size_are_copied_to_their_end(tmp_path: Path) -> None:
    copied(Path("/proc/self/limits"), tmp_path / "limits")
    assert (tmp_path / "limits").read_bytes() == Path("/proc/self/limits").read_bytes()


def test_what_fails_for_another_reason_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    source = tmp_path / "source"
    source.write_bytes(b"x" * 100)
    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(OSError, match="No space left"):
        copied(source, tmp_path / "target")
    assert errno.ENOSPC in transfer._FULL
