"""Swift/T or Swift/K: found by content."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amfs.errors import WorkflowError
from amfs.swift.source import Source
from amfs.translate.swift import languages_of, program_of

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = [*sorted((ROOT / "tests/data/swift").glob("[tk]/*.swift")), *sorted((ROOT / "examples/swift").glob("*.swift"))]


def language(path: Path) -> str:
    """As its directory or its first line says."""
    return f"swift-{path.parent.name}" if path.parent.name in "tk" else f"swift-{path.read_text().split('Swift/')[1][0].lower()}"


def test_a_script_is_never_taken_for_the_other_language_alone() -> None:
    assert [path for path in SCRIPTS if language(path) not in languages_of(path.read_text())] == []


def test_most_scripts_with_apps_mappers_or_imports_are_known_at_once() -> None:
    marks = ("stdout=", "mapper", "import ", "@arg", "readData", "tracef", "[auto]")
    for path in SCRIPTS:
        text = path.read_text()
        if any(mark in text for mark in marks):
            assert languages_of(text)[0] == language(path), path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('type file;\nfile f <"a">;', "k"),
        ("type messagefile {}\n", "k"),
        ("# a comment\nint x = 1;", "k"),
        ("int[] a = [1, 2];\ntrace(a[0]);", "k"),
        ("(int[] r) f(int n) { r[0] = n; }\nint[] x = f(1);", "k"),
        ("int a[auto]; a << 1;", "k"),
        ('string s = @arg("n", "1");', "k"),
        ('string s = arg("n", "1"); trace(s);', "k"),
        ('trace(strcat("a", @strcat("b", "c")));', "k"),
        ("app (file o) f() { echo \"@stdout=x\" stdout=@o; }", "k"),
        ("(file o) f() { app { date stdout=@filename(o); } }", "k"),
        ("global int n = 3; trace(n);", "k"),
        ("string i = strcut(\"3\", \"(.)\"); trace(i);", "k"),
        ("import io;\nint x = 1;", "t"),
        ("main { trace(1); }", "t"),
        ("main\n() { trace(1); }", "t"),
        ("int x = 1;\ntrace(x) => trace(2);", "t"),
        ("global const int N = 3; trace(N);", "t"),
        ("app (file o) f() { \"echo\" \"stdout=x\" @stdout=o; }", "t"),
        ("#define N 3\ntrace(N);", "t"),
        ("for (int i = 0; i < 3; i = i + 1) { trace(i); }", "t"),
        ("x, y = f(1);\n(int a, int b) f(int c) { a = c; b = c; }", "t"),
        ("assertNotEqual(1, 1, \"// # <<\");", "t"),
        ('printf("%s\\n", "<simple_mapper;"); wait (x) { } int x = 1;', "t"),
        ("trace(size([1, 2]));", "t"),
        ("(int o) arg(int i) { o = i; }\nint y = arg(2) ** 2;", "t"),
    ],
)  # fmt: skip
def test_what_one_language_only_has_decides(text: str, found: str) -> None:
    assert languages_of(text) == [f"swift-{found}"]


def test_what_neither_decides_is_tried_in_both() -> None:
    both = 'int x = 1; trace(x, strcat("a", "b"));'
    assert set(languages_of(both)) == {"swift-t", "swift-k"}
    assert program_of(Source("s", both)).language == "swift-t"
    # a program's name that is a bare word, a comparison of strings: the checker of Swift/T refuses them
    assert program_of(Source("s", "app hello() { \"echo\" (\"a\" < \"b\"); }\nhello();")).language == "swift-k"
    assert program_of(Source("s", 'trace("a" < "b");')).language == "swift-k"
    assert program_of(Source("s", 'trace(toInt("3"));')).language == "swift-k"


def test_of_a_script_that_is_wrong_in_both_the_mistakes_are_those_of_the_likelier() -> None:
    with pytest.raises(WorkflowError, match="strcatt"):
        program_of(Source("s", 'main { trace(strcatt("a")); int y = @arg("n"); }'))
    with pytest.raises(WorkflowError, match="readDat"):
        program_of(Source("s", 'int x = readDat("a"); tracef("%i\\n", x);'))


@pytest.mark.parametrize("words", [["run", "--local", "-q", "-"], ["run", "--local", "-q", "/dev/stdin"]])
def test_a_script_may_come_from_a_pipe(words: list[str], tmp_path: Path) -> None:
    text = b'int x = 1;\ntracef("%i and %s\\n", x, "text");\n'
    command = [sys.executable, "-m", "amfs", *words]
    done = subprocess.run(command, input=text, cwd=tmp_path, env=dict(os.environ), capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"1 and text\n"), done.stderr


def test_profiles_that_are_not_of_the_environment_are_remarked() -> None:
    text = 'app f() {{ profile "{}:x" = "1"; echo "a"; }}\nf();'
    assert program_of(Source("s", text.format("env"))).remarks == []
    assert [words for _, words in program_of(Source("s", text.format("globus"))).remarks] == ["profiles of globus have no meaning here"]
