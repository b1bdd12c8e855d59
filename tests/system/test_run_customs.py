"""Tasks in a session have the umask, limits and niceness of the run, not those of ``amfs up``; and their own PWD."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("where", ["session", "local"])
def test_tasks_have_the_customs_of_their_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setenv("AMFS_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    work = tmp_path / "work"
    work.mkdir()

    def amfs(*words: str, before: str = "exec") -> subprocess.CompletedProcess[str]:
        command = before + ' "$0" -P -m amfs "$@"'
        return subprocess.run(["sh", "-c", command, sys.executable, *words], cwd=work, capture_output=True, text=True, timeout=100)

    level = os.getpriority(os.PRIO_PROCESS, 0) + 2
    script = "umask; ulimit -S -f; ulimit -S -n; nice; printenv PWD; printenv OLDPWD"
    (work / "list").write_text(f"a -b sh -unstaged -a -c '{script}'\n")
    (work / "cmds").write_text("printenv PWD\n")
    if where == "session":
        assert amfs("up", "--name", "tasks-customs", "--nodes", "1").returncode == 0
    try:
        place = ("--session", "tasks-customs") if where == "session" else ("--local",)
        before = "umask 027; ulimit -S -f 2048; ulimit -S -n 300; "
        done = amfs("run", *place, "list", before=f"{before} OLDPWD=/before; export OLDPWD; exec nice -n 2")
        assert done.stdout.split("\n")[:5] == ["0027", "2048", "300", str(level), str(work)], done.stderr
        assert done.stdout.count("\n") == 5  # no OLDPWD
        assert amfs("run", *place, "cmds").stdout == f"{work}\n"
    finally:
        if where == "session":
            amfs("down", "tasks-customs")
