"""The process beside Nextflow, by its lines. Nextflow itself is not needed: see test_nextflow.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Lines:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def say(self, **line: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def submit(self, key: int, folder: Path, script: str, name: str = "", **more: Any) -> None:
        folder.mkdir(exist_ok=True)
        (folder / ".command.run").write_text(script)
        self.say(do="submit", key=key, name=name or f"task {key}", label="kind", dir=str(folder), **more)

    def next(self, tell: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            told: dict[str, Any] = json.loads(line)
            if told["tell"] == tell:
                return told
        raise AssertionError(f"it ended without saying {tell}")

    def ended(self) -> dict[str, Any]:
        """Of one task."""
        [task] = self.next("ended")["tasks"]
        return dict(task)


@contextmanager
def bridge(place: Path, *options: str) -> Iterator[Lines]:
    command = [sys.executable, "-m", "amfs.plugs.nextflow", "--run", "of_a_test", *options]
    process = subprocess.Popen(command, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Lines(process)
    finally:
        process.communicate(timeout=60)  # closes its standard input


def test_how_tasks_end(tmp_path: Path) -> None:
    with bridge(tmp_path, "--slots=2") as lines:
        assert lines.next("ready")["where"] == "on this machine"
        lines.submit(1, tmp_path / "a", "echo out; echo fault >&2; exit 3")
        assert (ended := lines.ended())["exit"] == 3 and "why" not in ended
        assert (tmp_path / "a/.command.log").read_text() == "out\nfault\n"
        lines.submit(2, tmp_path / "b", "true", name="task 1")  # the same name: it is tried again
        assert lines.ended()["exit"] == 0
        lines.submit(3, tmp_path / "c", "kill -9 $$")
        assert lines.ended()["exit"] == 137
        lines.submit(4, tmp_path / "d", "sleep 300", time=0.2)
        assert lines.ended() | {"start": 0} == {"key": 4, "exit": -1, "start": 0, "why": "exceeded its time limit of 0.2 s"}
        lines.say(do="submit", key=5, name="nowhere", label="kind", dir=str(tmp_path / "not-there"))
        assert "not-there" in lines.ended()["why"]
        lines.submit(6, tmp_path / "e", "true", memory=-1)
        assert (ended := lines.ended())["exit"] == -1 and "memory" in ended["why"]


def test_one_is_killed_and_one_withdrawn(tmp_path: Path) -> None:
    with bridge(tmp_path, "--slots=1") as lines:
        lines.submit(1, tmp_path / "a", "trap 'exit 143' TERM; sleep 300 & wait")
        lines.submit(2, tmp_path / "b", "touch ran")
        assert [task["key"] for task in lines.next("started")["tasks"]] == [1]
        lines.say(do="kill", key=2)
        lines.say(do="kill", key=1)
        ends: dict[int, int] = {}
        while len(ends) < 2:
            ends |= {task["key"]: task["exit"] for task in lines.next("ended")["tasks"]}
        assert ends == {1: 143, 2: 143}
        assert not (tmp_path / "b/ran").exists()


def test_what_runs_is_killed_when_nextflow_is_gone(tmp_path: Path) -> None:
    with bridge(tmp_path, "--slots=1") as lines:
        lines.submit(1, tmp_path / "a", "echo $$ > pid.new; mv pid.new pid; exec sleep 300")
        while not (tmp_path / "a/pid").exists():
            assert lines.process.poll() is None
            time.sleep(0.02)
    assert lines.process.returncode == 0
    assert not Path("/proc", (tmp_path / "a/pid").read_text().strip()).exists()


def test_no_such_session(tmp_path: Path) -> None:
    with bridge(tmp_path, "--session=no-such-session") as lines:
        assert "no session named no-such-session" in lines.next("refused")["why"]
    assert lines.process.returncode == 1
