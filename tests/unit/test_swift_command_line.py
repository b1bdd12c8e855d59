"""A Swift/T script's declarations of its command line: mistakes, and the output of -h."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from amfs.cli.run import run
from amfs.errors import WorkflowError
from amfs.swift.source import Source
from amfs.translate.swift import program_of

SCRIPT = """
arguments(string name : "who is greeted", int count = 2 : "how often", description : "Greets.");
flags(boolean loud : "in capitals", int width);
trace(name, count, loud, width);
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("main { arguments(int v); trace(v); }", "1:8: arguments(…), which declares what the command line gives, stands outside"),
        ("flags(boolean b = true);", "1:19: the flag 'b' is true where it is given, and false elsewhere"),
        ("flags(int help);", "1:7: -help prints the usage of a script"),
        ("arguments(int a);\nmain(int b) { trace(a, b); }", "2:6: the arguments of the command line are declared a second time"),
        ("flags(bool loud);", "the type is called boolean"),
        ("flags(input f);", "a flag cannot be a file"),
        ("arguments(int[] a);", "cannot be of this type"),
        ("arguments(int... a, int b);", "a type and a name are expected here"),
        ("arguments(int a, 3);", "1:18: a type and a name are expected here"),
        ('arguments(int a = "x");', "the default of 'a' is written out, as a value of type int"),
        ("arguments(int a = 1, int b);", "'b' has no default, and it stands after 'a'"),
        ('f(int x : "text") { }', "a text that documents stands only in arguments(…) and flags(…)"),
        ('trace(1 : "text");', "a text that documents stands only in arguments(…) and flags(…)"),
        ("arguments(int a) => trace(a);", "this cannot stand in a chain"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        program_of(Source("s", text), "swift-t")
    assert message in str(caught.value)


def test_swift_k_has_no_such_declarations() -> None:
    with pytest.raises(WorkflowError, match="a parameter with its type stands where an argument is expected"):
        program_of(Source("s", "arguments(int v);\ntrace(v);"), "swift-k")


def test_usage() -> None:
    assert program_of(Source("greet.swift", SCRIPT), "swift-t").usage.splitlines() == [
        "usage: greet.swift name [count] [-loud] -width=int",
        "Greets.",
        "  name                 who is greeted",
        "  count                how often (default: 2)",
        "  -loud                in capitals",
        "  -width=int",
    ]
    assert program_of(Source("s", "trace(1);"), "swift-t").usage == ""


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_amfs_run_prints_the_usage_and_runs_nothing(word: str, tmp_path: Path) -> None:
    script = tmp_path / "greet.swift"
    script.write_text(SCRIPT)
    done = CliRunner().invoke(run, [str(script), "--", word])
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"usage: {script} name [count]") and "trace:" not in done.output
