"""Command lines with nothing declared, and with -if and -of."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tasklist import faults_of, read

from amfs.workflow.workflow import Task


def one(line: str, format: str = "auto-commands") -> Task:
    [task] = read(line, format).tasks
    return task


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("gzip -9 a.txt", ("gzip", "-9", "a.txt")),
        ("  gzip\ta.txt  ", ("gzip", "a.txt")),
        ("prog 'a b' \"c d\" e\\ f", ("prog", "a b", "c d", "e f")),
        ("prog '*' \"a|b\" '$HOME'", ("prog", "*", "a|b", "$HOME")),
        ("prog --option=value a=b 50% a:b @x ^y", ("prog", "--option=value", "a=b", "50%", "a:b", "@x", "^y")),
        ("prog \"\" ''", ("prog", "", "")),
        ("'cd' x", ("cd", "x")),
        ("./cd x", ("./cd", "x")),
        ("echo größe", ("echo", "größe")),
        ("make -j4 CC=gcc", ("make", "-j4", "CC=gcc")),
    ],
)
def test_started_directly(line: str, argv: tuple[str, ...]) -> None:
    task = one(line)
    assert task == Task("1", argv, staged=False, line=1)


@pytest.mark.parametrize(
    "line",
    [
        "sort < in > out",
        "a | b",
        "a && b",
        "a ; b",
        "a &",
        "ls *.txt",
        "ls file?.txt",
        "ls [ab]",
        "echo $HOME",
        'echo "$HOME"',
        "echo `date`",
        'echo "`date`"',
        "echo $(date)",
        "(a)",
        "{ a; }",
        "echo {a,b}",
        "cp ~/x y",
        "X=1 prog",
        "X= prog",
        "cd dir && ls",
        "export X=1; env",
        ". ./env",
        "! true",
        "time prog",
        "if true",
        "echo a # comment",
        "echo $'a\\nb'",
    ],
)
def test_left_to_a_shell(line: str) -> None:
    task = one(line)
    assert task.argv == ("/bin/sh", "-c", line)
    assert not task.staged


def test_labels_of_shell_lines_name_the_program() -> None:
    assert one("/usr/bin/sort < a").label == "sort"
    assert one("gzip a").label == ""  # the program's name by default
    assert one("(a)").label == ""


@given(st.lists(st.text("ab '\"\\$*|=~!#{}[]?;&<>`%\t", max_size=5), min_size=1, max_size=4).map(lambda words: ["printf", *words]))
def test_fully_quoted_words_need_no_shell(words: list[str]) -> None:
    line = shlex.join(words)
    task = one(line, "commands")
    assert task.argv == tuple(words)


@given(st.text("ab '\"\\=%-", max_size=8))
def test_direct_lines_split_as_sh_splits(tail: str) -> None:
    line = f"printf '%s\\0' {tail}"
    if faults_of(line, "commands"):
        assert subprocess.run(["sh", "-nc", line], capture_output=True).returncode != 0 or line.endswith("\\")
        return
    task = one(line, "commands")
    by_sh = subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout
    directly = subprocess.run(task.argv, capture_output=True, check=True).stdout
    assert directly == by_sh


def test_numbered_by_line_without_comments() -> None:
    tasks = read("# list\n\ntrue\n  # more\nfalse\n", "commands").tasks
    assert [(task.id, task.line, task.argv) for task in tasks] == [("1", 3, ("true",)), ("2", 5, ("false",))]


@pytest.mark.parametrize(
    ("line", "argv", "inputs", "outputs"),
    [
        (
            "bin/exec input.txt output.txt -if input.txt -of output.txt",
            ("bin/exec", "input.txt", "output.txt"),
            ("input.txt",),
            ("output.txt",),
        ),
        ("p a b c -of c -if a b", ("p", "a", "b", "c"), ("a", "b"), ("c",)),
        ("p out -of out", ("p", "out"), (), ("out",)),
        ("p in -if in", ("p", "in"), ("in",), ()),
        ("p 'a b' -if 'a b' -of", ("p", "a b"), ("a b",), ()),
        ("sort < in > out -if in -of out", ("/bin/sh", "-c", "sort < in > out"), ("in",), ("out",)),
        ("p ' -if x' -if y", ("p", " -if x"), ("y",), ()),
        ("p x\t-if\tx", ("p", "x"), ("x",), ()),
        ("p '-if' -if '-of'", ("p", "-if"), ("-of",), ()),
    ],
)
def test_declared_files(line: str, argv: tuple[str, ...], inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    task = one(line)
    assert (task.argv, task.inputs, task.outputs, task.staged) == (argv, inputs, outputs, True)


def test_of_alone_may_be_an_option_of_the_program() -> None:
    line = "gdal_translate -of GTiff in.png out.tif"
    assert one(line).argv == tuple(line.split())
    assert not one(line).staged
    assert one(line, "usage").outputs == ("GTiff", "in.png", "out.tif")
    assert one("p in out -if in -of out", "commands").argv == ("p", "in", "out", "-if", "in", "-of", "out")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("echo 'abc", "the quote ' in column 6 is not closed"),
        ('sort < a "b', 'the quote " in column 10 is not closed'),
        ("echo \\", "a backslash ends the line"),
        ("-if a -of b", "there is no command before -if and -of"),
        ("p -if 'a", "is not closed"),
    ],
)
def test_faults(line: str, says: str) -> None:
    [fault] = faults_of(f"true\n{line}\ntrue\n", "auto-commands")
    assert fault.line == 2
    assert says in fault.message


def test_quotes_in_substitutions_are_left_to_the_shell() -> None:
    line = """echo "$(printf 'a"b')" """
    assert one(line).argv == ("/bin/sh", "-c", line.strip())


@pytest.mark.parametrize("line", ["cd sub", "cd", "export X=1", "export P=$P:/opt", "X=1", "X=1 Y=2", "unset X", "alias l='ls -l'"])
def test_a_line_that_changes_only_its_own_shell_is_a_fault(line: str) -> None:
    [fault] = faults_of(line, "commands")
    assert "alone changes nothing, for each line runs by itself" in str(fault)


@pytest.mark.parametrize("line", ["cd sub && make", "export X=1; make", "X=1 make", "export -p > vars", "cdrecord x", "umask", "X=$(make)"])
def test_lines_that_do_more_are_tasks(line: str) -> None:
    assert one(line, "commands").argv
