"""AME's task list and file list, rule by rule (docs/reference/task-lists.md)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from workflow_strategies import any_words, tasks, without_lines, workflows

from amfs.errors import Fault
from amfs.translate import filelist, tasklist
from amfs.translate.detect import Parser
from amfs.translate.shell_quoting import Malformed, quote, trim
from amfs.workflow.workflow import DeclaredState, Task, Workflow

FIGURE_3 = """\
TaskID Binary Input Output Rule
0        -b /bin/produce -i files0 -o temp0 -a files0 temp0
1        -b /bin/produce -i files1 -o temp1 -a files1 temp1
2        -b /bin/consume -i temp0 -o output0 -a temp0 output0
3        -b /bin/consume -i temp1 -o output1 -a temp1 output1
"""
FIGURE_3_FILES = """\
FileID Filename State
0        files0      Shared
1        files1      Shared
2        temp0    Invalid
3        temp1  Invalid
4     output0   Invalid
5       output1    Invalid
"""


def read(text: str | bytes, format: str = "tasklist") -> Workflow:
    """A faultless text."""
    parser = Parser("list", format)
    parser.feed(text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape"))
    parser.finish()
    assert parser.faults == []
    reader = parser.reader
    workflow = Workflow(reader.tasks, files=reader.files, sizes=reader.sizes, paths=reader.paths)
    if reader.name:
        workflow.name = reader.name
    return workflow


def faults_of(text: str | bytes, format: str = "tasklist") -> list[Fault]:
    parser = Parser("list", format)
    parser.feed(text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape"))
    parser.finish()
    return parser.faults


def test_figure_3() -> None:
    workflow = read(FIGURE_3)
    assert workflow.tasks[0] == Task("0", ("/bin/produce", "files0", "temp0"), ("files0",), ("temp0",), line=2)
    assert workflow.tasks[3] == Task("3", ("/bin/consume", "temp1", "output1"), ("temp1",), ("output1",), line=5)
    assert len(workflow.tasks) == 4


def test_figure_3_file_list() -> None:
    files = read(FIGURE_3_FILES, "filelist").files
    assert files["files0"] is DeclaredState.SHARED
    assert files["temp1"] is DeclaredState.INVALID
    assert len(files) == 6
    assert filelist.states(read(FIGURE_3)) == files
    assert list(filelist.write(files)) == [" ".join(line.split()) for line in FIGURE_3_FILES.splitlines()]


def test_equal_strings_are_one_string() -> None:
    produce, _, consume, _ = read(FIGURE_3).tasks
    assert produce.outputs[0] is consume.inputs[0] is produce.argv[2] is consume.argv[1]


@pytest.mark.parametrize(
    ("line", "task"),
    [
        ("t -b x", Task("t", ("x",))),
        ("t -b x -a", Task("t", ("x",))),
        ("t -b x -i -o", Task("t", ("x",))),
        ("t -i a -b x", Task("t", ("x",), ("a",))),
        ("t -b x -o c -i a b", Task("t", ("x",), ("a", "b"), ("c",))),
        ("t -b x -i a -o c -i b", Task("t", ("x",), ("a", "b"), ("c",))),
        ("t -b x -a -n 5 -o x -a -- y", Task("t", ("x", "-n", "5", "-o", "x", "-a", "--", "y"))),
        ("t -b x -i a -- -a -i b", Task("t", ("x", "-a", "-i", "b"), ("a",))),
        ("t -b x -i '-a' \\-o -a z", Task("t", ("x", "z"), ("-a", "-o"))),
        ("t -b x -i - -a -", Task("t", ("x", "-"), ("-",))),
        ("t -b -x", Task("t", ("-x",))),
        ("-5 -b x", Task("-5", ("x",))),
        ("'#1' -b x", Task("#1", ("x",))),
        ("t -b 'my prog' -i 'a b' -a \"it's\" ''", Task("t", ("my prog", "it's", ""), ("a b",))),
        ("t -b x -a a#b #c", Task("t", ("x", "a#b", "#c"))),
        (
            "t -b x -stdin i -stdout o -stderr e -env A=1 B= -cwd d -label l",
            Task("t", ("x",), stdin="i", stdout="o", stderr="e", env=("A=1", "B="), cwd="d", label="l"),
        ),
        (
            "t -b x -o o -cores 4 -memory 512MiB -time-limit 1.5m -retries 3 -priority -7 -node 2 -keep o -unstaged",
            Task(
                "t",
                ("x",),
                (),
                ("o",),
                cores=4,
                memory=512 << 20,
                time_limit=90.0,
                retries=3,
                priority=-7,
                node=2,
                keep=("o",),
                staged=False,
            ),
        ),
        ("t -b x -node-soft 2", Task("t", ("x",), node=2, node_soft=True)),
        (
            "t -b cat -i a b c -o s -reduce 2 -a {in} {out}",
            Task("t", ("cat", "{in}", "{out}"), ("a", "b", "c"), ("s",), reduce=2),
        ),
        ("t\t-b\tx\t-i\ta", Task("t", ("x",), ("a",))),
        ("  t -b x  ", Task("t", ("x",))),
        ("t -b größe -i a\u00a0b", Task("t", ("größe",), ("a\u00a0b",))),
    ],
)
def test_lines(line: str, task: Task) -> None:
    assert tasklist.parse(line.strip(" ")) == task
    [found] = read(line).tasks  # whole lists take another path for common lines
    assert found == Task(**{name: getattr(task, name) for name in task.__struct_fields__ if name != "line"}, line=1)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("t", "no program: a task is written ID -b PROGRAM"),
        ("t x y", "'x' after the task id belongs to no option (arguments of the program follow -a)"),
        ("t -i a", "no program"),
        ("t -b", "-b needs a value"),
        ("t -b -i a", "-b needs a value"),
        ("t -b x y", "'y' after x belongs to no option"),
        ("t -b x -b y", "-b is given twice"),
        ("t -b x -ouput y", "unknown option -ouput; did you mean -o?"),
        ("t -b x -i -weird", "unknown option -weird (quote it if it is a file name"),
        ("t -b x -cores", "-cores needs a value"),
        ("t -b x -cores -a", "-cores needs a value"),
        ("t -b x -cores two", "-cores needs a whole number, not 'two'"),
        ("t -b x -cores 1 -cores 2", "-cores is given twice"),
        ("t -b x -cores 99999999999999999999", "-cores needs a whole number"),
        ("t -b x -memory lots", "-memory needs a size such as 512MiB or 2G, not 'lots'"),
        ("t -b x -memory -5", "-memory needs a size"),
        ("t -b x -time-limit soon", "-time-limit needs a duration such as 90, 1.5m or 2h, not 'soon'"),
        ("t -b x -node 1 -node-soft 2", "more than one -node or -node-soft"),
        ("t -b x -label", "-label needs a value"),
        ("'' -b x", "the task id is empty"),
        ("t -b x -a 'y", "the quote ' in column 11 is not closed"),
        ("t -b x \\", "a backslash ends the line"),
        ("#amfs nonsense", "a comment that starts with #amfs"),
        ("#amfs file a Maybe", "a comment that starts with #amfs"),
    ],
)
def test_faults(line: str, says: str) -> None:
    [fault] = faults_of(f"ok -b x\n{line}\nok2 -b x\n")
    assert fault.line == 2
    assert says in fault.message
    assert "\n" not in str(fault)


def test_all_faults_of_a_line_are_in_one_message() -> None:
    [fault] = faults_of("t -cores x -memory y")
    assert "no program" in fault.message
    assert "-cores needs" in fault.message
    assert "-memory needs" in fault.message


def test_comments_blank_lines_crlf_and_bom() -> None:
    text = "\ufeff# a comment\r\n\r\n  # another\r\na -b x -i f\r\n\t\r\nb -b y -a 'z'\r\nc -b z"
    assert [(task.id, task.line, task.argv) for task in read(text).tasks] == [("a", 4, ("x",)), ("b", 6, ("y", "z")), ("c", 7, ("z",))]


def test_a_carriage_return_inside_a_line_belongs_to_a_word() -> None:
    assert read("a -b x -i p\rq\n").tasks[0].inputs == ("p\rq",)


def test_bytes_that_are_not_utf8_survive() -> None:
    workflow = read(b"a -b x -i f\xff\xfe -a f\xff\xfe\n")
    assert workflow.tasks[0].inputs == ("f\udcff\udcfe",)
    assert next(iter(tasklist.write(workflow))).encode("utf-8", "surrogateescape") == b"a -b x -i f\xff\xfe -a f\xff\xfe"


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("1024", 1024), ("1k", 1024), ("2G", 2 << 30), ("512MiB", 512 << 20), ("1.5KB", 1500), ("3MB", 3_000_000),
                       (".5K", 512), ("1T", 1 << 40), ("7B", 7)]
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert tasklist.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "1X", "-1", "1 G", "1e3", "0x10", "١"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="a size such as"):
        tasklist.parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5m", 90), ("2h", 7200), ("250ms", 0.25), ("1d", 86400), ("1e-3", 0.001), ("5S", 5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert tasklist.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-1", "inf", "nan", "1:30", "1w"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        tasklist.parse_duration(text)


@given(tasks())
def test_every_task_has_a_line(task: Task) -> None:
    line = tasklist.format_task(task)
    assert "\n" not in line
    assert tasklist.parse(line) == task


@given(workflows)
def test_workflows_come_back(workflow: Workflow) -> None:
    text = "".join(f"{line}\n" for line in tasklist.write(workflow))
    assert without_lines(read(text)) == without_lines(workflow)


_PIECES = st.one_of(
    st.sampled_from(
        [" ", "  ", "\t", " -b ", " -i ", " -o ", " -a ", " -- ", "-b", "-i", "-a", "#", "'", "\\", "x", "-", "-x", "é", "\r", "\x1f"]
    ),
    st.text("ab-. ", max_size=4),
)


@given(st.lists(_PIECES, max_size=14).map("".join))
@example("0 -b x -i  -o y")
@example("0 -b  x -a y")
@example(" -b x")
@example("0 -b x -i a -i b")
@example("#0 -b x")
def test_fast_path_and_parser_agree(line: str) -> None:
    """Whatever a line is, the path for whole lists gives what the plain parser gives."""
    parser = Parser("list", "tasklist")
    parser.feed(line.replace("\n", " ").encode())
    parser.finish()
    bare = trim(line.removesuffix("\r"))
    try:
        expected = [tasklist.parse(bare, 1)] if bare and bare[0] != "#" else []
    except Malformed as error:
        assert [fault.line for fault in parser.faults] == [1]
        assert parser.reader.tasks == []
        assert str(error)
    else:
        assert parser.reader.tasks == expected
        assert parser.faults == []


@given(st.dictionaries(any_words.filter(bool), st.sampled_from(DeclaredState), max_size=6))
def test_file_lists_come_back(files: dict[str, DeclaredState]) -> None:
    text = "".join(f"{line}\n" for line in filelist.write(files))
    assert read(text, "filelist").files == files


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("0 a", "3 words, not 2"),
        ("0 a b Shared", "3 words, not 4"),
        ("0 a Maybe", "the state of file 'a' must be Shared or Invalid, not 'Maybe'"),
        ("9 b Shared", "file id '9' is already taken (line 1)"),
        ("0 first Shared", "file 'first' is already listed (line 1)"),
        ("0 '' Shared", "the file name is empty"),
        ("0 'a Shared", "is not closed"),
    ],
)
def test_file_list_faults(line: str, says: str) -> None:
    [fault] = faults_of(f"9 first Shared\n{line}\n", "filelist")
    assert fault.line == 2
    assert says in fault.message


def test_states_are_case_insensitive_and_names_quoted() -> None:
    assert read("a 'x y' shared\nb z INVALID\n", "filelist").files == {"x y": DeclaredState.SHARED, "z": DeclaredState.INVALID}


@pytest.mark.parametrize("task", [Task("", ("x",)), Task("a", ()), Task("a", ("x",), cores=0), Task("a", ("x", "\0"))])
def test_what_no_line_can_hold_is_refused(task: Task) -> None:
    with pytest.raises(ValueError, match=r".+"):
        tasklist.format_task(task)


def test_odd_ids_are_quoted() -> None:
    for odd in ("#1", "\ufeffx", "a b", "-b"):
        assert tasklist.parse(tasklist.format_task(Task(odd, ("x",)))).id == odd
    assert quote("\ufeffx") != "\ufeffx"
