"""Swift scripts become trees, or messages that say what is wrong and where."""

from __future__ import annotations

import pytest

from amfs.errors import WorkflowError
from amfs.swift.parse import parse
from amfs.swift.parse_t import signature
from amfs.swift.source import Source
from amfs.swift.tree import Assign, Binary, Chain, Declare, Evaluate, Expression, Foreach, Index, Literal, Name, Program, Unary


def program(text: str, language: str = "swift-t", **others: str) -> Program:
    def load(name: str) -> Source | None:
        return Source(name, others[name]) if name in others else None

    return parse(language, Source("script.swift", text), load)


def shown(node: Expression) -> str:
    match node:
        case Binary():
            return f"({shown(node.left)}{node.operator}{shown(node.right)})"
        case Unary():
            return f"({node.operator}{shown(node.operand)})"
        case Name():
            return node.name
        case Index():
            return f"{shown(node.base)}[{shown(node.index)}]"
        case Literal():
            return repr(node.value)
    return type(node).__name__


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", "(a+(b*c))"),
        ("a - b - c", "((a-b)-c)"),
        ("a * b + c", "((a*b)+c)"),
        ("a || b && c == d < e + f * g ** h", "(a||(b&&(c==(d<(e+(f*(g**h)))))))"),
        ("-a ** b", "((-a)**b)"),
        ("!a && b", "((!a)&&b)"),
        ("(a + b) * c", "((a+b)*c)"),
        ("a[1] %% b %/ 2", "((a[1]%%b)%/2)"),
        ('"a" / "b"', "('a'/'b')"),
        ("0x1F + 0o17 + 1.5 + 2e-3", "(((31+15)+1.5)+0.002)"),
        (r'"a\n\t\"\\\x41\101"', repr('a\n\t"\\AA')),
        ('"""\nx "y" \\\\n\n"""', repr('x "y" \\n\n')),
        ('"""a\\tb\\101"""', repr("a\tbA")),
        ("----\na\\tb\n----", repr("a\tb\n")),
        ("----\nx - y\n----", repr("x - y\n")),
        ("-1", "-1"),
        ("a > b", "(a>b)"),
    ],
)
def test_expressions(text: str, tree: str) -> None:
    statement = program(f"x = {text};").body.statements[0]
    assert isinstance(statement, Assign)
    assert shown(statement.values[0]) == tree


def test_statements_of_t() -> None:
    found = program(
        """
        int x = 3, y[], z[string][];
        file f<"a" + ".txt"> = g();
        trace(x) => trace(y) => { trace(z); }
        @unroll=4 foreach v, i in [0:9:2] { A[i] = v; }
        app (file o) g(string s, file deps[]) { "/bin/echo" "-n" s [2,3] (1+2) -3 @deps @stdout=o }
        """
    )
    x, y, z, f, chain, loop = found.body.statements
    assert isinstance(x, Declare) and isinstance(y, Declare) and isinstance(z, Declare) and isinstance(f, Declare)
    assert y.type_name is not None and y.type_name.name == "array"
    assert z.type_name is not None and z.type_name.parts[1] is not None and z.type_name.parts[1].name == "string"
    assert f.mapping is not None
    assert isinstance(chain, Chain) and len(chain.statements) == 3
    assert isinstance(loop, Foreach) and (loop.value, loop.key) == ("v", "i")
    app = found.functions[0].app
    assert app is not None and app.stdout is not None
    assert [word.kind for word in app.words] == ["word"] * 6 + ["file name"]


FIGURE_3 = """
app (file file_output) write_file(){ "./write-local.sh" file_output; }
app (void) read_file(file file_input){ "java" file_input; }
foreach i in [0:n-1] {
set_rank(filename[i], i % nnodes);
rank1 = get_rank(filename[i]);
location L1 = location(rank1, SOFT, RANK);
file f<file_name[i]> =
@location = L1 write_file();
rank2 = get_rank(filename[i]);
location L2 = location(rank2, SOFT, RANK);
@location = L2 read_file(f);
}
"""


def test_figure_3_of_the_paper() -> None:
    """As printed it lacks semicolons, which is a mistake."""
    printed = FIGURE_3.replace("nnodes);", "nnodes)")
    with pytest.raises(WorkflowError, match=r"script.swift:5:\d+: a ';' is missing after 'set_rank"):
        program(printed)
    found = program(FIGURE_3)
    loop = found.body.statements[0]
    assert isinstance(loop, Foreach)
    kinds = [Evaluate, Assign, Declare, Declare, Assign, Declare, Evaluate]
    assert [type(one) for one in loop.body.statements] == kinds


def test_signature() -> None:
    found = signature("<T> (T o, int n) f(T A[], int|float... x)")
    assert [one.name for one in found.outputs] == ["o", "n"]
    assert found.type_parameters == ["T"]
    assert found.inputs[1].variable and found.inputs[1].type_name.name == "union"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("for (int i = 0; i < 3; i++) { }", "write 'i = i + 1'"),
        ("int x == 3;", "'==' compares"),
        ("@prio=3 x = f();", "an annotation of a call stands before it"),
        ("if (x = 3) { }", "'==' compares"),
        ("while (x < 3) { x = 4; }", "there is no while"),
        ("int f(int x) { return x; }", "outputs of a function stand before its name"),
        ('app (file o) f() { "echo" "x" > o; }', "no shell reads this line"),
        ("int x = a ? 1 : 2;", "ternary(condition, one, other)"),
        ("const int C = 3;", "write 'global const …'"),
        ("x = 1; }", "this '}' closes nothing"),
        ("x = 1 y = 2;", "1:5: a ';' is missing after 'x = 1'"),
        ("x = (1 + 2;", "expected"),
        ("foreach i in [0:9] { trace(i);", "1:20: this '{' has no '}'"),
        ("f() {\n  if (true) {\n    trace(1);\n}\ng() {\n}\n", "2:13: this '{' has no '}'"),
        ("f() {\n  trace(\"}\"); // }\n  wait (x) { /* } */ }\n", "1:5: this '{' has no '}'"),
        ("x = 1\ny = 2;", "1:5: a ';' is missing after 'x = 1'"),
        ("trace(1)\ny = 2;", "1:8: a ';' is missing after 'trace(1)'"),
        ("x = \"a\\qb\";", "1:7: '\\q' is no escape in a string"),
        ('x = """\na\n\\xg""";', "3:1: '\\x' is no escape in a string"),
        ("x = ----\n  \\d+\n----;", "2:3: '\\d' is no escape in a string"),
        ("import io => trace(1);", "1:1: this cannot stand in a chain"),
        ("x = \"\\xg\";", "1:6: '\\x' is no escape in a string"),
        ("main { (int o) f(int a) { o = a; } }", "1:16: the definition of a function stands outside of all blocks"),
        ("if (true) { app (file o) g() { \"x\" o; } }", "the definition of an app function stands outside of all blocks"),
        ("main { import io; }", "1:8: an import stands outside of all blocks"),
        ("f() { type t { int a; } }", "the definition of a type stands outside of all blocks"),
        ("switch (1) { case 1: type t int; }", "the definition of a type stands outside of all blocks"),
        ('x = "abc;', "this string has no end"),
        ("/* abc", "this comment has no end"),
        ("x = 'a';", "strings stand between double quotes"),
        ("x = 99999999999999999999;", "64 bits"),
        ("1 + 2;", "not expected"),
        ("f(int x);", "leave the type out"),
        ("switch (x) { case 1: trace(1); case 1: trace(2); }", "a second time"),
        ("x = A[];", "an index is missing"),
        ('app (file o) f() { "ls" x stdout=o; }', "write '@stdout='"),
        ('app (file o) f() { "ls" -l @stdout=o; }', "between double quotes"),
        ("import nothing;", "there is no file 'nothing.swift' to import"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        program(text)
    assert message in str(caught.value)


def test_imports_come_once() -> None:
    found = program('import defs; import "defs";\nx = f();', **{"defs.swift": "import io; (int o) f() { o = 1; }"})
    assert [one.name for one in found.functions] == ["f"]


def test_a_module_that_has_nothing_here_is_the_users_own() -> None:
    given = {"data.swift": "(int o) f() { o = 1; }", "io.swift": "no Swift"}
    found = program("import data; import io; import mpe;\nx = f();", **given)
    assert [one.name for one in found.functions] == ["f"]


def test_deep_nesting_parses() -> None:
    depth = 10_000
    program("x = " + "(" * depth + "1" + ")" * depth + ";")
    program("x = " + "-" * depth + "y;")
    program("if (true) {" * depth + "}" * depth)
    program("x = " + "1 + " * depth + "1;")


def test_statements_of_k() -> None:
    found = program(
        """
        # a comment
        type file; type messagefile {} type vol { file img; int n, m[]; };
        app (file o) count(file i) { wc "-l" @i @strcat("a", "b") 1 i.x[2] stdout=@filename(o); }
        (file o) old(file i[]) { app { cat @filenames(i) stdout=@o; } }
        file[] a <simple_mapper; prefix="x", suffix=".t">;
        file b <single_file_mapper; file=@strcat("a", "b")>;
        file c <"name">;
        int[auto] d; d << 3;
        (c, b) = g(a[0], x=3);
        iterate i { trace(@a[i].img); } until (i > 3);
        trace(a[*].img);
        """,
        "swift-k",
    )
    count, old = found.functions
    assert count.app is not None and old.app is not None
    assert [word.kind for word in count.app.words] == ["word", "word", "file name", "word", "word", "word"]
    assert [word.kind for word in old.app.words] == ["word", "file names"]
    assert isinstance(count.app.words[0].expression, Literal)
    a, b, c = found.body.statements[:3]
    assert isinstance(a, Declare) and a.mapping is not None and a.mapping.mapper == "simple_mapper"
    assert isinstance(b, Declare) and b.mapping is not None and [key for key, _ in b.mapping.parameters] == ["file"]
    assert isinstance(c, Declare) and c.mapping is not None and c.mapping.mapper == ""
    append = found.body.statements[4]
    assert isinstance(append, Assign) and append.append
