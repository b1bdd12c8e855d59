"""Options of a task, each through ``amfs run`` with real processes: retries, limits, cores, priorities, names that climb, kept
sandboxes, hashed outputs, staged inputs, reductions; and that nobody can spoil another's input."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Amfs = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    path = tmp_path / "here"
    path.mkdir()
    return path


def run(amfs: Amfs, here: Path, text: str, *options: str, status: int = 0) -> str:
    (here / "list").write_text(text)
    done = amfs("run", "--local", *options, "list", cwd=here)
    assert done.returncode == status, done.stderr
    return done.stderr


def test_a_task_that_fails_twice_is_tried_a_third_time(amfs: Amfs, here: Path) -> None:
    text = f"a -b sh -retries 2 -o x -a -c 'echo . >> {here}/tries; test $(wc -l < {here}/tries) -ge 3 && echo done > x'\n"
    text += "b -b cp -i x -o y -a x y\n"
    run(amfs, here, text)
    assert (here / "tries").read_text() == ".\n" * 3
    assert (here / "y").read_text() == "done\n"


def test_retries_end(amfs: Amfs, here: Path) -> None:
    said = run(amfs, here, f"a -b sh -a -c 'echo . >> {here}/tries; exit 7'\n", "--retries", "1", status=1)
    assert (here / "tries").read_text() == ".\n" * 2
    assert "exit status 7" in said


def test_fail_fast_stops_what_has_not_begun(amfs: Amfs, here: Path) -> None:
    text = "bad -b false\n" + "".join(f"{i} -b sh -a -c 'sleep 0.2; echo . >> {here}/ran'\n" for i in range(40))
    run(amfs, here, text, "--fail-fast", "--slots", "2", status=3)
    ran = (here / "ran").read_text().count(".") if (here / "ran").exists() else 0
    assert ran < 40


def test_a_time_limit_kills_the_whole_process_group(amfs: Amfs, here: Path) -> None:
    said = run(amfs, here, f"a -b sh -time-limit 0.3 -a -c '(sleep 5; echo late > {here}/late) & sleep 5'\n", status=1)
    assert "time limit of 0.3 s" in said
    assert not (here / "late").exists()


def test_cores_are_respected(amfs: Amfs, here: Path) -> None:
    count = f"echo s >> {here}/log; sleep 0.1; echo e >> {here}/log"
    text = "".join(f"w{i} -b sh -cores 2 -a -c '{count}'\n" for i in range(4))
    run(amfs, here, text, "--slots", "2")
    assert (here / "log").read_text().split() == ["s", "e"] * 4


def test_memory_is_respected(amfs: Amfs, here: Path) -> None:
    count = f"echo s >> {here}/log; sleep 0.1; echo e >> {here}/log"
    text = "".join(f"w{i} -b sh -memory 600M -a -c '{count}'\n" for i in range(3))
    run(amfs, here, text, "--slots", "2", "--memory", "1G")
    assert (here / "log").read_text().split() == ["s", "e"] * 3


def test_higher_priority_goes_first(amfs: Amfs, here: Path) -> None:
    text = "gate -b sh -o go -a -c 'sleep 0.3; echo > go'\n"
    for i, priority in enumerate((0, 5, 9)):
        text += f"t{i} -b sh -priority {priority} -i go -a -c 'echo {priority} >> {here}/order'\n"
    run(amfs, here, text, "--slots", "1")
    assert (here / "order").read_text().split() == ["9", "5", "0"]


def test_names_that_climb_work_from_the_sandbox(amfs: Amfs, here: Path) -> None:
    (here.parent / "data").mkdir()
    (here.parent / "data" / "in").write_text("up there\n")
    text = "a -b cp -i ../data/in -o ../data/mid -a ../data/in ../data/mid\n"
    text += "b -b cp -i ../data/mid -o sub/dir/out -a ../data/mid sub/dir/out\n"
    run(amfs, here, text)
    assert (here / "sub" / "dir" / "out").read_text() == "up there\n"
    assert not (here.parent / "data" / "mid").exists(), "between tasks only"


def test_absolute_names_are_read_and_written_in_place(amfs: Amfs, here: Path) -> None:
    text = f"a -b sh -o {here}/abs -a -c 'echo x > {here}/abs'\nb -b cp -i {here}/abs -o rel -a {here}/abs rel\n"
    run(amfs, here, text)
    assert (here / "rel").read_text() == "x\n"
    assert (here / "abs").read_text() == "x\n"


def test_only_what_is_declared_is_in_the_sandbox_and_only_outputs_come_back(amfs: Amfs, here: Path) -> None:
    for name in ("in1", "secret"):
        (here / name).write_text(name)
    run(amfs, here, "a -b sh -i in1 -o seen -a -c 'ls > seen; echo > litter'\n")
    assert (here / "seen").read_text().split() == ["in1", "seen"]
    assert sorted(path.name for path in here.iterdir()) == ["in1", "list", "secret", "seen"]


def test_kept_outputs_and_keep_all(amfs: Amfs, here: Path) -> None:
    text = "a -b sh -o x y {} -a -c 'echo 1 > x; echo 2 > y'\nb -b cat -i x y -a x y\n"
    run(amfs, here, text.format("-keep x"))
    assert (here / "x").exists()
    assert not (here / "y").exists()
    run(amfs, here, text.format(""), "--keep-all")
    assert (here / "y").exists()


def test_hashed_outputs_go_to_hashed_directories(amfs: Amfs, here: Path) -> None:
    text = "".join(f"{i} -b sh -o out/f{i} -a -c 'echo {i} > out/f{i}'\n" for i in range(20))
    run(amfs, here, text, "--hashed-outputs", "16")
    found = sorted((here / "out").glob("*/f*"))
    assert {path.name for path in found} == {f"f{i}" for i in range(20)}
    assert all(re.fullmatch("[0-9a-f]", path.parent.name) for path in found)
    assert len({path.parent for path in found}) > 4


@pytest.mark.parametrize("how", ["in-place", "stage"])
def test_a_shared_input_is_the_same_however_it_is_read(amfs: Amfs, here: Path, how: str) -> None:
    data = os.urandom(300_000)
    (here / "big").write_bytes(data)
    text = "".join(f"{i} -b cp -i big -o copy{i} -a big copy{i}\n" for i in range(4))
    run(amfs, here, text, "--shared-inputs", how)
    assert all((here / f"copy{i}").read_bytes() == data for i in range(4))


def test_a_task_that_scribbles_on_its_input_fails_and_other_readers_never_see_it(amfs: Amfs, here: Path) -> None:
    text = (
        f"make -b sh -o x -a -c 'echo good > x; echo . >> {here}/made'\n"
        "bad -b sh -i x -o bad -a -c 'sleep 0.1; chmod u+w x; echo evil > x; echo > bad'\n"
        "wait -b sh -o done -a -c 'sleep 0.6; echo > done'\n"
        "late -b sh -i x done -o seen -a -c 'cat x > seen'\n"
    )
    said = run(amfs, here, text, "--slots", "2", status=1)
    assert "changed its input: x" in said
    assert (here / "seen").read_text() == "good\n"
    assert (here / "made").read_text() == ".\n.\n", "what was spoiled is made again"


@pytest.mark.parametrize("how", ["in-place", "stage"])
def test_who_may_have_written_on_a_shared_input_is_named(amfs: Amfs, here: Path, how: str) -> None:
    """An innocent reader at that time may fail as well: it has perhaps seen half of the change. Then it is said whose it may have been."""
    (here / "x").write_text("good\n")
    text = (
        f"innocent -b sh -i x -a -c 'touch {here}/on; until [ -e {here}/off ]; do sleep 0.01; done; cat x'\n"
        f"guilty -b sh -i x -a -c 'until [ -e {here}/on ]; do sleep 0.01; done; chmod u+w x; echo evil > x; touch {here}/off'\n"
        "alone -b true\n"
    )
    said = run(amfs, here, text, "--slots", "2", "--shared-inputs", how, status=1)
    assert "changed its input: x (or another task did that read it at the same time: task guilty)" in said


def test_what_a_task_removes_around_its_sandbox_harms_no_other(amfs: Amfs, here: Path) -> None:
    text = "make -b sh -o x -a -c 'echo good > x'\n"
    text += "bad -b sh -i x -o gone -a -c 'echo > gone; cp gone /dev/null; rm -rf ../../*'\n"
    text += "worse -b sh -after make -a -c 'rm -rf ../../*; rm -rf ../../../work'\n"
    text += "late -b sh -i x -after worse -o seen -a -c 'cp x seen'\n"
    run(amfs, here, text, "--slots", "1", status=1)
    assert (here / "seen").read_text() == "good\n"


def test_two_readers_may_replace_their_links(amfs: Amfs, here: Path) -> None:
    text = "make -b sh -o x -a -c 'echo one > x'\n" + "".join(
        f"r{i} -b sh -i x -o y{i} -a -c 'sed -i s/one/two/ x; cat x > y{i}'\n" for i in range(3)
    )
    run(amfs, here, text)
    assert [(here / f"y{i}").read_text() for i in range(3)] == ["two\n"] * 3


def test_a_kept_sandbox_shows_what_the_failed_task_had(amfs: Amfs, here: Path, tmp_path: Path) -> None:
    said = run(amfs, here, "a -b sh -a -c 'echo clue > trace; exit 1'\n", "--keep-sandbox", status=1)
    kept = re.search(r"kept in (\S+)", said)
    assert kept is not None
    (trace,) = Path(kept[1]).glob("**/trace")
    assert trace.read_text() == "clue\n"
    import shutil

    shutil.rmtree(kept[1])


def test_missing_outputs_are_named(amfs: Amfs, here: Path) -> None:
    said = run(amfs, here, "a -b sh -o x y z -a -c 'echo > y'\n", status=1)
    assert "did not make: x, z" in said
    assert not (here / "y").exists(), "all or nothing"


def test_stdin_stdout_stderr_and_environment(amfs: Amfs, here: Path) -> None:
    (here / "in").write_bytes(b"a\0b\n")
    text = "a -b sh -stdin in -stdout out -stderr err -env WORD='two words' -a -c 'cat; echo \"$WORD\" >&2'\n"
    run(amfs, here, text)
    assert (here / "out").read_bytes() == b"a\0b\n"
    assert (here / "err").read_text() == "two words\n"


def test_a_program_made_by_the_workflow_runs(amfs: Amfs, here: Path) -> None:
    text = "compile -b sh -o tool -a -c 'printf \"#!/bin/sh\\necho made > out\\n\" > tool; chmod +x tool'\nuse -b tool -i tool -o out\n"
    run(amfs, here, text)
    assert (here / "out").read_text() == "made\n"


@pytest.mark.parametrize("inputs", [2, 3, 10, 41])
def test_a_reduction_keeps_the_order_of_its_inputs(amfs: Amfs, here: Path, inputs: int) -> None:
    text = "".join(f"m{i} -b sh -o p{i} -a -c 'echo {i} > p{i}'\n" for i in range(inputs))
    names = " ".join(f"p{i}" for i in range(inputs))
    text += f"r -b sh -reduce 3 -i {names} -o all -a -c 'out=$1; shift; cat \"$@\" > $out' sh {{out}} {{in}}\n"
    run(amfs, here, text)
    assert (here / "all").read_text() == "".join(f"{i}\n" for i in range(inputs))


def test_a_reduction_fails_with_its_part(amfs: Amfs, here: Path) -> None:
    text = "".join(f"m{i} -b sh -o p{i} -a -c 'echo {i} > p{i}'\n" for i in range(9))
    names = " ".join(f"p{i}" for i in range(9))
    text += f"r -b sh -reduce 3 -i {names} -o all -a -c 'echo broken >&2; exit 4' sh {{out}} {{in}}\nafter -b cat -i all -a all\n"
    said = run(amfs, here, text, status=1)
    assert "exit status 4" in said
    assert "1 could not run" in said


def test_an_unwritable_place_is_refused_before_anything_runs(amfs: Amfs, here: Path) -> None:
    (here / "file").write_text("")
    said = run(amfs, here, f"a -b sh -o file/x -a -c 'echo > {here}/ran'\n", status=2)
    assert "list:1:" in said
    assert not (here / "ran").exists()


def test_large_argument_lists(amfs: Amfs, here: Path) -> None:
    words = " ".join(f"w{i}" for i in range(20_000))
    run(amfs, here, f"a -b sh -o n -a -c 'echo $# > n' sh {words}\n")
    assert (here / "n").read_text() == "20000\n"


def test_a_full_store_is_an_error_that_says_so(amfs: Amfs, here: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    small = here / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", small], check=True)
    try:
        said = run(
            amfs, here, "a -b sh -o x -a -c 'head -c 200000000 /dev/zero > x'\nb -b echo -a fine\n", "--store", str(small), status=1
        )
        assert "No space left" in said
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", small], check=True)
