"""Blind tasks on two real nodes: they find and make their files in the session's file system, and nobody sees what is not finished."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fs_session import PATIENCE_S, running

import amfs
from amfs.client.files import Files
from amfs.host import fusemounts
from amfs.net.records import SessionRecord
from amfs.runs.api import Handle
from amfs.vocabulary.states import Outcome
from amfs.workflow.origin import ATTRIBUTE, unpack
from amfs.workflow.workflow import Task

pytestmark = pytest.mark.skipif(os.environ.get("AMFS_TESTS_NO_FUSE") == "1", reason="AMFS_TESTS_NO_FUSE=1")


@pytest.fixture(scope="module")
def session() -> Iterator[SessionRecord]:
    with running(2, "--slots", "3") as session:
        yield session
        assert [mount.path for mount in fusemounts.mounted(session.name)], "the nodes mount for blind tasks"
    assert not fusemounts.mounted(session.name)


class Shell:
    """Blind tasks, each a line of sh, in a directory of their own."""

    def __init__(self, name: str, cwd: str) -> None:
        self.tasks = amfs.Session(session=name)
        self.files = Files(name)
        self.cwd = cwd
        self.files.mkdir(cwd)
        self.count = 0

    def start(self, line: str, **fields: object) -> Handle:
        self.count += 1
        fields.setdefault("cwd", self.cwd)
        fields.setdefault("time_limit", 20.0)  # nothing waits for ever where a test has failed
        return self.tasks.submit_tasks([Task(f"{self.count}", ("sh", "-c", line), blind=True, **fields)])[0]  # type: ignore[arg-type]

    def run(self, line: str, **fields: object) -> Handle:
        return self.ended(self.start(line, **fields))

    def ended(self, handle: Handle) -> Handle:
        until(lambda: handle.done)
        return handle

    def names(self, path: str = "") -> list[str]:
        return sorted(self.files.listdir(f"{self.cwd}/{path}"))

    def read(self, name: str) -> bytes:
        with self.files.open(f"{self.cwd}/{name}", "rb") as stream:
            return stream.read()

    def write(self, name: str, content: bytes = b"") -> None:
        with self.files.open(f"{self.cwd}/{name}", "wb") as stream:
            stream.write(content)


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "this does not happen"
        time.sleep(0.01)


def ok(handle: Handle) -> Handle:
    assert handle.result is not None and handle.result.outcome == Outcome.OK, handle.result
    return handle


def missing(handle: Handle, *, outcome: Outcome = Outcome.EXIT) -> list[str]:
    assert handle.result is not None and handle.result.outcome == outcome and not handle.result.made, handle.result
    for name in handle.result.missing[-1:]:
        assert name in handle.result.detail
    return sorted(handle.result.missing)


@pytest.fixture
def shell(session: SessionRecord, request: pytest.FixtureRequest) -> Iterator[Shell]:
    shell = Shell(session.name, f"/{request.node.name.replace('[', '-').replace(']', '')}")
    yield shell
    shell.tasks.close()
    shell.files.close()


def test_what_it_makes_is_there_for_the_next(shell: Shell) -> None:
    line = "echo one > a; mkdir d; cp a d/b; ln -s a s; mv a c; ln c l; echo gone > t; rm t; mkfifo p; mv d e"
    made = ok(shell.run(line, node=0)).result
    at = shell.cwd
    assert made is not None and sorted(made.made) == [f"{at}/c", f"{at}/e", f"{at}/e/b", f"{at}/l", f"{at}/p", f"{at}/s"]
    assert made.missing == ()
    for node in (0, 1):
        ok(shell.run("test -L s && test -p p && [ $(cat c l e/b | sort -u) = one ] && ! cat t", node=node))
    for name in ("c", "e/b"):
        known = unpack(shell.files.getxattr(f"{at}/{name}", ATTRIBUTE))
        assert known is not None and known.node == 0 and "echo one" in known.command, known
    # A file that is there already is changed in its place, and was not made.
    assert ok(shell.run("echo two >> c; truncate -s 1 e/b", node=1)).result.made == ()  # type: ignore[union-attr]
    assert shell.read("c") == b"one\ntwo\n" and shell.read("e/b") == b"o"
    with pytest.raises(OSError, match="No data"):
        shell.files.getxattr(f"{at}/c", ATTRIBUTE)  # not all of it was made by the first
    # Another name for what was there is new, though the file is not.
    assert ok(shell.run("mv c n; mv n m", node=1)).result.made == (f"{at}/m",)  # type: ignore[union-attr]
    # Some programs rename by a link; it is published by its last name, and taken back by it.
    linked = "echo x > x.tmp; ln x.tmp x; rm x.tmp; ln m o; rm m"
    for node in (0, 1):
        missing(shell.run(f"{linked}; exit 1", node=node))
        assert "x" not in shell.names() and "o" not in shell.names()
        shell.files.link(f"{at}/l", f"{at}/m")
    assert ok(shell.run(linked, node=0)).result.made == (f"{at}/x", f"{at}/o")  # type: ignore[union-attr]
    for node in (0, 1):
        ok(shell.run("cat x o", node=node))


def test_one_that_fails_names_what_it_looked_for_and_leaves_nothing(shell: Shell) -> None:
    at = shell.cwd
    shell.write("old", b"old")
    for node in (0, 1):
        line = "mkdir d d/e; echo x > d/x; ln old d/link; ln -s x d/e/s; echo x > y; mv y d/z; : > new; cat new; cat no/such in d/t"
        assert missing(shell.run(line, node=node)) == [f"{at}/d/t", f"{at}/in", f"{at}/no"]
        assert shell.names() == ["old"]
    # Files that others have put into its directory stay, and so does the directory.
    waits = shell.start("mkdir d; echo mine > d/mine; while ! test -e go; do sleep 0.01; done; exit 3", node=0)
    until(lambda: "d" in shell.names())
    ok(shell.run("echo other > d/other", node=1))
    shell.write("go")
    assert missing(shell.ended(waits)) == []  # it has found 'go' in the end
    assert shell.names("d") == ["other"]
    assert shell.read("old") == b"old"
    # A signal and a time limit leave nothing either.
    assert missing(shell.run("echo x > killed; kill -9 $$"), outcome=Outcome.SIGNAL) == []
    assert missing(shell.run("echo x > slow; sleep 100", time_limit=0.3), outcome=Outcome.TIME_LIMIT) == []
    assert shell.names() == ["d", "go", "old"]


@pytest.mark.parametrize("layout", ["whole", "striped"])
def test_nobody_sees_half_of_a_file(shell: Shell, layout: str) -> None:
    shell.files.setxattr(shell.cwd, "user.amfs.layout", layout.encode())
    writer = shell.start("echo half > f; ln -s f s; while ! test -e go; do sleep 0.01; done; echo whole >> f; cat f", node=0)
    until(lambda: "s" in shell.names())
    lines = [(node, line) for node in (0, 1) for line in (f"cat f > {node}", f"cat s > s{node}", f"cat s | sort > t{node}")]
    readers = [shell.start(line, node=node) for node, line in lines]
    time.sleep(0.5)
    assert not any(reader.done for reader in readers), "they wait for the writer"
    assert shell.read("f") == b"half\n"  # a program that is no task sees what there is
    shell.write("go")
    ok(shell.ended(writer))
    for reader in readers:
        ok(shell.ended(reader))
    assert {shell.read(name) for name in ("0", "1", "s0", "s1", "t0", "t1")} == {b"half\nwhole\n"}


def test_another_may_make_the_same_file(shell: Shell) -> None:
    first = shell.start("echo first > f; echo first >> log; while ! test -e go; do sleep 0.01; done; exit 1", node=0)
    until(lambda: "log" in shell.names())
    ok(shell.run("echo second > f", node=1))  # it is the second's now
    ok(shell.run("echo second >> log", node=1))  # a log is everybody's
    assert shell.run("set -C; echo third > g; echo third > f", node=0).result.outcome == Outcome.EXIT  # type: ignore[union-attr]
    shell.write("go")
    shell.ended(first)
    assert shell.read("f") == b"second\n"
    assert shell.read("log") == b"first\nsecond\n"
    assert shell.names() == ["f", "go", "log"]


def test_many_at_once_in_one_directory(shell: Shell) -> None:
    handles = [shell.start(f"mkdir -p d && echo {i} > d/{i}.tmp && mv d/{i}.tmp d/{i} && test {i} -lt 40") for i in range(50)]
    for i, handle in enumerate(handles):
        shell.ended(handle)
        assert handle.ok == (i < 40), handle.result
    assert shell.names("d") == sorted(f"{i}" for i in range(40))
    ok(shell.run("test $(cat d/* | wc -l) = 40"))


def test_programs_and_directories_are_looked_for_too(shell: Shell) -> None:
    at = shell.cwd
    assert missing(shell.run("./program"), outcome=Outcome.EXIT) == [f"{at}/program"]
    direct = shell.tasks.submit_tasks([Task("direct", ("./program",), cwd=at, blind=True)])[0]
    assert missing(shell.ended(direct), outcome=Outcome.SETUP) == [f"{at}/program"]
    assert missing(shell.run("true", cwd=f"{at}/nowhere"), outcome=Outcome.SETUP) == [f"{at}/nowhere"]
    ok(shell.run("printf '#!/bin/sh\\necho $1 > made\\n' > program; chmod +x program", node=0))
    again = shell.tasks.submit_tasks([Task("again", ("./program", "by it"), cwd=at, blind=True, node=1)])[0]
    ok(shell.ended(again))
    assert shell.read("made") == b"by it\n"
    # The last names that it looked for are kept.
    many = shell.run("for i in $(seq 300); do test -e m$i; done; false")
    assert len(missing(many)) == 256 and f"{at}/m300" in missing(many) and f"{at}/m1" not in missing(many)
    # Names may hold any bytes.
    assert missing(shell.run("cat \"$(printf 'a\\377 b')\"")) == [f"{at}/a\udcff b"]


def test_what_it_leaves_running_makes_nothing(shell: Shell) -> None:
    ok(shell.run("(sleep 0.3; echo late > late) > /dev/null 2>&1 & setsid sh -c 'sleep 0.3; echo late > later' & echo now > now"))
    time.sleep(0.6)
    assert shell.names() == ["now"]


def test_in_a_list_and_beside_a_mount_of_fusepy(session: SessionRecord, shell: Shell, tmp_path: Path) -> None:
    def command(*arguments: object, code: int = 0) -> str:
        done = subprocess.run([sys.executable, "-m", "amfs", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done.stderr
        return done.stderr

    pytest.importorskip("fuse")
    place = tmp_path / "m"
    place.mkdir()
    command("mount", place, "--fuse", "fusepy", "--session", session.name)  # now all changes on that node take the long way
    try:
        for node in (0, 1):
            lines = tmp_path / "lines"
            lines.write_text(
                f"#amfs workflow w\na -b sh -blind -cwd {shell.cwd} -node {node} -a -c 'mkdir d{node}; echo {node} > d{node}/f'\n"
                f"b -b cat -blind -cwd {shell.cwd} -node {node} -a not-there\n"
            )
            assert f"exit status 1; looked in vain for {shell.cwd}/not-there" in command(
                "run", lines, "--session", session.name, "--journal", tmp_path / f"journal{node}", code=1
            )
            assert (place / shell.cwd[1:] / f"d{node}" / "f").read_text() == f"{node}\n"
            assert missing(shell.run("echo x > y; mkdir z; cat no", node=node)) == [f"{shell.cwd}/no"]
        assert shell.names() == ["d0", "d1"]
    finally:
        command("umount", place)
    command("umount", "--all", "--session", session.name)  # not the nodes' own
    ok(shell.run("cat d0/f", node=0))


def test_a_node_that_cannot_mount_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(1) as session:
        Path(fusemounts.tasks_dir(str(session.directory), 0)).write_text("in the way")
        shell = Shell(session.name, "/d")
        refused = shell.run("true")
        assert missing(refused, outcome=Outcome.SETUP) == []
        assert "a blind task runs in a mount that its node makes" in refused.result.detail  # type: ignore[union-attr]
        shell.tasks.close()
        shell.files.close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AMFS_SESSION", raising=False)
    with amfs.Session(slots=1) as alone:
        embedded = alone.submit_tasks([Task("1", ("true",), blind=True)])[0]
        until(lambda: embedded.done)
        assert "amfs up" in embedded.result.detail  # type: ignore[union-attr]
