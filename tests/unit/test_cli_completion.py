"""``amfs completion``, as a shell uses it, and the man pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from amfs.cli import main as frame

ROOT = Path(__file__).resolve().parents[2]
AMFS = Path(sys.executable).parent / "amfs"


def completed(words: str, tmp_path: Path) -> list[str]:
    """Offers of a real bash after ``words``, the last of which is incomplete."""
    script = f"""
        set -e
        source <({AMFS} completion bash)
        COMP_WORDS=({words}) COMP_CWORD=$(( $(set -- {words}; echo $#) - 1 )) COMP_TYPE=9
        compopt() {{ echo "compopt ${{@: -1}}"; }}
        _amfs_completion amfs
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    env = {**os.environ, "PATH": f"{AMFS.parent}{os.pathsep}{os.environ['PATH']}", "AMFS_RUN_DIR": str(tmp_path)}
    result = subprocess.run(["bash", "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("amfs sta", ["stat", "status"]),
        ("amfs completion f", ["fish"]),
        ("amfs down --ti", ["--timeout"]),
        ("amfs translate --to dot", ["dot"]),
        ("amfs bench disp", ["dispatch"]),
        ("amfs run ta", ["compopt default", ""]),  # local files: bash does it itself
        ("amfs put ta", ["compopt default", ""]),
        ("amfs put amfs:/ta", [""]),
    ],
)
def test_bash_completes(words: str, offered: list[str], tmp_path: Path) -> None:
    assert completed(words, tmp_path) == offered


def test_names_of_sessions_are_completed(tmp_path: Path) -> None:
    env = {**os.environ, "AMFS_RUN_DIR": str(tmp_path)}
    tmp_path.chmod(0o700)
    subprocess.run([AMFS, "up", "--name", "brave", "--slots", "1"], env=env, check=True, capture_output=True)
    try:
        assert completed("amfs down br", tmp_path) == ["brave"]
        assert completed("amfs ls --session b", tmp_path) == ["brave"]
        assert completed("amfs down x", tmp_path) == [""]
    finally:
        subprocess.run([AMFS, "down", "brave"], env=env, check=True, capture_output=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script_it_can_read(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_AMFS_COMPLETE={shell}_complete" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_completing_a_command_imports_no_command() -> None:
    code = "import sys; from amfs.cli.main import main\ntry: main([])\nfinally: print(*[m for m in sys.modules if 'amfs.cli.' in m])"
    env = {**os.environ, "_AMFS_COMPLETE": "bash_complete", "COMP_WORDS": "amfs r", "COMP_CWORD": "1"}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert result.stdout.split("\n")[:-1] == ["plain,run", "plain,rm", "plain,reduce", "plain,report", "amfs.cli.main"]


def test_man_pages_say_what_help_says_and_are_good_roff(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "make_man_pages.py", tmp_path], check=True, capture_output=True)
    made = {path.name for path in tmp_path.iterdir()}
    assert {"amfs.1", "amfs-bench-dispatch.1", *(f"amfs-{name}.1" for name in frame.COMMANDS)} <= made
    for path in tmp_path.iterdir():
        text = path.read_text(encoding="utf-8")
        assert all(section in text for section in (".SH NAME", ".SH SYNOPSIS", ".SH EXIT STATUS")), path.name
        if shutil.which("groff"):
            checked = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", path], capture_output=True, text=True, check=False)
            assert (checked.returncode, checked.stderr) == (0, ""), path.name
    assert "\\-\\-resume" in (tmp_path / "amfs-run.1").read_text(encoding="utf-8")
