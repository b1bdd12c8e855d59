"""Where a user's own files are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amfs.host import folders


def test_where_the_variables_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert (folders.state(), folders.cache()) == (tmp_path / ".local/state/amfs", tmp_path / ".cache/amfs")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert (folders.state(), folders.cache()) == (tmp_path / "s/amfs", tmp_path / "c/amfs")


def nameless(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program as a user who has no name on this machine, as in a container that is started for a number (docker run --user 54321)."""
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
    command = ["unshare", "--user", "--map-user=54321", "--map-group=54321", *words]
    return subprocess.run(command, cwd=cwd, env={**environment, "AMFS_RUN_DIR": str(cwd)}, capture_output=True, text=True, timeout=60)


@pytest.fixture
def substitute() -> Iterator[Path]:
    place = Path("/tmp/amfs-54321-home")
    shutil.rmtree(place, ignore_errors=True)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.root
def test_a_user_without_a_home_gets_no_directory_called_tilde(tmp_path: Path, substitute: Path) -> None:
    (tmp_path / "list").write_text("t -b true\n")
    (tmp_path / "s.swift").write_text("trace(1);\n")
    for words in (("run", "-q", "list"), ("run", "-q", "s.swift")):
        nameless(sys.executable, "-m", "amfs", *words, cwd=tmp_path)
    assert "~" not in os.listdir(tmp_path)
    assert (substitute / ".local/state/amfs").is_dir() and substitute.stat().st_mode & 0o777 == 0o700


@pytest.mark.root
def test_the_substitute_must_be_private(tmp_path: Path, substitute: Path) -> None:
    substitute.mkdir(mode=0o755)
    (tmp_path / "list").write_text("t -b true\n")
    done = nameless(sys.executable, "-m", "amfs", "run", "list", cwd=tmp_path)
    assert done.returncode and "no home directory: set HOME" in done.stderr and "Traceback" not in done.stderr
