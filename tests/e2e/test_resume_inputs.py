"""A resumed run does again what was made of files that have changed since, and what follows from that; an edited list keeps the rest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import commands
import pytest

import amfs
from amfs.runs.journal import Header, Journal, read
from amfs.workflow.workflow import Task


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def run(*words: str, text: str | None = None) -> str:
    done = commands.run("run", "--local", *words, input=text)
    assert done.returncode == 0, done.stderr
    return done.stderr


def ran(here: Path) -> Counter[str]:
    """How often each task has run, since this was last asked."""
    log = here / "log"
    found = Counter(log.read_text().split()) if log.exists() else Counter[str]()
    log.unlink(missing_ok=True)
    return found


def rewrite(path: Path, text: str) -> None:
    """With another time, whatever the clock of the file system."""
    path.write_text(text)
    os.utime(path, ns=(time.time_ns(), time.time_ns() + 1_000_000_000))


def chain(here: Path) -> str:
    """Two inputs, of which the one goes through three tasks, and the other through one that also reads what comes of the first."""
    log = here / "log"
    return f"""\
a -b sh -i in1 -o a -a -c 'cat in1 > a; echo a >> {log}'
b -b sh -i a -o b -a -c 'cat a > b; echo b >> {log}'
c -b sh -i b -o c -a -c 'cat b > c; echo c >> {log}'
x -b sh -i in2 -o x -a -c 'cat in2 > x; echo x >> {log}'
y -b sh -i x a -o y -a -c 'cat x a > y; echo y >> {log}'
z -b sh -i x -o z -a -c 'cat x > z; echo z >> {log}'
"""


@pytest.fixture
def made(here: Path) -> Path:
    (here / "in1").write_text("1\n")
    (here / "in2").write_text("2\n")
    (here / "list").write_text(chain(here))
    run("list")
    assert ran(here) == Counter("abcxyz")
    return here


def test_readers_of_a_changed_input_and_what_follows_run_again(made: Path) -> None:
    run("--resume", "list")
    assert not ran(made)
    rewrite(made / "in1", "3\n")
    said = run("--resume", "list")
    assert ran(made) == Counter("abcxy"), "y reads a; x is in memory no more and is made again for it; z stays"
    assert (made / "c").read_text() == "3\n" and (made / "y").read_text() == "2\n3\n"
    assert "4 tasks run again: their inputs" in said
    run("--resume", "list")
    assert not ran(made)


def test_with_trust_inputs_are_not_looked_at(made: Path) -> None:
    rewrite(made / "in1", "3\n")
    run("--resume=trust", "list")
    assert not ran(made)
    run("--resume", "list")
    assert ran(made) == Counter("abcxy")


def test_half_of_the_new_and_the_rest_of_the_old_is_never_mixed(made: Path) -> None:
    """The second run is ended when the first of the chain has been made again: the third must not take the rest for done."""
    rewrite(made / "in1", "3\n")
    (made / "list").write_text(chain(made).replace("cat a > b", "exit 1"))
    command = [sys.executable, "-m", "amfs", "run", "--local", "-q", "--resume", "list"]
    assert subprocess.run(command, capture_output=True, timeout=100, check=False).returncode == 1
    assert ran(made)["a"] == 1
    (made / "list").write_text(chain(made))
    run("--resume", "list")
    assert (made / "c").read_text() == "3\n" and (made / "y").read_text() == "2\n3\n"


def test_an_edited_task_takes_its_dependants_along(made: Path) -> None:
    (made / "list").write_text(chain(made).replace("cat in1 > a", "cat in1 in1 > a"))
    run("--resume", "list")
    assert ran(made) == Counter("abcxy")
    assert (made / "c").read_text() == "1\n1\n"


def test_an_older_time_is_a_change_too_and_so_is_another_target_of_a_link(here: Path) -> None:
    log = here / "log"
    for name in ("v1", "v2"):
        (here / name).mkdir()
        (here / name / "f").write_text(f"{name}\n")
        os.utime(here / name / "f", (1_000_000_000, 1_000_000_000))
    (here / "now").symlink_to("v1")
    (here / "g").symlink_to("v1/f")
    (here / "list").write_text(f"""\
t -b sh -i now/f -o t -a -c 'cat now/f > t; echo t >> {log}'
u -b sh -i g -o u -a -c 'cat g > u; echo u >> {log}'
""")
    run("list")
    ran(here)
    for link, target in (("now", "v2"), ("g", "v2/f")):
        (here / link).unlink()
        (here / link).symlink_to(target)
        run("--resume", "list")
        assert ran(here) == Counter({"now": "t", "g": "u"}[link])
    assert (here / "t").read_text() == (here / "u").read_text() == "v2\n"
    os.utime(here / "v2" / "f", (900_000_000, 900_000_000))
    run("--resume", "list")
    assert ran(here) == Counter("tu")


def test_a_directory_counts_by_the_files_in_it(here: Path) -> None:
    log = here / "log"
    (here / "d" / "deep").mkdir(parents=True)
    (here / "d" / "deep" / "f").write_text("1\n")
    (here / "list").write_text(f"""\
t -b sh -i d -o t -a -c 'cat d/deep/* > t; echo t >> {log}'
into -b sh -o d/own -a -c 'echo own > d/own; echo into >> {log}'
""")
    run("list")
    ran(here)
    run("--resume", "list")
    assert not ran(here), "what the run itself makes there is no change"
    (here / "d" / "deep" / "g").write_text("2\n")
    run("--resume", "list")
    assert ran(here) == Counter("t")
    assert (here / "t").read_text() == "1\n2\n"


@pytest.mark.parametrize("declared", [True, False])
def test_a_program_of_the_user_is_an_input(here: Path, declared: bool) -> None:
    prog = here / "prog"
    prog.write_text(f"#!/bin/sh\necho 1\necho t >> {here / 'log'}\n")
    prog.chmod(0o755)
    (here / "list").write_text(f"t -b ./prog {'-i prog' if declared else ''} -stdout t\n")
    run("list")
    ran(here)
    rewrite(prog, f"#!/bin/sh\necho 2\necho t >> {here / 'log'}\n")
    run("--resume", "list")
    assert ran(here) == Counter("t") and (here / "t").read_text() == "2\n"


@pytest.mark.parametrize("trust", [False, True])
def test_outputs_that_were_edited_are_made_again(here: Path, trust: bool) -> None:
    """Of the same size, too: a task that has read the one would else stand beside one that reads the other."""
    log = here / "log"
    (here / "list").write_text(f"""\
t -b sh -o t -a -c 'echo made > t; echo t >> {log}'
u -b sh -i t -o u -a -c 'cat t > u; echo u >> {log}'
""")
    run("--keep-all", "list")
    ran(here)
    run("--keep-all", "--resume", "list")
    assert not ran(here)
    rewrite(here / "t", "EDIT\n")
    run("--keep-all", "--resume=trust" if trust else "--resume", "list")
    assert ran(here) == Counter("" if trust else "t")
    assert (here / "t").read_text() == ("EDIT\n" if trust else "made\n")


def test_an_order_without_files_is_a_dependence_too(here: Path) -> None:
    log = here / "log"
    (here / "in").write_text("1\n")
    tasks = [
        Task("a", ("sh", "-c", f"cat in; echo a >> {log}"), ("in",)),
        Task("b", ("sh", "-c", f"echo > b; echo b >> {log}"), (), ("b",), after=("a",)),
        Task("c", ("sh", "-c", f"echo > c; echo c >> {log}"), (), ("c",)),
    ]
    assert amfs.run(list(tasks), journal="j", source="x").ok
    ran(here)
    rewrite(here / "in", "2\n")
    assert amfs.run(list(tasks), journal="j", source="x", resume=True).ok
    assert ran(here) == Counter("ab")


@pytest.mark.parametrize("number", range(2))
def test_an_edited_list_of_commands_keeps_what_is_done(here: Path, number: int) -> None:
    log = here / "log"
    lines = [f"echo {word} >> {log}" for word in ("one", "two", "two", "three")]
    (here / "commands").write_text("\n".join(lines) + "\n")
    run("commands")
    assert ran(here) == Counter({"one": 1, "two": 2, "three": 1})
    lines.insert(0, f"echo new >> {log}") if number == 0 else lines.insert(3, f"echo two >> {log}")
    (here / "commands").write_text("\n".join(lines) + "\n")
    run("--resume", "commands")
    assert ran(here) == Counter(["new", "two"][number : number + 1])


def test_an_edited_makeflow_keeps_what_is_done(here: Path) -> None:
    log = here / "log"
    (here / "in").write_text("1\n")
    rule = "{0}: in\n\tcat in > {0}; echo {0} >> " + str(log) + "\n\n"
    (here / "m.makeflow").write_text("".join(map(rule.format, "pqr")))
    run("m.makeflow")
    assert ran(here) == Counter("pqr")
    (here / "m.makeflow").write_text("".join(map(rule.format, "npqr")))
    run("--resume", "m.makeflow")
    assert ran(here) == Counter("n")
    rewrite(here / "in", "2\n")
    run("--resume", "m.makeflow")
    assert ran(here) == Counter("npqr")


def test_a_script_in_swift(here: Path) -> None:
    log = here / "log"
    (here / "in").write_text("1\n")
    (here / "s.swift").write_text(f"""\
import files;
app (file o) copy (file i) {{ "sh" "-c" ("cat $0 > $1; basename $1 >> {log}") i o; }}
file a <"a"> = copy(input("in"));
file b <"b"> = copy(a);
file c <"c"> = copy(input("s.swift"));
""")
    run("s.swift")
    assert ran(here) == Counter("abc")
    rewrite(here / "in", "2\n")
    run("--resume", "s.swift")
    assert ran(here) == Counter("ab")
    assert (here / "b").read_text() == "2\n"


def test_a_list_that_comes_by_a_pipe_and_a_python_session(made: Path) -> None:
    def piped(*options: str) -> None:
        words = f"cat list | {sys.executable} -m amfs run --local -q --journal j {' '.join(options)} -"
        subprocess.run(words, shell=True, check=True, timeout=100)

    def session(resume: bool) -> list[bool]:
        with amfs.Session(slots=2, journal="k", resume=resume) as session:
            task = session.submit(f"cat in1 > s1; echo s >> {made / 'log'}", inputs=["in1"], outputs=["s1"])
            after = session.submit("cat s1 > s2", inputs=["s1"], outputs=["s2"])
            session.wait()
            return [task.skipped, after.skipped]

    piped()
    session(False)
    ran(made)
    piped("--resume")
    assert session(True) == [True, True]
    assert not ran(made)
    rewrite(made / "in1", "3\n")
    piped("--resume")
    assert (made / "c").read_text() == "3\n" and (made / "y").read_text() == "2\n3\n"
    assert session(True) == [False, False]
    assert (made / "s2").read_text() == "3\n"
    assert ran(made) == Counter("abcxys")


def test_a_journal_of_an_earlier_amfs_is_no_proof(made: Path, tmp_path: Path) -> None:
    (path,) = (tmp_path / "state" / "amfs").glob("*.journal")
    past = read(path)
    assert past is not None
    past.header.format = 1
    Journal(path, Header(**{name: getattr(past.header, name) for name in past.header.__struct_fields__})).close()
    assert "does not say what tasks have read: all run again" in run("--resume", "list")
    assert ran(made) == Counter("abcxyz")


def test_a_workflow_that_may_not_be_resumed_says_what_trust_is(made: Path) -> None:
    command = [sys.executable, "-m", "amfs", "run", "--resume=blindly", "list"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 2
    shutil.rmtree(made.parent / "state")
    assert "nothing to resume" in run("--resume=trust", "list")
