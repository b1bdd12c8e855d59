"""Files of tasks in ``amfs:/`` that a node has taken along are made again: in the run, by a resumed one, and no more than needed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import commands
import pytest
from fs_session import PATIENCE_S, kill, running

from amfs.client.files import Files
from amfs.net.records import SessionRecord
from amfs.workflow.origin import ATTRIBUTE, Origin, unpack


def amfs(*arguments: str, cwd: Path, input: str = "") -> subprocess.CompletedProcess[str]:
    return commands.run(*arguments, cwd=cwd, input=input, timeout=PATIENCE_S)


def wait_until(what: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, why
        time.sleep(0.05)


def lose(session: SessionRecord, files: Files, node: int) -> None:
    kill(session, node)
    wait_until(lambda: node not in {usage.node for usage in files.df()}, "the death is not noticed")


def origin(files: Files, path: str) -> Origin | None:
    try:
        return unpack(files.getxattr(path, ATTRIBUTE))
    except OSError:
        return None


#: What ``two`` makes of what ``one`` makes; so long that it is not fetched by a node before a task there can start.
TWO = "".join(f"{number}\n" for number in range(40000))


def chain(directory: Path) -> str:
    """``one`` and ``two`` run on node 2, where what they make lies; ``three`` waits for the file ``gate``. Each writes into ``log``."""
    log, gate = directory / "log", directory / "gate"
    return f"""
one -b sh -node-soft 2 -o one -a -c -a 'echo one >> {log}; seq 0 39999 > one'
two -b sh -node-soft 2 -i one -o amfs:/d/two -a -c -a 'echo two >> {log}; cp one amfs:/d/two'
other -b sh -node-soft 2 -o amfs:/d/other -a -c -a 'echo other >> {log}; echo 3 > amfs:/d/other'
hold -b sh -node-soft 1 -o held -scratch held -a -c -a 'echo hold >> {log}; until test -e {gate}; do sleep 0.05; done; : > held'
three -b sh -node-soft 1 -i amfs:/d/two -i held -o amfs:/d/three -a -c -a 'echo three >> {log}; tail -n 1 amfs:/d/two > amfs:/d/three'
"""


def test_a_reader_waits_while_what_it_reads_is_made_again(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    with running(3) as session, Files(node=0) as files:
        files.mkdir("/d")
        (tmp_path / "list").write_text(chain(tmp_path))
        run = subprocess.Popen([sys.executable, "-m", "amfs", "run", "list"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: log.exists() and {"hold", "other", "two"} <= set(log.read_text().split()), "the tasks do not start")
            wait_until(lambda: origin(files, "/d/two") is not None and origin(files, "/d/other") is not None, "nothing is made")
            assert files.getxattr("/d/two", "user.amfs.location") == b"2"
            lose(session, files, 2)
            with pytest.raises(OSError, match="Input/output error"):
                files.read_bytes("/d/two")
            gate.touch()
        finally:
            gate.touch()
            _, err = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0, err
        assert files.read_bytes("/d/three") == b"39999\n"
        assert files.read_bytes("/d/two").decode() == TWO
        assert files.read_bytes("/d/other") == b"3\n", "nobody reads it, but who ran the list"
        assert Counter(log.read_text().split()) == {"one": 2, "two": 2, "other": 2, "hold": 1, "three": 1}
        assert {origin(files, f"/d/{name}").node for name in ("two", "other", "three")} <= {0, 1}  # type: ignore[union-attr]


def test_a_resumed_run_makes_again_what_was_lost_and_nothing_else(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    gate.touch()
    with running(3) as session, Files(node=0) as files:
        files.mkdir("/d")
        (tmp_path / "list").write_text(chain(tmp_path))
        ran = amfs("run", "list", cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert sorted(log.read_text().split()) == ["hold", "one", "other", "three", "two"]
        known = origin(files, "/d/two")
        assert known is not None and (known.task, known.node, known.command[:3]) == ("two", 2, "sh "), known
        files.rename("/d/other", "/d/kept")
        files.rename("/d/kept", "/d/other")
        assert origin(files, "/d/other") is not None, "it is the same file"
        with files.open("/d/three", "ab") as file:
            file.write(b"")
        assert origin(files, "/d/three") is None, "opened to be written by somebody else"
        assert b"origin" not in b"".join(map(str.encode, files.listxattr("/d/two")))
        with pytest.raises(PermissionError):
            files.setxattr("/d/two", ATTRIBUTE, b"forged")
        before = amfs("explain", "amfs:/d/two", cwd=tmp_path).stdout.splitlines()
        assert before[1] == f"  {len(TWO)} bytes, whole, finished; on node 2" and before[2].startswith("  made by task two on node 2, 20")
        assert before[-2:] == ["  read by:", "    task three (finished)"]
        nobody = amfs("explain", "amfs:/d/three", cwd=tmp_path).stdout
        assert "no task is known to have made what is there now" in nobody
        lose(session, files, 2)
        assert files.getxattr("/d/three", "user.amfs.location") != b"2"
        told = amfs("explain", "amfs:/d/two", cwd=tmp_path).stdout
        assert "LOST: its content, or some of it, lay on node 2, which has died" in told
        assert told.splitlines()[-1] == f"  to have it again: amfs run --resume --session {session.name} {tmp_path}/list"
        story = json.loads(amfs("explain", "amfs:/d/two", "--output", "json", cwd=tmp_path).stdout)
        assert (story["state"], story["dead_nodes"], story["made_by"]["task"], story["nodes"]) == ("lost", [2], "two", [])
        assert story["task"]["inputs"] == [{"name": "one", "made_by": "one", "state": "between tasks"}]
        fails = amfs("run", "-", "--session", session.name, cwd=tmp_path, input="x -b cat -i amfs:/d/two -o y -a amfs:/d/two\n")
        assert fails.returncode == 1 and "its content was lost with node 2, which died ('amfs explain' says how" in fails.stderr
        again = amfs("run", "--resume", "list", cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert Counter(log.read_text().split()) == {"one": 2, "two": 2, "other": 2, "hold": 1, "three": 1}, "what was lost"
        assert files.read_bytes("/d/two").decode() == TWO and files.read_bytes("/d/other") == b"3\n"
        assert "whole, finished; on node" in amfs("explain", "amfs:/d/two", cwd=tmp_path).stdout
        last = amfs("run", "--resume", "list", cwd=tmp_path)
        assert last.returncode == 0 and len(log.read_text().split()) == 8, "all is there"
