"""Nodes that die, and partitions that move, by machines of several nodes: nothing is silently wrong, and directories stay."""

from __future__ import annotations

import errno
import os
import random
from contextlib import suppress
from typing import Any

import pytest
from fs_cluster import Cluster, Node, Real

from amfs.fs.vfs.calls import PATIENCE_S
from amfs.sim.file_backend import STRIPE
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import messages as m
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOST, STRIPED, WHOLE, Attr
from amfs.vocabulary.events import Received, TimerFired
from amfs.vocabulary.partition import PartitionTable

LISTED = 1000


def refused(cluster: Cluster, node: int, op: str, *args: Any) -> int:
    """The errno with which it fails; 0: it does not."""
    try:
        cluster.call(node, op, *args)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def listed(cluster: Cluster, node: int, path: bytes = b"/", some_lost: bool = False) -> list[bytes]:
    page, more, lost = cluster.call(node, "list_path", path, 0, LISTED)
    assert not more and lost == some_lost
    return sorted(bytes(name) for name, _ in page)


def living(cluster: Cluster) -> list[int]:
    return sorted(set(cluster.nodes) - cluster.dead)


def write(cluster: Cluster, node: int, path: bytes, data: bytes, layout: int = WHOLE, flags: int = os.O_CREAT) -> int:
    """Answers the inode."""
    handle, attr = cluster.call(node, "open_path", path, os.O_WRONLY | flags, 0o644, layout, STRIPE if layout else 0, -1)
    cluster.call(node, "write", handle, 0, data)
    cluster.call(node, "close", handle)
    return Attr(*attr).ino


def read(cluster: Cluster, node: int, path: bytes) -> bytes:
    handle, _ = cluster.call(node, "open_path", path, os.O_RDONLY, 0, -1, 0, -1)
    data = bytes(cluster.call(node, "read", handle, 0, 1 << 20))
    cluster.call(node, "close", handle)
    return data


def owner(cluster: Cluster, partition: int) -> int:
    return cluster.table.owners[partition]


# ── directories ────────────────────────────────────────────────────────────────────────────────────


def new_node(cluster: Cluster, number: int) -> Node:
    """It is a member, and nothing has been said to it yet."""
    node = cluster.nodes[number] = Node(cluster, number)
    cluster.table = cluster.table.with_nodes([number])
    return node


def name_at(cluster: Cluster, node: int) -> bytes:
    """A name in the topmost directory whose entry is that node's."""
    meta = cluster.nodes[0].meta
    return next(name for name in (b"n%d" % n for n in range(1000)) if owner(cluster, meta.name_partition(1, name)) == node)


def test_a_node_is_introduced_while_a_change_of_directories_waits() -> None:
    """It waited for its turn, while the change waited for it: for half a minute no directory could be made, when a node joined just after
    another had died (simulator seed 1032)."""
    cluster = Cluster(3)
    cluster.held_links = {(0, 1)}
    name = name_at(cluster, 1)
    token = cluster.start(0, "mkdir_path", b"/" + name, 0o755, False)
    new = new_node(cluster, 3)
    cluster.view()
    while not new.fs.members.introduced:
        assert cluster.step() and cluster.time < PATIENCE_S / 2
    assert token not in cluster.answers
    cluster.held_links.clear()
    cluster.finish(token)
    cluster.settle()
    assert listed(cluster, 3) == [name]


def test_what_a_dead_node_has_asked_of_a_node_without_directories_is_not_done() -> None:
    """A manager reserved the name of a directory and died; the new node entered it after all others had taken it back. The name led to no
    directory for ever, and whoever looked it up asked again and again (simulator seed 1032)."""
    cluster = Cluster(3)
    before = cluster.table.owners
    new_node(cluster, 3)
    cluster.held_links = {(0, 3)}
    parts = ((name, cluster.nodes[0].meta.name_partition(1, name)) for name in (b"n%d" % n for n in range(1000)))
    name = next(name for name, part in parts if owner(cluster, part) == 3 and before[part] != 0)
    cluster.view()
    while cluster.time < 1.0:
        assert cluster.step()  # until its partition is there
    cluster.tell(cluster.nodes[3], Received(0, m.PeerRequest(1, p.ReserveDirectory(1, name))))
    assert not cluster.nodes[3].fs.members.introduced
    cluster.kill(0)
    cluster.settle()
    assert cluster.nodes[3].fs.members.introduced
    assert refused(cluster, 1, "list_path", b"/" + name, 0, LISTED) == errno.ENOENT
    cluster.call(1, "mkdir_path", b"/" + name, 0o755, False)
    assert all(name in listed(cluster, node) for node in (1, 2, 3))


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_directories_are_listed_and_changed_after_any_node_has_died(dead: int) -> None:
    cluster = Cluster(3, dead)
    names = [b"d%02d" % number for number in range(30)]
    for name in names:
        cluster.call(cluster.random.choice((0, 1, 2)), "mkdir_path", b"/" + name, 0o755, False)
    cluster.kill(dead)
    cluster.settle()
    for node in living(cluster):
        assert listed(cluster, node) == names
    for name in names:
        node = cluster.random.choice(living(cluster))
        assert refused(cluster, node, "mkdir_path", b"/" + name, 0o755, False) == errno.EEXIST
        assert refused(cluster, node, "rename_path", b"/" + name, b"/new" + name, 0) == 0
    assert listed(cluster, living(cluster)[0]) == [b"new" + name for name in names]
    for name in names:
        assert refused(cluster, cluster.random.choice(living(cluster)), "rmdir_path", b"/new" + name) == 0
    cluster.settle()
    assert listed(cluster, living(cluster)[0]) == []
    cluster.check()


@pytest.mark.parametrize("seed", range(24))
def test_a_change_of_directories_reaches_all_or_none_though_a_node_dies_meanwhile(seed: int) -> None:
    cluster = Cluster(8, seed)
    for name in (b"/a", b"/b", b"/c", b"/a/full"):
        cluster.call(0, "mkdir_path", name, 0o755, False)
    dying = cluster.random.randrange(8)
    # A file whose entry does not lie on the node that is going to die.
    inside = next(b"%d" % i for i in range(100) if owner(cluster, cluster.nodes[0].meta.name_partition(full(cluster), b"%d" % i)) != dying)
    cluster.call(0, "symlink_path", b"x", b"/a/full/" + inside)
    asker = cluster.random.choice([node for node in range(8) if node != dying])
    wishes = [("mkdir_path", b"/new", 0o755, False), ("rmdir_path", b"/b"), ("rmdir_path", b"/a/full"), ("rename_path", b"/c", b"/a/c", 0)]
    tokens = [cluster.start(asker, *wish) for wish in wishes]
    cluster.wander(60)
    cluster.kill(dying)
    outcomes = []
    for token in tokens:
        try:
            cluster.finish(token)
            outcomes.append(0)
        except OSError as error:
            outcomes.append(error.errno or 0)
    cluster.settle()
    trees = []
    for node in living(cluster):
        top, below = listed(cluster, node), listed(cluster, node, b"/a")
        trees.append((top, below))
        for name in top:
            assert refused(cluster, node, "list_path", b"/" + name, 0, LISTED) == 0, "listed, and not there"
    assert all(tree == trees[0] for tree in trees), trees
    top, below = trees[0]
    assert b"full" in below and outcomes[2] in (errno.ENOTEMPTY, errno.EIO), "removed with a file in it"
    assert (outcomes[0] == 0) <= (b"new" in top) and (outcomes[1] == 0) <= (b"b" not in top)
    assert (b"c" in top) != (b"c" in below)
    for name in (b"/again", b"/a/full/again"):
        assert refused(cluster, asker, "mkdir_path", name, 0o755, False) == 0  # nothing is left frozen


@pytest.mark.parametrize(("late", "turns"), [(1, {2, 3, 4, 9, 10}), (2, {2, 9, 10})])
def test_kernels_look_again_at_names_that_a_new_manager_knows_otherwise(late: int, turns: set[int]) -> None:
    """The manager dies when some of the nodes have heard that a directory was renamed: the new one (node 1), or the others."""
    cluster = Cluster(11, 1)
    cluster.call(0, "mkdir_path", b"/old", 0o755, False)
    cluster.settle()
    cluster.held_links.add((0, late))
    cluster.start(0, "rename_path", b"/old", b"/new", 0)
    end = cluster.time + 5
    while cluster.time < end and cluster.step():
        pass
    before = {node: listed_directories(cluster, node) for node in range(1, 11)}
    for node in cluster.nodes.values():
        node.invalidated.clear()
    cluster.kill(0)
    cluster.settle()
    turned = {node for node in range(1, 11) if listed_directories(cluster, node) != before[node]}
    assert turned == turns  # a node that is late passes it on late
    for each in turned:
        assert any((0, b"") in entries for _, entries, _ in cluster.nodes[each].invalidated), f"the kernel of node {each} goes on believing"


def listed_directories(cluster: Cluster, node: int) -> set[bytes]:
    found = set()
    for name in (b"old", b"new"):
        with suppress(OSError):
            cluster.nodes[node].meta.dir_find(1, name)
            found.add(name)
    return found


def full(cluster: Cluster) -> int:
    meta = cluster.nodes[0].meta
    return int(meta.dir_find(meta.dir_find(1, b"a")[0], b"full")[0])


# ── content ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dead", [1, 2])
def test_stripes_that_went_with_a_node_are_an_error_until_the_file_is_written_anew(dead: int) -> None:
    cluster = Cluster(3, 7)
    meta = cluster.nodes[0].meta
    stripes = {b"/%d" % number: 1 + number % 3 for number in range(30)}
    inodes = {path: write(cluster, count % 3, path, b"x" * (count * STRIPE), STRIPED) for path, count in stripes.items()}
    there = [path for path in stripes if owner(cluster, meta.name_partition(1, path[1:])) != dead]
    lost = {path for path in there for i in range(stripes[path]) if owner(cluster, meta.stripe_partition(inodes[path], i)) == dead}
    assert lost and set(there) - lost
    cluster.kill(dead)
    cluster.settle()
    for path in there:
        node = cluster.random.choice(living(cluster))
        attr = Attr(*cluster.call(node, "walk", path, True)[0])
        assert (attr.finished == LOST) == (path in lost)
        if path not in lost:
            assert read(cluster, node, path) == b"x" * (stripes[path] * STRIPE)
            continue
        for flags in (os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND):
            assert refused(cluster, node, "open_path", path, flags, 0, -1, 0, -1) == errno.EIO
        assert refused(cluster, node, "set_xattr_path", path, b"user.amfs.layout", b"whole", 0) == errno.EIO
        write(cluster, node, path, b"anew", flags=os.O_TRUNC)
        for other in living(cluster):
            assert read(cluster, other, path) == b"anew"


@pytest.mark.parametrize("layout", [WHOLE, STRIPED])
def test_what_a_dead_node_was_writing_is_no_finished_file(layout: int) -> None:
    cluster = Cluster(3, 5)
    meta = cluster.nodes[0].meta
    paths = [b"/%d" % number for number in range(12)]
    there = [path for path in paths if owner(cluster, meta.name_partition(1, path[1:])) != 2]
    for path in there:
        handle, _ = cluster.call(2, "open_path", path, os.O_WRONLY | os.O_CREAT, 0o644, layout, STRIPE if layout else 0, -1)
        cluster.call(2, "write", handle, 0, b"half of it")
    cluster.kill(2)
    cluster.settle()
    for path in there:
        assert refused(cluster, 0, "open_path", path, os.O_RDONLY, 0, -1, 0, -1) == errno.EIO
        assert Attr(*cluster.call(1, "walk", path, True)[0]).finished == LOST
        write(cluster, 1, path, b"all of it", flags=os.O_TRUNC)
        assert read(cluster, 0, path) == b"all of it"


@pytest.mark.parametrize("seed", range(16))
def test_a_file_that_is_closed_while_the_owner_of_its_record_dies_has_its_content(seed: int) -> None:
    """The writer lives. What it wrote is there, although the owner may have died before it heard of the closing, or before its answer."""
    cluster = Cluster(3, seed)
    handles = {}
    for number in range(12):
        path = b"/f%d" % number
        handle, attr = cluster.call(0, "open_path", path, os.O_WRONLY | os.O_CREAT, 0o644, WHOLE, 0, -1)
        if owner(cluster, cluster.nodes[0].meta.ino_partition(Attr(*attr).ino)) == 1:
            handles[path] = handle
    assert handles
    for path, handle in handles.items():
        cluster.call(0, "write", handle, 0, path)
        cluster.start(0, "close", handle)
    cluster.wander(seed + 1)
    cluster.kill(1)
    cluster.settle()
    for path in handles:
        assert [read(cluster, node, path) for node in living(cluster)] == [path, path]


def test_who_was_writing_stripes_when_a_node_died_says_what_was_lost() -> None:
    cluster = Cluster(3, 6)
    meta = cluster.nodes[0].meta
    name = next(b"%d" % i for i in range(100) if owner(cluster, meta.name_partition(1, b"%d" % i)) == 0)
    handles = {}
    for path in (b"/" + name, b"/" + name + b"?"):
        handles[path], attr = cluster.call(1, "open_path", path, os.O_WRONLY | os.O_CREAT, 0o644, STRIPED, STRIPE, -1)
        cluster.call(1, "write", handles[path], 0, b"y" * 5 * STRIPE)
        if not cluster.contents.lost:
            cluster.contents.lost.add(Attr(*attr).ino)
    cluster.kill(2)
    for handle in handles.values():
        cluster.call(1, "close", handle)
    assert refused(cluster, 0, "open_path", b"/" + name, os.O_RDONLY, 0, -1, 0, -1) == errno.EIO


def lose(cluster: Cluster, heir: int, *parts: int) -> None:
    """Stripes of these partitions were lost on their way to the heir, which begins to tell everybody."""
    node = cluster.nodes[heir]
    node.fs.calls.spawn(node.fs.mover._lose(list(parts), False))
    cluster.tell(node, TimerFired(None))


@pytest.mark.parametrize("late", [0, 1])
def test_a_loss_that_is_told_under_two_tables_costs_nothing_that_was_written_since(late: int) -> None:
    """``late``: the node that hears of it with the second table only."""
    cluster = Cluster(3, 7)
    name, *_ = names_at(cluster, 0)
    cluster.held_links = {(2, late)}
    lose(cluster, 2, *range(64))
    while not cluster.nodes[1 - late].fs.members.losses_seen:
        assert cluster.step()
    cluster.nodes[3] = Node(cluster, 3)
    cluster.table = cluster.table.with_nodes([3])
    cluster.view()
    cluster.held_links = set()
    cluster.settle()
    for node in living(cluster):
        write(cluster, node, b"/" + name, b"%d" % node * 5 * STRIPE, STRIPED)
        assert all(read(cluster, other, b"/" + name) == b"%d" % node * 5 * STRIPE for other in living(cluster))


@pytest.mark.parametrize("late", [0, 1])
def test_a_closing_waits_until_shard_and_writer_have_heard_of_the_same_losses(late: int) -> None:
    cluster = Cluster(3, 8)
    name, *_ = names_at(cluster, 0)
    handle, attr = cluster.call(1, "open_path", b"/" + name, os.O_WRONLY | os.O_CREAT, 0o644, STRIPED, STRIPE, -1)
    cluster.call(1, "write", handle, 0, b"y" * 5 * STRIPE)
    cluster.held_links = {(2, late)}
    lose(cluster, 2, *range(64))
    cluster.contents.lost.add(Attr(*attr).ino)
    while not cluster.nodes[1 - late].fs.members.losses_seen:
        assert cluster.step()
    closing = cluster.start(1, "close", handle)
    end = cluster.time + PATIENCE_S / 2
    while cluster.time < end:
        assert cluster.step()
    assert closing not in cluster.answers
    cluster.held_links = set()
    cluster.finish(closing)
    cluster.settle()
    assert [refused(cluster, node, "open_path", b"/" + name, os.O_RDONLY, 0, -1, 0, -1) for node in living(cluster)] == [errno.EIO] * 3


@pytest.mark.parametrize("late", [0, 1])
def test_an_opening_waits_until_shard_and_reader_have_heard_of_the_same_losses(late: int) -> None:
    cluster = Cluster(3, 9)
    name, *_ = names_at(cluster, 0)
    write(cluster, 1, b"/" + name, b"z" * 5 * STRIPE, STRIPED)
    cluster.held_links = {(2, late)}
    lose(cluster, 2, *range(64))
    while not cluster.nodes[1 - late].fs.members.losses_seen:
        assert cluster.step()
    opening = cluster.start(1, "open_path", b"/" + name, os.O_RDONLY, 0, -1, 0, -1)
    for _ in range(200):
        cluster.step()
    if late == 1:  # the record says so
        assert cluster.answers[opening][0] == errno.EIO
    else:
        assert opening not in cluster.answers
        cluster.held_links = set()
        with pytest.raises(OSError, match="EIO"):
            cluster.finish(opening)


def names_at(cluster: Cluster, node: int, count: int = 1) -> list[bytes]:
    meta = cluster.nodes[0].meta
    return [name for name in (b"%d" % i for i in range(100)) if owner(cluster, meta.name_partition(1, name)) == node][:count]


def backup(cluster: Cluster, name: bytes) -> int:
    part = cluster.nodes[0].meta.name_partition(1, name)
    found = cluster.table.backup_of(part)
    assert found is not None
    return found


# ── names ──────────────────────────────────────────────────────────────────────────────────────────


def kill_together(cluster: Cluster, *numbers: int) -> None:
    """All of them die before anybody learns of it."""
    for number in numbers[:-1]:
        cluster.dead.add(number)
        cluster.forget_messages(number)
        cluster.table = cluster.table.without(number)
    cluster.table = PartitionTable(cluster.table.owners, cluster.table.version)
    cluster.kill(numbers[-1])


@pytest.mark.parametrize("seed", [*range(50), 128, 327, 339])  # 128…: closings that replaced content of others
def test_no_acknowledged_name_is_lost_with_any_one_node_at_any_moment(seed: int) -> None:
    """While nodes join, too: whatever was answered is there, with the content if a living node has that, else as lost."""
    rng = random.Random(seed)
    cluster = Cluster(rng.choice((2, 3, 4)), seed)
    expected: dict[bytes, bytes] = {}
    removed: set[bytes] = set()
    tokens: dict[object, bytes] = {}
    number = len(cluster.nodes)

    def make_some(count: int) -> None:
        for _ in range(count):
            path = b"/f%d" % rng.randrange(60)
            node = rng.choice(living(cluster))
            match rng.randrange(4):
                case 0 if path in expected:
                    assert refused(cluster, node, "unlink_path", path) == 0
                    del expected[path]
                    removed.add(path)
                case 1 if path in expected and path + b"x" not in expected:
                    assert refused(cluster, node, "rename_path", path, path + b"x", 0) == 0
                    expected[path + b"x"] = expected.pop(path)
                    removed.add(path)
                    removed.discard(path + b"x")
                case _:
                    data = b"%d" % rng.randrange(10**6)
                    write(cluster, node, path, data, flags=os.O_CREAT | os.O_TRUNC)
                    expected[path] = data
                    removed.discard(path)

    make_some(40)
    if rng.random() < 0.5:
        cluster.nodes[number] = type(cluster.nodes[0])(cluster, number)
        cluster.table = cluster.table.with_nodes([number])
        cluster.view()
        cluster.wander(rng.choice((5, 50, 200)))
    for _ in range(rng.choice((0, 5))):  # under way when it dies
        path = b"/late%d" % len(tokens)
        node = rng.choice(living(cluster))
        tokens[cluster.start(node, "open_path", path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, WHOLE, 0, -1)] = path
    cluster.wander(rng.choice((1, 20, 60)))
    acknowledged = {path for token, path in tokens.items() if cluster.answers.get(token, (1, None))[0] == 0}
    cluster.kill(rng.choice(living(cluster)))
    make_some(10)
    cluster.settle()
    for node in living(cluster):
        there = {b"/" + name for name in listed(cluster, node)}
        assert set(expected) | acknowledged <= there <= set(expected) | set(tokens.values()), (node, there ^ set(expected))
    for path, data in expected.items():
        node = rng.choice(living(cluster))
        attr = Attr(*cluster.call(node, "walk", path, True)[0])
        if attr.finished == LOST:
            assert refused(cluster, node, "open_path", path, os.O_RDONLY, 0, -1, 0, -1) == errno.EIO
        else:
            assert read(cluster, node, path) == data
    for path in removed:
        assert refused(cluster, rng.choice(living(cluster)), "walk", path, True) == errno.ENOENT
    for node in living(cluster):
        own, backed, unsure = cluster.nodes[node].meta.count_backups()
        assert unsure == 0 and (backed == own or len(living(cluster)) == 1), "a partition without a backup that is in step"


@pytest.mark.parametrize("seed", range(12))
def test_names_survive_one_death_after_the_other(seed: int) -> None:
    cluster = Cluster(4, seed)
    paths = [b"/%d" % number for number in range(40)]
    for path in paths:
        write(cluster, cluster.random.randrange(4), path, path)
    for _ in range(3):
        cluster.kill(cluster.random.choice(living(cluster)))
        cluster.settle()
        assert listed(cluster, living(cluster)[0]) == sorted(path[1:] for path in paths)
        assert refused(cluster, living(cluster)[0], "walk", b"/never", True) == errno.ENOENT


def test_a_name_that_may_have_gone_with_owner_and_backup_is_no_absent_one() -> None:
    cluster = Cluster(4, 3)
    name = names_at(cluster, 1)[0]
    other = backup(cluster, name)
    replaced, to, *_ = (each for each in names_at(cluster, 1, 20) if backup(cluster, each) == other and each != name)
    write(cluster, 0, b"/" + name, b"gone")
    write(cluster, 0, b"/" + replaced, b"gone")
    cluster.settle()
    kill_together(cluster, 1, other)
    cluster.settle()
    node = living(cluster)[0]
    # Whatever it contained, it is replaced. (So a run's task makes an output again.)
    write(cluster, node, b"/" + replaced, b"new", flags=os.O_CREAT | os.O_TRUNC)
    assert read(cluster, living(cluster)[1], b"/" + replaced) == b"new"
    assert refused(cluster, node, "walk", b"/" + name, True) == errno.EIO
    assert refused(cluster, node, "open_path", b"/" + name, os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1) == errno.EIO
    assert refused(cluster, node, "open_path", b"/" + name, os.O_RDWR | os.O_TRUNC, 0o644, -1, 0, -1) == errno.EIO
    assert refused(cluster, node, "unlink_path", b"/" + name) == errno.EIO
    assert refused(cluster, node, "rename_path", b"/" + name, b"/" + to, 0) == errno.EIO
    assert cluster.call(node, "list_path", b"/", 0, LISTED)[2], "a listing that may lack names says so"
    assert int(cluster.call(node, "get_xattr_path", b"/", b"user.amfs.losses")) > 0
    cluster.call(node, "set_xattr_path", b"/", b"user.amfs.losses", b"accepted", 0)
    assert refused(cluster, node, "walk", b"/" + name, True) == errno.ENOENT
    assert listed(cluster, node) == [replaced]
    write(cluster, node, b"/" + name, b"anew")
    assert read(cluster, living(cluster)[1], b"/" + name) == b"anew"


def record_lost(link: bool = False) -> tuple[Cluster, int, bytes]:
    """A session, a living node of it, and a name of which the record died with owner and backup; ``link``: /link leads to it."""
    cluster = Cluster(4, 9)
    old = names_at(cluster, 2)[0]
    other = backup(cluster, old)
    keeper = next(node for node in range(4) if node not in (2, other))
    new = next(name for name in names_at(cluster, keeper, 20) if backup(cluster, name) not in (2, other))
    write(cluster, keeper, b"/" + old, b"renamed")
    cluster.call(keeper, "rename_path", b"/" + old, b"/" + new, 0)
    if link:
        cluster.call(keeper, "symlink_path", new, b"/link")
    cluster.settle()
    kill_together(cluster, 2, other)
    cluster.settle()
    return cluster, keeper, new


def test_a_name_whose_record_went_with_owner_and_backup_is_an_error_at_once_and_can_be_removed() -> None:
    cluster, keeper, new = record_lost()
    began = cluster.time
    assert refused(cluster, keeper, "walk", b"/" + new, True) == errno.EIO
    (name, attr), *_ = cluster.call(keeper, "list_path", b"/", 0, LISTED)[0]
    assert (bytes(name), Attr(*attr).finished) == (new, LOST)
    assert cluster.time - began < 5
    cluster.call(keeper, "unlink_path", b"/" + new)
    assert listed(cluster, keeper, some_lost=True) == []


def test_a_name_whose_record_was_lost_is_replaced_by_a_new_file() -> None:
    cluster, keeper, new = record_lost(link=True)
    opening = os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, -1, 0, -1
    assert refused(cluster, keeper, "open_path", b"/link", *opening) == errno.EIO
    write(cluster, keeper, b"/" + new, b"anew", flags=os.O_CREAT | os.O_TRUNC)
    assert read(cluster, living(cluster)[1], b"/" + new) == b"anew"


# ── partitions that move ───────────────────────────────────────────────────────────────────────────


def inodes_at(cluster: Cluster, count: int) -> list[int]:
    return [write(cluster, 0, b"/f%d" % number, b"") for number in range(count)]


def test_a_move_that_takes_minutes_keeps_nobody_from_listing() -> None:
    cluster = Cluster(2, 3)
    inodes = inodes_at(cluster, 20)
    place = {(ino, index): owner(cluster, cluster.nodes[0].meta.stripe_partition(ino, index)) for ino in inodes for index in range(40)}
    for stripe, node in place.items():
        cluster.nodes[node].stripes_here.add(stripe)
    cluster.held_works.add(w.FetchStripe)
    cluster.nodes[2] = type(cluster.nodes[0])(cluster, 2)
    cluster.table = cluster.table.with_nodes([2])
    cluster.view()
    end = cluster.time + 100
    while cluster.time < end and cluster.step():
        pass
    names = sorted(b"f%d" % number for number in range(20))
    for node in range(3):
        assert listed(cluster, node) == names
        write(cluster, node, b"/f0", b"changed by %d" % node, flags=os.O_TRUNC)
    assert cluster.nodes[2].fs.mover.is_fetching()
    cluster.held_works.clear()
    cluster.settle()
    for (ino, index), _ in place.items():
        assert (ino, index) in cluster.nodes[owner(cluster, cluster.nodes[0].meta.stripe_partition(ino, index))].stripes_here
    assert not any(node.fs.mover.is_fetching() or node.fs.mover.in_motion() for node in cluster.nodes.values())
    assert read(cluster, 1, b"/f0") == b"changed by 2"
    cluster.check()


@pytest.mark.parametrize("seed", range(16))
def test_tables_that_follow_each_other_while_partitions_are_on_their_way_lose_nothing(seed: int) -> None:
    cluster = Cluster(2, seed)
    rng = random.Random(seed)
    real = Real(cluster)
    content: dict[bytes, bytes] = {}
    cluster.held_links.update({(1, 0)} if seed % 2 else set())  # answers of a node that is slow
    for number in range(2, 7):
        for _ in range(6):
            path, data = b"/%d" % rng.randrange(15), b"%d" % rng.randrange(10**6)
            if path in content and rng.random() < 0.3:
                real.do("unlink_path", path, node=0 if not cluster.held_links else 1)
                del content[path]
            elif not cluster.held_links:
                write(cluster, rng.choice(sorted(cluster.nodes)), path, data, flags=os.O_CREAT | os.O_TRUNC)
                content[path] = data
        cluster.nodes[number] = type(cluster.nodes[0])(cluster, number)
        cluster.table = cluster.table.with_nodes([number])
        cluster.view()
        if cluster.held_links:
            end = cluster.time + 40  # longer than an answer is waited for
            while cluster.time < end and cluster.step():
                pass
            cluster.held_links.clear()
        cluster.wander(40)
    cluster.settle()
    for node in cluster.nodes.values():
        assert not node.fs.mover.in_motion() and not node.fs.mover.is_fetching()
    assert listed(cluster, 0) == sorted(path[1:] for path in content)
    for path, data in content.items():
        assert read(cluster, rng.choice(sorted(cluster.nodes)), path) == data
    cluster.check()


@pytest.mark.parametrize("seed", range(12))
def test_a_node_that_dies_while_its_partitions_are_on_their_way_takes_only_its_own_along(seed: int) -> None:
    cluster = Cluster(3, seed)
    names = [b"d%02d" % number for number in range(20)]
    for name in names:
        cluster.call(0, "mkdir_path", b"/" + name, 0o755, False)
    inodes = {b"/%d" % number: write(cluster, 0, b"/%d" % number, b"z" * 3 * STRIPE, STRIPED) for number in range(20)}
    meta = cluster.nodes[0].meta
    before = cluster.table
    at = {path: [before.owners[meta.stripe_partition(ino, index)] for index in range(3)] for path, ino in inodes.items()}
    for path, ino in inodes.items():
        for index, node in enumerate(at[path]):
            cluster.nodes[node].stripes_here.add((ino, index))
    cluster.nodes[3] = type(cluster.nodes[0])(cluster, 3)
    cluster.table = cluster.table.with_nodes([3])
    cluster.view()
    cluster.wander(120)
    cluster.kill(1)
    cluster.settle()
    for node in living(cluster):
        assert listed(cluster, node) and set(names) <= set(listed(cluster, node))
        assert not cluster.nodes[node].fs.mover.in_motion() and not cluster.nodes[node].fs.mover.is_fetching()
    for path, ino in inodes.items():
        error = refused(cluster, 0, "open_path", path, os.O_RDONLY, 0, -1, 0, -1)
        here = [any((ino, index) in cluster.nodes[node].stripes_here for node in living(cluster)) for index in range(3)]
        assert all(here) or error in (errno.EIO, errno.ENOENT), (path, here, error)


@pytest.mark.parametrize("knows", [(), (2,)], ids=["nobody-knows", "another-knows"])
def test_a_manager_that_was_not_introduced_learns_the_directories(knows: tuple[int, ...]) -> None:
    """The one before it died first. What another node has been told it has, too; else the session begins again, without directories."""
    cluster = Cluster(1)
    cluster.call(0, "mkdir_path", b"/old", 0o755, False)
    for number in knows:
        cluster.join(number)
    unknown = [node for node in (1, 2) if node not in knows]
    cluster.held_links.update((0, node) for node in unknown)
    for number in unknown:
        cluster.nodes[number] = Node(cluster, number)
        cluster.table = cluster.table.with_nodes([number])
    cluster.view()
    for _ in range(200):
        cluster.step()
    assert [node for node in (1, 2) if cluster.nodes[node].fs.members.introduced] == list(knows)
    cluster.kill(0)
    cluster.settle()
    cluster.call(1, "mkdir_path", b"/new", 0o755, False)
    found = [[bytes(name) for name, _ in cluster.call(node, "list_path", b"/", 0, 100)[0]] for node in (1, 2)]
    assert sorted(found[0]) == sorted(found[1]) == ([b"new", b"old"] if knows else [b"new"])
    cluster.check()


@pytest.mark.parametrize("seed", range(6))
def test_changes_that_backups_do_not_hear_of_are_errors_and_nothing_waits(seed: int) -> None:
    cluster = Cluster(3, seed)
    cluster.settle()
    cluster.silent = True
    results = {refused(cluster, node, "mkdir_path", b"/d%d" % node, 0o755, False) for node in range(3)}
    for number in range(12):
        node = number % 3
        try:
            write(cluster, node, b"/f%d" % number, b"x")
        except OSError as error:
            results.add(error.errno or 0)
    assert results <= {0, errno.EIO} and errno.EIO in results
    cluster.silent = False
    cluster.join(3)
    assert all(node.meta.backed_up() == node.meta.ticket() for node in cluster.nodes.values())
    write(cluster, 0, b"/after", b"y")
    assert read(cluster, 3, b"/after") == b"y"
    for node in cluster.nodes.values():
        node.meta.check()


@pytest.mark.parametrize("seed", range(12))
def test_directories_are_made_while_nodes_join(seed: int) -> None:
    """A new node has partitions before it knows the directories: its introduction must not wait for the change that waits for it."""
    cluster = Cluster(2, seed)
    cluster.settle()
    names = [b"d%d" % number for number in range(12)]
    asked = [cluster.start(number % 2, "mkdir_path", b"/" + name, 0o755, False) for number, name in enumerate(names)]
    cluster.wander(60)
    before = cluster.time
    cluster.join(2)
    cluster.join(3)
    for token in asked:
        cluster.finish(token)
    assert cluster.time - before < 10, "something waited until it was given up"
    for node in range(4):
        assert listed(cluster, node) == sorted(names)
    cluster.check()


@pytest.mark.parametrize("seed", range(8))
def test_records_that_come_once_more_replace_nothing_and_bring_nothing_back(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(2, seed)
    for number in range(40):
        write(cluster, number % 2, b"/f%d" % number, b"old")
    sent: list[tuple[int, Received]] = []
    tell = cluster.tell

    def overhear(node: Node, event: Any) -> None:
        if isinstance(event, Received) and isinstance(event.message, m.PeerRequest) and event.message.call[0] == "Arrive":
            sent.append((node.number, event))
        tell(node, event)

    monkeypatch.setattr(cluster, "tell", overhear)
    cluster.join(2)
    cluster.join(3)
    assert sent
    again = list(sent)
    for number in range(40):
        if number % 3 == 0:
            cluster.call(number % 4, "unlink_path", b"/f%d" % number)
        elif number % 3 == 1:
            write(cluster, number % 4, b"/f%d" % number, b"newer", flags=os.O_TRUNC)
    for number in range(40, 60):
        write(cluster, number % 4, b"/f%d" % number, b"new")
    cluster.random.shuffle(again)
    for node, event in again:
        tell(cluster.nodes[node], event)
    cluster.settle()
    expected = {b"f%d" % number: (b"old", b"newer")[number % 3 == 1] for number in range(40) if number % 3}
    expected |= {b"f%d" % number: b"new" for number in range(40, 60)}
    assert listed(cluster, 0) == sorted(expected)
    for name, content in expected.items():
        assert read(cluster, cluster.random.randrange(4), b"/" + name) == content
    cluster.check()
