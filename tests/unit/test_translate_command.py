"""``amfs translate`` as a person uses it."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from test_tasklist import FIGURE_3, FIGURE_3_FILES

Amfs = Callable[..., CompletedProcess[str]]

LIST = "a -b cat -i in -stdout 'my out' -cores 2 -a in\nb -b wc -i 'my out' -stdout count -a -l 'my out'\n"


def test_there_and_back(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(LIST)
    done = amfs("translate", "list", "--to", "jsonl", "-o", "list.jsonl")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert stat.S_IMODE((tmp_path / "list.jsonl").stat().st_mode) & 0o600 == 0o600
    back = amfs("translate", "list.jsonl", "--to", "tasklist")
    assert back.stdout == LIST
    assert sorted(path.name for path in tmp_path.iterdir()) == ["list", "list.jsonl"]


def test_from_standard_input_to_a_file_list(amfs: Amfs) -> None:
    done = amfs("translate", "-", "--to", "filelist", input=FIGURE_3)
    assert done.stdout.split() == FIGURE_3_FILES.split()


def test_the_file_list_goes_along(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "files").write_text(FIGURE_3_FILES)
    once = amfs("translate", "-", "--files", "files", "--to", "tasklist", input=FIGURE_3).stdout
    twice = amfs("translate", "-", "--to", "jsonl", input=once).stdout
    assert '{"type":"file","name":"files0","state":"Shared"}' in twice.splitlines()
    assert amfs("translate", "-", "--to", "tasklist", input=twice).stdout == once


def test_command_lines_become_tasks(amfs: Amfs) -> None:
    done = amfs("translate", "-", "--to", "tasklist", input="gzip -9 a\nsort < a > b\n")
    assert done.stdout == "1 -b gzip -unstaged -a -9 a\n2 -b /bin/sh -label sort -unstaged -a -c 'sort < a > b'\n"


def test_only_checking(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("")
    (tmp_path / "list").write_text(LIST)
    done = amfs("translate", "list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "list: 2 tasks, no faults found\n")


def test_translating_does_not_need_the_files_unless_asked(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(LIST)
    assert amfs("translate", "list", "--to", "tasklist").returncode == 0
    done = amfs("translate", "list", "--to", "tasklist", "--check")
    assert done.returncode == 2
    assert "input 'in' of task a does not exist" in done.stderr
    assert done.stdout == ""


def test_faults_leave_no_output(amfs: Amfs, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("as it was")
    done = amfs("translate", "-", "--to", "tasklist", "-o", "out", input='{"type":"task","id":"a","argv":["x"],"cores":0}\n')
    assert done.returncode == 2
    assert done.stderr == "amfs: cannot be written as tasklist: task a: cores must be at least 1, not 0\n"
    assert (tmp_path / "out").read_text() == "as it was"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_usage(amfs: Amfs) -> None:
    for args, says in (
        (["nowhere", "--to", "jsonl"], "cannot read nowhere: No such file or directory"),
        (["-", "-o", "x"], "-o needs --to"),
        (["-", "--to", "jsonl", "-o", "no/such/dir"], "cannot write no/such/dir: No such file or directory"),
        (["-", "--format", "filelist"], "give it with --files"),
        (["-", "--to", "png"], "png"),
    ):
        done = amfs("translate", *args, input="true\n")
        assert done.returncode == 2
        assert says in done.stderr
        assert "Traceback" not in done.stderr
