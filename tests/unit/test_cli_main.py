"""The command frame: cheap help, one message for every error, exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

import amfs
from amfs.cli import main as frame
from amfs.errors import Fault, SessionError, WorkflowError

EXPENSIVE = ("click", "zmq", "msgspec", "rich", "mpi4py", "fuse", "xxhash", "asyncio", "subprocess", "dataclasses", "inspect")


def python(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})


def test_an_interrupt_is_heard_that_comes_in_a_callback_of_the_garbage_collector() -> None:
    code = """
import signal, sys, time
from amfs.host.signals import keep_interrupts

class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the shell has started us in the background
keep_interrupts()
try:
    Dropped()
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(130)
"""
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (130, "")


def test_help_imports_nothing_expensive() -> None:
    code = (
        "import sys; from amfs.cli.main import main; status = main(['--help']);"
        f"print(status, *[m for m in {EXPENSIVE!r} if m in sys.modules], sep='|', file=sys.stderr)"
    )
    result = python("-c", code)
    assert result.stderr == "0\n"
    assert all(re.search(rf"^  {name} ", result.stdout, re.MULTILINE) for name in frame.COMMANDS)


def test_help_imports_little_more_than_a_bare_interpreter() -> None:
    def imported(*args: str) -> set[str]:
        lines = python("-X", "importtime", *args).stderr.splitlines()
        return {line.rsplit("|", 1)[1].strip() for line in lines if line.startswith("import time:")}

    extra = imported("-c", "from amfs.cli.main import main; main(['--help'])") - imported("-c", "pass")
    ours = {name for name in extra if name.startswith("amfs")}
    assert ours == {"amfs", "amfs.cli", "amfs.cli.main"}
    # typing with what it stands on (re, functools, collections, contextlib …): some thirty small modules, two milliseconds
    assert len(extra) < 45, sorted(extra)


def test_importing_the_package_imports_nothing_expensive() -> None:
    result = python("-c", f"import amfs, sys; print([m for m in {EXPENSIVE!r} if m in sys.modules])")
    assert result.stdout == "[]\n"


def test_public_names_load_on_demand() -> None:
    for name in amfs.__all__:
        assert getattr(amfs, name) is not None
        assert name in dir(amfs)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        amfs.nothing  # noqa: B018


def test_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main(["--version"]) == 0
    assert capsys.readouterr().out == f"amfs {amfs.__version__}\n"
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert f'version = "{amfs.__version__}"' in project.read_text(encoding="utf-8")


def test_another_project_s_package_of_the_same_name_is_told(tmp_path: Path) -> None:
    """Once installed over ours, it replaces ``amfs/__init__.py``; the rest of ours stays."""
    there = tmp_path / "amfs"
    there.mkdir()
    (there / "__init__.py").write_text("__version__ = '0.5'\n")
    for path in Path(amfs.__file__).parent.iterdir():
        if path.name not in ("__init__.py", "__pycache__"):
            (there / path.name).symlink_to(path)
    command = "import sys; from amfs.cli.main import main; sys.exit(main(['run', 'list']))"
    ran = subprocess.run([sys.executable, "-S", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (5, "")
    (said,) = ran.stderr.splitlines()
    assert str(there / "__init__.py") in said and "amfs-hpc" in said


@pytest.mark.parametrize("name", frame.COMMANDS)
def test_every_command_of_the_table_exists_and_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = frame.load(name)
    assert isinstance(command, click.Command)
    assert frame.main([name, "--help"]) == 0
    assert f"Usage: amfs {name}" in capsys.readouterr().out


def test_an_unknown_command_gets_a_hint(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert frame.main(["runn"]) == 2
    assert "did you mean 'amfs run'" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    Path("tasks.txt").write_text("")
    assert frame.main(["tasks.txt"]) == 2
    assert "amfs run tasks.txt" in capsys.readouterr().err
    assert frame.main(["--no-such-option"]) == 2
    assert "no-such-option" in capsys.readouterr().err


def raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("status")
    def status() -> None:
        raise error

    monkeypatch.setattr(import_module("amfs.cli.main"), "load", lambda name: status)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (SessionError("no session is running"), 4, "amfs: no session is running\n"),
        (WorkflowError([Fault("a.txt", 3, "bad"), Fault("a.txt", 0, "worse")]), 2, "amfs: a.txt:3: bad\namfs: a.txt: worse\n"),
        (KeyboardInterrupt(), 130, "amfs: interrupted\n"),
        (
            ValueError("odd\nsecond line"),
            70,
            "amfs: internal error: ValueError: odd; run again with AMFS_DEBUG=1 for the traceback\n",
        ),
        (click.UsageError("bad option"), 2, "Error: bad option\n"),
    ],
)
def test_errors_end_in_one_message_and_their_code(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AMFS_DEBUG", raising=False)
    raising(error, monkeypatch)
    assert frame.main(["status"]) == code
    err = capsys.readouterr().err
    assert err.endswith(message)
    assert "Traceback" not in err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AMFS_DEBUG", "1")
    raising(ValueError("odd"), monkeypatch)
    assert frame.main(["status"]) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_the_status_of_a_command_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("status")
    def status() -> int:
        return 3

    monkeypatch.setattr(frame, "load", lambda name: status)
    assert frame.main(["status"]) == 3


@pytest.mark.parametrize("words", [("--help",), ("completion", "bash"), ("run", "--help")])
def test_a_reader_who_leaves_is_no_error(words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "amfs", *words], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)
    assert result.stderr == ""
    assert result.returncode == frame.EXIT_BROKEN_PIPE


def test_no_room_for_files_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Inside, 0 stands for no limit; whoever writes it would get the opposite of what it says."""
    assert frame.main(["up", "--store-limit", "0"]) == 2
    assert "--store-limit 0 leaves no room for files" in capsys.readouterr().err


def test_the_help_of_run_lists_each_option_in_one_group() -> None:
    from amfs.cli.run import GROUPS, run

    grouped = [name for names in GROUPS.values() for name in names]
    shown = [option.name for option in run.params if isinstance(option, click.Option) and not option.hidden]
    assert sorted(grouped) == sorted(shown)
    with click.Context(run, info_name="run") as context:
        text = run.get_help(context)
    assert [line[:-1] for line in text.splitlines() if line[:-1] in GROUPS and line.endswith(":")] == list(GROUPS)


@pytest.mark.parametrize(
    ("given", "session", "words"),
    [
        ({"session": "", "local": True}, None, "--session and --local exclude each other"),
        ({"resume": True, "no_journal": True}, None, "--resume and --no-journal exclude each other"),
        ({"resume": "trust", "synthetic": True}, None, "--resume and --synthetic exclude each other: a replay begins from the beginning"),
        ({"busy": True}, None, "--busy needs --synthetic"),
        ({"slots": 2}, "s", "--slots is for runs without a session; a session's nodes have theirs (amfs up --slots), or say --local"),
        ({"spill": "/tmp"}, "s", "--store-limit, --high-water, --spill and --spill-limit are for runs without a session; "
         "a session's nodes have theirs (amfs up), or say --local"),
        ({"slots": 2, "spill": "/tmp", "resume": True}, None, ""),
        ({"session": "s", "synthetic": True, "time_scale": 2.0}, "s", ""),
    ],
)  # fmt: skip
def test_options_that_exclude_each_other_are_told(given: dict[str, object], session: str | None, words: str) -> None:
    from amfs.cli.run import excluded, run

    assert excluded({**{option.name or "": None for option in run.params}, **given}, session) == words


def test_a_value_of_resume_that_is_none_is_told_with_the_one_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main(["run", "--resume=foo", "tasks.txt"]) == 2
    assert "--resume=trust, not '--resume=foo'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("W",), ("run", "--W"), ("run", "--slots", "W", "tasks.txt")])
def test_a_very_long_word_is_not_quoted_whole(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main([word.replace("W", "w" * 100_000) for word in words]) == 2
    error = capsys.readouterr().err
    assert len(error) < 1000 and "characters)" in error
