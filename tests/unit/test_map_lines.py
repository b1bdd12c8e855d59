"""Command lines of ``amfs map``: replacement strings, and quoting that a real shell undoes."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.cli.map import failures_to_end, jobs_at_a_time
from amfs.errors import UsageError
from amfs.runs.in_order import InOrder
from amfs.translate.map_arguments import Argument, Source, columns_of, combined, split_words
from amfs.translate.map_lines import Template, part_of
from amfs.translate.map_tasks import TaskMaker
from amfs.translate.shell_quoting import Malformed
from amfs.workflow.workflow import Task

SHELLS = [found for name in ("dash", "bash") if (found := shutil.which(name))]
ARGUMENTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12) | st.text(
    st.sampled_from("'\"\\$`#!*?[]{}~ \t\n;&|<>()=%-"), max_size=8
) | st.sampled_from(["if", "then", "2", "~", "a=b", "-n", "{}", "{1}", "$(date)", "it's", "\\", "''"])  # fmt: skip


def printed(line: str, shell: str) -> list[str]:
    done = subprocess.run([shell, "-c", line], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), (line, done)
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


#: Templates, and the words that the program gets of the arguments "A" and "B".
TEMPLATES = [
    ("printf '%s\\0' {1} {2}", ["A", "B"]),
    ("printf '%s\\0' {}", ["A", "B"]),
    ("printf '%s\\0' '{1}' \"{2}\"", ["A", "B"]),
    ("printf '%s\\0' x{1}y\"z{2}\"'{1}w'", ["xAyzBAw"]),
    ("printf '%s\\0' \"{}\"", ["A B"]),
    ("printf '%s\\0' \"$(printf %s. {1})\" \"$(printf '%s.' \"{2}\")\"", ["A.", "B."]),
    ("(printf '%s\\0' {-2}; x={2}; printf '%s\\0' \"$x\")", ["A", "B"]),
    ("printf '%s\\0' \"${HOME:+}{1}\" # it's\nprintf '%s\\0' {2}", ["A", "B"]),
    ("printf '%s\\0' {1}>&1; for x in {1} {2}; do printf '%s\\0' \"$x\"; done", ["A", "A", "B"]),
    ("printf '%s\\0' \\\"{1} \"\\\"{2}\"", ['"A', '"B']),
]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("template", "words"), TEMPLATES)
@given(one=ARGUMENTS, two=ARGUMENTS)
def test_a_shell_has_the_arguments_unchanged(template: str, words: list[str], shell: str, one: str, two: str) -> None:
    wanted = ["".join({"A": one, "B": two}.get(letter, letter) for letter in word) for word in words]
    assert printed(Template(template)([one, two], 1), shell) == wanted


@pytest.mark.parametrize("shell", SHELLS)
@given(argument=ARGUMENTS.filter(lambda text: text.strip(" \t\n") != ""))
def test_a_task_has_the_arguments_unchanged(shell: str, argument: str) -> None:
    task = TaskMaker("printf '%s\\0'", shell=shell).task([Argument(argument)], 1)
    assert task is not None
    assert subprocess.run(task.argv, capture_output=True, check=True).stdout == argument.encode() + b"\0"


@pytest.mark.parametrize(
    ("argument", "parts"),
    [  # all, ., /, //, /.
        ("a/b.c/d.tar.gz", ["a/b.c/d.tar.gz", "a/b.c/d.tar", "d.tar.gz", "a/b.c", "d.tar"]),
        ("x.fa", ["x.fa", "x", "x.fa", ".", "x"]),
        ("a.b/c", ["a.b/c", "a.b/c", "c", "a.b", "c"]),
        ("/x", ["/x", "/x", "x", "/", "x"]),
        ("/", ["/", "/", "", "/", ""]),
        ("", ["", "", "", ".", ""]),
        ("a/b/", ["a/b/", "a/b/", "", "a", ""]),
    ],
)
def test_parts_of_an_argument(argument: str, parts: list[str]) -> None:
    assert [part_of(argument, part) for part in ("", ".", "/", "//", "/.")] == parts
    names = Template("{}|{.}|{/}|{//}|{/.}|{#}", command=False)
    assert names([argument], 7) == "|".join([*parts, "7"])


def test_what_is_no_replacement_string_stays() -> None:
    text = "awk '{print $1}' {x} {01} { } {a,b} {"
    assert Template(text).pieces == []
    assert Template(text)([], 1) == text
    assert Template("a {1.}-{2/}-{-1}")(["x.y", "p/q"], 1) == "a x-q-p/q"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo \\{}", "behind a backslash"),
        ("echo `cat {}`", "within `…`"),
        ("echo $(({}+1))", "within $((…))"),
        ("echo ${x:-{}}", "within ${…}"),
        ("echo ${1}", "within ${…}"),
        ("echo $'{}'", "within $'…'"),
        ("echo x # {}", "in a comment"),
        ("cat <<END\n{}\nEND", "in a here-document"),
        ("echo \"${x:-it's}\" {}", "behind ' in ${…}"),
        ("echo \"$(case x in x) echo \"{}\";; esac)\"", "case in $(…)"),
        ("echo {%}", "do not exist here"),
        ("echo {= s/a/b/ =}", "do not exist here"),
    ],
)
def test_where_nothing_can_be_quoted_is_refused(text: str, words: str) -> None:
    with pytest.raises(Malformed) as refused:
        Template(text)
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(("text", "words"), [("{3}", "{3} is asked for, but there are 2 arguments"), ("{-3}", "{-3} is asked for")])
def test_too_few_arguments(text: str, words: str) -> None:
    with pytest.raises(Malformed) as refused:
        Template(text)(["a", "b"], 1)
    assert words in str(refused.value)


def test_words_behind_the_options() -> None:
    assert split_words(["gzip", "-9", "{}", ":::", "a", "-b"]) == ("gzip -9 {}", [Source(("a", "-b"))])
    assert split_words(["echo"]) == ("echo", [Source(file="-")])
    assert split_words([":::", "a"], ["f"]) == ("", [Source(file="f"), Source(("a",))])
    assert split_words(["c", "::::", "f", "g", ":::+", "x", "::::+", "-"])[1] == [
        Source(file="f"), Source(file="g"), Source(("x",), linked=True), Source(file="-", linked=True),
    ]  # fmt: skip
    assert split_words(["c", ":::"])[1] == [Source(())]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["c", ":::+", "a"], "there is none"),
        (["c", "::::"], ":::: needs a file"),
        (["c", ":::", "a", "::::+", "f", "g"], "takes one file, not 2"),
        (["c", "::::", "-", "-"], "one source only"),
    ],
)
def test_words_that_say_nothing(words: list[str], told: str) -> None:
    with pytest.raises(Malformed) as refused:
        split_words(words)
    assert told in str(refused.value)


def test_combinations() -> None:
    def jobs(*sources: str, linked: tuple[bool, ...]) -> list[str]:
        return ["".join(a.text for a in job) for job in combined([[Argument(c) for c in source] for source in sources], linked)]

    assert jobs("ab", "12", linked=(False, False)) == ["a1", "a2", "b1", "b2"]
    assert jobs("abc", "12", linked=(False, True)) == ["a1", "b2"]
    assert jobs("ab", "12", "xy", linked=(False, True, False)) == ["a1x", "a1y", "b2x", "b2y"]
    assert jobs("ab", "", linked=(False, False)) == []


def test_declared_files_and_columns() -> None:
    maker = TaskMaker("gzip -k {1}", outputs=["{1}.gz"], columns=columns_of(r"\t"), is_file={"a.fa"}.__contains__)
    assert maker.task([Argument("a.fa\tx", 3)], 1) == Task("1", ("gzip", "-k", "a.fa"), ("a.fa",), ("a.fa.gz",), line=3)
    maker = TaskMaker("cat", inputs=["{}", "other"])
    assert maker.task([Argument("a")], 2) == Task("2", ("cat", "a"), ("a", "other"))
    maker = TaskMaker("date; echo", inputs=[""], outputs=["{#}"], is_file=lambda name: True)
    assert maker.task([Argument("a")], 2) == Task("2", ("/bin/sh", "-c", "date; echo a"), (), ("2",), label="")


def test_arguments_that_are_command_lines() -> None:
    maker = TaskMaker("")
    assert [maker.task([Argument(line)], 1) for line in ("echo 'a b'", "  ")] == [Task("1", ("echo", "a b"), staged=False), None]


def test_what_only_bash_knows_is_a_fault_of_the_command() -> None:
    with pytest.raises(Malformed, match="does not know &> of bash"):
        TaskMaker("echo {} &> x", sh="dash")
    assert TaskMaker("echo {} &> x", sh="dash", shell="bash").line([Argument("a")], 1) == "echo a &> x"
    assert TaskMaker("echo {}", sh="dash").line([Argument("&> {1..3}")], 1) == "echo '&> {1..3}'"
    with pytest.raises(Malformed, match="not closed"):
        TaskMaker("echo 'a {}")


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_what_comes_out_of_order_waits(order: list[int], passed: set[int]) -> None:
    kept: InOrder[int] = InOrder(passed.__contains__)
    out: list[int] = []
    come: set[int] = set()
    for number in order:
        if number not in passed:
            come.add(number)
            out += kept.add(number, number)
            due = next((each for each in range(8) if each not in come and each not in passed), 8)
            assert out == [each for each in range(due) if each not in passed]
    assert list(kept.rest()) == [] and out == sorted(come)


@pytest.mark.parametrize(
    ("text", "jobs", "wanted"),
    [("3", 9, 3), ("0", 9, 9), ("0", 0, 1), ("0", None, 250), ("0", 999, 250), ("100%", 9, 4), ("50%", 9, 2), ("1%", 9, 1), ("200%", 9, 8),
     ("+2", 9, 6), ("-1", 9, 3), ("-9", 9, 1)],
)  # fmt: skip
def test_jobs_at_a_time(text: str, jobs: int | None, wanted: int) -> None:
    assert jobs_at_a_time(text, 4, jobs) == wanted


def test_every_option_shared_with_run_is_there_and_in_one_group() -> None:
    from amfs.cli.map import GROUPS, map_

    shown = [option.name for option in map_.params if option.param_type_name == "option"]
    assert sorted(shown) == sorted(name for names in GROUPS.values() for name in names)


@pytest.mark.parametrize(
    ("text", "jobs", "failures"),
    [
        ("", None, 0), ("never", 5, 0), ("0", 5, 0), ("2", 5, 1), ("now,fail=1", None, 1), ("now,fail=12", 5, 12),
        ("now,fail=10%", 30, 3), ("now,fail=10%", 31, 4), ("now,fail=1%", 3, 1), ("now,fail=100%", 7, 7), ("now,fail=50%", 0, 1),
    ],
)  # fmt: skip
def test_at_how_many_failures_a_run_is_to_end(text: str, jobs: int | None, failures: int) -> None:
    assert failures_to_end(text, jobs) == failures


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("soon,fail=1", "running jobs are always ended at once"), ("1", "running jobs are always ended at once"),
        ("now,success=1", "write never"),
        ("now,fail=0", "write never"), ("now,fail=101%", "write never"), ("now,fail=10%", "how many jobs come"), ("x", "write never"),
    ],
)  # fmt: skip
def test_other_ends_of_a_run_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        failures_to_end(text, None)
