"""The suites themselves: on two tmpfs directories they find nothing, and every planted fault they find."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path
from typing import Any

import areas_files  # noqa: F401
import areas_names  # noqa: F401
import areas_nodes  # noqa: F401
import areas_rights  # noqa: F401
import areas_times  # noqa: F401
import mounting
import pytest
import tables
import torture
from comparing import Pair, compare
from fsx import Exerciser, WrongByte
from syscalls import Tree
from twins import Twins


@pytest.fixture
def two() -> Any:
    try:
        with mounting.on_tmpfs() as one, mounting.on_tmpfs() as other:
            yield one, other
    except mounting.NotHere as missing:
        pytest.fail(str(missing), pytrace=False)


class Faulty(Tree):
    """Does one thing wrong."""

    fault = ""

    def do_pwrite(self, file: Any, data: object, offset: int) -> int:
        if self.fault == "loses writes at page edges" and offset == 4096:
            return len(str(data))
        return super().do_pwrite(file, data, offset)

    def do_rename(self, old: str, new: str, flags: str | int = 0) -> None:
        super().do_rename(old, new, 0 if self.fault == "replaces against NOREPLACE" and flags == "NOREPLACE" else flags)

    def do_utimens(self, path: str, atime: str | int, mtime: str | int, nofollow: str = "") -> None:
        if self.fault == "keeps microseconds":
            mtime = str(mtime)[:-3] + "000" if "." in str(mtime) else mtime
        super().do_utimens(path, atime, mtime, nofollow)

    def do_chmod(self, path: str, mode: int) -> None:
        super().do_chmod(path, mode & 0o777 if self.fault == "forgets the sticky bit" else mode)

    def do_link(self, old: str, new: str, follow: str = "") -> None:
        if self.fault == "copies instead of linking" and os.path.isfile(old) and not os.path.lexists(new):
            Path(new).write_bytes(Path(old).read_bytes())
            os.chmod(new, os.stat(old).st_mode & 0o7777)
        else:
            super().do_link(old, new, follow)

    def do_ftruncate(self, file: Any, size: int) -> None:
        if self.fault == "shows old bytes after truncation" and size < os.fstat(self.fd(file)).st_size:
            return
        super().do_ftruncate(file, size)

    def do_removexattr(self, path: str, name: str) -> None:
        if self.fault == "removes no attribute":
            os.getxattr(path, name, follow_symlinks=False)
        else:
            super().do_removexattr(path, name)


FAULTS = (
    "loses writes at page edges", "replaces against NOREPLACE", "keeps microseconds", "forgets the sticky bit", "copies instead of linking",
    "shows old bytes after truncation", "removes no attribute",
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_random_calls_find_a_planted_fault_and_make_it_short(two: tuple[Path, Path], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "fault", fault)
    monkeypatch.setattr(Twins, "tested_tree", Faulty)
    one, other = two
    for seed in range(20):
        turns, differ = torture.explore(one, [other], random.Random(f"planted {seed}"), torture.ROUND)
        if differ:
            break
    assert differ, f"a mount that {fault} was not found out"
    short, told = torture.shortest(one, [other], turns, limit_s=20)
    assert len(short) <= 8, short
    assert told


def test_random_calls_find_nothing_where_nothing_is(two: tuple[Path, Path]) -> None:
    one, other = two
    for views in (1, 2):
        turns, differ = torture.explore(one, [other] * views, random.Random("nothing"), 3000)
        assert not differ and len(turns) == 3000


@pytest.mark.parametrize("fault", ["write", "read", "truncate"])
def test_a_wrong_byte_is_found(two: tuple[Path, Path], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pread, ftruncate = os.pwrite, os.pread, os.ftruncate
    if fault == "write":
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:-1] + b"\0" if len(data) > 60_000 else data, at))
    elif fault == "read":
        monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, size, at - 1 if at > 1 << 19 else at))
    else:
        monkeypatch.setattr(os, "ftruncate", lambda fd, size: ftruncate(fd, size + 1 if size else 0))
    with contextlib.closing(Exerciser([two[1]], "planted", 2)) as it, pytest.raises(WrongByte, match=r"should (be|have) \S+$"):
        it.run(ops=4000, seconds=30)


def test_tables_find_what_differs(two: tuple[Path, Path]) -> None:
    pair = Pair(two[0], [two[1]])
    try:
        assert pair.run(tables.case("same", "mkdir d 0755\nwrite_file d/f text\nlstat d/f")) == []
        # A mount in which a name is taken already differs in the result of a call, and afterwards.
        case = tables.case("taken", "mkdir d 0700\nlistdir .")
        fresh = pair.fresh

        def taken() -> tuple[list[str], list[str]]:
            roots = fresh()
            os.mkdir(roots[1][0] + "/d")
            return roots

        pair.fresh = taken  # type: ignore[method-assign]
        lines = pair.run(case)
        assert "mkdir d 0700 (mount 0) gave '!EEXIST', should give None" in lines
        assert any("'d': mode is '0755', should be '0700'" in line for line in lines)
    finally:
        pair.stop()


def test_a_case_that_is_itself_wrong_is_told() -> None:
    steps = [tables.step("rmdir d => !ENOENT"), tables.step("tmpfile f . # or EOPNOTSUPP"), tables.step("read f 5")]
    assert compare(steps[:1], ["!ENOTEMPTY"], ["!ENOTEMPTY"]) == ["rmdir d => !ENOENT: tmpfs gave '!ENOTEMPTY': the case itself is wrong"]
    assert compare(steps[1:], [None, "x"], ["!EOPNOTSUPP", "!EBADF"]) == []
    assert compare(steps[1:], [None, "x"], ["!EIO", "!EBADF"])


@pytest.mark.parametrize("group", tables.GROUPS)
def test_every_line_of_a_table_names_a_call(group: str) -> None:
    for case in tables.GROUPS[group]():
        for step in tables.plan(case, 2):
            assert step.op[0] == "wait" or hasattr(Tree, f"do_{step.op[0]}"), step.text
            if step.op[0] == "changing":
                assert hasattr(Tree, f"do_{step.op[2]}"), step.text
