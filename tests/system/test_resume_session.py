"""``--resume`` in a session: its files are inputs like any others, and blind tasks are done only where their files are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import commands
import pytest


def amfs(*words: str, text: str | None = None) -> str:
    done = commands.run(*words, input=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    amfs("up", "--name", "resume-s", "--nodes", "2", "--slots", "1")
    yield "resume-s"
    amfs("down", "resume-s")


def ran(log: Path) -> list[str]:
    found = sorted(log.read_text().split()) if log.exists() else []
    log.unlink(missing_ok=True)
    return found


def test_files_of_the_session_are_inputs_too(session: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    Path("list").write_text(f"""\
t -b sh -i amfs:/in -o amfs:/t -a -c 'cat amfs:/in > amfs:/t; echo t >> {log}'
u -b sh -i amfs:/t -o u -a -c 'cat amfs:/t > u; echo u >> {log}'
v -b sh -o v -a -c 'echo > v; echo v >> {log}'
""")
    amfs("put", "--session", session, "-", "/in", text="old\n")
    amfs("run", "-q", "--session", session, "list")
    assert ran(log) == ["t", "u", "v"]
    amfs("run", "-q", "--session", session, "--resume", "list")
    assert not ran(log)
    amfs("put", "--session", session, "-", "/in", text="new\n")
    amfs("run", "-q", "--session", session, "--resume=trust", "list")
    assert not ran(log)
    amfs("run", "-q", "--session", session, "--resume", "list")
    assert ran(log) == ["t", "u"]
    assert Path("u").read_text() == "new\n"


def test_a_blind_task_is_not_done_in_another_session(session: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    Path("list").write_text(f"t -b sh -blind -a -c 'echo > made; echo t >> {log}'\n")
    amfs("run", "-q", "--session", session, "list")
    amfs("run", "-q", "--session", session, "--resume", "list")
    assert ran(log) == ["t"]
    amfs("down", session)
    amfs("up", "--name", session, "--nodes", "1", "--slots", "1")
    amfs("run", "-q", "--session", session, "--resume", "list")
    assert ran(log) == ["t"]
    assert amfs("ls", "--session", session, "/") == "made\n"
