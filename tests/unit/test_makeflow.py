"""Makeflow: rules, variables and their scopes, quoting, resources, renaming, nesting; and what is refused."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.translate.jx_evaluate import evaluate
from amfs.translate.makeflow import MakeflowReader
from amfs.translate.makeflow_text import Expander, logical_lines, redirected
from amfs.workflow.workflow import Task


def read(text: str, source: str = "/nowhere/Makeflow") -> MakeflowReader:
    reader = MakeflowReader(source)
    reader.feed(text.encode("utf-8", "surrogateescape"))
    reader.finish()
    return reader


def tasks(text: str) -> list[Task]:
    reader = read(text)
    assert reader.faults == []
    return reader.tasks


def remarks(reader: MakeflowReader) -> str:
    return "\n".join(str(remark) for remark in reader.remarks)


# ── rules and commands ─────────────────────────────────────────────────────────────────────────────


def test_a_rule() -> None:
    (task,) = tasks("# a comment\n\nout1 out2: in1 in2\n\t./prog in1 'a b' in2\n")
    assert task == Task("0", ("./prog", "in1", "a b", "in2"), ("in1", "in2"), ("out1", "out2"), line=3)


@pytest.mark.parametrize(
    ("command", "argv", "streams"),
    [
        ("prog in > out", ("prog", "in"), ("", "out", "")),
        ("prog < in > out", ("prog",), ("in", "out", "")),
        ("prog <in >out", ("prog",), ("in", "out", "")),
        ("prog 'a > b' in > out", ("prog", "a > b", "in"), ("", "out", "")),
        ("prog > out 2>&1", ("prog",), ("", "out", "out")),
        ("prog > out 2> /dev/null", ("prog",), ("", "out", "/dev/null")),
        ("prog 1> out 2> err", ("prog",), ("", "out", "err")),
        ("> out prog < in", ("prog",), ("in", "out", "")),
    ],
)
def test_redirections_of_declared_files_need_no_shell(command: str, argv: tuple[str, ...], streams: tuple[str, str, str]) -> None:
    (task,) = tasks(f"out err: in\n\t{command}\n")
    assert (task.argv, (task.stdin, task.stdout, task.stderr)) == (argv, streams)


@pytest.mark.parametrize(
    "command",
    [
        "prog > other", "prog >> out", "prog | sort > out", "a; b > out", "prog > out; true", "cd d && prog > out", "prog 2>&1 > out",
        "prog > out > err", "prog *.txt > out", "A=1 prog > out", "prog < missing", "if true; then prog; fi", "prog > \"out\"",
        "prog & wait", "prog > out 2>&1 2>&1",
    ],
)  # fmt: skip
def test_other_commands_are_given_to_a_shell_as_they_are(command: str) -> None:
    (task,) = tasks(f"out err: in\n\t{command}\n")
    assert task.argv == ("/bin/sh", "-c", command)
    assert (task.stdin, task.stdout, task.stderr) == ("", "", "")


def test_lines_are_continued() -> None:
    first, second = tasks("a: \\\n  x \\\n  y\n\tprog one \\\n two\n\nb:\n\tprog\n")
    assert (first.inputs, first.argv, first.line) == (("x", "y"), ("prog", "one", "two"), 1)
    assert second.line == 7


def test_a_comment_is_not_continued() -> None:
    assert list(logical_lines([b"# a \\\nb\\\nc"])) == [(1, "# a \\"), (2, "b c")]
    assert list(logical_lines([b"a\\\\\nb\\"])) == [(1, "a\\\\"), (2, "b")]


def test_lines_are_the_same_however_the_text_is_cut() -> None:
    text = "a\r\n\\\né\udcff\r\r\n\n b".encode("utf-8", "surrogateescape")
    lines = [(1, "a"), (2, " é\udcff\r"), (4, ""), (5, " b")]
    for size in range(1, len(text) + 1):
        assert list(logical_lines([text[at : at + size] for at in range(0, len(text), size)])) == lines
    assert list(logical_lines([])) == [(1, "")]
    assert list(logical_lines([b"a\r"])) == [(1, "a\r")]


def test_comments_end_commands_outside_of_quotes() -> None:
    (task,) = tasks("out: in # the input\n\techo 'a # b' \"c # d\" e # f\n")
    assert (task.inputs, task.argv) == (("in",), ("echo", "a # b", "c # d", "e"))


def test_commands_may_be_indented_by_blanks() -> None:
    assert tasks("out: in\n    prog in\n")[0].argv == ("prog", "in")


def test_names_with_blanks() -> None:
    (task,) = tasks("\"A B\" C\\ D: 'E F'\n\tprog\n")
    assert (task.outputs, task.inputs) == (("A B", "C D"), ("E F",))


def test_windows_line_ends() -> None:
    assert tasks("out: in\r\n\tprog in\r\n")[0].argv == ("prog", "in")


def test_the_quoting_of_wfbench() -> None:
    command = 'wfbench --cpu-work 2 --output-files "{\\\\"data/b\\\\":22727}" --input-files "[\\\\"data/a\\\\"]"'
    assert '"{\\\\"data' in command  # as its translator writes it: two backslashes before each quote
    (task,) = tasks(f"data/b : data/a \n\t{command}\n\n\n")
    assert task.argv == ("wfbench", "--cpu-work", "2", "--output-files", '{"data/b":22727}', "--input-files", '["data/a"]')
    assert (task.inputs, task.outputs) == (("data/a",), ("data/b",))


# ── variables ──────────────────────────────────────────────────────────────────────────────────────


def test_the_three_ways_to_name_a_variable() -> None:
    (task,) = tasks("A=1\nB_2 = two words\nout:\n\techo $A${A}$(A) $B_2 '$A' \"$A\"\n")
    assert task.argv == ("echo", "111", "two", "words", "$A", "1")


def test_values_are_those_of_the_moment() -> None:
    text = "V=1\na: \n\techo $V\nV+=2\nb:\n\techo $V\nW=${V}x\nV=9\nc:\n\techo $W $V\n"
    assert [task.argv[1:] for task in tasks(text)] == [("1",), ("1", "2"), ("1", "2x", "9")]


def test_variables_of_one_rule() -> None:
    text = (
        "V=1 # global\na:\n\t@V=0\n\techo $V\nb:\n\techo $V\nc:\n\t@V+=2\n\techo $V\nd:\n\t@W+=0\n\techo $W\n"
        "e:\nV=5\n\techo $V\nf:\n\techo $V\n"
    )
    assert [task.argv[1:] for task in tasks(text)] == [("0",), ("1",), ("1", "2"), ("0",), ("5",), ("1",)]


def test_variables_in_file_lists() -> None:
    (task,) = tasks('L=a b\nQ="c d" e\n$(L) $Q: "$(L)"\n\tprog\n')
    assert (task.outputs, task.inputs) == (("a", "b", "c d", "e"), ("a b",))


def test_backslashes_protect(monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = tasks("out:\n\techo \\$HOME > other\n")
    assert task.argv[2] == "echo $HOME > other"


def test_the_environment_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_OUTSIDE", "x")
    assert tasks("a:\n\techo $FROM_OUTSIDE\nFROM_OUTSIDE=y\nb:\n\techo $FROM_OUTSIDE\n")[0].argv == ("echo", "x")


def test_exports_are_in_the_environment_of_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTSIDE", "o")
    monkeypatch.delenv("NOWHERE", raising=False)
    text = "V=1\na:\n\tp\nexport V OUTSIDE NOWHERE\nexport W=\"two words\"\nV=2\nb:\n\tp\nc:\n\t@V=3\n\tp\n"
    assert [task.env for task in tasks(text)] == [
        ("V=1", "OUTSIDE=o", "W=two words"), ("V=2", "OUTSIDE=o", "W=two words"), ("V=3", "OUTSIDE=o", "W=two words"),
    ]  # fmt: skip


def test_expanding_is_bounded() -> None:
    text = "A=xxxxxxxxxx\n" + "A=$A$A\n" * 40 + "out:\n\techo $A\n"
    before = time.monotonic()
    assert "longer than 1 MiB" in read(text).faults[0].message
    assert time.monotonic() - before < 10


def test_all_expansions_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amfs.translate.makeflow_text.EXPANDED_MAX", 1000)
    reader = read(f"A={'x' * 400}\na:\n\techo $A\nb:\n\techo $A\nc:\n\techo $A\n")
    assert reader.dead
    assert "variables expand the document" in reader.faults[0].message


# ── resources, categories, directives ──────────────────────────────────────────────────────────────


def test_resources_belong_to_categories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY", "7")
    text = (
        "first:\n\tp\nCATEGORY=\"big\"\nCORES=4\nMEMORY=400\none:\n\tp\n"
        ".MAKEFLOW CATEGORY small\n.RESOURCE CORES 2\n.MAKEFLOW WALL_TIME 60\ntwo:\n\tp\nthree:\n\t@CORES=8\n\t@CATEGORY=big\n\tp\n"
    )
    found = [(task.cores, task.memory >> 20, task.time_limit, task.label) for task in tasks(text)]
    assert found == [(1, 7, 0, ""), (4, 400, 0, "big"), (2, 0, 60, "small"), (8, 400, 0, "big")]


def test_the_category_is_a_variable() -> None:
    assert tasks(".MAKEFLOW CATEGORY one\nout:\n\techo ${CATEGORY}\n")[0].argv == ("echo", "one")


def test_sizes_and_outputs_to_keep() -> None:
    reader = read("MAKEFLOW_INPUTS=in\nMAKEFLOW_OUTPUTS=\"mid out\"\n.SIZE mid 2K\nmid:in\n\tp\nout: mid\n\tp\nlog: mid\n\tp\n")
    assert reader.sizes == {"mid": 2048}
    assert [task.keep for task in reader.tasks] == [("mid",), ("out",), ()]


def test_what_has_no_meaning_here_is_told() -> None:
    reader = read("DISK=5\nBATCH_OPTIONS=\"-q x\"\n.UMBRELLA x y\n.MAKEFLOW MODE fast\nout:\n\tLOCAL p\nout2:\n\tLOCAL p\n")
    assert reader.faults == []
    for words in ("DISK has no", "BATCH_OPTIONS has no", ".UMBRELLA x y has no", ".MAKEFLOW MODE fast has no", "LOCAL has no"):
        assert words in remarks(reader)
    assert "(1 more like this)" in remarks(reader)
    assert reader.tasks[0].argv == ("p",)


# ── renaming ───────────────────────────────────────────────────────────────────────────────────────


def test_renamed_files_have_the_names_that_the_command_knows(tmp_path: Path) -> None:
    text = 'sub/c->out d->deep/d: a->in1 b prog->bin/p\n\tcat in1 b bin/p > out; cp b deep/d\n'
    (task,) = tasks(text)
    assert (task.inputs, task.outputs) == (("a", "b", "prog"), ("sub/c", "d"))
    for name in ("a", "b", "prog"):
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "sub").mkdir()
    subprocess.run(task.argv, cwd=tmp_path, check=True, timeout=20)
    assert (tmp_path / "sub" / "c").read_text() == "a\nb\nprog\n"
    assert (tmp_path / "d").read_text() == "b\n"
    assert task.label == "cat"


@pytest.mark.parametrize("command", ["\x0c", "\u00a0", "\u2003"])
def test_a_renamed_command_of_odd_blanks_is_a_command(command: str) -> None:
    (task,) = tasks(f"out: in->other\n\t{command}\n")
    assert task.label == command


def test_a_renamed_command_that_fails_fails() -> None:
    (task,) = tasks("c->out: a\n\ttouch out; false\n")
    assert subprocess.run(task.argv, cwd="/tmp", check=False, timeout=20).returncode == 1


# ── nested ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_nested_makeflow_is_expanded(tmp_path: Path) -> None:
    (tmp_path / "inner").write_text("mid: in\n\tp in > mid\nout: mid\n\tp mid > out\n")
    text = "export V=1\nMAKEFLOW_OUTPUTS=mid\nin:\n\tp > in\nout mid: in inner\n\tMAKEFLOW inner\nlast: out\n\tp out > last\n"
    reader = read(text, str(tmp_path / "outer"))
    assert reader.faults == []
    assert [task.id for task in reader.tasks] == ["0", "1.0", "1.1", "2"]
    assert [task.line for task in reader.tasks] == [3, 5, 5, 7]
    assert reader.tasks[1].keep == ("mid",)
    assert reader.tasks[1].env == ("V=1",)


def test_a_nested_makeflow_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "inner").write_text("out: ../in\n\tcat ../in > out\n")
    reader = read("d/out: in\n\tMAKEFLOW inner d/\n", str(tmp_path / "outer"))
    assert reader.faults == []
    (task,) = reader.tasks
    assert (task.inputs, task.outputs, task.stdout, task.cwd) == (("in",), ("d/out",), "d/out", "d")


def test_a_nested_makeflow_that_is_not_there_yet_stays_a_call() -> None:
    reader = read("out: later\n\tMAKEFLOW later\n")
    assert reader.tasks[0].argv == ("makeflow", "later")
    assert "another rule may make it" in remarks(reader)


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("x:\n\tp\n", "does not make 'out'"),
        ("out:\n\tMAKEFLOW outer\n", "contains itself"),
        ("nonsense\n", "nested Makeflow"),
    ],
)
def test_faults_of_nested_makeflows(tmp_path: Path, inner: str, words: str) -> None:
    (tmp_path / "inner").write_text(inner)
    (tmp_path / "outer").write_text("out:\n\tMAKEFLOW inner\n")
    assert words in read("out:\n\tMAKEFLOW inner\n", str(tmp_path / "outer")).faults[0].message


def test_a_directory_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inner").write_text("out:\n\tp\n")
    assert "must lie below" in read("out:\n\tMAKEFLOW inner ../..\n", str(tmp_path / "outer")).faults[0].message


# ── in the words of Makeflow's own lexer ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("arrow", ["->", " -> ", "-> ", " ->", "\t->  "])
def test_blanks_around_an_arrow(arrow: str) -> None:
    (task,) = tasks(f"x 'c d'{arrow}out: a{arrow}in y \"b->c\"\n\tcat in > out\n")
    assert (task.inputs, task.outputs) == (("a", "y", "b->c"), ("x", "c d"))
    assert "ln -s a in" in task.argv[2]
    assert "mv out 'c d'" in task.argv[2]


def test_a_rule_without_targets_runs_and_is_told() -> None:
    reader = read("a: b\n\tcp b a\n: a\n\tmail a\n:\n\tp\n")
    assert reader.faults == []
    assert [(task.argv, task.inputs, task.outputs) for task in reader.tasks][1:] == [(("mail", "a"), ("a",), ()), (("p",), (), ())]
    assert ":3: a rule without targets" in remarks(reader)


def test_what_makeflow_tells_tasks_of_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CATEGORY", "CORES", "MEMORY", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    text = "first:\n\tp\nCATEGORY=\"big\"\nCORES=4\none:\n\tp\nCATEGORY=small\ntwo:\n\t@CORES=2\n\t@CATEGORY=big\n\tp\nthree:\n\tp\n"
    assert [task.env for task in tasks(text)] == [
        ("CATEGORY=default",), ("CATEGORY=big", "CORES=4", "OMP_NUM_THREADS=4"), ("CATEGORY=big", "CORES=2", "OMP_NUM_THREADS=2"),
        ("CATEGORY=small",),
    ]  # fmt: skip
    assert tasks("export CATEGORY CORES\n.MAKEFLOW CATEGORY x\n.MAKEFLOW CORES 2\na:\n\tp\n")[0].env == (
        "CATEGORY=x", "CORES=2", "OMP_NUM_THREADS=2",
    )  # fmt: skip


def test_indentation_by_blanks() -> None:
    text = "   V=1\n   out: in\n       @W=2\n       X=3\n       echo $V $W $X a:b\n  out2:\n     Y=5 echo\n"
    first, second = tasks(text)
    assert (first.argv, first.inputs, first.outputs) == (("echo", "1", "2", "3", "a:b"), ("in",), ("out",))
    assert second.argv == ("/bin/sh", "-c", "Y=5 echo")


# ── JX ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_makeflow_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    document = {
        "define": {},
        "environment": {"A": "global", "B": "'quoted' $HOME"},
        "categories": {"big": {"resources": {"cores": 4, "memory": 8, "wall-time": 60}, "environment": {"A": "category"}}},
        "rules": [
            {"command": "./sim $A < in > out", "inputs": ["in", "sim"], "outputs": ["out"], "category": "big"},
            {
                "command": "cat x y",
                "inputs": [{"dag_name": "out", "task_name": "x"}, {"path": "in 2", "remote_name": "y"}],
                "outputs": "z w",
            },
            {"command": "p", "outputs": ["d/"], "environment": {"A": "rule", "N": 3}, "resources": {"cores": 2}, "local_job": True},
        ],
    }
    text = json.dumps(document, indent=1)
    reader = read(text)
    assert reader.faults == []
    first, second, third = reader.tasks
    assert (first.inputs, first.outputs, first.cores, first.memory, first.time_limit) == (("in", "sim"), ("out",), 4, 8 << 20, 60)
    assert (first.argv, first.label) == (("/bin/sh", "-c", "./sim $A < in > out"), "big")
    assert first.line == text[: text.index('"command"')].count("\n")
    assert dict(each.split("=", 1) for each in first.env)["A"] == "category"
    assert "B='quoted' $HOME" in first.env
    assert (second.inputs, second.outputs, second.cores) == (("out", "in 2"), ("z w",), 1)
    assert second.argv[2].startswith("ln -s out x && ln -s 'in 2' y && ")
    assert "A=global" in second.env
    assert (third.outputs, third.cores) == (("d",), 2)
    assert {"A=rule", "N=3", "CORES=2", "OMP_NUM_THREADS=2"} <= set(third.env)
    assert "local_job has no meaning" in remarks(reader)


def test_members_that_makeflow_does_not_know_are_told() -> None:
    reader = read('{"rules": [\n{"command": "p > o", "output": ["o"], "local job": true}]}')
    assert reader.tasks[0].outputs == ("o",)
    assert "'input' and 'output' are taken for 'inputs' and 'outputs'" in remarks(reader)
    assert "member 'local job' of a rule has no meaning" in remarks(reader)


BWA = """# the shape of Makeflow's own example
{
    "define": {"SPLITS": ceil(TOTAL / 100.0), "TOTAL": 250, "REF": [template("ref.{x}") for x in ["amb", "ann"]]},
    "rules": [
        {
            "command": format("split %s %d", "query", SPLITS),
            "inputs": ["query"],
            "outputs": [format("query.%d", i) for i in range(SPLITS)],
        },
        {
            "command": template("bwa query.{i} > query.{i}.sam"),
            "inputs": [x for x in REF, "query." + format("%d", i)],
            "outputs": [template("query.{i}.sam")],
        } for i in range(SPLITS),
        {
            "command": "cat " + join([template("query.{i}.sam") for i in range(SPLITS)]) + " > sam",
            "inputs": [template("query.{i}.sam") for i in range(SPLITS)],
            "outputs": ["sam"],
        },
    ],
}
"""


def test_jx_with_expressions() -> None:
    reader = read(BWA)
    assert reader.faults == []
    assert [task.line for task in reader.tasks] == [5, 10, 10, 10, 15]
    split, first, *_, last = reader.tasks
    assert (split.argv, split.outputs) == (("split", "query", "3"), ("query.0", "query.1", "query.2"))
    assert (first.inputs, first.outputs) == (("ref.amb", "ref.ann", "query.0"), ("query.0.sam",))
    assert last.inputs == ("query.0.sam", "query.1.sam", "query.2.sam")
    assert "query.0.sam query.1.sam query.2.sam" in " ".join(last.argv)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[[i, j] for i in range(3) for j in range(3) if (i + j) % 2 == 1]", [[0, 1], [1, 0], [1, 2], [2, 1]]),
        ("range(10)[3:7] + range(2)[:1]", [3, 4, 5, 6, 0]),
        ('let({"X": Y + 1, "Y": 2}, X * 2)', 6),
        ("not true or 1 < 2 and 'a' < 'b'", True),
        ('template("{A}{{}}", {"A": 7})', "7{}"),
        ('format("%03d %s %.2f%%", 7, "x", 1.5)', "007 x 1.50%"),
        ('basename("d/x.csv", ".csv") + dirname("d/x")', "xd"),
        ('{"a": [1, 2], "b": null}["a"][-1]', 2),
        ("[1, 2] == [1, 2.0] and 1 != true", True),
        ("-7 % 3 + -2 * 3", -7),
        ("[-7 / 2, 7 / 2, 7 / 2.0, ceil(7 / 2)]", [-3, 3, 3.5, 3]),
        ('"a" + 1 + 2', "a12"),
        ('keys({"b": 1, "a": 2})', ["b", "a"]),
        ('{"b": 1, "a": [2]}.values()', [1, [2]]),
        ('[template("{k}={v}", {"k": pair[0], "v": pair[1]}) for pair in items({"b": 1, "a": 2})]', ["b=1", "a=2"]),
        ('[escape("a b"), escape("plain")]', ["'a b'", "plain"]),
    ],
)
def test_the_values_of_jx(text: str, value: object) -> None:
    assert evaluate(text) == value


def test_loops_of_jx_that_do_not_end_in_time_end_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amfs.translate.jx_evaluate.VALUES_MAX", 10_000)
    reader = read('{"rules": [\n{} for a in range(999) for b in range(999) if false]}')
    assert [(fault.line, "values are made on the way" in fault.message) for fault in reader.faults] == [(2, True)]


@pytest.mark.parametrize("rule", ['{"workflow": "inner", "outputs": ["out"]}', '{"makeflow": {"path": "inner"}, "outputs": "out"}'])
@pytest.mark.parametrize("inner", ["out: in\n\tp in > out\n", '{"rules": [{"command": "p in > out", "inputs": "in", "outputs": "out"}]}'])
def test_nested_makeflows_in_json(tmp_path: Path, rule: str, inner: str) -> None:
    (tmp_path / "inner").write_text(inner)
    reader = read(f'{{"rules": [{rule}]}}', str(tmp_path / "outer"))
    assert reader.faults == []
    assert [(task.id, task.argv, task.inputs) for task in reader.tasks] == [("0.0", ("p", "in"), ("in",))]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"rules": [\n{"command": "a", "outputs": [x for x in 3]}\n]}', 2, "'for x in' goes over a list, not a number"),
        ('{"rules": [\n{"command": A}]}', 2, "A is not defined"),
        ('{"rules": [\n{"command": format("%d")}]}', 2, "fewer values"),
        ('{"define": {"A": B, "B": A}, "rules": [\n{"command": A}]}', 1, "leads back to itself"),
        ('{"rules": [\n{"command": "a" + 1.5}]}', 2, "'+' between a string and a number"),
        ('{"rules": [\n{"command": 1/0 }]}', 2, "division by zero"),
        ('{"rules": [\n{"command": fetch("x")}]}', 2, "fetch() is not read here"),
        ('{"rules": [\n{"command": listdir("/nowhere/at/all")}]}', 2, "/nowhere/at/all: No such file or directory"),
        ('{"rules": [\n{"command": listdir(3)}]}', 2, "listdir(): the path of a directory"),
        ('{"rules": [\n{"command": keys([1])}]}', 2, "keys(): an object"),
        ('{"rules": [\n{"command": escape(1)}]}', 2, "escape(): a string"),
        ('{"rules": [\n{"command": range(1, 9, 0)}]}', 2, "a step of 0"),
        ('{"rules": [\n{"command": 5} for i in range(2)]}', 2, "command: expected 'str | null', got 'int'"),
        ("{", 1, "JX"),
        ('{"rules": {}}', 0, "rules: expected 'array', got 'object'"),
        ('{"rules": [\n{}]}', 2, "either a command or a workflow"),
        ('{"rules": [\n\n{"command": ""}]}', 3, "an empty command"),
        ('{"rules": [\n{"command": 5}]}', 2, "command: expected 'str | null', got 'int'"),
        ('{"rules": [\n{"command": "p", "workflow": "w"}]}', 2, "either a command or a workflow"),
        ('{"rules": [\n{"command": "p", "args": {"N": 1}}]}', 2, "'args' are for a workflow"),
        ('{"rules": [\n{"command": "p", "inputs": [{"nam": "x"}]}]}', 2, "unknown field 'nam'"),
        ('{"rules": [\n{"command": "p", "inputs": [{"task_name": "x"}]}]}', 2, "a file without a name"),
        ('{"rules": [\n{"command": "p", "resources": {"core": 1}}]}', 2, "unknown resource 'core'"),
        ('{"rules": [\n{"command": "p", "resources": {"cores": 1.5}}]}', 2, "cores must be a whole number"),
        ('{"rules": [\n{"command": "p", "environment": {"A=B": ""}}]}', 2, "cannot be the name of an environment variable"),
        ('{"rules": ' + "[" * 5000, 1, "the text ends"),
        ('{"rules": ' + "[" * 5000 + "]" * 5000 + "}", 1, "nested"),
    ],
)
def test_faults_of_makeflows_in_json(text: str, line: int, words: str) -> None:
    reader = read(text)
    assert words in reader.faults[0].message
    assert "\n" not in reader.faults[0].message
    assert reader.faults[0].line == line or not line
    assert reader.tasks == []


# ── faults ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("out: in\n", 1, "a rule without a command"),
        ("out: in\nout2: in\n\tp\n", 1, "a rule without a command"),
        ("\tp\n", 1, "a command without a rule"),
        ("out:\n\tp\n\tq\n", 3, "a command without a rule"),
        ("a: b -> -> c\n\tp\n", 1, "'b->->' is no file name"),
        ("a: -> c\n\tp\n", 1, "is no file name"),
        ("a: b ->\n\tp\n", 1, "'b->' is no file name"),
        ("=bad\n", 1, "a variable without a name"),
        ("what is this\n", 1, "neither a rule"),
        ("@V=1\n", 1, "@ sets a variable for one rule"),
        ("out:\n\techo $UNSET_VARIABLE_X\n", 2, "variable 'UNSET_VARIABLE_X' has no value yet"),
        ("out:\n\techo $\n", 2, "after $ a variable is named"),
        ("out:\n\techo 'a\n", 2, "a quote ' is not closed"),
        ('out:\n\techo "a\n', 2, 'a quote " is not closed'),
        ("out:\n\t# nothing\n\tLOCAL\n", 3, "an empty command"),
        ("a->: in\n\tp\n", 1, "'a->' is no file name"),
        ("CORES=many\n", 1, "CORES must be a whole number, not 'many'"),
        ("out:\n\t@MEMORY=-1\n\tp\n", 3, "MEMORY must be a whole number"),
        (".SIZE f huge\n", 1, ".SIZE needs a size"),
        ("export 1X\n", 1, "cannot be the name of an environment variable"),
        ("a\0b\n", 1, "binary file"),
    ],
)
def test_faults_have_words_and_lines(text: str, line: int, words: str) -> None:
    reader = read(text)
    assert [fault.line for fault in reader.faults if words in fault.message][:1] == [line], reader.faults


def test_faults_do_not_hide_others() -> None:
    assert [fault.line for fault in read("nonsense\na: b\nCORES=x\nc:\n\tp\n\tq\n").faults] == [1, 2, 6]


@given(st.text("ab:=+$(){}\\'\"# \t\n@.->LOCAL", max_size=80))
def test_any_text_ends_in_tasks_or_faults(text: str) -> None:
    reader = read(text)
    assert all(task.argv for task in reader.tasks)
    assert all("\n" not in fault.message for fault in reader.faults)


quiet = st.text("abc./-_0", min_size=1, max_size=6)


@given(st.lists(st.tuples(st.lists(quiet, min_size=1, max_size=3, unique=True), st.lists(quiet, max_size=3, unique=True)), max_size=4))
def test_rules_are_read_as_they_were_meant(rules: list[tuple[list[str], list[str]]]) -> None:
    text = "".join(f"{' '.join(outputs)}: {' '.join(inputs)}\n\tprog {' '.join(inputs)}\n" for outputs, inputs in rules)
    found = [(list(task.outputs), sorted(task.inputs), list(task.argv[1:])) for task in read(text).tasks]
    if not any("->" in name for rule in rules for names in rule for name in names) and not any(rule[0][0][0] == "." for rule in rules):
        plain = [list(dict.fromkeys(name.rstrip("/") or name for name in outputs)) for outputs, _ in rules]
        assert found == [(outputs, sorted(inputs), inputs) for outputs, (_, inputs) in zip(plain, rules, strict=True)]


def test_redirected_leaves_other_commands_alone() -> None:
    assert redirected("prog", (), ()) == ("", {})
    assert redirected("prog > a", (), ("b",)) == ("", {})


def test_an_expander_keeps_text_without_marks() -> None:
    assert Expander().expand("plain text", lambda name: None, escapes=True) == "plain text"
