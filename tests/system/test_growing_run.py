"""A session of real nodes grows while a run is at work: the run goes on dropping what nobody will read, and no task runs twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fs_session import PATIENCE_S, running
from waiting import until

from amfs.client.control import Client
from amfs.net.records import SessionRecord
from amfs.vocabulary.messages import Status, StatusAsk

FILES = 40


def join(session: SessionRecord) -> None:
    command = [sys.executable, "-m", "amfs", "node", "--join", session.name, "--detach", "--slots", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr


def in_memory(client: Client, session: SessionRecord) -> int:
    """Bytes of files of runs on all nodes."""
    members = client.view(PATIENCE_S).members
    told = client.ask({member.node: StatusAsk() for member in members}, Status, PATIENCE_S)
    assert len(told) == len(members)
    return sum(int(str(status.data["memory"])) for status in told.values())


def test_files_without_readers_are_dropped_and_nothing_runs_twice(tmp_path: Path) -> None:
    """Half of the files are made before the nodes join and are read after it, the others are made after it. All stayed in memory to the end
    of the run."""

    def wait(gate: str) -> str:
        return f"until [ -e {tmp_path}/{gate} ]; do sleep 0.05; done"

    def maker(number: int, gate: str = "") -> str:
        needs = f"-i {gate} " if gate else ""
        return f"m{number} -b sh {needs}-o a{number} -a -c 'echo m{number} >> {tmp_path}/ran; head -c 100000 /dev/zero > a{number}'\n"

    lines = [maker(number) for number in range(FILES)]
    lines += [f"grown -b sh -o grown -a -c '{wait('grown')}; echo > grown'\n"]
    lines += [maker(number, "grown") for number in range(FILES, 2 * FILES)]
    lines += [
        f"r{number} -b sh -i a{number} grown -o b{number} -a -c 'echo r{number} >> {tmp_path}/ran; cksum < a{number} > b{number}'\n"
        for number in range(2 * FILES)
    ]
    lines += [f"last -b sh -i b0 -o last -a -c '{wait('last')}; cat b0 > last'\n"]
    (tmp_path / "list").write_text("".join(lines))
    ran = tmp_path / "ran"
    with running(2, "--slots", "2") as session, Client(session) as client:
        run = subprocess.Popen([sys.executable, "-m", "amfs", "run", "-q", "--session", session.name, "list"], cwd=tmp_path)
        until(lambda: ran.exists() and len(ran.read_text().split()) == FILES)
        until(lambda: in_memory(client, session) >= FILES * 100_000)
        join(session)
        join(session)
        (tmp_path / "grown").touch()
        until(lambda: len(ran.read_text().split()) == 4 * FILES)
        until(lambda: in_memory(client, session) < 100_000)
        (tmp_path / "last").touch()
        assert run.wait(PATIENCE_S) == 0
    assert sorted(ran.read_text().split()) == sorted(f"{kind}{number}" for kind in "mr" for number in range(2 * FILES))
