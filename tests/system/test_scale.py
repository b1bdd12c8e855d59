"""``amfs scale`` on this host: processes come and go, and no file is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from fs_session import PATIENCE_S, running

from amfs.client.control import Client
from amfs.client.files import Files
from amfs.host import processes
from amfs.net import records
from amfs.net.records import SessionRecord
from amfs.provision import autoscale


def scale(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "amfs", "scale", *arguments], capture_output=True, text=True, timeout=100, check=False)


def test_a_session_grows_is_used_and_shrinks() -> None:
    with running(1), Files() as files:
        files.write_bytes("/first", b"1" * 100_000)
        done = scale("3", "--slots", "1")
        assert done.returncode == 0 and done.stderr.count("joined") == 2, done.stderr
        for number in range(9):
            files.write_bytes(f"/{number}", b"x" * 50_000, rank=number % 3)
        done = scale("3")
        assert done.returncode == 0 and "has 3 nodes" in done.stderr, done.stderr
        done = scale("1")
        assert done.returncode == 0 and "to drain" in done.stderr and "has 1 node;" in done.stderr, done.stderr
        assert files.read_bytes("/first") == b"1" * 100_000
        assert all(files.read_bytes(f"/{number}") == b"x" * 50_000 for number in range(9))
        assert scale("0").returncode == 2


def test_nodes_that_come_together_are_all_known_or_none_is_left() -> None:
    with running(1) as session, Files() as files:
        files.write_bytes("/kept", b"k" * 50_000)
        done = scale("5", "--slots", "1", "--store", "/no/such/directory")
        assert done.returncode != 0 and "/no/such/directory" in done.stderr, done.stderr
        assert members(session) == {0}
        done = scale("5", "--slots", "1")
        assert done.returncode == 0 and done.stderr.count("joined") == 4, done.stderr
        there = members(session)
        assert len(there) == 5 and {entry.node for entry in records.load(session.path).nodes} == there
        assert all(processes.is_running(entry.pid, entry.started) for entry in records.load(session.path).nodes)
        assert files.read_bytes("/kept") == b"k" * 50_000


#: Short times, so that the test need not wait for minutes.
POLICY = """
min = 1
max = 3
[brake]
after_out = "0 s"
after_in = "0 s"
[[rule]]
name = "fills"
when = "memory > 70 %"
do = "grow to memory 50 %"
[[rule]]
name = "empty"
when = "memory < 30 % and idle > 1 s"
do = "shrink to memory 50 %"
"""


def members(session: SessionRecord) -> set[int]:
    with Client(session) as client:
        return {member.node for member in client.view(10.0).members}


def await_nodes(session: SessionRecord, count: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while len(members(session)) != count:
        auto = autoscale.load(session)
        assert time.monotonic() < end, f"{members(session)}: {auto.said if auto else ''}"
        time.sleep(0.1)


def test_a_policy_grows_on_memory_shrinks_when_idle_and_loses_no_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(POLICY)
    with running(1, "--store-limit", "8M") as session, Files() as files:
        done = scale("auto", "--policy", str(tmp_path / "mine.toml"), "--store-limit", "8M", "--slots", "1")
        assert done.returncode == 0 and "is applied, 1..3 nodes" in done.stderr, done.stderr
        for number in range(8):
            files.write_bytes(f"/{number}", bytes([number]) * 850_000)  # 81 % of one node, of which some spill
        await_nodes(session, 2)
        for number in range(6):
            files.unlink(f"/{number}")
        await_nodes(session, 1)
        assert all(files.read_bytes(f"/{number}") == bytes([number]) * 850_000 for number in (6, 7))
        shown = subprocess.run([sys.executable, "-m", "amfs", "status"], capture_output=True, text=True, timeout=60, check=True).stdout
        assert "auto: policy " in shown and "'empty': memory " in shown, shown
        done = scale("2", "--slots", "1", "--store-limit", "8M")
        assert done.returncode == 0 and "the policy is applied no more" in done.stderr, done.stderr
        auto = autoscale.load(session)
        assert auto is not None and auto.over == "by 'amfs scale 2'" and len(members(session)) == 2
        assert any("'fills': memory " in line and "1 to 2 nodes" in line for line in auto.said), auto.said


def test_a_policy_that_would_flap_is_refused(tmp_path: Path) -> None:
    (tmp_path / "flaps.toml").write_text(POLICY.replace("30 % and idle > 1 s", "50 %").replace("shrink to memory 50 %", "drain 1"))
    with running(1) as session:
        done = scale("auto", "--policy", str(tmp_path / "flaps.toml"))
        assert done.returncode == 2 and "rules 'fills' and 'empty' would undo each other" in done.stderr, done.stderr
        assert scale("2", "--policy", "default").returncode == 2
        assert autoscale.load(session) is None
