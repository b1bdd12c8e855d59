"""Stripes that are not what was written, by machines of several nodes: which node replaces them, and when a file is lost."""

from __future__ import annotations

import errno
import os

import pytest
from fs_cluster import Cluster, Node
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fs_replicas import living, read, refused, session, write

from amfs.sim.file_backend import STRIPE
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import LOST, STRIPED, Attr
from amfs.vocabulary.events import FsDamaged

STRIPES = 3
DATA = bytes(range(96, 96 + STRIPES)) * STRIPE
Place = tuple[int, int, int]  # node, inode, stripe


class Damaged:
    """Which copies are damaged, and what that means for works. (The simulated store gives no stripe a place.)"""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.bad: set[Place] = set()
        self.unreachable = 0  # so many works on copies fail once
        for node in cluster.nodes.values():
            self.attend(node)

    def attend(self, node: Node) -> None:
        at = node.number
        node.serve(
            w.CheckPart.by(lambda o: (w.PART_DAMAGED if (at, o.ino, o.index) in self.bad else 1, STRIPE)),
            w.CheckStripes.by(lambda o: self.check(at, o)),
            w.MendStripe.by(lambda o: self.copy(o.node, at, o.ino, o.index, refuse=True)),
            w.PushStripe.by(lambda o: self.copy(at, o.node, o.ino, o.index, refuse=False)),
        )

    def check(self, at: int, order: w.CheckStripes) -> w.CheckedStripes:
        mine = [index for index in range(order.after, STRIPES) if at in places(self.cluster, order.ino, index)]
        bad = next((index for index in mine if (at, order.ino, index) in self.bad), -1)
        return w.CheckedStripes(len(mine), 0, len(mine) * STRIPE, bad, bad + 1 if 0 <= bad < STRIPES - 1 else -1)

    def copy(self, source: int, to: int, ino: int, index: int, refuse: bool) -> int:
        if self.unreachable:
            self.unreachable -= 1
            raise OSError(errno.ESTALE, "another table")
        if source in self.cluster.dead or to in self.cluster.dead:
            raise OSError(errno.EIO, "gone")
        damaged = (source, ino, index) in self.bad
        if damaged:
            self.cluster.later(source, FsDamaged(ino, index))  # it is noticed there when it is read
        if damaged and refuse:
            raise OSError(errno.EBADMSG, "damaged there, too")
        self.bad.discard((to, ino, index))
        if damaged:
            self.bad.add((to, ino, index))
        return STRIPE

    def hit(self, at: int, ino: int, index: int) -> None:
        self.bad.add((at, ino, index))

    def find(self, at: int, ino: int, index: int) -> None:
        self.cluster.tell(self.cluster.nodes[at], FsDamaged(ino, index))


def places(cluster: Cluster, ino: int, index: int) -> list[int]:
    """The owner of a stripe, and the node that keeps its copy."""
    part = cluster.nodes[living(cluster)[0]].meta.stripe_partition(ino, index)
    backup = cluster.table.backup_of(part)
    assert backup is not None
    return [cluster.table.owners[part], backup]


def one_file(nodes: int, seed: int, copies: int = 2) -> tuple[Cluster, Damaged, int]:
    """A session, which copies are damaged, and the inode of /a, in stripes."""
    cluster = session(nodes, seed, copies)
    damaged = Damaged(cluster)
    ino = write(cluster, 0, b"/a", DATA, STRIPED)
    cluster.settle()
    return cluster, damaged, ino


def is_lost(cluster: Cluster, path: bytes) -> bool:
    attr = Attr(*cluster.call(living(cluster)[0], "walk", path, True)[0])
    return attr.finished == LOST


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_stripe_is_replaced_while_there_is_a_good_copy_and_else_the_file_is_lost(data: st.DataObject) -> None:
    cluster = session(4, data.draw(st.integers(0, 1 << 16)))
    damaged = Damaged(cluster)
    inodes = {b"/%d" % number: write(cluster, number, b"/%d" % number, DATA, STRIPED) for number in range(3)}
    cluster.settle()
    hits = {(path, index): data.draw(st.sampled_from(("", "0", "1", "01"))) for path in inodes for index in range(STRIPES)}
    found = []
    for (path, index), which in hits.items():
        for copy in map(int, which):
            place = (places(cluster, inodes[path], index)[copy], inodes[path], index)
            damaged.hit(*place)
            found += [place] * data.draw(st.integers(1, 2))  # it may be noticed more than once
    damaged.unreachable = data.draw(st.integers(0, 3))
    for place in data.draw(st.permutations(found)):
        damaged.find(*place)
        for _ in range(data.draw(st.integers(0, 8))):
            cluster.step()
    cluster.settle()
    for path, ino in inodes.items():
        hopeless = {index for index in range(STRIPES) if hits[path, index] == "01"}
        assert is_lost(cluster, path) == bool(hopeless), f"{path!r} {hits}"
        assert {index for _, of, index in damaged.bad if of == ino} == hopeless, "what has a good copy was not replaced"
        if not hopeless:
            assert read(cluster, 3, path) == DATA
    cluster.check()


def test_a_file_without_copies_is_lost_and_can_be_written_anew() -> None:
    cluster, damaged, ino = one_file(3, 1, copies=1)
    place = (places(cluster, ino, 1)[0], ino, 1)
    damaged.hit(*place)
    damaged.find(*place)
    cluster.settle()
    assert refused(cluster, 1, "open_path", b"/a", os.O_RDONLY, 0, -1, 0, -1) == errno.EIO
    damaged.bad.clear()
    write(cluster, 2, b"/a", b"anew")
    assert read(cluster, 1, b"/a") == b"anew"


@pytest.mark.parametrize("overwritten", [False, True])
def test_a_file_that_is_being_written_is_lost_when_it_is_finished_unless_the_stripe_was_written_anew(overwritten: bool) -> None:
    cluster, damaged, ino = one_file(3, 2, copies=1)
    handle, _ = cluster.call(0, "open_path", b"/a", os.O_WRONLY, 0, -1, 0, -1)
    place = (places(cluster, ino, 0)[0], ino, 0)
    damaged.hit(*place)
    damaged.find(*place)
    for _ in range(200):
        cluster.step()
    assert not is_lost(cluster, b"/a")
    if overwritten:
        damaged.bad.clear()
    cluster.call(0, "close", handle)
    cluster.settle()
    assert is_lost(cluster, b"/a") == (not overwritten)


def test_a_file_that_is_removed_meanwhile_leaves_nothing() -> None:
    cluster, damaged, ino = one_file(3, 3)
    for copy in (0, 1):
        place = (places(cluster, ino, 2)[copy], ino, 2)
        damaged.hit(*place)
        damaged.find(*place)
    cluster.call(1, "unlink_path", b"/a")
    cluster.settle()
    cluster.check()


def test_the_heir_of_a_damaged_stripe_says_that_the_file_is_lost() -> None:
    """It had a damaged copy itself, and could not reach the owner then, which died before it had looked."""
    cluster, damaged, ino = one_file(4, 6)
    owner, keeper = places(cluster, ino, 0)
    damaged.unreachable = 1 << 30
    damaged.hit(keeper, ino, 0)
    damaged.find(keeper, ino, 0)
    cluster.settle()
    assert not is_lost(cluster, b"/a"), "the owner has it"
    damaged.unreachable = 0
    cluster.kill(owner)
    damaged.find(keeper, ino, 0)
    cluster.settle()
    assert is_lost(cluster, b"/a")


def test_a_good_copy_that_cannot_be_reached_now_is_not_given_up() -> None:
    """The node that keeps it hangs, and is a member still."""
    cluster, damaged, ino = one_file(3, 7)
    owner, _ = places(cluster, ino, 0)
    damaged.unreachable = 1 << 30
    damaged.hit(owner, ino, 0)
    damaged.find(owner, ino, 0)
    cluster.settle()
    assert not is_lost(cluster, b"/a")
    damaged.unreachable = 0
    damaged.find(owner, ino, 0)
    cluster.settle()
    assert not damaged.bad and read(cluster, 1, b"/a") == DATA


def test_the_keeper_of_the_only_good_copy_dies_meanwhile() -> None:
    cluster, damaged, ino = one_file(4, 4)
    owner, keeper = places(cluster, ino, 0)
    damaged.hit(owner, ino, 0)
    cluster.kill(keeper)
    damaged.find(owner, ino, 0)
    cluster.settle()
    assert is_lost(cluster, b"/a"), "nobody has it any more"


def test_scrubbing_says_which_node_had_what() -> None:
    cluster = session(3, 5)
    damaged = Damaged(cluster)
    inodes = [write(cluster, 0, b"/%d" % number, DATA, STRIPED) for number in range(3)]
    cluster.settle()
    owner, keeper = places(cluster, inodes[0], 1)
    damaged.hit(keeper, inodes[0], 1)
    for at in places(cluster, inodes[1], 2):
        damaged.hit(at, inodes[1], 2)
    said = [dict(each) for each in cluster.call(1, "check", tuple(inodes))]
    assert said[0][keeper] == q.DROPPED and said[0][owner] == q.FINE
    assert {said[1][at] for at in places(cluster, inodes[1], 2)} == {q.DAMAGED_LAST}
    assert set(said[2].values()) == {q.FINE}
    assert cluster.call(1, "check", (inodes[1],)) == [errno.EIO], "it is lost by now"
