"""A node's limit: the count, the question for room, and how long a write waits for it."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fsio_nodes import APPEND, GUARD_SECONDS, LOCAL, PARTITIONS, STRIPED, WHOLE, Nodes, content

from amfs._native import IoHandle

STRIPE = 4096
FULL = 3


class Maker:
    """Answers, in a thread, the questions of a node without room: by deleting files that are given to it, one for each question."""

    def __init__(self, nodes: Nodes, node: int, spare: list[int], takes_s: float = 0) -> None:
        self.nodes, self.node = nodes, node
        self.io = nodes.io[node]
        self.spare = spare
        self.takes_s = takes_s
        self.asked: list[int] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.ended.is_set():
            if select.select([self.io.fd], [], [], 0.01)[0]:
                for kind, serial, _, wanted, _ in self.io.take():
                    if kind == FULL:
                        self.asked.append(wanted)
                        time.sleep(self.takes_s)
                        freed = 0
                        if self.spare:
                            freed = self.nodes.parts(self.node, ino := self.spare.pop())[WHOLE]
                            self.io.whole_delete(ino)
                        self.io.room_made(serial, freed)

    def __enter__(self) -> Maker:
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.thread.join()


def test_who_finds_no_room_waits_until_room_was_made_and_is_refused_when_there_is_none(root: Path) -> None:
    nodes = Nodes(root, 2, limits=(1 << 20, 1 << 20))
    try:
        spare = [nodes.write(1, content(300_000)) for _ in range(3)]
        nodes.io[1].expect_room(5000)
        with Maker(nodes, 1, spare) as maker:
            ino = nodes.new()
            handle = nodes.io[0].open(ino, STRIPED, stripe=STRIPE, writing=True)
            data = content(1 << 20)
            handle.write(data, 0)
            handle.flush()
            assert maker.asked and 0 < len(maker.asked) <= 4 and min(maker.asked) > 0
            assert handle.read(1 << 20, 0) == data
            before = len(spare)
            with pytest.raises(OSError) as refused:
                for at in range(1 << 20, 4 << 20, 1 << 16):
                    handle.write(data[: 1 << 16], at)
                    handle.flush()
            assert refused.value.errno == errno.ENOSPC and before >= len(spare) == 0, "not before all of it has gone"
            with contextlib.suppress(OSError):
                handle.close()
    finally:
        nodes.stop()


def test_nobody_who_makes_room_is_waited_for_too_long(root: Path) -> None:
    nodes = Nodes(root, 1, limits=(1 << 20,))
    try:
        nodes.io[0].expect_room(200)
        handle = nodes.io[0].open(nodes.new(), STRIPED, stripe=STRIPE, writing=True)
        handle.write(bytes(1 << 20), 0)
        for longest_s in (2.0, 0.1):  # the second does not even ask
            began = time.monotonic()
            with pytest.raises(OSError) as refused:
                handle.write(b"x", 2 << 20)
            assert refused.value.errno == errno.ENOSPC and time.monotonic() - began < longest_s
        handle.close()
    finally:
        nodes.stop()


def test_who_comes_right_after_somebody_was_refused_is_not_refused_unasked(root: Path) -> None:
    """A file that could go has come meanwhile."""
    nodes = Nodes(root, 1, limits=(1 << 20,))
    try:
        copy = nodes.write(0, content(300_000))
        nodes.io[0].expect_room(5000)
        handle = nodes.io[0].open(nodes.new(), STRIPED, stripe=STRIPE, writing=True)
        with Maker(nodes, 0, [], takes_s=0.05) as maker:
            with pytest.raises(OSError) as refused:
                handle.write(bytes(1 << 20), 0)
            assert refused.value.errno == errno.ENOSPC
            maker.spare.append(copy)
            handle.write(bytes(200_000), 1 << 20)
        handle.close()
    finally:
        nodes.stop()


def test_each_of_many_who_need_room_at_once_gets_his_part_of_it(root: Path) -> None:
    """There is exactly enough. A write that finds none has to see that others had it made since it looked, and look again."""
    many, size = 8, 64 << 10
    for _ in range(20):
        (root / "round").mkdir()
        nodes = Nodes(root / "round", 1, limits=(many * size,))
        try:
            spare = [nodes.write(0, content(size)) for _ in range(many)]
            nodes.io[0].expect_room(5000)
            handles = [nodes.io[0].open(nodes.new(), STRIPED, stripe=size, writing=True) for _ in range(many)]
            with Maker(nodes, 0, spare), ThreadPoolExecutor(many) as writers:
                for _ in writers.map(lambda handle: handle.write(content(size), 0), handles):
                    pass
            for handle in handles:
                assert handle.read(size + 1, 0) == content(size)
                handle.close()
        finally:
            nodes.stop()
        shutil.rmtree(root / "round")


def test_what_is_written_while_parts_are_counted_is_counted_once(root: Path) -> None:
    limit = 256 << 20
    nodes = Nodes(root, 1, limits=(limit,))
    io = nodes.io[0]
    for n in range(300):
        nodes.write(0, content(4096 * (1 + n % 5)))
    ended = threading.Event()

    def write_and_delete(seed: int) -> None:
        rng = random.Random(seed)
        mine: list[int] = []
        while not ended.is_set():
            mine.append(nodes.write(0, bytes(rng.randrange(1, 300_000))))
            if len(mine) > 20:
                io.whole_delete(mine.pop(rng.randrange(len(mine))))

    try:
        assert io.usage()[0] == nodes.bytes_on_disk(0), "a count of its own"
        with ThreadPoolExecutor(2) as writers:
            busy = [writers.submit(write_and_delete, seed) for seed in (1, 2)]
            end = time.monotonic() + 1.5  # a count that may be wrong is only taken after 2 s without a better one
            while time.monotonic() < end:
                assert io.usage()[0] <= limit
            ended.set()
            for each in busy:
                each.result()
        assert io.usage()[0] == nodes.bytes_on_disk(0)
    finally:
        ended.set()
        nodes.stop()


@pytest.mark.parametrize("how", ["growing", "appending", "filling holes"])
def test_who_writes_one_file_together_with_others_keeps_what_was_reserved(root: Path, how: str) -> None:
    """One who is refused, or ends first, does not give back the room of those who have still to write."""
    limit, piece, pieces = 1 << 20, 64 << 10, 24
    nodes = Nodes(root, 1, limits=(limit,))
    io = nodes.io[0]

    def put(handle: IoHandle, index: int) -> int:
        try:
            handle.write(content(piece, index), APPEND if how == "appending" else index * piece)
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            return 0
        return piece

    try:
        with ThreadPoolExecutor(6) as writers:
            for _ in range(50):
                handle = io.open(ino := nodes.new(), LOCAL, writing=True, create=True)
                if how == "filling holes":
                    handle.truncate(pieces * piece)
                written = sum(writers.map(lambda index, handle=handle: put(handle, index), range(pieces)))
                assert written == handle.stat()[1] * 512 == io.usage()[0]
                assert written == limit
                handle.close()
                io.whole_delete(ino)
                assert io.usage()[0] == 0
    finally:
        nodes.stop()


@pytest.mark.parametrize("stripe", [0, 1 << 20], ids=["fetched", "gathered"])
def test_files_that_come_at_the_same_time_do_not_find_the_same_room(root: Path, stripe: int) -> None:
    limit, size = 24 << 20, 16 << 20
    nodes = Nodes(root, 2, limits=(0, limit))
    io = nodes.io[1]
    nodes.set_table([0] * PARTITIONS)
    inos = [nodes.write(0, content(size), stripe=stripe) for _ in range(2)]
    try:
        for _ in range(5):
            for serial, ino in enumerate(inos):
                io.gather(serial, ino, stripe, size) if stripe else io.fetch(serial, ino, 0, size)
            ends: list[int] = []
            while len(ends) < len(inos):
                ready, _, _ = select.select([io.fd], [], [], GUARD_SECONDS)
                assert ready, "nothing happened"
                ends += [error for *_, error in io.take()]
            assert sorted(ends) in ([0, errno.ENOSPC], [errno.ENOSPC] * 2)  # both may find some of it taken
            assert io.usage()[0] == nodes.bytes_on_disk(1) <= limit
            for ino in inos:
                with contextlib.suppress(FileNotFoundError):
                    io.whole_delete(ino)
            assert io.usage()[0] == 0
    finally:
        nodes.stop()


def test_a_deleted_file_is_counted_until_it_is_closed_and_then_not_taken_off_twice(root: Path) -> None:
    nodes = Nodes(root, 1, limits=(1 << 20,))
    try:
        io = nodes.io[0]
        nodes.write(0, content(400_000))
        kept = io.usage()[0]
        handle = io.open(ino := nodes.new(), LOCAL, writing=True, create=True)
        handle.write(content(300_000), 0)
        both = io.usage()[0]
        assert both >= kept + 300_000
        io.whole_delete(ino)
        time.sleep(0.3)  # so that parts are counted again
        assert io.usage()[0] == both and handle.read(300_000, 0) == content(300_000)
        handle.close()
        assert io.usage()[0] == kept == nodes.bytes_on_disk(0)
    finally:
        nodes.stop()


def test_what_a_file_took_is_given_back_when_its_whole_part_or_its_stripes_go(root: Path) -> None:
    nodes = Nodes(root, 1, limits=(1 << 20,))
    try:
        io = nodes.io[0]
        whole, striped = nodes.write(0, content(100_000)), nodes.write(0, content(100_000), stripe=STRIPE)
        used = io.usage()[0]
        io.whole_delete(whole)
        assert nodes.parts(0, whole) == {} and io.usage()[0] <= used - 100_000
        io.stripes_delete(striped)
        assert nodes.parts(0, striped) == {} and io.usage()[0] == 0
    finally:
        nodes.stop()


def test_a_file_adopted_while_it_is_open_is_counted_once(root: Path) -> None:
    nodes = Nodes(root, 1, [1 << 20])
    io, scratch = nodes.io[0], root / "0" / "scratch"
    handle = io.open(5, LOCAL, create=True, writing=True)
    scratch.write_bytes(b"a" * 40960)
    io.part_adopt(5, str(scratch))
    handle.close()
    assert io.usage()[0] == 40960
    nodes.stop()


def test_parts_have_the_room_that_is_not_held(root: Path) -> None:
    nodes = Nodes(root, 1, [100 << 10])
    io = nodes.io[0]
    nodes.write(0, content(40960))
    assert io.hold(60 << 10, 0) == 40960 and io.usage()[0] == 40960 + (60 << 10)
    with pytest.raises(OSError) as caught:
        nodes.write(0, content(4096))
    assert caught.value.errno == errno.ENOSPC
    io.hold(50 << 10, 0)
    nodes.write(0, content(8192))
    nodes.stop()


def test_what_runs_have_spilled_counts_for_what_parts_may_spill(root: Path, tmp_path: Path) -> None:
    nodes = Nodes(root, 1, [1 << 20])
    io = nodes.io[0]
    io.set_spill(str(tmp_path))
    io.spill_above(1 << 20, 100_000)
    ino = nodes.write(0, content(60_000))
    time.sleep(0.1)  # a part that was written a moment ago stays
    io.hold(0, 50_000)
    with pytest.raises(OSError) as caught:
        io.spill(ino)
    assert caught.value.errno == errno.EDQUOT and io.spilled == 0
    io.hold(0, 40_000)
    assert io.spill(ino) >= 60_000 and io.spilled == 60_000
    nodes.stop()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
@pytest.mark.parametrize("what", ["fill_two_mounts", "outgrow_what_somebody_else_fills", "outgrow_while_no_file_can_be_made"])
def test_without_a_limit_the_kernel_says_when_there_is_no_room(root: Path, what: str) -> None:
    command = ["unshare", "--mount", sys.executable, __file__, what, str(root)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0 and result.stdout == "fine\n", result.stderr


def fill_two_mounts(root: Path) -> None:
    """On tmpfs of 32 MiB each."""
    nodes = Nodes(root, 2, mounts=True)
    spare = [nodes.write(node, content(12 << 20)) for node in (0, 1)]
    for io in nodes.io:
        io.expect_room(5000)
    data = content(48 << 20)  # half of it fits on each, but not beside what is there
    with Maker(nodes, 0, spare[:1]) as mine, Maker(nodes, 1, spare[1:]) as theirs:
        handle = nodes.io[0].open(nodes.new(), STRIPED, stripe=1 << 19, writing=True)
        handle.write(data, 0)
        handle.flush()
        assert handle.read(len(data), 0) == data
        assert not mine.spare and not theirs.spare
        handle.close()
    nodes.stop()


def outgrow_what_somebody_else_fills(root: Path) -> None:
    """Room that stripes on the other node leave free here is taken at once, without a question: our own stripes fit all the same."""
    nodes = Nodes(root, 2, mounts=True)
    data = content(20 << 20)
    handle = nodes.io[0].open(ino := nodes.new(), LOCAL, stripe=1 << 19, writing=True, create=True)
    handle.write(data, 0)
    with open(root / "0" / "theirs", "wb") as theirs, ThreadPoolExecutor(1) as taker:
        room = os.statvfs(root / "0").f_bavail * 4096

        def take() -> None:
            size, end = room, time.monotonic() + 20
            while size < room + (10 << 20) and time.monotonic() < end:
                with contextlib.suppress(OSError):
                    os.posix_fallocate(theirs.fileno(), size, 1 << 17)
                    size += 1 << 17

        os.posix_fallocate(theirs.fileno(), 0, room)
        taken = taker.submit(take)
        handle.write(data[: 1 << 19], len(data))
        handle.close()
        assert nodes.read(1, ino, STRIPED, len(data) + (1 << 19), stripe=1 << 19) == data + data[: 1 << 19]
        theirs.truncate(0)
        taken.result()
    nodes.stop()


def outgrow_while_no_file_can_be_made(root: Path) -> None:
    """The stripes of this node find no place for two seconds: earlier writes are there afterwards."""
    nodes = Nodes(root, 2, mounts=True)
    data = content(20 << 20)
    handle = nodes.io[0].open(ino := nodes.new(), LOCAL, stripe=1 << 19, writing=True, create=True)
    handle.write(data, 0)
    with open(root / "0" / "theirs", "wb") as theirs:
        found = os.statvfs(root / "0")
        os.posix_fallocate(theirs.fileno(), 0, found.f_bavail * 4096)

    def limit_inodes(count: int) -> None:
        subprocess.run(["mount", "-o", f"remount,nr_inodes={count}", str(root / "0")], check=True)

    limit_inodes(found.f_files - found.f_ffree)
    later = threading.Timer(2.0, limit_inodes, [found.f_files])
    later.start()
    handle.write(data[: 1 << 19], len(data))
    handle.close()
    assert nodes.read(1, ino, STRIPED, len(data) + (1 << 19), stripe=1 << 19) == data + data[: 1 << 19]
    later.join()
    nodes.stop()


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
    print("fine")
