"""Nodes that die: directories stay, and content that is lost is an error."""

from __future__ import annotations

import errno
import os

import pytest
from fs_cluster import Cluster, Node
from fs_steps import (
    LISTED,
    full,
    listed,
    listed_directories,
    living,
    lose,
    name_at,
    names_at,
    new_node,
    owner,
    read,
    refused,
    write,
)

from amfs.fs.vfs.calls import PATIENCE_S
from amfs.fs.vfs.directories import RENAME_EXCHANGE, RENAME_NOREPLACE
from amfs.sim.file_backend import STRIPE
from amfs.vocabulary import messages as m
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.attr import LOST, META_SET_MODE, STRIPED, WHOLE, Attr
from amfs.vocabulary.events import Received


def test_a_node_is_introduced_while_a_change_of_directories_waits() -> None:
    """It waited for its turn, while the change waited for it: for half a minute no directory could be made, when a node joined just after
    another had died (simulator seed 1032)."""
    cluster = Cluster(3)
    cluster.held_links = {(0, 1)}
    cluster.contents.reachable = lambda a, b: {a, b} != {0, 1}  # else C might ask past the link
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


@pytest.mark.parametrize("truncate", [0, os.O_TRUNC])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("seed", [10, 16, 34, 55])  # in which the backup's news would come last
def test_an_older_content_that_others_hold_is_not_what_a_dead_writer_left(seed: int, held: bool, truncate: int) -> None:
    """A program has opened it to write it. Nobody knows what it has written since, or if it has closed it. ``held``: the writer's
    node had the content before."""
    for home in range(3):
        cluster = Cluster(3, seed)
        numbers = iter(range(100))
        while owner(cluster, cluster.nodes[0].meta.ino_partition(write(cluster, 0, path := b"/f%d" % next(numbers), b"old"))) != home:
            pass
        for node in (1, 2) if held else (1,):
            assert read(cluster, node, path) == b"old"
        cluster.settle()
        handle, _ = cluster.call(2, "open_path", path, os.O_RDWR | truncate, 0, -1, 0, -1)
        assert cluster.nodes[home].fs.calls.unsettled() is None, "a backup has not heard of the writer"
        cluster.call(2, "write", handle, 0, b"new")
        cluster.kill(2)
        cluster.settle()
        for node in (0, 1):
            assert refused(cluster, node, "open_path", path, os.O_RDONLY, 0, -1, 0, -1) == errno.EIO
        write(cluster, 1, path, b"anew", flags=os.O_TRUNC)
        assert [read(cluster, node, path) for node in (0, 1)] == [b"anew", b"anew"]
        cluster.check()


@pytest.mark.parametrize("seed", range(16))
def test_a_file_that_is_closed_while_the_owner_of_its_record_dies_has_its_content(seed: int) -> None:
    """The writer lives. Its content is there, although the owner may have died before it heard of the closing, or before its answer."""
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


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC], ids=str)
@pytest.mark.parametrize("asker", [0, 1])
def test_a_file_is_opened_while_the_node_of_its_record_dies(flags: int, asker: int) -> None:
    """To open it was EIO, though its content and its record live on: the node that had died was not asked once more through its heir. Who
    was let in to write by the dead one has no content by that, and brings it. ``asker``: has the content, or not."""
    for steps in range(1, 60, 2):
        cluster = Cluster(4, steps)
        name = names_at(cluster, 2)[0]
        ino = write(cluster, 0, b"/" + name, b"kept")
        cluster.settle()
        token = cluster.start(asker, "open", ino, flags)
        for _ in range(steps):
            if token not in cluster.answers:
                cluster.step()
        cluster.kill(2)
        opened = cluster.finish(token)
        expected = b"" if flags & os.O_TRUNC else b"kept"
        assert bytes(cluster.nodes[asker].content(ino, opened)) == expected
        cluster.call(asker, "closed", ino, flags != os.O_RDONLY, True, None)
        cluster.settle()
        for node in living(cluster):
            assert read(cluster, node, b"/" + name) == expected, (steps, node)


@pytest.mark.parametrize("seed", range(6))
def test_who_was_let_in_to_write_by_a_node_that_died_before_it_said_so_brings_the_content(seed: int) -> None:
    """The heir knows it as the writer, and does not say that it has just become that: the part there need not be the content."""
    cluster = Cluster(4, seed)
    name = names_at(cluster, 2)[0]
    ino = write(cluster, 0, b"/" + name, b"first")
    handle, _ = cluster.call(0, "open_path", b"/" + name, os.O_RDWR, 0, -1, 0, -1)
    cluster.call(0, "write", handle, 0, b"other")
    record = cluster.nodes[2].meta
    token = cluster.start(1, "open", ino, os.O_RDWR)
    while not cluster.links.get((2, 1)):
        cluster.step()
    while not cluster.links.get((1, 2)):  # it has looked, and the file is being written
        cluster.step()
    cluster.held_links = {(2, 1)}
    cluster.start(0, "close", handle)
    while Attr(*record.getattr(ino, 2)).writer != 1:
        cluster.step()
    for _ in range(100):
        if not (cluster.batches or cluster.taken):
            break
        cluster.step()
    assert token not in cluster.answers
    cluster.held_links = set()
    cluster.kill(2)
    opened = cluster.finish(token)
    assert bytes(cluster.nodes[1].content(ino, opened)) == b"other"


@pytest.mark.parametrize("partition", range(3))
def test_a_directory_is_made_while_the_manager_dies_or_leaves(partition: int) -> None:
    """It was EIO: a task that makes its directory failed when the manager drained. By the next manager it is made once, or was already."""
    for steps in range(1, 80, 2):
        cluster = Cluster(4, steps)
        name = names_at(cluster, partition)[0]
        token = cluster.start(3, "mkdir_path", b"/" + name, 0o755, False)
        for _ in range(steps):
            if token not in cluster.answers:
                cluster.step()
        cluster.kill(0)
        cluster.finish(token)
        assert refused(cluster, 3, "mkdir_path", b"/" + name, 0o755, False) == errno.EEXIST
        cluster.settle()
        for node in living(cluster):
            assert listed(cluster, node) == [name], (steps, node)


@pytest.mark.parametrize("partition", range(3))
def test_a_directory_is_removed_while_the_manager_dies(partition: int) -> None:
    """Likewise. Each outcome is checked on every node, and the name can be used again."""
    for steps in range(1, 80, 2):
        cluster = Cluster(4, steps)
        name = names_at(cluster, partition)[0]
        cluster.call(2, "mkdir_path", b"/" + name, 0o755, False)
        cluster.settle()
        token = cluster.start(3, "rmdir_path", b"/" + name)
        for _ in range(steps):
            if token not in cluster.answers:
                cluster.step()
        cluster.kill(0)
        cluster.finish(token)
        cluster.settle()
        for node in living(cluster):
            assert listed(cluster, node) == [], (steps, node)
        cluster.call(1, "mkdir_path", b"/" + name, 0o755, False)


@pytest.mark.parametrize("flags", [0, RENAME_NOREPLACE, RENAME_EXCHANGE])
@pytest.mark.parametrize(("partition", "to"), [(0, 0), (0, 1), (1, 0), (2, 2)])
def test_a_directory_is_renamed_while_the_manager_dies(partition: int, to: int, flags: int) -> None:
    """It was EIO, and one directory was listed under two names, or two that were to exchange theirs under none. An exchange is asked for
    once, and is done or not."""
    for steps in range(2, 80, 6):
        cluster = Cluster(4, steps)
        name, new = names_at(cluster, partition, 2)[0], names_at(cluster, to, 2)[1]
        cluster.call(2, "mkdir_path", b"/" + name, 0o755, False)
        cluster.call(2, "mkdir_path", b"/" + name + b"/inside", 0o755, False)
        if flags != RENAME_NOREPLACE:
            cluster.call(2, "mkdir_path", b"/" + new, 0o755, False)
        cluster.settle()
        token = cluster.start(3, "rename_path", b"/" + name, b"/" + new, flags)
        for _ in range(steps):
            if token not in cluster.answers:
                cluster.step()
        cluster.kill(0)
        try:
            cluster.finish(token)
            outcomes = [{new: [b"inside"]}]
        except OSError as error:
            assert error.errno == errno.EIO and flags == RENAME_EXCHANGE
            outcomes = [{new: [b"inside"]}, {name: [b"inside"]}]
        if flags == RENAME_EXCHANGE:
            outcomes = [{name: [], new: [], **outcome} for outcome in outcomes]
        cluster.settle()
        for node in living(cluster):
            assert {one: listed(cluster, node, b"/" + one) for one in listed(cluster, node)} in outcomes, (steps, node)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("dies", [1, 2])
def test_a_file_is_renamed_while_a_node_of_its_names_dies(there: bool, dies: int) -> None:
    """It had two names for good, and counted one: a program that removed the old name took the content of the new one along."""
    for steps in range(1, 60, 2):
        cluster = Cluster(4, steps)
        old, new = names_at(cluster, 1)[0], names_at(cluster, 2)[0]
        write(cluster, 3, b"/" + old, b"new content")
        if there:
            write(cluster, 3, b"/" + new, b"what was there")
        cluster.settle()
        token = cluster.start(3, "rename_path", b"/" + old, b"/" + new, 0)
        for _ in range(steps):
            if token not in cluster.answers:
                cluster.step()
        cluster.kill(dies)
        renamed = True
        try:
            cluster.finish(token)
        except OSError:
            renamed = False  # it may be, or not
        cluster.settle()
        names = listed(cluster, 3)
        if old in names and new in names:
            cluster.call(3, "unlink_path", b"/" + old)
            cluster.settle()
        for node in living(cluster):
            found = {name: read(cluster, node, b"/" + name) for name in listed(cluster, node)}
            assert found == {new: b"new content"} or (not renamed and (
                found == {old: b"new content"} or (there and found == {new: b"what was there"})
            )), (steps, node, found)  # fmt: skip


def test_a_directory_that_another_has_made_while_the_manager_died_is_not_taken_for_ours() -> None:
    cluster = Cluster(4, 5)
    cluster.call(2, "mkdir_path", b"/d", 0o755, False)
    cluster.settle()
    cluster.held_links = {(3, 0)}
    token = cluster.start(3, "mkdir_path", b"/d", 0o755, False)
    while not cluster.links.get((3, 0)):
        assert cluster.step()
    cluster.kill(0)
    cluster.held_links = set()
    with pytest.raises(OSError, match="EEXIST"):
        cluster.finish(token)


def test_the_mode_of_a_directory_is_changed_while_the_manager_dies() -> None:
    for steps in range(1, 40, 3):
        cluster = Cluster(4, steps)
        cluster.call(3, "mkdir_path", b"/d", 0o755, False)
        cluster.settle()
        token = cluster.start(3, "setattr_path", b"/d", META_SET_MODE, Attr(mode=0o700), True)
        for _ in range(steps):
            if token not in cluster.answers:
                cluster.step()
        cluster.kill(0)
        cluster.finish(token)
        cluster.settle()
        for node in living(cluster):
            assert Attr(*cluster.call(node, "walk", b"/d", True)[0]).mode & 0o777 == 0o700
