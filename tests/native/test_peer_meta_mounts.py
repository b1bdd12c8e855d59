"""Mounts that ask shards directly (peer_meta.h): their work without the poll loop, and peers that lie or die."""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from peer_meta_nodes import ANSWER, GUARD_S, HAS_ATTR, PARTITIONS, ROOT, Cluster, Kernel, connected, lied_to, record
from waiting import until

from amfs.vocabulary.attr import LOST, META_SET_MODE, Attr

LOCAL, REMOTE, STRIPED = range(3)  # kinds of a handle, as csrc/data/fsio.h

# ── mounts that ask ────────────────────────────────────────────────────────────────────────────────


def test_a_mount_does_without_the_poll_loop(cluster: Cluster) -> None:
    here, there = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    kernel.asked()
    error, ino, handle = kernel.create(name)
    assert error == 0
    assert there.meta.getattr(ino, 1)[9] == 0, "this node writes it"
    until(lambda: here.meta.making() == 0, "it counts as open, and as being made")
    assert kernel.write(ino, handle, b"hello") == 0
    assert kernel.size(ino) == 5
    kernel.release(ino, handle)
    assert kernel.size(ino) == 5, "also while its shard is being told"
    until(lambda: there.meta.getattr(ino, 1)[8] == 1, "its shard has not heard that it is closed")
    assert Attr(*there.meta.getattr(ino, 1)).size == 5
    assert there.meta.holders(ino) == (0,)
    assert here.parts() == 1
    error, data = kernel.lookup(name)
    assert (error, struct.unpack_from("<Q", data)[0]) == (0, ino)
    assert kernel.create(name)[0] == errno.EEXIST
    assert kernel.unlink(name) == 0
    assert kernel.lookup(name)[0] == errno.ENOENT
    until(lambda: here.parts() == 0, "its data stays")
    assert there.meta.counts()["inodes"] == 0
    assert not [op for op in kernel.asked() if op != "touched"]
    assert here.meta.direct_uses(ino) == (0, 0, False)


def test_who_keeps_the_record_of_what_it_closed_is_told_of_the_next_change(cluster: Cluster) -> None:
    here, there = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    _, ino, handle = kernel.create(name)
    change = (ino, META_SET_MODE, tuple(Attr(mode=0o640)), 1, 1)
    assert there.meta.setattr(*change)[1] == (0,), "who makes it is told"
    kernel.release(ino, handle)
    until(lambda: here.meta.direct_uses(ino) == (0, 0, False), "its shard has not answered")
    assert here.meta.cached(ino)[0][1] & 0o777 == 0o640
    assert there.meta.setattr(*change)[1] == (0,)


def test_a_file_that_the_loop_uses_is_closed_by_it(cluster: Cluster) -> None:
    here, there = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    kernel.asked()
    _, ino, handle = kernel.create(name)
    assert here.meta.direct_uses(ino) == (1, 1, False)
    here.meta.claim(ino, True)
    kernel.release(ino, handle)
    assert [op for op in kernel.until_asked() if op == "closed"]
    assert here.meta.direct_uses(ino) == (0, 0, False)
    assert there.meta.getattr(ino, 1)[8] == 0


def test_what_a_third_node_watches_comes_to_the_poll_loop(cluster: Cluster) -> None:
    here, there = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    kernel.asked()
    _, ino, handle = kernel.create(name)
    there.meta.lookup(ROOT, name, 2)
    kernel.release(ino, handle)
    assert kernel.until_asked()[:1] == ["closed"]  # one word for the last writer and the last handle
    unique = kernel.send(10, ROOT, name + b"\0")
    assert "unlink" in kernel.until_asked()
    kernel.fuse.reply_error(unique, 0)
    assert kernel.wait(unique)[0] == 0


def test_an_old_table_leads_to_the_long_way(cluster: Cluster) -> None:
    here, there = cluster.nodes
    kernel, name = cluster.mount(0), cluster.name_at(1)
    connected(kernel, here, name)
    kernel.asked()
    there.meta.set_table([0] * PARTITIONS, cluster.version + 1)
    for opcode, body, op in ((1, name + b"\0", "lookup"), (35, kernel.create_body(name), "create"), (10, name + b"\0", "unlink")):
        unique = kernel.send(opcode, ROOT, body)
        assert op in kernel.until_asked()
        kernel.fuse.reply_error(unique, errno.EIO)
        assert kernel.wait(unique)[0] == errno.EIO


def test_other_kernels_forget_what_is_unlinked_from_afar(cluster: Cluster) -> None:
    """The owner's own mount has looked it up: it must be told before the answer, not instead of it."""
    here, there = cluster.nodes
    kernel, other, name = cluster.mount(0), cluster.mount(1), cluster.name_at(1)
    connected(kernel, here, name)
    _, ino, handle = kernel.create(name)
    kernel.release(ino, handle)
    until(lambda: there.meta.getattr(ino, 1)[8] == 1, "its shard has not heard that it is closed")
    assert other.lookup(name)[0] == 0
    assert kernel.unlink(name) == 0
    assert other.lookup(name)[0] == errno.ENOENT


def test_attributes_are_set_without_the_poll_loop(cluster: Cluster) -> None:
    """Also while the file is open, and while its shard is told that it is closed: older attributes do not replace the ones set."""
    here, there = cluster.nodes
    kernel, other, name = cluster.mount(0), cluster.mount(1), cluster.name_at(1)
    connected(kernel, here, name)
    kernel.asked()
    _, ino, handle = kernel.create(name)
    assert kernel.write(ino, handle, b"hello") == 0
    assert kernel.utime(ino, 1000)[0] == 0
    kernel.release(ino, handle)
    assert kernel.utime(ino, 2000)[0] == 0
    until(lambda: there.meta.getattr(ino, 1)[8] == 1, "its shard has not heard that it is closed")
    attr = Attr(*there.meta.getattr(ino, 1))
    assert (attr.mtime, attr.atime, attr.size) == (2000 * 10**9, 2000 * 10**9, 5)
    assert os.stat(here.root / here.io.part_path(ino, -1)).st_mtime == 2000, "who writes it next goes on from that"
    assert other.lookup(name)[0] == 0
    error, data = kernel.chmod(ino, 0o600)
    assert (error, struct.unpack_from("<I", data, 16 + 60)[0] & 0o777) == (0, 0o600)
    assert there.meta.getattr(ino, 1)[1] & 0o777 == 0o600
    assert not [op for op in kernel.asked() if op != "touched"]


def _garbage(line: socket.socket) -> None:
    line.recv(10)
    line.sendall(random.Random(5).randbytes(300))


def _wrong_size(line: socket.socket) -> None:
    line.recv(10)
    line.sendall(ANSWER.pack(1 << 30, 1, 0, 0))


def _half_a_record(line: socket.socket) -> None:
    line.recv(10)
    line.sendall(ANSWER.pack(ANSWER.size + 10, 1, 0, HAS_ATTR) + bytes(10))


def _cut(line: socket.socket) -> None:
    line.recv(10)
    line.close()


def _silent(line: socket.socket) -> None:
    line.recv(10)


def _unasked(line: socket.socket) -> None:
    line.recv(10)
    line.sendall(ANSWER.pack(ANSWER.size, 4_000_000, 0, 0))
    line.sendall(bytes(3))
    line.close()


@pytest.mark.parametrize("act", [_garbage, _wrong_size, _half_a_record, _cut, _silent, _unasked])
def test_peers_that_lie_or_die_hang_nobody(tmp_path: Path, act: Callable[[socket.socket], None]) -> None:
    """Questions take the long way then; of a change nobody knows whether it was made."""
    with lied_to(tmp_path, act, 700) as cluster:
        here = cluster.nodes[0]
        kernel, name = cluster.mount(0), cluster.name_at(1)
        lost = 0
        told: list[str] = []
        end = time.monotonic() + GUARD_S
        while not lost and time.monotonic() < end:
            before = here.io.questions[0]
            unique = kernel.send(35, ROOT, kernel.create_body(name))
            while not select.select([kernel.socket], [], [], 0.02)[0]:
                assert time.monotonic() < end, "the request hangs"
                for request in kernel.fuse.requests():
                    told.append(request[1])
                    if request[0]:
                        kernel.fuse.reply_error(request[0], errno.EBUSY)
            error, _ = kernel.wait(unique)
            asked = here.io.questions[0] > before
            assert error == (errno.EIO if asked else errno.EBUSY)
            lost += asked
            time.sleep(0.01)
        assert lost
        while "perhaps_made" not in told:
            told += kernel.until_asked()
        unique = kernel.send(1, ROOT, name + b"\0")
        assert "lookup" in kernel.until_asked()
        kernel.fuse.reply_error(unique, errno.ENOENT)
        assert kernel.wait(unique)[0] == errno.ENOENT


def test_a_mount_that_ends_takes_its_questions_with_it(tmp_path: Path) -> None:
    with lied_to(tmp_path, _silent, 60000) as cluster:
        here = cluster.nodes[0]
        kernel, name = cluster.mount(0), cluster.name_at(1)
        end = time.monotonic() + GUARD_S
        while not here.io.questions[0]:
            kernel.send(1, ROOT, name + b"\0")
            time.sleep(0.01)
            assert time.monotonic() < end
        began = time.monotonic()
        kernel.fuse.stop()
        assert time.monotonic() - began < 5


def test_a_dead_peer_fails_what_waits_for_it_at_once(tmp_path: Path) -> None:
    with lied_to(tmp_path, _silent, 60000) as cluster:
        here = cluster.nodes[0]
        kernel, name = cluster.mount(0), cluster.name_at(1)
        end = time.monotonic() + GUARD_S
        unique = 0
        while not here.io.questions[0]:
            unique = kernel.send(1, ROOT, name + b"\0")
            time.sleep(0.01)
            assert time.monotonic() < end
        kernel.asked()
        here.io.forget_peer(1)
        assert "lookup" in kernel.until_asked()
        kernel.fuse.reply_error(unique, errno.EIO)
        assert kernel.wait(unique)[0] == errno.EIO


# ── what waits for another node holds up nobody ────────────────────────────────────────────────────


def opening(kernel: Kernel, ino: int, flags: int) -> int:
    return kernel.send(14, ino, struct.pack("<II", flags, 0))


def goes_on(kernel: Kernel, cluster: Cluster, waiting: int) -> None:
    """Other files can be made, written and closed, while that request waits."""
    error, ino, handle = kernel.create(cluster.name_at(0, "other"))
    assert error == 0
    assert kernel.write(ino, handle, b"hello") == 0
    kernel.release(ino, handle)
    assert waiting not in kernel.answers, "the others had to wait until it was answered"


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_WRONLY | os.O_TRUNC])
def test_the_loop_opens_a_file_through_a_node_that_stalls(tmp_path: Path, flags: int) -> None:
    with lied_to(tmp_path, _silent, 5000) as cluster:
        here, kernel = cluster.nodes[0], cluster.mount(0)
        unique = opening(kernel, 1 << 40, flags)
        kernel.until_asked()
        kernel.fuse.reply_open(unique, REMOTE, 1, 0, 1, 0)
        assert any(here.meta.uses(1 << 40)), "it counts as open from now on"
        goes_on(kernel, cluster, unique)
        here.io.forget_peer(1)
        assert kernel.wait(unique)[0] == errno.EIO
        assert "closed" in kernel.until_asked()
        assert here.meta.uses(1 << 40) == (0, 0, 0, 0)


def test_openings_that_wait_for_closings_leave_the_workers_to_closings_that_come_later(cluster: Cluster) -> None:
    """One worker is enough, however many processes of a node open and close a file that is written through another node."""
    here, there = cluster.nodes
    kernel, ino = cluster.mount(0, workers=1), 1 << 40
    writer = there.io.open(ino, LOCAL, writing=True, create=True)

    def opened(uniques: list[int]) -> list[int]:
        """The handles, when the poll loop has let them all in."""
        pending = set(uniques)

        def let_in() -> bool:
            for unique, *_ in kernel.fuse.requests():
                if unique in pending:
                    pending.discard(unique)
                    kernel.fuse.reply_open(unique, REMOTE, 1, 0, 1, 0)
            return not pending

        until(let_in, "an opening waits for ever")
        return [struct.unpack_from("<Q", kernel.wait(unique)[1])[0] for unique in uniques]

    again = []
    for handle in opened([opening(kernel, ino, os.O_RDONLY) for _ in range(20)]):
        kernel.send(18, ino, struct.pack("<QIIQ", handle, 0, 0, 0))
        again.append(opening(kernel, ino, os.O_RDONLY))
    for handle in opened(again):
        kernel.release(ino, handle)
    until(lambda: here.io.open_count(ino) == (0, 0), "not all are closed")
    writer.close()


def test_two_openings_at_once_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """The second comes before the worker that has nothing to do has woken up for the first: it gets another."""
    with lied_to(tmp_path, _silent, 5000) as cluster:
        here = cluster.nodes[0]
        here.io.set_table([0] * PARTITIONS)
        for turn in range(1, 4):  # more than once, for the worker may be quick
            kernel = cluster.mount(0)
            first, stalls, second = (1 << 40 | 3 * turn + number for number in range(3))
            unique = opening(kernel, first, os.O_WRONLY)
            kernel.until_asked()
            kernel.fuse.reply_open(unique, STRIPED, -1, 4096, 8192, 0)
            assert kernel.wait(unique)[0] == 0
            time.sleep(0.05)  # now there is one worker, and it waits
            waiting, unique = opening(kernel, stalls, os.O_WRONLY), opening(kernel, second, os.O_WRONLY)
            kernel.until_asked(2)
            kernel.fuse.reply_open(waiting, REMOTE, 1, 0, 1, 0)
            kernel.fuse.reply_open(unique, STRIPED, -1, 4096, 8192, 0)
            assert kernel.wait(unique)[0] == 0
            assert waiting not in kernel.answers, "the second had to wait for the first"
        here.io.forget_peer(1)


@pytest.mark.parametrize("through_loop", [True, False])
def test_a_file_is_cut_that_waits_for_a_node_that_stalls(tmp_path: Path, through_loop: bool) -> None:
    asked = threading.Event()
    with lied_to(tmp_path, _silent, 5000, asked) as cluster:
        here, kernel = cluster.nodes[0], cluster.mount(0)
        here.io.set_table([1] * PARTITIONS)
        _, ino, handle = kernel.create(cluster.name_at(0))
        kernel.release(ino, handle)
        ino += through_loop << 40  # then one of which nothing is known here
        writer = here.io.open(ino, STRIPED, stripe=4096, size=8192, writing=True)
        writer.write(b"x", 0)
        waits = threading.Thread(target=writer.stat)  # with the gate of the file held
        waits.start()
        assert asked.wait(GUARD_S)
        unique = opening(kernel, ino, os.O_WRONLY | os.O_TRUNC)
        if through_loop:
            kernel.until_asked()
            kernel.fuse.reply_open(unique, STRIPED, -1, 4096, 8192, 0)
        goes_on(kernel, cluster, unique)
        here.io.forget_peer(1)
        kernel.wait(unique)
        waits.join()


def test_a_file_that_is_being_opened_when_a_node_dies_is_not_read_as_zeros(tmp_path: Path) -> None:
    asked = threading.Event()
    with lied_to(tmp_path, _silent, 5000, asked) as cluster:
        here, kernel, ino = cluster.nodes[0], cluster.mount(0), 1 << 40
        here.io.set_table([1] * PARTITIONS)
        other = here.io.open(ino, STRIPED, stripe=4096, size=8192)
        failed: list[int | None] = []

        def read() -> None:  # holds the gate of the file, for which the opening waits
            try:
                other.read(1, 0)
            except OSError as error:
                failed.append(error.errno)

        waits = threading.Thread(target=read)
        waits.start()
        assert asked.wait(GUARD_S)
        unique = opening(kernel, ino, os.O_RDONLY)
        kernel.until_asked()
        kernel.fuse.reply_open(unique, STRIPED, -1, 4096, 8192, 0)
        goes_on(kernel, cluster, unique)
        here.io.lose(list(range(PARTITIONS)), 2, False)
        here.io.set_table([0] * PARTITIONS)
        here.io.forget_peer(1)
        waits.join()
        assert failed == [errno.EIO]
        error, data = kernel.wait(unique)
        assert error == 0
        handle = struct.unpack_from("<Q", data)[0]
        assert kernel.call(15, ino, struct.pack("<QQIIQII", handle, 0, 100, 0, 0, 0, 0))[0] == errno.EIO


@pytest.mark.parametrize(("losses_seen", "expected"), [(1, errno.EIO), (2, 0)])
def test_a_node_dies_between_the_answer_of_the_shard_and_that_to_the_kernel(tmp_path: Path, losses_seen: int, expected: int) -> None:
    """Stripes lost after the shard was asked may be of this file. Of those lost before, the shard would have said so."""
    cluster = Cluster(tmp_path)
    here, kernel, ino = cluster.nodes[0], cluster.mount(0), 1 << 40
    here.io.set_table([1] * PARTITIONS)
    unique = opening(kernel, ino, os.O_RDONLY)
    kernel.until_asked()
    here.io.lose(list(range(PARTITIONS)), 2, False)
    here.io.set_table([0] * PARTITIONS)
    kernel.fuse.reply_open(unique, STRIPED, -1, 4096, 8192, losses_seen)
    handle = struct.unpack_from("<Q", kernel.wait(unique)[1])[0]
    assert kernel.call(15, ino, struct.pack("<QQIIQII", handle, 0, 100, 0, 0, 0, 0))[0] == expected
    cluster.stop()


def test_the_last_node_records_that_stripes_which_it_was_writing_went_with_another(tmp_path: Path) -> None:
    """Alone it tells the record itself, without the poll loop."""
    cluster = Cluster(tmp_path)
    here, kernel = cluster.nodes[0], cluster.mount(0)
    here.io.keep_ends()
    for node in cluster.nodes:
        node.io.set_table([p % 2 for p in range(PARTITIONS)])
    ino = here.meta.create(ROOT, cluster.name_at(0), 1, 0, None, record(layout=1, stripe=4096, writer=0, finished=0))[0]
    unique = opening(kernel, ino, os.O_WRONLY)
    kernel.until_asked()
    kernel.fuse.reply_open(unique, STRIPED, -1, 4096, 0, 0)
    handle = struct.unpack_from("<Q", kernel.wait(unique)[1])[0]
    assert kernel.write(ino, handle, b"x" * 4 * 4096) == 0
    cluster.nodes[1].io.stop()
    here.meta.forget_node(1)
    cluster.set_table([0] * PARTITIONS)
    here.io.lose(list(range(1, PARTITIONS, 2)), 2, False)
    here.io.set_table([0] * PARTITIONS)
    kernel.fuse.set_alone(True)
    kernel.release(ino, handle)
    until(lambda: Attr(*here.meta.getattr(ino, 0)).finished != 0)
    assert Attr(*here.meta.getattr(ino, 0)).finished == LOST
    cluster.stop()
