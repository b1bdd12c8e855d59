"""Modes of outputs are those that the task left, less the umask, and so are their times, whichever way they go."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

OLD = 1_000_000_000 * 10**9 + 5
MODES = (0o600, 0o700, 0o640, 0o644, 0o664, 0o755, 0o666, 0o400, 0o444, 0o555)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    name = "resume-modes"
    amfs("up", "--name", name, "--nodes", "2", "--slots", "2")
    yield name
    amfs("down", name)


def amfs(*words: str) -> str:
    command = [sys.executable, "-m", "amfs", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, umask=0o022)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def made(name: str, mode: int) -> str:
    """Commands that make a file with an old time."""
    return f"umask 0; echo x > {name}; chmod {mode:o} {name}; touch -d @{OLD // 10**9}.000000005 {name}"


def facts(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mode & 0o7777, found.st_mtime_ns


def less(mode: int) -> int:
    return mode & ~0o022


@pytest.mark.parametrize("way", ["local", "session", "spilled"])
def test_outputs_of_tasks(here: Path, session: str, way: str) -> None:
    lines = [f"t{mode:o} -b sh -o o{mode:o} -a -c '{made(f'o{mode:o}', mode)}'" for mode in MODES]
    reader = "r{0:o} -b sh -i o{0:o} -o p{0:o} q{0:o} -a -c 'cp o{0:o} p{0:o}; cp -p o{0:o} q{0:o}'"
    lines += map(reader.format, MODES)
    (here / "list").write_text("\n".join(lines) + "\n")
    spilled = ["--local", "--store-limit", "1", "--spill", str(here)]
    amfs("run", "-q", "--keep-all", *{"local": ["--local"], "session": ["--session", session], "spilled": spilled}[way], "list")
    assert {mode: facts(here / f"o{mode:o}") for mode in MODES} == {mode: (less(mode), OLD) for mode in MODES}
    for mode in MODES:
        assert facts(here / f"q{mode:o}")[1] == OLD
        for name in "pq":
            assert facts(here / f"{name}{mode:o}")[0] == less(mode), "that its inputs are read-only for a task is not passed on"


def test_programs_that_tasks_make_are_run_and_private_files_read(here: Path, session: str) -> None:
    (here / "list").write_text(
        "a -b sh -o prog secret -a -c 'printf \"#!/bin/sh\\ncat secret\\n\" > prog; chmod 700 prog; echo key > secret; chmod 600 secret'\n"
        "b -b ./prog -i prog secret -stdout out\n"
    )
    for where in (["--local"], ["--session", session]):
        amfs("run", "-q", *where, "list")
        assert (here / "out").read_text() == "key\n"


def test_links_and_directories_that_a_task_leaves(here: Path) -> None:
    (here / "list").write_text(
        f"l -b sh -o l -a -c '{made('f', 0o600)}; ln -s f l'\n"
        f"d -b sh -o d -a -c 'umask 0; mkdir d; cd d; {made('f', 0o666)}; {made('g', 0o600)}; {made('h', 0o444)}; touch -d @1000000000 .'\n"
    )
    amfs("run", "-q", "--local", "list")
    assert facts(here / "l") == (0o600, OLD)
    assert [facts(here / "d" / name) for name in "fgh"] == [(0o644, OLD), (0o600, OLD), (0o444, OLD)]
    assert facts(here / "d")[1] == OLD - 5


@pytest.mark.parametrize("kind", ["makeflow", "swift"])
def test_other_languages(here: Path, kind: str) -> None:
    text = {
        "makeflow": f"o:\n\t{made('o', 0o600)}\n",
        "swift": f"app (file o) make () {{ \"sh\" \"-c\" \"{made('$0', 0o600)}\" o; }}\nfile o <\"o\"> = make();\n",
    }
    (here / f"w.{kind}").write_text(text[kind])
    amfs("run", "-q", "--local", f"w.{kind}")
    assert facts(here / "o") == (0o600, OLD)


def test_into_a_session_and_out_of_it(here: Path, session: str) -> None:
    lines = [f"t{mode:o} -b sh -o amfs:/m/{mode:o} -a -c '{made(f'amfs:/m/{mode:o}', mode)}'" for mode in MODES]
    (here / "list").write_text("\n".join(lines) + "\n")
    amfs("run", "-q", "--session", session, "list")
    (here / "put").mkdir()
    for mode in MODES:
        subprocess.run(["sh", "-c", made(f"put/{mode:o}", mode)], check=True)
    (here / "put/within").mkdir(mode=0o700)
    (here / "put/within/file").touch()
    wanted = {mode: less(mode) for mode in MODES}
    amfs("put", "-r", "--session", session, "put", "/put")
    amfs("load", "--session", session, "put", "/load")
    amfs("load", "--session", session, "--by", "client", "put", "/load2")
    for top in ("m", "put", "load", "load2"):
        for number, (command, *options) in enumerate((("get", "-r"), ("dump",), ("dump", "--by", "client"))):
            amfs(command, *options, "--session", session, f"/{top}", f"{top}{number}")
            found = {mode: facts(here / f"{top}{number}" / f"{mode:o}") for mode in MODES}
            assert {mode: each[0] for mode, each in found.items()} == wanted, (top, command, options)
            assert {each[1] for each in found.values()} == {OLD}, (top, command, options)
            if top != "m":  # nobody else may look into a directory that was private
                assert facts(here / f"{top}{number}" / "within")[0] == 0o700, (top, command, options)


def test_a_private_file_is_never_open_to_others_on_its_way(here: Path) -> None:
    """Whatever can be seen of it, at any moment: a large one is copied, and its place looked at as often as can be."""
    (here / "list").write_text("t -b sh -o secret -a -c 'umask 077; head -c 200000000 /dev/zero > secret'\n")
    run = subprocess.Popen([sys.executable, "-m", "amfs", "run", "-q", "--local", "list"], umask=0o022)
    seen = set[int]()
    while run.poll() is None:
        for name in os.listdir(here):
            try:
                if "secret" in name:
                    seen.add((here / name).stat().st_mode & 0o777)
            except FileNotFoundError:
                continue
    assert run.returncode == 0
    assert seen == {0o600}
