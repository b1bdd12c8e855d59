"""A node that dies in the middle of a shuffle, and of an attempt at a queued blind task: a right end or a clear error, and never a hang."""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fs_session import kill, running

from amfs._native import xxh64
from amfs.client.files import Files
from amfs.cluster import Cluster
from amfs.display.summary import Summary
from amfs.host import fusemounts
from amfs.operations.collective import move

PATIENCE_S = 60.0  # only turns a hang into a failure


def until(condition: Callable[[], object], what: str, pause_s: float = 0.01) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(pause_s)


def commands() -> Iterator[str]:
    """Of all processes."""
    for process in os.listdir("/proc"):
        if process.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as file:
                yield os.fsdecode(file.read()).replace("\0", " ")


@pytest.mark.soak  # several seconds until a dead node is noticed
@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("step", ["partition", "join"])
def test_a_shuffle(step: str, victim: int) -> None:
    rng, parts = random.Random(1), 6
    with running(3, "--tcp", "127.0.0.1", "--slots", "2") as session, Files(node=1) as files:
        source = f"/in-{os.getpid()}-{time.monotonic_ns()}"
        files.makedirs(source)
        contents: dict[str, list[bytes]] = {}
        for number in range(12):
            lines = [b"k%d v%d" % (rng.randrange(5000), number) for _ in range(2000)]
            contents[f"f{number}"] = lines * 200
            files.write_bytes(f"{source}/f{number}", b"\n".join(lines * 200) + b"\n", rank=number % 3)
        assert move(files, "allgather", [source]).ok
        command = [sys.executable, "-m", "amfs", "shuffle", "--parts", str(parts), source, f"{source}.out"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as going:
            begun = re.compile(r"\S*amfs-partition " + ("-k" if step == "partition" else "-j"))
            until(lambda: any(map(begun.match, commands())) or going.poll() is not None, f"no {step}", 0.0)
            assert going.poll() is None, "too quick"
            kill(session, victim)
            try:
                _, said = going.communicate(timeout=PATIENCE_S)
            finally:
                going.kill()
        print(going.returncode, said)
        assert going.returncode in (0, 1) and f"node {victim} was lost" in said and "Traceback" not in said, said
        # The names of the files whose records lay on the dead node went with it, sources and parts.
        until(lambda: victim not in [usage.node for usage in files.df()], "the dead node is still a member")
        found = Counter[bytes]()
        there = files.listdir(f"{source}.out") if files.exists(f"{source}.out") else []
        assert set(there) <= {f"part-{part:05d}" for part in range(parts)}, "something half-made is left"
        for name in there:
            lines = files.read_bytes(f"{source}.out/{name}").split(b"\n")
            assert lines.pop() == b""
            assert {xxh64(line.split()[0]) % parts for line in lines} == {int(name[5:])}
            found.update(lines)
        wanted = Counter(line for lines in contents.values() for line in lines)
        if going.returncode == 0:
            assert len(there) == parts and found == wanted
        else:
            assert re.search(r"^task partition-\d+ failed on node \d: cannot read its input: ", said, re.MULTILINE), said
            whole = {int(name[5:]) for name in there}
            assert found == Counter({line: n for line, n in wanted.items() if xxh64(line.split()[0]) % parts in whole}), "half of a part"


@pytest.mark.skipif(os.environ.get("AMFS_TESTS_NO_FUSE") == "1", reason="AMFS_TESTS_NO_FUSE=1")
@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_an_attempt_at_a_queued_task(tmp_path: Path, victim: int) -> None:
    """One task on each node; the one of the dead node runs again on the other."""
    log = tmp_path / "log"
    with running(2) as session, Cluster(session.name) as cluster:
        for number in range(2):
            line = f"echo half >f{number}; mkdir d{number}; echo {number} $PWD $$ >>{log}; "
            line += f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo whole >>f{number}; cp f{number} d{number}"
            cluster.queue(["sh", "-c", line])
        done: list[Summary | None] = []
        executing = threading.Thread(target=lambda: done.append(cluster.execute(progress=False)))
        executing.start()

        def attempts() -> list[list[str]]:
            return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

        until(lambda: len(attempts()) == 2, "the tasks do not begin")
        began = attempts()
        assert {number for number, _, _ in began} == {"0", "1"}
        lost, _, pid = next(one for one in began if f"node-{victim}." in one[1])
        kill(session, victim)
        until(lambda: not Path(f"/proc/{pid}").exists(), "the task of a dead node goes on")
        (tmp_path / "go").touch()
        executing.join(PATIENCE_S)
        assert not executing.is_alive()
        summary = done[0]
        assert summary is not None
        print(summary, attempts(), cluster.files.listdir("/"))
        assert summary.exit_code == 0 and summary.count("ok") == 2 and summary.lost_nodes == [victim], summary
        assert [one[0] for one in attempts()[2:]] == [lost], "only what was lost runs again"
        assert sorted(cluster.files.listdir("/")) == ["d0", "d1", "f0", "f1"]
    assert not fusemounts.mounted(session.name)
