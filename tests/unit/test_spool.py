"""The spool: records as written by Python, the program and the shell functions; torn writes; the meaning of words."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.errors import UsageError
from amfs.libexec import program
from amfs.queueing import spool
from amfs.queueing.shell_functions import script
from amfs.queueing.spool import Record, decode, encode
from amfs.queueing.words import Queued, parse, task_of

WORD = st.sampled_from(["a", "", ".", "q1", "=", "=x", "\n", "-if", "ü", "\udcff", "a b"])
RECORD = st.builds(Record, WORD, WORD, WORD, st.lists(WORD, max_size=2).map(tuple))
RECORDS = st.lists(RECORD, max_size=2)


@given(RECORDS)
def test_records_come_back(records: list[Record]) -> None:
    data = b"".join(map(encode, records))
    assert decode(data) == (records, len(data))


@given(RECORDS, st.integers(0, 20000))
def test_a_torn_tail_is_not_there(records: list[Record], cut: int) -> None:
    data = b"".join(map(encode, records))
    torn = data[: cut % (len(data) + 1)]
    found, used = decode(torn)
    assert found == records[: len(found)]
    assert b"".join(map(encode, found)) == torn[:used]
    assert len(torn) - used < (len(encode(records[len(found)])) if len(found) < len(records) else 1)
    assert decode(data[used:])[0] == records[len(found) :], "what was torn is read when it is whole"


@given(RECORDS, RECORDS, RECORD, st.integers(0, 20000))
def test_what_follows_a_torn_record_is_read(before: list[Record], after: list[Record], torn: Record, cut: int) -> None:
    whole = encode(torn)
    data = b"".join(map(encode, before)) + whole[: cut % (len(whole) - 1)] + b"".join(map(encode, after))
    assert decode(data)[0] == before + after


def test_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        encode(Record("/", "", "e", ("a\0b",)))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "mount" / "dir").mkdir(parents=True)
    spool.make(tmp_path)
    return tmp_path


def _variables(place: Path) -> dict[str, str]:
    return {"AMFS_SPOOL": str(place / "spool"), "AMFS_MOUNT": str(place / "mount")}


def _run(place: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **_variables(place), **env}
    return subprocess.run(
        command, cwd=place / "mount" / "dir", env=environ, capture_output=True, text=True, errors="surrogateescape", timeout=60, check=False
    )


def test_the_program_writes_what_python_reads(place: Path) -> None:
    words = ["--even", "-C", "amfs:/x", "prog", "a b", "", "\udcff", "=", "-if", "f"]
    for number in range(3):
        done = _run(place, program("AMFS_queue"), *words, str(number), OWN=str(number // 2))
        assert (done.returncode, done.stderr) == (0, "")
    found, offsets = spool.collect(place / "spool", {})
    assert [record.words for record in found] == [(*words, str(number)) for number in range(3)]
    assert {record.directory for record in found} == {str(place / "mount" / "dir")}
    assert found[0].env == found[1].env != found[2].env, "equal environments are kept once"
    environments = spool.environments(place / "spool", [record.env for record in found])
    assert [environments[record.env]["OWN"] for record in found] == ["0", "0", "1"]
    assert spool.keep_environment(place / "spool", {**environments[found[0].env], "PWD": "/elsewhere"}) == found[0].env
    assert spool.collect(place / "spool", offsets) == ([], offsets)


WRONG = [
    [], [""], ["-x"], ["-C"], ["--data-arg", "0", "p"], ["--data-arg", "x", "p"], ["p", "-if"], ["p", "-of", "-if"], ["--"], ["-C", "d"],
]  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_words_that_are_wrong_are_refused_alike(place: Path, words: list[str]) -> None:
    done = _run(place, program("AMFS_queue"), *words)
    with pytest.raises(UsageError) as refused:
        parse(tuple(words))
    assert done.returncode == 2
    assert done.stderr == f"AMFS_queue: {refused.value}\n"


def test_a_session_that_is_gone(place: Path) -> None:
    done = _run(place, program("AMFS_queue"), "true", AMFS_SPOOL=str(place / "nothing"))
    assert (done.returncode, done.stderr) == (4, "AMFS_queue: the session is gone: No such file or directory\n")


_REST = "OWN=1 AMFS_queue q; AMFS_queue r; cd ..; AMFS_queue s; "
_POSIX = f'for i in 0 1 2; do AMFS_queue p $i "a b" ""; done; {_REST} AMFS_queue || echo $?'
SHELLS = {
    "bash": f"set -eu\n{_POSIX}",
    "zsh": _POSIX,
    "fish": f'for i in 0 1 2; AMFS_queue p $i "a b" ""; end; {_REST} AMFS_queue; echo $status',
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_functions_write_what_python_reads(place: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    init = script(shell, program("AMFS_queue"), _variables(place), str(place))
    done = _run(place, shell, "-c", f"{init}\n{SHELLS[shell]}")
    assert (done.stdout, done.stderr) == ("2\n", "AMFS_queue: no program to run\n")
    found, _ = spool.collect(place / "spool", {})
    assert [record.words for record in found] == [*[("p", str(i), "a b", "") for i in range(3)], ("q",), ("r",), ("s",)]
    assert found[-1].directory == str(place / "mount")
    environments = spool.environments(place / "spool", [record.env for record in found])
    assert [environments[record.env].get("OWN") for record in found] == [None] * 3 + ["1"] + [None] * 2
    assert all("PWD" not in env for env in environments.values())
    if shell == "bash":
        assert len(environments) == 2, "a change of the directory is no change of the environment"


def test_processes_of_one_shell_do_not_mix_their_records(place: Path) -> None:
    init = script("bash", program("AMFS_queue"), _variables(place), str(place))
    long = "x" * 9000  # more than bash writes at once
    text = f'{init}\nf() {{ for i in {{1..50}}; do AMFS_queue $1 $i {long}; done; }}\nf a & f b & (f c) & wait'
    assert _run(place, "bash", "-c", text).stderr == ""
    found, _ = spool.collect(place / "spool", {})
    assert sorted(record.words[:2] for record in found) == sorted((name, str(i)) for name in "abc" for i in range(1, 51))


def test_what_words_mean(place: Path) -> None:
    mount = str(place / "mount")
    env = {"PATH": os.environ["PATH"], "A": "1", "B": "2"}

    def meant(*words: str, directory: str = f"{mount}/dir") -> Queued:
        return task_of(7, Record(directory, mount, "e", words), env, {"A": "1", "PATH": env["PATH"]})

    blind = meant("cat", "in", f"{mount}/other/x")
    assert blind.task.blind and blind.task.cwd == "/dir" and blind.task.argv == (shutil.which("cat"), "in", "../other/x")
    assert blind.task.env == ("B=2",) and blind.about == "/dir/in"
    assert meant("--data-arg", "2", "cat", "in", "../y").about == "/y"
    assert meant("--even", "cat", "in").about == meant("cat").about == ""
    assert meant("./tool", "in").task.argv[0] == "./tool"
    staged = meant("sort", "a", "-if", "a", f"{mount}/b", "/usr/c", "-of", "../o").task
    assert not staged.blind and staged.cwd == "amfs:/dir" and staged.argv[1:] == ("a",)
    assert staged.inputs == ("amfs:/dir/a", "amfs:/b", "/usr/c") and staged.outputs == ("amfs:/o",)
    assert meant("--", "sort", "-if").task.argv[1:] == ("-if",)
    assert meant("-C", "amfs:/up", "cat", directory="/root").task.cwd == "/up"
    moved = meant("--to", "/keep", "sort", "a", "-of", "o").task
    assert moved.outputs == () and moved.argv[:2] == ("/bin/sh", "-c") and "/keep/o" in moved.argv[2]
    for words, why in [(("nosuch",), "no program 'nosuch'"), (("--to", "/k", "cat"), "-of"), (("--to", "k", "cat", "-of", "o"), "absolute"),
                       (("cat", "-of", "d/"), "not directories")]:  # fmt: skip
        with pytest.raises(UsageError, match=why):
            meant(*words)
    with pytest.raises(UsageError, match="in no mount"):
        meant("cat", directory=str(place))


def test_files_of_shells_that_are_gone_may_go(place: Path) -> None:
    assert spool.writer_lives(f"{os.getpid()}-1.shell") and spool.writer_lives(spool.PROGRAM)
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True)
    assert not spool.writer_lives(f"{int(gone.stdout)}-1.shell")
