"""Names that are defined beside a Makeflow in JX: by options, by files, by the rule of an outer one. And what JX reads of directories."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from amfs.cli.jx_options import definitions
from amfs.errors import UsageError
from amfs.translate.makeflow import MakeflowReader
from amfs.translate.shell_quoting import split

Run = Callable[..., subprocess.CompletedProcess[str]]

COUNTED = """
{
    "define": {"N": 1, "OUT": template("out.{N}")},
    "rules": [{"command": "p " + N + " > " + OUT, "outputs": [OUT]}],
}
"""


def read(text: str, files: tuple[str, ...] = (), defines: tuple[str, ...] = (), directory: str = "") -> MakeflowReader:
    reader = MakeflowReader(f"{directory or '/nowhere'}/flow.jx")
    reader.definitions = definitions(files, defines, directory)
    reader.feed(text.encode())
    reader.finish()
    return reader


def test_a_definition_goes_before_that_of_the_file_also_for_what_is_made_of_it() -> None:
    (task,) = read(COUNTED).tasks
    assert (task.argv, task.stdout) == (("p", "1"), "out.1")
    reader = read(COUNTED, defines=("N=2 + 3",))
    (task,) = reader.tasks
    assert (task.argv, task.stdout) == (("p", "5"), "out.5") and not reader.remarks


def test_files_and_expressions_use_each_others_names(tmp_path: Path) -> None:
    """As with two --jx-args around a --jx-define that the second needs."""
    (tmp_path / "one.jx").write_text('# comments, too\n{"BASE": 10, "N": 7, "UNUSED": X_THAT_NOBODY_LOOKS_AT}')
    (tmp_path / "two.jx").write_text('{"define": {"STEP": 2}, "OUT": "of." + (BASE + MORE + STEP), "BASE": 20}')
    reader = read(COUNTED, (str(tmp_path / "one.jx"), str(tmp_path / "two.jx")), ("MORE=BASE * 2", "N=9"))
    (task,) = reader.tasks
    assert (task.argv, task.stdout) == (("p", "9"), "of.62"), "the later file before the earlier, expressions before files"
    assert not reader.faults and not reader.remarks


@pytest.mark.parametrize(
    ("content", "define", "line", "words"),
    [
        (None, "", 0, "the file of --jx-args"),
        ("[1]", "", 0, "args.jx: line 1: definitions are an object"),
        ('{"A":\n ]', "", 0, "args.jx: line 2: this is neither JSON nor JX"),
        ('{"B":\n 1 / 0, "N": B}', "", 4, "args.jx defines in line 2: division by zero"),
        ("{}", "N=1 +", 0, "--jx-define N: line 1: the text ends"),
        ("{}", "N=MISSING", 4, "--jx-define N defines in line 1: MISSING is not defined"),
        ("{}", "N=N + 1", 4, "the definition of N leads back to itself"),
    ],
)
def test_faults_of_definitions_name_where_they_stand(tmp_path: Path, content: str | None, define: str, line: int, words: str) -> None:
    if content is not None:
        (tmp_path / "args.jx").write_text(content)
    reader = read(COUNTED, (str(tmp_path / "args.jx"),), (define,) if define else ())
    (fault,) = reader.faults
    assert words in fault.message and fault.line == line, fault


@pytest.mark.parametrize("words", ["N", "=3", "a-b=3", "1=2", ""])
def test_what_defines_nothing_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match="NAME=EXPRESSION"):
        definitions((), (words,))


def test_a_name_that_the_document_does_not_use_is_told() -> None:
    (remark,) = read(COUNTED, defines=("NN=2",)).remarks
    assert "--jx-define NN: the document uses no such name" in remark.message


def test_a_makeflow_that_is_not_in_jx_takes_no_definitions() -> None:
    reader = read("out: in\n\tp in > out\n", defines=("N=2",))
    assert reader.dead and "not in JX" in reader.faults[0].message


def test_the_names_in_a_directory_come_in_order_and_relative_to_the_run(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("b", "a", ".hidden"):
        (tmp_path / "in" / name).touch()
    text = '{"rules": [{"command": "p " + join(listdir(WHERE), ","), "inputs": ["in/" + name for name in WHERE.listdir()]}]}'
    (task,) = read(text, defines=('WHERE="in"',), directory=str(tmp_path)).tasks
    assert (task.argv[1], task.inputs) == (".hidden,a,b", ("in/.hidden", "in/a", "in/b"))


def test_what_is_escaped_is_one_word_of_the_shell() -> None:
    name = "it's $HOME; \"x\" \\ *"
    (task,) = read('{"rules": [{"command": "p " + escape(NAME)}]}', defines=(f"NAME={json.dumps(name)}",)).tasks
    command = shlex.join(task.argv) if task.argv[0] != "/bin/sh" else task.argv[2]
    assert split(command) == ["p", name]
    shell = subprocess.run(["/bin/sh", "-c", command.replace("p ", "printf %s ", 1)], capture_output=True, text=True, check=True)
    assert shell.stdout == name


def test_a_nested_workflow_has_the_names_that_its_rule_gives(tmp_path: Path) -> None:
    (tmp_path / "inner.jx").write_text(COUNTED)
    text = '{"rules": [{"workflow": "inner.jx", "args": {"N": 3 + i}, "outputs": ["out." + (3 + i)]} for i in range(2)]}'
    reader = read(text, directory=str(tmp_path))
    assert not reader.faults and [(task.id, task.argv) for task in reader.tasks] == [("0.0", ("p", "3")), ("1.0", ("p", "4"))]

    missing = read('{"rules": [\n{"workflow": "made.jx", "args": {"N": 1}}]}', directory=str(tmp_path))
    assert [(fault.line, fault.message) for fault in missing.faults] == [(2, "the Makeflow made.jx, which has 'args', is not there")]


# ── at the prompt ──────────────────────────────────────────────────────────────────────────────────

FLOW = """
{"rules": [{"command": "sort " + name + " > " + name + SUFFIX, "inputs": [name], "outputs": [name + SUFFIX]} for name in NAMES]}
"""


def test_a_run_with_definitions(amfs: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "in").mkdir(parents=True)
    (data / "in" / "one").write_text("b\na\n")
    (data / "in" / "two").write_text("d\nc\n")
    (tmp_path / "flow.jx").write_text(FLOW)
    (tmp_path / "args.jx").write_text('{"NAMES": ["in/" + name for name in listdir("in")], "SUFFIX": ".none"}')
    words = ("--jx-args", "args.jx", "--jx-define", 'SUFFIX=".s"')
    done = amfs("run", "-q", "--local", "-C", "data", *words, "flow.jx")
    assert done.returncode == 0, done.stderr
    assert [(data / "in" / name).read_text() for name in ("one.s", "two.s")] == ["a\nb\n", "c\nd\n"]
    piped = amfs("translate", *words[2:], "--jx-define", 'NAMES=["x"]', "--format", "makeflow", "--to", "jsonl", "-", input=FLOW)
    assert piped.returncode == 0 and '"x.s"' in piped.stdout, piped.stderr


@pytest.mark.parametrize("command", ["run", "info", "graph", "translate", "simulate"])
def test_other_lists_take_no_definitions(amfs: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "list").write_text("true\n")
    done = amfs(command, "--jx-define", "N=3", "list")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "for Makeflows in JX, and list is none" in done.stderr
