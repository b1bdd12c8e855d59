"""The checker finds names, types and writers; it tells mistakes with their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from amfs.cli.check import check as command
from amfs.errors import WorkflowError
from amfs.swift import depth as depths
from amfs.swift.builtins import Library
from amfs.swift.check import check
from amfs.swift.library_k import K
from amfs.swift.library_t import T
from amfs.swift.parse import parse
from amfs.swift.source import Source
from amfs.swift.tree import Convert, Declare, Foreach, Program


def checked(text: str) -> Program:
    program = parse("swift-t", Source("script.swift", text), lambda name: None)
    check(program, T)
    return program


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int x = 1; x = 2;", "'x' is assigned a second time"),
        ("int x; if (true) { x = 1; } x = 2;", "'x' is assigned a second time"),
        ("int A[]; A[0] = 1; A[0] = 2;", "'A[0]' is assigned a second time"),
        ("int x; foreach i in [0:9] { x = i; }", "'x' is assigned in each round of the loop"),
        ("int x; if (true) { x = 1; } trace(x);", "'x' is assigned only under a condition"),
        ("int x; switch (3) { case 1: x = 1; } trace(x);", "'x' is assigned only under a condition"),
        ("int x; trace(x);", "nothing assigns 'x'"),
        ("file f; trace(filename(f)); string s = read(f);", "nothing assigns 'f'"),
        ("trace(y);", "there is no variable 'y'"),
        ("int total = 1; trace(totl);", "did you mean 'total'?"),
        ("prinft(\"x\");", "did you mean 'printf'?"),
        ("int x = 1.5;", "variable 'x' is of type int, and this is of type float"),
        ("(int o) f(int i) { trace(i); }", "nothing in f assigns its output 'o'"),
        ("(int o) f(int i) { i = 2; o = 1; }", "'i' is an input of f"),
        ("type S { int a; } S s; s.b = 1;", "type S has no field 'b'"),
        ("x = 1 + true;", "'+' does not go with int and boolean"),
        ("trace(f(1));", "there is no function 'f'"),
        ("int x; f() { x = 2; }", "functions can only read"),
        ('(int o) f(int i) "p" "0.1" [ "set <<o>> 1" ]; trace(f(1));', "Tcl"),
        ("a, b = (1, 2, 3);", "cannot take 3 values"),
        ("type S { int a; } type L int; L x = L(\"a\");", "this is of type string"),
        ("foreach v in 3 { trace(v); }", "foreach needs an array or a range"),
        ("a, b = 1 + 1;", "one value cannot be assigned to 2 variables"),
        ("x = x + 1;", "computed from itself"),
        ("for (int i = 0; i < 3; j = 1) { trace(i); }", "'j' is not a variable of this loop"),
        ("app (int o) f() { \"x\"; }", "an app makes files"),
        ("flaot x = 1;", "did you mean 'float'?"),
        ("trace(f()); f() { trace(1); }", "f gives no value"),
        ("int x = g() + 1; (int a, int b) g() { a = 1; b = 2; }", "g gives 2 values, and one is wanted here"),
        ("int x; int y; (x, y) = f(); (int o) f() { o = 1; }", "f gives 1 value, and here are 2 variables for them"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        checked(text)
    assert message in str(caught.value)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(WorkflowError) as caught:
        checked("trace(a);\ntrace(b);\nint c = \"x\";")
    assert len(caught.value.faults) == 3


def test_a_loop_has_a_scope_of_its_own() -> None:
    program = checked("int A[]; int B[]; foreach i in [0:9] { int C[]; C[0] = i; if (i > 3) { A[i] = C[0]; } } B[0] = size(A);")
    loop = program.body.statements[2]
    assert isinstance(loop, Foreach)
    assert loop.body.scope is not None and [one.name for one in loop.body.scope.symbols] == ["i", "C"]


def test_promotion_and_undeclared_variables() -> None:
    program = checked('float x = 1 + 1; A[0]["k"] = x; y = A[0]["k"] / 2;')
    declared = {one.name: str(one.symbol.type) for one in program.body.statements if isinstance(one, Declare) and one.symbol}
    assert declared == {"A": "float[string][]", "y": "float", "x": "float"}
    (x,) = [one for one in program.body.statements if isinstance(one, Declare) and one.name == "x"]
    assert isinstance(x.value, Convert)


def test_branches_that_may_belong_together_are_left_to_the_run() -> None:
    checked("int x; if (true) { x = 1; } if (false) { x = 2; } trace(x);")
    checked("int x; if (true) { x = 1; } else { x = 2; } trace(x);")
    checked("int x; if (true) { x = 1; trace(x); }")
    checked("int x; if (true) { x = 1; } if (true) { trace(x); }")


def test_overloads() -> None:
    checked(
        """
        (int o) f(int i) { o = 1; }
        (int o) f(string s, int n=3) { o = n; }
        <U> (U o) first(U A[]) { o = A[0]; }
        int a = f(1) + f("x") + f("x", n=4) + first([1, 2]);
        string s = first(["x"]);
        float m = sum([1.5, 2]) + toint("3");
        """
    )


def test_deep_nesting(monkeypatch: pytest.MonkeyPatch) -> None:
    depth = 3_000
    checked("x = " + "-(" * depth + "1" + ")" * depth + ";")
    checked("x = " + "1 + (" * depth + "1" + ")" * depth + ";")
    checked("x = " + "1 + " * depth + "1;")
    checked("if (true) {" * depth + "}" * depth)
    checked("if (true) { } else " * depth + "{}")
    with pytest.raises(WorkflowError, match="arrays nest more than 100 deep"):
        checked("x = " + "[" * depth + "1" + "]" * depth + ";")
    with pytest.raises(WorkflowError, match="100 dimensions"):
        checked("int x" + "[]" * depth + ";")
    monkeypatch.setattr(depths, "LEVELS_MAX", 100)
    with pytest.raises(WorkflowError, match="nests too deeply"):
        checked("x = " + "!(" * depth + "true" + ")" * depth + ";")


@pytest.mark.parametrize(("name", "library"), [("t", T), ("k", K)])
def test_the_small_programs_pass(name: str, library: Library) -> None:
    """Those with an expected output; test_swift_programs.py looks at the messages of the others."""
    folder = Path(__file__).parent.parent / "data" / "swift" / name
    for path in sorted(folder.glob("*.swift")):
        text = path.read_text(encoding="utf-8")
        if "//!" in text or "import" in text or "#in" in text or "#de" in text:
            continue
        check(parse(f"swift-{name}", Source(str(path), text), lambda name: None), library)


def test_amfs_check(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.swift", tmp_path / "bad.swift"
    good.write_text("trace(1);\n")
    bad.write_text("x = 1;\ntrace(y);\ntrace(x + true);\n")
    runner = CliRunner()
    found = runner.invoke(command, [str(good)], standalone_mode=False)
    assert (found.return_value, "no mistakes" in found.output) == (0, True)
    found = runner.invoke(command, [str(bad), str(good)], standalone_mode=False)
    assert found.return_value == 2
    assert "bad.swift:2:7: there is no variable 'y' here" in found.output
    assert "bad.swift:3:7: '+' does not go with int and boolean" in found.output
    assert "good.swift: Swift/T" in found.output
