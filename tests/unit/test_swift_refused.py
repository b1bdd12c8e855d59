"""Scripts refused before anything runs, with the place; and similar ones that are right."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from amfs.cli.check import check as command
from amfs.errors import WorkflowError
from amfs.swift.source import Source
from amfs.translate.swift import program_of

FOR_EVER = "this would wait for ever"
CP = 'app (file o) cp(file i) { "cp" i o; }\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # values that wait for themselves
        ("int x; x = x;", "1:8: 'x' waits for itself: " + FOR_EVER),
        ("int x = x + 1;", "1:5: 'x' waits for itself"),
        ("int x; int y; x = y + 1; y = x * 2;", "1:15: 'x' waits for itself, by way of 'y'"),
        ("int A[]; A[0] = A[0];", "'A[0]' waits for itself"),
        ("int A[]; A = A;", "this may write into 'A', and it waits until nothing can write into 'A' any more"),
        ("type s { int a; int b; } s v; v.a = v.b + 1; v.b = v.a + 1;", "'v.a' waits for itself, by way of 'v.b'"),
        ("int a; if (a == 0) { a = 2; } else { a = 3; }", "'a' waits for itself"),
        ("int a; if (a + 1 > 0) { a = 2; } else { a = 3; }", "'a' waits for itself"),
        ("int a; switch (a) { case 3: a = 2; default: a = 3; }", "'a' waits for itself"),
        ("int x; int y; if (x == 1) { y = 1; } else { y = 2; } if (y == 1) { x = 1; } else { x = 2; }", "'x' waits for itself, by way of"),
        ("int x; wait (x) { x = 1; }", "'x' waits for itself"),
        ("int x; trace(x) => x = 1;", "'x' waits for itself"),
        ("int A[]; A[0] = 1; foreach v in A { A[v] = 1; }", "this may write into 'A'"),
        ("int A[]; A[0] = 1; if (size(A) > 0) { A[1] = 1; }", "this may write into 'A'"),
        ("int A[]; A[size(A)] = 1;", "this may write into 'A'"),
        (CP + "file a = cp(b); file b = cp(a);", "'a' waits for itself, by way of 'b'"),
        ("(int o) f(int i) { int y; y = y * i; o = 1; }", "'y' waits for itself"),
        # arguments
        ("g(int x) { trace(x); }\ng(x=1);", "2:5: the parameter 'x' of g has no default: it is given without its name"),
        ("g(int x=0) { trace(x); }\ng(1, x=2);", "2:8: the parameter 'x' of g is given twice"),
        ("g(int x=0) { trace(x); }\ng(y=2);", "g has no parameter 'y'"),
        ("g(int x=0, int y=0) { trace(x, y); }\ng(y=2, 5);", "an argument without a name stands after one with a name"),
        ("g(int x=0, int y) { trace(x, y); }", "1:12: 'y' has no default, and it stands after 'x', which has one"),
        ("(int o=3) g(int x) { o = x; }", "the output 'o' cannot have a default"),
        ("(int... o) g(int x) { o = x; }", "the output 'o' cannot stand for several values"),
        ("g(int... x=3) { }", "'x' stands for several arguments, so it cannot have a default"),
        ("(int x, int y) f() { x = 1; y = 2; }\nint x; int y; (x, y) = f(1);", "f needs 0 arguments, and 1 is given"),
        ("trace(toInt(1.5, 2));", "toInt needs 1 argument, and 2 are given"),
        ("f(int a, float b) { }\nf(float a, int b) { }\nf(1, 1);", "3:1: f(int, int) may mean several functions"),
        # several values
        ("x = (1, 2);", "1:5: one value is wanted here, and these are several"),
        ("trace((1, 2));", "one value is wanted here, and these are several"),
        ("x = 1 + (1, 2);", "one value is wanted here, and these are several"),
        # keys
        ("int A[int[]];", "1:7: a value of type int[] cannot be a key"),
        ("type k { int a; } string A[k];", "a value of type k cannot be a key"),
        ("A[[1, 2]] = 3;", "1:3: a value of type int[] cannot be a key"),
        ("type k { int a; } k x; x.a = 1; A[x] = 3;", "a value of type k cannot be a key"),
        ("int k[] = [1];\ntrace({k: 1});", "a value of type int[] cannot be a key"),
        # names
        ("global const int trace = 1;", "'trace' is the name of a function, too"),
        ("(int o) f(int i) { o = i; }\nglobal const int f = 3;", "2:18: 'f' is the name of a function, too"),
        ("(int o) f(int i) { o = i; }\ntype f { int a; }", "f is the name of a type, too"),
        ("file f = cp(input(\"x\"));", "did you mean: import unix;"),
        ("import locatio;", "did you mean: import location;"),
        # urls, externals
        ('url u = input_url("http://x/y"); file f = u;', "variable 'f' is of type file, and this is of type url"),
        (CP + 'file f = cp(input_url("http://x/y"));', "parameter 'i' of cp is of type file, and this is of type url"),
        ('app (url o) put(file i) { "put" i o; }\nurl u = put(input("x"));', "2:9: the app put makes a file at a URL"),
        ('app (external o) e() { "e"; }\nvoid v = e(); external x = v;', "variable 'x' is of type external, and this is of type void"),
    ],
)
def test_refused_in_swift_t(text: str, message: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        program_of(Source("s", text), "swift-t")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(int o) f(int i) { o = 1; }\nint x = f(x);",
        "int A[]; A[0] = 1; foreach i in [1:9] { A[i] = A[i - 1] + 1; }",
        "int A[]; A[0] = 1; A[1] = A[0] + 1; A[2] = A[1];",
        "int A[]; A[0] = size(A); trace(A[0]);",  # the element is there before it has its value
        "type s { int a; int b; } s v; v.a = 1; v.b = v.a + 1;",
        "int A[]; int B[]; B = A; A[0] = 1; A[1] = B[0];",
        "int A[]; int B[]; B = A; A[0] = 1; trace(size(B));",
        "int A[]; A[0] = 1; if (exists(A, 0)) { A[1] = 2; }",
        "int A[]; int B[]; A[0] = 1; foreach v, i in A { B[i] = v; } trace(size(B));",
        "for (int i = 0, int s = 0; i < 3; i = i + 1, s = s + i) { int y = i + s; trace(y); }",
        "foreach i in [0:3] { int x; int y = x + 1; x = i; trace(y); }",
        "int n; int x = 1; if (x == 1) { n = 1; } else { n = 2; } trace(n);",
        "g(int x=0, int... rest) { trace(x); }\ng(); g(1); g(1, 2);",
        'g(int x, int y=1, string z="a") { trace(x, y, z); }\ng(1, z="b"); g(1, 2); g(1, z="c", y=3);',
        'trace(size(split("a b", delimiter=" ")));',
        "f(int a) { } f(float a) { } f(string a) { }\nf(1); f(1.5); f(\"a\");",
        'trace("%i %s" % (1, "a"));',
        "<K, V> (int o) f(V A[K]) { o = size(A); }\nint B[string]; trace(f(B));",
        'float A[float]; A[1.5] = 2.0; int B[boolean]; B[true] = 1;',
        "f(int size, string filename) { trace(size, filename); }\nint count = 1; trace(count);",
        'app (external o) e() { "e"; }\nexternal x = e(); void v = x; wait (v) { trace(1); }',
        'app (file o) get(url i) { "curl" i @stdout=o; }\nfile f = get(input_url("http://x/y"));',
        'app (url o) put(file i) { "put" i o; }',
        'string s = "\\a\\b\\f\\n\\r\\t\\v\\0\\101\\x41\\\\\\"\\\'\\?";',
    ],
)
def test_right_in_swift_t(text: str) -> None:
    assert program_of(Source("s", text), "swift-t").language == "swift-t"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('type file;\nfile f[] <simpel_mapper; prefix="a">;', "2:10: there is no mapper 'simpel_mapper'"),
        ('type file;\nfile f[] <simple_mapper; prefx="a">;', "did you mean 'prefix'?"),
        ("type file;\nfile f[] <fixed_array_mapper>;", "the parameter 'files' of fixed_array_mapper is missing"),
        ("int x = x + 1;", "'x' waits for itself"),
        ("int[] a; a[0] = 1; if (length(a) > 0) { a[1] = 2; }", "this may write into 'a'"),
        ("if (true) { (int o) f(int i) { o = i; } }", "the definition of a procedure stands outside of all blocks"),
        ("int x = 1\nint y = 2;", "1:9: a ';' is missing after 'int x = 1'"),
        ("foreach i in [1:2] {\n trace(i);\n", "1:20: this '{' has no '}'"),
        ('f() { global string m = "a"; }', "global variables are declared outside of all blocks"),
        ("(int a, int b) f() { a = 1; b = 2; }\nint x; int y; (x=a, y=c) = f();", "f has the outputs a, b, and a, c are taken"),
        ("(int a, int b) f() { a = 1; b = 2; }\nint x; int y; (x=a, y) = f();", "all variables say which output they take, or none"),
        ("int x; int y; (x=a, y=b) = 1;", "one value cannot be assigned to 2 variables"),
        ("int x; (x=a) = 1;", "only the outputs of one call are taken by name"),
        ("type p { int a; } type q { int a; }\np x = {a: 1};", "2:7: this may be of type p or q: they have the same fields"),
        ("type p { int a; int b; }\np x = {a: 1};", "there is no variable 'a'"),
        ('type p { int a; }\np x = {a: "s"};', "2:11: field a is of type int, and this is of type string"),
        ("type k { int a; } string[k] s;", "a value of type k cannot be a key"),
    ],
)
def test_refused_in_swift_k(text: str, message: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        program_of(Source("s", text), "swift-k")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(int o) f(int i, int j) { o = i + j; }\nint x = f(j=1, i=2);",
        "(int o) f(int i=1, int j) { o = i + j; }\nint x = f(j=1);",
        'string s = regexp("a.b", "a\\.", "x");',
        'type file;\nfile f <SingleFileMapper; file="x">; file g[] <ext; exec="p", any="x">; file h[] <ConcurrentMapper; prefix="a">;',
        "int x[auto]; x << 1;",
    ],
)
def test_right_in_swift_k(text: str) -> None:
    assert program_of(Source("s", text), "swift-k").language == "swift-k"


def test_amfs_check_tells_the_language_that_it_took(tmp_path: Path) -> None:
    for text, language in (("main { trace(y); }", "Swift/T"), ('tracef("%s", y);', "Swift/K")):
        (tmp_path / "s.swift").write_text(text)
        found = CliRunner().invoke(command, [str(tmp_path / "s.swift")], standalone_mode=False)
        assert found.return_value == 2
        assert f"s.swift: taken for {language}; --format says another language" in found.output
