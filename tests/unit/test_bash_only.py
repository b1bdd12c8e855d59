"""Lines that bash reads otherwise than a plain shell are found before the run, and nothing else is taken for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tasklist import faults_of, read

from amfs.errors import UsageError
from amfs.translate.bash_only import bash_only
from amfs.translate.commands import CommandReader


@pytest.mark.parametrize(("line", "found"), [
    ("./prog &> prog.log", "&>"), ("./prog &>> prog.log", "&>"), ("a; b &>x", "&>"), ("(a &> x)", "&>"), ("a 2>&1 &>x", "&>"),
    ("echo $(a &> x)", "&>"), ('echo "$(a &> x)"', "&>"), ("echo `a &> x`", "&>"), ('echo "$(a "b" &> x)"', "&>"), ("a'b' &> x", "&>"),
    ("a |& b", "|&"), ("a|&b", "|&"), ("cat <<< word", "<<<"),
    ("diff <(a) <(b)", "<(…)"), ("a > >(tee x)", ">(…)"), ("a 2>>(tee x)", ""),
    ("[[ -f x ]] && y", "[["), ("a && [[ x == y ]]", "[["), ("if [[ -f x ]]; then y; fi", "[["), ("! [[ x ]]", "[["), ("a; [[ x ]]", "[["),
    ("echo {1..3}", "{1..3}"), ("cp f{1..10..2}.txt d", "{1..3}"), ("echo {a..c}", "{1..3}"), ("echo a{-1..3}b", "{1..3}"),
])  # fmt: skip
def test_found(line: str, found: str) -> None:
    assert bash_only(line) == found


@pytest.mark.parametrize("line", [
    "a > x 2>&1", "a >& 2", "a >&2 & b", "a && > x", "a &", "a & b", "a || b", "a | b", "a &\n> x", "a 2>&- <&3",
    "echo '&>' '|&' '{1..3}' '[[' '<(x)'", 'echo "&> |& {1..3} [[ <(x) <<<"', r"echo \&> x", r"echo \{1..3}", r"a \|\& b", r"echo \<\(",
    "echo a[[:alpha:]]", "grep [[:alpha:]] f", "echo [[ x ]]", "test x = [[", "tr [a-z] [A-Z]", "ls [[ab]]",
    "echo {a,b}", "echo {1,3}", "echo {1..}", "find . -exec echo {} +", "awk '{print $1..3}'", "echo ${x:-{1..3}}", "{ a; }", "echo a..b",
    "echo $((a<(b)))", "echo $(( (1) &1 ))", "a # &> x", "a #|& b", "a & # &> x", "echo a#b", 'echo "a # b" > x', "cat <<EOF", "a << 'x'",
    "(a) > x", "(a; b) 2>&1", "echo $(a > x) & b", "case x in (a) b;; esac", "cat < a > b", "cat <a>b", "a <> b", "a >| b", "echo \"`a`\"",
    "echo '", 'echo "', "echo $(", "\\", "", "awk \"{print \\$1 > \\\"x\\\"}\" f",
])  # fmt: skip
def test_not_found(line: str) -> None:
    assert bash_only(line) == ""


@given(st.text(alphabet="ab &|<>(){}[]'\"`$\\#;.13\t\n", max_size=30))
def test_any_text_is_read_to_its_end(line: str) -> None:
    bash_only(line)
    assert bash_only("'" + line.replace("'", "") + "'") == ""


WORDS = ["echo", "a", "'b c'", '"$x"', "&&", "||", "|", ";", "2>&1", "> /dev/null", "{1..2}", "'&>'", "\\{1..2}", "#", "|&", "[["]


@pytest.mark.skipif(shutil.which("dash") is None or shutil.which("bash") is None, reason="needs both shells")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=8))
def test_where_nothing_is_found_the_shells_agree(words: list[str]) -> None:
    line = "echo " + " ".join(words)
    if bash_only(line):
        return
    shells = [shutil.which(shell) or "" for shell in ("dash", "bash")]
    said = [subprocess.run([shell, "-c", line], capture_output=True, env={"PATH": "/none"}) for shell in shells]
    assert (said[0].returncode == 0, said[0].stdout) == (said[1].returncode == 0, said[1].stdout)


def commands(text: str, shell: str = "", sh: str = "dash") -> CommandReader:
    reader = CommandReader("list", None, shell, sh)
    reader.text(text, 1)
    return reader


def test_a_line_for_a_plain_shell_is_a_fault_with_what_to_do() -> None:
    reader = commands("true\necho x &> y\n")
    [fault] = reader.faults
    assert fault.line == 2
    assert "/bin/sh is dash here, which does not know &> of bash" in fault.message
    assert "> FILE 2>&1" in fault.message and "--shell bash" in fault.message and "#amfs shell bash" in fault.message


def test_where_sh_is_bash_it_is_none() -> None:
    assert commands("echo x &> y", sh="bash").faults == []
    assert commands("echo x &> y", shell="sh", sh="bash").faults == []
    assert len(commands("echo x &> y", shell="/bin/sh", sh="dash").faults) == 1
    assert len(commands("echo x &> y", shell="/usr/bin/dash", sh="bash").faults) == 1


def test_the_shell_that_was_asked_for_runs_the_lines() -> None:
    assert [task.argv for task in commands("echo x &> y\necho x", shell="bash").tasks] == [("bash", "-c", "echo x &> y"), ("echo", "x")]
    reader = commands("echo $x\n#amfs shell zsh\necho $x\n#amfs shell /bin/bash\na |& b -if c -of d")
    assert [task.argv[0] for task in reader.tasks] == ["/bin/sh", "zsh", "/bin/bash"]
    assert not reader.faults


def test_a_list_says_by_which_shell() -> None:
    [task] = read("#amfs shell bash\necho {1..3}\n", "auto").tasks
    assert task.argv == ("bash", "-c", "echo {1..3}")
    assert "#amfs shell NAME" in faults_of("#amfs shell\na\n", "commands")[0].message


def test_the_shell_is_for_command_lines(tmp_path: Path) -> None:
    from amfs.translate.detect import load_checked
    from amfs.translate.place import HostPlace

    (tmp_path / "list").write_text("a -b true\n")
    with pytest.raises(UsageError, match="--shell is for lists of command lines"):
        load_checked(tmp_path / "list", HostPlace(), shell="bash")
