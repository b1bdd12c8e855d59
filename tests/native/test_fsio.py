"""The data plane through Python: files of one, of several and of all nodes, against plain bytes."""

from __future__ import annotations

import errno
import os
import random
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from descriptors import open_descriptors
from fsio_nodes import APPEND, LOCAL, REMOTE, REMOTE_CLOSED, STRIPED, WHOLE, Nodes, close_all, content
from waiting import until

from amfs._native import Io, IoHandle

STRIPE = 4096


# ── parts ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_local_file_is_an_ordinary_file_below_root(nodes: Nodes) -> None:
    io, ino = nodes.io[0], 0x0000050000000ABC
    handle = io.open(ino, LOCAL, writing=True, create=True)
    handle.write(b"abc", 2)
    assert io.part_path(ino, WHOLE) == "bc/0000050000000abc"
    assert io.part_path(ino, 7) == "bc/0000050000000abc.7"
    assert (nodes.root / "0" / io.part_path(ino, WHOLE)).read_bytes() == b"\0\0abc"
    assert handle.read(100, 0) == b"\0\0abc" and handle.read(100, 5) == b"" and handle.read(2, 1) == b"\0a"
    handle.write(b"!", APPEND)
    size, blocks, _, mtime, _ = handle.stat()
    assert (size, blocks) == (6, 8) and (size, blocks) == io.part_stat(ino, WHOLE)[:2]
    assert mtime == os.stat(io.part_path(ino, WHOLE), dir_fd=io.root_fd).st_mtime_ns
    assert io.open_count(ino) == (0, 1)
    handle.close()
    assert io.open_count(ino) == (0, 0)
    with pytest.raises(OSError) as caught:
        handle.read(1, 0)
    assert caught.value.errno == errno.EBADF


def test_an_opening_in_vain_does_not_take_what_was_deleted_from_those_who_read_it(nodes: Nodes) -> None:
    io, ino = nodes.io[0], nodes.write(0, b"content")
    reader = io.open(ino, LOCAL)
    io.part_delete(ino)
    for writing in (False, True):
        with pytest.raises(FileNotFoundError):
            io.open(ino, LOCAL, writing=writing)
    assert reader.read(9, 0) == b"content"
    fresh = io.open(ino, LOCAL, writing=True, create=True)
    fresh.write(b"new", 0)
    fresh.close()
    reader.close()
    until(lambda: io.usage()[0] == 4096, "it is counted wrongly")  # a count beside a closing is right by the next one


def test_a_look_in_passing_is_no_use(nodes: Nodes) -> None:
    """Else who asks at that moment whether the file is in use hears yes, and nobody tells him when it is not any more."""
    io, ino = nodes.io[0], 0x0000050000000ABC
    handle = io.open(ino, LOCAL, writing=True, create=True)
    handle.write(b"12345", 0)
    look = io.open(ino, LOCAL, passing=True)
    assert look.stat()[0] == 5 and io.open_count(ino) == (0, 1)
    handle.close()
    assert io.open_count(ino) == (0, 0) and look.read(9, 0) == b"12345"
    look.close()
    assert io.open_count(ino) == (0, 0)
    with pytest.raises(ValueError, match="counted there"):
        io.open(ino, REMOTE, 1, passing=True)


def test_opening_what_is_not_there_is_enoent_and_a_reader_cannot_write(nodes: Nodes) -> None:
    with pytest.raises(FileNotFoundError):
        nodes.io[0].open(5, LOCAL)
    with pytest.raises(FileNotFoundError):
        nodes.io[0].part_stat(5, WHOLE)
    ino = nodes.write(0, b"x")
    reader = nodes.io[0].open(ino, LOCAL)
    for call in (lambda: reader.write(b"y", 0), lambda: reader.truncate(0), lambda: reader.fallocate(0, 0, 1)):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF
    reader.close()


def test_deleting_leaves_nothing_and_usage_follows(nodes: Nodes) -> None:
    io = nodes.io[0]
    ino = nodes.write(0, content(100_000))
    assert io.usage() == (102400, 0, 1) == (nodes.bytes_on_disk(0), 0, 1)
    handle = io.open(ino, LOCAL)
    io.part_delete(ino)
    assert handle.read(10, 0) == content(100_000)[:10] and handle.stat()[0] == 100_000  # an open file stays until it is closed
    assert not io.list_parts() and io.usage()[0] == 102400
    handle.close()
    until(lambda: io.usage() == (0, 0, 0))
    io.part_delete(ino)  # of nothing: fine


def test_a_file_is_adopted_within_the_limit(root: Path) -> None:
    nodes = Nodes(root, 1, [100 << 10])
    io, scratch = nodes.io[0], root / "0" / "scratch"
    scratch.write_bytes(b"a" * 50000)
    io.part_adopt(5, str(scratch))
    assert nodes.read(0, 5, LOCAL, 50000) == b"a" * 50000 and not scratch.exists()
    assert io.usage()[0] == 53248 and io.usage()[2] == 1
    scratch.write_bytes(b"b" * 60000)
    with pytest.raises(OSError) as caught:
        io.part_adopt(6, str(scratch))
    assert caught.value.errno == errno.ENOSPC and scratch.exists()
    scratch.write_bytes(b"c" * 9000)
    io.part_adopt(5, str(scratch))
    assert nodes.read(0, 5, LOCAL, 9000) == b"c" * 9000 and io.usage()[0] == 12288
    for wrong in (scratch, root):
        with pytest.raises(OSError):
            io.part_adopt(7, str(wrong))
    nodes.stop()


def test_files_that_others_write_are_counted(nodes: Nodes) -> None:
    """As the kernel does when it passes a mount's writes through."""
    io = nodes.io[0]
    handle = io.open(6, LOCAL, writing=True, create=True)
    (nodes.root / "0" / io.part_path(5, WHOLE)).write_bytes(bytes(10000))
    (nodes.root / "0" / io.part_path(6, WHOLE)).write_bytes(bytes(20000))
    until(lambda: io.usage() == (12288 + 20480, 0, 2))
    handle.close()
    assert io.usage() == (12288 + 20480, 0, 2)


def test_a_part_that_was_there_before_is_counted(root: Path) -> None:
    (root / "store" / "05").mkdir(parents=True)
    (root / "store" / "05" / "0000000000000005").write_bytes(b"x" * 5000)
    (root / "store" / "05" / "0000000000000005.12").write_bytes(b"x" * 5000)
    (root / "store" / "05" / ".0000000000000005-3").write_bytes(b"half a copy")
    (root / "store" / "05" / "README").write_bytes(b"not ours")
    io = Io(0, str(root / "store"), "")
    assert io.usage() == (16384, 0, 2) and io.port == 0
    assert sorted(entry[:3] for entry in io.list_parts()) == [(5, -1, 5000), (5, 12, 5000)]
    io.part_delete(5)
    assert os.listdir(root / "store" / "05") == ["README"] and io.usage() == (0, 0, 0)
    io.stop()


@pytest.mark.parametrize("arguments", [("/nonexistent", ""), ("/proc/version", ""), (".", "no address"), (".", "300.0.0.1")])
def test_what_cannot_begin_says_why(arguments: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = open_descriptors()
    with pytest.raises(OSError, match="cannot"):
        Io(0, *arguments, key=bytes(32))
    assert open_descriptors() <= before


def test_many_open_files_need_few_descriptors(root: Path) -> None:
    (root / "0").mkdir()
    io = Io(0, str(root / "0"), "")
    before = open_descriptors()
    handles = [io.open(1000 + i, LOCAL, writing=True, create=True) for i in range(3000)]
    for i, handle in enumerate(handles):
        handle.write(b"%d" % i, 0)
    assert open_descriptors() - before < 600
    assert all(handle.read(10, 0) == b"%d" % i for i, handle in enumerate(handles))
    close_all(handles)
    assert open_descriptors() <= before
    io.stop()


# ── striped and remote ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stripe", [1000, 65536, 512 << 10, 3_000_000])
@pytest.mark.parametrize("piece", [777, 4096, 131072, 5_000_000])
def test_a_striped_file_is_read_exactly_from_every_node(nodes: Nodes, stripe: int, piece: int) -> None:
    data = content(min(5_000_001, piece * 400, stripe * 800))
    ino = nodes.new()
    writer = nodes.io[0].open(ino, STRIPED, stripe=stripe, writing=True)
    for at in range(0, len(data), piece):
        writer.write(data[at : at + piece], at)
    writer.close()
    for node in range(3):
        reader = nodes.io[node].open(ino, STRIPED, stripe=stripe, size=len(data))
        assert b"".join(reader.read(piece, at) for at in range(0, len(data) + piece, piece)) == data
        assert reader.read(piece, len(data) // 2) == data[len(data) // 2 :][:piece]
        reader.close()
    spread = [sum(nodes.parts(node, ino).values()) for node in range(3)]
    assert sum(spread) == len(data)
    if len(data) > 30 * stripe:
        assert max(spread) < 1.2 * min(spread)


def test_blocks_of_a_striped_file_and_times_that_its_record_knows(nodes: Nodes) -> None:
    ino = nodes.write(0, content(10 * STRIPE), stripe=STRIPE)
    reader = nodes.io[1].open(ino, STRIPED, stripe=STRIPE, size=10 * STRIPE)
    assert reader.stat() == (10 * STRIPE, 80, 0, 0, 0)
    reader.close()


def test_times_of_a_striped_file_are_those_of_the_last_writing_or_set_by_hand_since(nodes: Nodes) -> None:
    ino = nodes.write(0, content(3 * STRIPE), stripe=STRIPE)
    handle = nodes.io[0].open(ino, STRIPED, stripe=STRIPE, size=3 * STRIPE, writing=True)
    through = nodes.io[1].open(ino, REMOTE, 0)
    assert handle.stat()[2:] == (0, 0, 0), "opened, and not written"
    began = time.time_ns()
    handle.write(b"x", 0)
    _, _, atime, mtime, ctime = handle.stat()
    assert atime == 0 and began <= mtime == ctime <= time.time_ns()
    nodes.io[0].set_times(ino, 5 * 10**9, None)
    assert handle.stat()[2:4] == (5 * 10**9, mtime)
    nodes.io[0].set_times(ino, None, 7 * 10**9)
    assert handle.stat()[2:4] == through.stat()[2:4] == (5 * 10**9, 7 * 10**9) and handle.stat()[4] >= ctime
    handle.read(1, 0)
    read = handle.stat()[2]
    assert read >= ctime and handle.stat()[3] == 7 * 10**9, "read: as on tmpfs it is noted once"
    handle.read(1, 0)
    assert handle.stat()[2] == read
    handle.truncate(STRIPE)
    assert handle.stat()[3] >= read, "written"
    through.close()
    handle.close()
    again = nodes.io[0].open(ino, STRIPED, stripe=STRIPE, size=STRIPE, writing=True)
    assert again.stat()[2:] == (0, 0, 0)
    again.close()


def test_what_a_remote_writer_writes_is_seen_at_once_by_all_who_go_through_the_same_node(nodes: Nodes) -> None:
    ino = nodes.new()
    home = nodes.io[0].open(ino, STRIPED, stripe=STRIPE, writing=True)
    one, two = (nodes.io[node].open(ino, REMOTE, 0, writing=node == 1) for node in (1, 2))
    assert nodes.io[0].open_count(ino) == (1, 2)
    one.write(b"one", 0)
    home.write(b"home", 3)
    assert home.read(10, 0) == one.read(10, 0) == two.read(10, 0) == b"onehome"
    for i in range(100):
        (one, home)[i % 2].write(b"%02d" % i, APPEND)
    text = b"onehome" + b"".join(b"%02d" % i for i in range(100))
    assert two.read(1000, 0) == text and two.stat()[0] == len(text)
    home.close()
    assert one.read(1000, 0) == text  # the file stays while others use it
    one.close()
    two.close()
    assert nodes.done(0) == (REMOTE_CLOSED, 0, ino, len(text), 0)
    assert nodes.io[0].open_count(ino) == (0, 0)


def test_what_is_read_through_another_node_stays_until_it_is_closed_when_its_part_goes(nodes: Nodes) -> None:
    ino = nodes.write(0, b"content")
    reader = nodes.io[1].open(ino, REMOTE, 0)
    nodes.io[0].part_delete(ino)
    assert reader.read(9, 0) == b"content" and reader.stat()[0] == 7
    reader.close()
    assert nodes.done(0)[:3] == (REMOTE_CLOSED, 0, ino)

    def is_refused() -> bool:  # a moment after it is told, for a thread closes the part
        try:
            nodes.io[1].open(ino, REMOTE, 0).close()
        except OSError as error:
            return error.errno == errno.ESTALE
        return False

    until(is_refused, "it can be opened still")


def test_who_comes_before_the_writer_has_opened_waits_a_moment(nodes: Nodes) -> None:
    ino = nodes.new()
    late = threading.Timer(0.2, lambda: held.append(nodes.io[0].open(ino, LOCAL, writing=True, create=True)))
    held: list[IoHandle] = []
    late.start()
    reader = nodes.io[1].open(ino, REMOTE, 0)
    late.join()
    held[0].write(b"now", 0)
    assert reader.read(9, 0) == b"now"
    reader.close()
    held[0].close()
    with pytest.raises(OSError) as caught:
        nodes.io[1].open(nodes.new(), REMOTE, 0)
    assert caught.value.errno == errno.ESTALE


def test_an_open_file_follows_who_opens_it_anew(nodes: Nodes) -> None:
    """A reader of stripes, then a writer elsewhere, then a finished file again: the handle reads what is current."""
    ino = nodes.write(0, b"a" * 20000, stripe=STRIPE)
    old = nodes.io[1].open(ino, STRIPED, stripe=STRIPE, size=20000)
    assert old.read(5, 0) == b"aaaaa"
    writer = nodes.io[0].open(ino, STRIPED, stripe=STRIPE, size=20000, writing=True)
    new = nodes.io[1].open(ino, REMOTE, 0)
    writer.write(b"b" * 5, 0)
    assert old.read(5, 0) == new.read(5, 0) == b"bbbbb"
    new.close()
    writer.truncate(3)
    writer.close()
    again = nodes.io[1].open(ino, STRIPED, stripe=STRIPE, size=3)
    assert nodes.io[0].open_count(ino) == (0, 0)
    assert old.read(100, 0) == again.read(100, 0) == b"bbb"
    close_all([old, again])


def test_readers_and_a_writer_at_once(nodes: Nodes) -> None:
    """Each page is written whole with its own number of a round: no reader sees a page that is neither old nor new."""
    pages, ino, faults = 40, nodes.new(), []
    home = nodes.io[0].open(ino, STRIPED, stripe=4 * STRIPE, writing=True)
    home.write(bytes(pages * STRIPE), 0)
    going = threading.Event()

    def read(node: int) -> None:
        handle = nodes.io[node].open(ino, REMOTE, 0) if node else nodes.io[0].open(ino, STRIPED, stripe=4 * STRIPE)
        chance = random.Random(node)
        while not going.is_set():
            page = chance.randrange(pages)
            data = handle.read(STRIPE, page * STRIPE)
            if len(data) != STRIPE or len(set(data)) != 1:
                faults.append((node, page, len(data)))
        handle.close()

    readers = [threading.Thread(target=read, args=(node,)) for node in (0, 1, 2)]
    for reader in readers:
        reader.start()
    chance = random.Random(9)
    for turn in range(600):
        home.write(bytes([turn % 250 + 1]) * STRIPE, chance.randrange(pages) * STRIPE)
    going.set()
    for reader in readers:
        reader.join(30)
        assert not reader.is_alive()
    home.close()
    assert not faults


# ── resources ──────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_left_open(root: Path) -> None:
    before, tasks = open_descriptors(), len(os.listdir("/proc/self/task"))
    for turn in range(3):
        (root / str(turn)).mkdir()
        nodes = Nodes(root / str(turn), 3)
        ino = nodes.write(0, content(200_000), stripe=STRIPE)
        assert nodes.read(1, ino, STRIPED, 200_000, stripe=STRIPE) == content(200_000)
        home = nodes.io[0].open(nodes.new(), LOCAL, writing=True, create=True)
        home.close()
        nodes.io[2].fetch(1, nodes.write(0, b"x"), 0, 1)
        nodes.done(2)
        nodes.stop()
        nodes.stop()
        del nodes, home
    assert open_descriptors() <= before
    until(lambda: len(os.listdir("/proc/self/task")) <= tasks)


def test_many_files_from_many_threads_use_few_connections(nodes: Nodes) -> None:
    files = [nodes.write(i % 3, content(30_000, i), stripe=STRIPE) for i in range(60)]
    before = open_descriptors()
    wrong: list[int] = []

    def read(first: int) -> None:
        for i in range(first, len(files), 10):
            handle = nodes.io[(i + 1) % 3].open(files[i], STRIPED, stripe=STRIPE, size=30_000)
            if handle.read(30_000, 0) != content(30_000, i):
                wrong.append(i)
            handle.close()

    threads = [threading.Thread(target=read, args=(first,)) for first in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong
    assert open_descriptors() - before <= 2 * 2 * 3 * 2 * 8  # both ends, lanes, nodes, peers, connections
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > open_descriptors()


# ── a mount of its own ─────────────────────────────────────────────────────────────────────────────

OWN_MOUNT = """
import errno, os, sys
from pathlib import Path
from fsio_nodes import GREW, LOCAL, STRIPED, Nodes
nodes = Nodes(Path(sys.argv[1]), 2, [6 << 20, 0], mounts=True)
io = nodes.io[0]
empty = io.usage()[0]
(Path(sys.argv[1]) / "0" / "beside").write_bytes(bytes(1 << 20))
assert io.usage()[0] == empty + (1 << 20), io.usage()  # whoever wrote it
data = os.urandom(1 << 20)
handle = io.open(5, LOCAL, stripe=65536, writing=True, create=True)
for i in range(8):
    handle.write(data, i << 20)
handle.flush()
assert io.take()[0][0] == GREW
assert handle.read(21 << 20, 0) == data * 8
handle.close()
found = os.statvfs(io.root_fd)
assert io.usage()[0] == (found.f_blocks - found.f_bfree) * found.f_frsize
full = nodes.new()
handle = nodes.io[1].open(full, LOCAL, writing=True, create=True)  # no limit but the mount's size
try:
    for i in range(100):
        handle.write(data, i << 20)
    handle.flush()
except OSError as error:
    assert error.errno == errno.ENOSPC, error
else:
    raise AssertionError("128 MiB in 32")
handle.close()
nodes.stop()
print("fine")
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_on_a_mount_of_its_own_the_kernel_counts(tmp_path: Path) -> None:
    script = tmp_path / "own_mount.py"
    script.write_text(OWN_MOUNT)
    command = ["unshare", "--mount", sys.executable, str(script), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert result.returncode == 0 and result.stdout == "fine\n", result.stderr
