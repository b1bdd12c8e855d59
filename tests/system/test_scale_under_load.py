"""Files of programs that go on while a session grows and shrinks again and again: each is whole, and is what was written last."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import pytest
from fs_session import running

from amfs.client.files import Files

NAMES = 30  # of each program
LARGEST = 700_000  # bytes: several stripes
STRIPE = 65_536


class Program(threading.Thread):
    """Writes, replaces, removes and reads files of its own, and compares all that it reads."""

    def __init__(self, name: str, read: Callable[[str], bytes], write: Callable[[str, bytes], Any], remove: Callable[[str], Any]) -> None:
        super().__init__()
        self.rng = random.Random(name)
        self.read, self.write, self.remove = read, write, remove
        self.own = name
        self.there: dict[str, bytes] = {}
        self.calls = 0
        self.over = False
        self.fault = ""

    def run(self) -> None:
        try:
            while not self.over:
                self._call()
                self.calls += 1
        except Exception as error:  # told by the test
            self.fault = f"{self.own}, call {self.calls}: {error!r}"

    def _call(self) -> None:
        name = f"/{self.rng.choice(('flat', 'striped'))}/{self.own}-{self.rng.randrange(NAMES)}"
        act = self.rng.random()
        if act < 0.4 or name not in self.there:
            data = self.rng.randbytes(self.rng.choice((10, 3000, 60_000, LARGEST)))
            self.write(name, data)
            self.there[name] = data
        elif act < 0.5:
            self.remove(name)
            del self.there[name]
        else:
            assert self.read(name) == self.there[name], f"{name} is not what was written"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("replicas", ["1", "2"])
def test_files_are_whole_after_two_hundred_changes(replicas: str, tmp_path: Path) -> None:
    count = 200
    rng = random.Random(count)
    with running(1, "--replicas", replicas), Files(node=0) as files:
        files.mkdir("/flat")
        files.mkdir("/striped")
        files.set_layout("/striped", "striped", STRIPE)
        assert commands.run("mount", str(tmp_path), "--node", "0", timeout=60).returncode == 0
        inside = {
            "client": Program("client", files.read_bytes, files.write_bytes, files.unlink),
            "mount": Program(
                "mount", lambda name: (tmp_path / name[1:]).read_bytes(), lambda name, data: (tmp_path / name[1:]).write_bytes(data),
                lambda name: os.unlink(tmp_path / name[1:]),
            ),
        }  # fmt: skip
        try:
            for program in inside.values():
                program.start()
            nodes = 1
            for _ in range(count):
                nodes = rng.choice([number for number in (1, 2, 3, 4) if number != nodes])
                done = commands.run("scale", str(nodes), "--slots", "1", timeout=200)
                assert done.returncode == 0, done.stderr
                assert not any(program.fault for program in inside.values()), [program.fault for program in inside.values()]
        finally:
            for program in inside.values():
                program.over = True
                program.join()
            unmounted = commands.run("umount", str(tmp_path), timeout=60)
        assert unmounted.returncode == 0, unmounted.stderr
        with Files() as other:
            for program in inside.values():
                assert not program.fault and program.calls > count, (program.fault, program.calls)
                assert {name: other.read_bytes(name) for name in program.there} == program.there
            found = {f"/{top}/{name}" for top in ("flat", "striped") for name in other.listdir(f"/{top}")}
        assert found == {name for program in inside.values() for name in program.there}
