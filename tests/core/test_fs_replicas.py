"""Files of which more than one node shall have the content: copied before a close is answered, kept, and made again after a death."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from fs_cluster import Cluster, Node

from amfs.fs.vfs.replicas import SETTLE_S
from amfs.sim.file_backend import STRIPE
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import REMOTE, STRIPED, Attr, Opened

REPLICAS = b"user.amfs.replicas"


def session(nodes: int, seed: int, copies: int = 2, partitions: int = 64) -> Cluster:
    cluster = Cluster(nodes, seed, partitions)
    cluster.call(0, "set_xattr_path", b"/", REPLICAS, b"%d" % copies, 0)
    return cluster


def write(cluster: Cluster, node: int, path: bytes, data: bytes, layout: int = -1) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    handle, attr = cluster.call(node, "open_path", path, flags, 0o644, layout, STRIPE if layout == STRIPED else 0, -1)
    cluster.call(node, "write", handle, 0, data)
    cluster.call(node, "close", handle)
    return Attr(*attr).ino


def read(cluster: Cluster, node: int, path: bytes) -> bytes:
    handle, _ = cluster.call(node, "open_path", path, os.O_RDONLY, 0, -1, 0, -1)
    data = cluster.call(node, "read", handle, 0, 1 << 20)
    cluster.call(node, "close", handle)
    return bytes(data)


def living(cluster: Cluster) -> list[int]:
    return sorted(set(cluster.nodes) - cluster.dead)


def holders(cluster: Cluster, ino: int) -> list[int]:
    """As the record says, each of which must have the content."""
    any_node = living(cluster)[0]
    _, [found] = cluster.call(any_node, "where", (ino,))
    nodes = list(found[2])
    for node in nodes:
        assert ino in cluster.nodes[node].parts, f"node {node} is said to hold inode {ino:#x}"
    return nodes


def refused(cluster: Cluster, node: int, op: str, *args: object) -> int:
    """The errno with which it fails; 0: it does not."""
    try:
        cluster.call(node, op, *args)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def any_of(cluster: Cluster) -> int:
    return cluster.random.choice(living(cluster))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("copies", [2, 3])
def test_what_was_closed_stays_whole_while_one_node_after_the_other_dies(copies: int, seed: int) -> None:
    cluster = session(4, seed, copies)
    files = {b"/%d" % number: b"content %d" % number * (1 + number) for number in range(12)}
    inodes = {path: write(cluster, number % 4, path, data) for number, (path, data) in enumerate(files.items())}
    assert all(len(holders(cluster, ino)) == copies for ino in inodes.values())
    while len(living(cluster)) > 1:
        cluster.kill(any_of(cluster))
        for path, data in files.items():
            assert read(cluster, any_of(cluster), path) == data, "before copies were made again"
        cluster.settle()
        for ino in inodes.values():
            assert len(holders(cluster, ino)) >= min(copies, len(living(cluster))), "copies are made again"
    assert sum(cluster.nodes[living(cluster)[0]].fs.short_of_copies()) > 0, "what is asked for cannot be had, and is shown"
    cluster.check()


@pytest.mark.parametrize("copies", [2, 3])
def test_a_change_that_forgets_the_copies_is_noticed_and_they_are_made(copies: int) -> None:
    cluster = session(4, 1, copies)
    ino = write(cluster, 0, b"/file", b"content")
    owner = cluster.table.owners[cluster.nodes[0].meta.ino_partition(ino)]
    for other in holders(cluster, ino)[1:]:  # as a thread of C might, without a word to the machine
        cluster.nodes[owner].meta.damaged(ino, other, False)
        cluster.nodes[other].parts.pop(ino)
    cluster.call(owner, "getattr", ino)
    cluster.settle()
    assert len(holders(cluster, ino)) == copies


@pytest.mark.parametrize("seed", range(4))
def test_files_of_which_the_records_are_inherited_while_others_are_copied_are_copied_too(seed: int) -> None:
    """Seed 701751: a node searched for files with too few copies, and inherited records of others while it had copies made. All records had
    come when those were there, so that it did not search again: the inherited files stayed with one copy."""
    cluster = session(3, seed)
    inodes = [write(cluster, number % 3, b"/%d" % number, b"content %d" % number) for number in range(30)]
    cluster.settle()
    died = cluster.time
    others = cluster.random.sample(range(3), 2)
    cluster.held_links.update({(others[0], others[1]), (others[1], others[0])})  # so that nothing is inherited
    cluster.held_works.add(w.Fetch)
    [dies] = {0, 1, 2} - set(others)
    cluster.kill(dies)
    while cluster.time < died + SETTLE_S + 0.1:
        assert cluster.step()
    systems = [cluster.nodes[node].fs for node in others]
    assert all(fs.mover.in_motion() for fs in systems), "something was inherited before the search: the test proves nothing"
    cluster.held_links.clear()
    while any(fs.mover.in_motion() for fs in systems):
        assert cluster.step()
    assert any(cluster.slow.get(node) for node in others), "nothing is being copied: the test proves nothing"
    cluster.held_works.clear()
    cluster.settle()
    assert {fs.short_of_copies() for fs in systems} == {(0, 0)}
    assert all(len(holders(cluster, ino)) == 2 for ino in inodes)
    cluster.check()


@pytest.mark.parametrize("seed", range(4))
def test_three_copies_survive_two_deaths_at_once_where_the_record_does(seed: int) -> None:
    """Names and records are kept twice, not three times: those of which owner and backup die together are lost, by name."""
    cluster = session(5, seed, 3)
    files = {b"/%d" % number: b"content %d" % number for number in range(30)}
    for number, (path, data) in enumerate(files.items()):
        write(cluster, number % 5, path, data)
    cluster.settle()
    for _ in range(2):
        cluster.kill(any_of(cluster))
    whole = 0
    for path, data in files.items():
        node = any_of(cluster)
        if refused(cluster, node, "walk", path, True):
            assert refused(cluster, node, "walk", path, True) == errno.EIO
        else:
            assert read(cluster, node, path) == data
            whole += 1
    assert whole > 15


def test_what_a_directory_says_holds_for_what_is_made_in_it() -> None:
    cluster = Cluster(3, 1)
    for path in (b"/a", b"/a/b"):
        cluster.call(0, "mkdir_path", path, 0o755, False)
    cluster.call(1, "set_xattr_path", b"/a", REPLICAS, b"2", 0)
    inodes = [write(cluster, 0, path, b"x") for path in (b"/out", b"/a/in", b"/a/b/below")]
    said = [cluster.call(2, "get_xattr_path", path, REPLICAS) for path in (b"/", b"/a/b", b"/out", b"/a/b/below")]
    assert said == [b"1", b"2", b"1", b"2"]
    assert [len(holders(cluster, ino)) for ino in inodes] == [1, 2, 2]
    cluster.call(2, "set_xattr_path", b"/a/b", REPLICAS, b"3", 0)
    cluster.call(2, "set_xattr_path", b"/a/in", REPLICAS, b"3", 0)  # of a file that is there: answered when they are
    assert len(holders(cluster, inodes[1])) == 3
    assert len(holders(cluster, write(cluster, 1, b"/a/b/three", b"x"))) == 3
    cluster.call(0, "remove_xattr_path", b"/a/b", REPLICAS)
    assert cluster.call(2, "get_xattr_path", b"/a/b", REPLICAS) == b"2"
    for path, value in ((b"/a", b"0"), (b"/a", b"17"), (b"/a/in", b"two"), (b"/a/in", b"")):
        assert refused(cluster, 0, "set_xattr_path", path, REPLICAS, value, 0) == errno.EINVAL
    cluster.settle()
    cluster.check()


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_over_and_closed_is_whole_or_is_what_it_was(seed: int) -> None:
    """Some node dies at some moment. If the writer was not answered both contents may be there, and nothing else; or it is lost, if the
    writer's node has died."""
    cluster = session(3, seed)
    random = cluster.random
    write(cluster, random.randrange(3), b"/f", b"before")
    if random.random() < 0.5:
        read(cluster, random.randrange(3), b"/f")  # one copy more than asked for
    writer, dies = random.randrange(3), random.randrange(3)
    gateway = next(node for node in range(3) if node != dies)
    flags = os.O_WRONLY | (os.O_TRUNC if random.random() < 0.5 else 0)
    handle, attr = cluster.call(writer, "open_path", b"/f", flags, 0o644, -1, 0, -1)
    cluster.call(writer, "write", handle, 0, b"after!")
    flushes = random.random() < 0.5
    # ``secure``: as a mount does when a program closes its descriptor, before it says that its handle is closed
    token = cluster.start(writer, "secure", Attr(*attr).ino) if flushes else cluster.start(writer, "close", handle)
    if random.random() < 0.6:
        cluster.finish(token)
        answered = True
        cluster.wander(40)
    else:
        cluster.wander(60)
        answered = token in cluster.answers and not cluster.answers[token][0]
    cluster.kill(dies)
    cluster.wander(100)
    try:
        found = read(cluster, gateway, b"/f")
    except OSError as error:
        assert error.errno == errno.EIO and not answered and dies == writer
        return
    assert found in ((b"after!",) if answered or dies != writer else (b"after!", b"before"))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_flushed_is_copied_and_what_is_written_later_is_copied_when_it_is_closed(seed: int) -> None:
    cluster = session(3, seed)
    random, writer = cluster.random, cluster.random.randrange(3)
    handle, attr = cluster.call(writer, "open_path", b"/f", os.O_RDWR | os.O_CREAT, 0o644, -1, 0, -1)
    ino = Attr(*attr).ino
    cluster.call(writer, "write", handle, 0, b"one")
    cluster.call(writer, "secure", ino)
    [other] = [node for node in cluster.nodes if node != writer and ino in cluster.nodes[node].parts]
    assert cluster.nodes[other].parts[ino] == b"one"
    same = random.random() < 0.5
    if not same:
        cluster.nodes[writer].parts[ino][:] = b"two"  # by a mapping: same size, and no time has changed
    fetches = cluster.contents.fetches
    cluster.call(writer, "close", handle)
    assert cluster.contents.fetches - fetches == (0 if same else 1)
    assert len(holders(cluster, ino)) == 2
    cluster.kill(writer)
    assert read(cluster, any_of(cluster), b"/f") == (b"one" if same else b"two")
    cluster.settle()
    cluster.check()


@pytest.mark.parametrize("seed", range(10))
def test_a_file_that_is_written_through_another_node_is_copied_when_that_writer_closes(seed: int) -> None:
    cluster = session(3, seed)
    first, second = cluster.random.sample(range(3), 2)
    handle, _ = cluster.call(first, "open_path", b"/log", os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1)
    through, _ = cluster.call(second, "open_path", b"/log", os.O_WRONLY, 0o644, -1, 0, -1)
    cluster.call(first, "write", handle, 0, b"first ")
    cluster.call(second, "write", through, 6, b"second")
    cluster.call(second, "close", through)
    cluster.kill(first)  # its program has it open still
    cluster.wander(30)
    assert read(cluster, second, b"/log") == b"first second"


@pytest.mark.parametrize("way", ["close", "close through another node", "attribute"])
def test_a_copy_may_take_longer_than_a_question(way: str) -> None:
    cluster = session(3, 4, 1 if way == "attribute" else 2)
    handle, attr = cluster.call(0, "open_path", b"/big", os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1)
    cluster.call(0, "write", handle, 0, b"x" * 100)
    ask: tuple[Any, ...]
    if way == "close":
        ask = (0, "close", handle)
    elif way == "attribute":
        cluster.call(0, "close", handle)
        ask = (1, "set_xattr_path", b"/big", REPLICAS, b"2", 0)
    else:
        ask = (1, "close", cluster.call(1, "open_path", b"/big", os.O_WRONLY, 0o644, -1, 0, -1)[0])
    cluster.held_works.add(w.Fetch)
    fetches = cluster.contents.fetches
    token = cluster.start(*ask)
    while cluster.time < 200:
        cluster.step()
        assert token not in cluster.answers, "answered before there is a copy"
    cluster.held_works.clear()
    cluster.finish(token)
    assert cluster.contents.fetches - fetches == 1
    assert sum(Attr(*attr).ino in node.parts for node in cluster.nodes.values()) == 2


@pytest.mark.parametrize("seed", range(6))
def test_where_nodes_have_no_room_for_copies_the_close_says_so_and_they_are_made_later(seed: int) -> None:
    cluster = session(3, seed)
    for node in (1, 2):
        cluster.nodes[node].limit = 10
    flags = os.O_WRONLY | os.O_CREAT
    handle, attr = cluster.call(0, "open_path", b"/big", flags, 0o644, -1, 0, -1)
    cluster.call(0, "write", handle, 0, b"x" * 100)
    assert refused(cluster, 0, "close", handle) == errno.ENOSPC
    assert read(cluster, 0, b"/big") == b"x" * 100, "it is there, once"
    shown = [node.fs.short_of_copies() for node in cluster.nodes.values()]
    assert sorted(shown) == [(0, 0), (0, 0), (1, 100)]
    cluster.nodes[2].limit = 1000
    cluster.settle()
    assert holders(cluster, Attr(*attr).ino) == [0, 2]
    assert {node.fs.short_of_copies() for node in cluster.nodes.values()} == {(0, 0)}


def open_without_room(cluster: Cluster, node: int, path: bytes) -> int:
    """It is read where it lies: a file that has three copies is not laid in stripes."""
    cluster.nodes[node].limit = 3
    handle, _ = cluster.call(node, "open_path", path, os.O_RDONLY, 0, -1, 0, -1)
    assert cluster.nodes[node].handles[handle][1].kind == REMOTE
    return int(handle)


@pytest.mark.parametrize("seed", range(6))
def test_who_has_no_room_for_a_file_does_not_read_it_where_it_was_just_found_damaged(seed: int) -> None:
    """Seed 726272: a node without room read a file where it lay, and chose the first of the nodes that had it. It had just found that
    the copy there was damaged, and programs read what is damaged as long as it is not dropped."""
    cluster = session(5, seed, 3)
    ino = write(cluster, 3, b"/a", b"content")
    first = holders(cluster, ino)[0]
    record = cluster.table.owners[cluster.nodes[0].meta.ino_partition(ino)]
    assert first != record, "the damaged copy is dropped at once: the test proves nothing"
    reader = max(set(cluster.nodes) - set(holders(cluster, ino)))
    cluster.contents.flips.hit(cluster.nodes[first], ino)
    cluster.held_links.add((first, record))  # so that what is damaged stays where it is for a while
    handle = open_without_room(cluster, reader, b"/a")
    assert cluster.call(reader, "read", handle, 0, 100) == b"content"
    cluster.held_links.clear()
    cluster.settle()
    assert not cluster.contents.flips.is_damaged(cluster.nodes[first], ino), "it was dropped, and made again"
    cluster.call(reader, "close", handle)
    cluster.settle()
    cluster.check()


def test_who_reads_through_another_node_reads_what_is_open_there_and_is_refused_what_is_not() -> None:
    """Seed 726272: the simulated store gave an empty file to who read one through a node that had nothing of it. The store of a node
    refuses to open it there, and a part that is open there stays until it is closed."""
    cluster = session(5, 0, 3)
    ino = write(cluster, 0, b"/a", b"content")
    other, reader = sorted(set(cluster.nodes) - set(holders(cluster, ino)))
    with pytest.raises(OSError) as failed:
        cluster.nodes[reader].open_handle(w.OpenHandle(ino, Opened(REMOTE, other, 0, 7, 0), False, False))
    assert failed.value.errno == errno.ESTALE
    handle = open_without_room(cluster, reader, b"/a")
    cluster.call(0, "set_xattr_path", b"/a", REPLICAS, b"1", 0)
    assert write(cluster, other, b"/a", b"new") == ino
    cluster.settle()
    assert holders(cluster, ino) == [other], "what is read through another node has gone there"
    assert cluster.call(reader, "read", handle, 0, 100) == b"content"
    cluster.call(reader, "close", handle)
    cluster.settle()
    cluster.check()


def test_nodes_that_join_get_the_copies_that_there_were_no_nodes_for() -> None:
    cluster = session(1, 3, 3)
    inodes = [write(cluster, 0, b"/%d" % number, b"x%d" % number) for number in range(10)]
    assert cluster.nodes[0].fs.short_of_copies() == (10, 20)
    for number in (1, 2):
        cluster.join(number)
        assert {len(holders(cluster, ino)) for ino in inodes} == {number + 1}
    assert {node.fs.short_of_copies() for node in cluster.nodes.values()} == {(0, 0)}
    cluster.check()


def test_a_close_needs_no_copy_on_a_node_that_joins_meanwhile() -> None:
    """Seed 9506533: there could be one more copy than when they were begun, so the close was EIO."""
    cluster = session(2, 1, 3)
    handle, attr = cluster.call(0, "open_path", b"/f", os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1)
    cluster.call(0, "write", handle, 0, b"content")
    cluster.held_works.add(w.Fetch)
    closing = cluster.start(0, "close", handle)
    while not any(queue and type(queue[0].order) is w.Fetch for queue in cluster.slow.values()):
        assert cluster.step()
    cluster.nodes[2] = Node(cluster, 2)
    cluster.table = cluster.table.with_nodes([2])
    cluster.view()
    assert closing not in cluster.answers
    cluster.held_works.clear()
    cluster.finish(closing)
    cluster.settle()
    assert holders(cluster, Attr(*attr).ino) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(10))
def test_a_full_node_keeps_the_copies_that_are_asked_for(seed: int) -> None:
    cluster = session(4, seed)
    inodes = {path: write(cluster, cluster.random.randrange(4), path, path * 50) for path in (b"/%d" % number for number in range(8))}
    for path in inodes:
        for node in range(4):
            read(cluster, node, path)
    again = os.O_WRONLY | os.O_TRUNC
    tokens = [cluster.start(cluster.random.randrange(4), "open_path", path, again, 0, -1, 0, -1) for path in list(inodes)[:2]]
    for node in range(4):
        cluster.fill(node)
        cluster.wander(30)
    cluster.settle()
    for path, ino in list(inodes.items())[2:]:
        assert len(holders(cluster, ino)) == 2, "the copies for readers go, those that are asked for stay"
        assert read(cluster, any_of(cluster), path) == path * 50
    assert all(token in cluster.answers for token in tokens)


def test_striped_files_have_two_copies_at_most() -> None:
    cluster = session(2, 1)
    write(cluster, 0, b"/s", b"x" * (3 * STRIPE), STRIPED)
    cluster.settle()
    assert sum(node.fs.short_of_copies()[0] for node in cluster.nodes.values()) == 0
    for copies in (b"1", b"3"):
        assert refused(cluster, 0, "set_xattr_path", b"/s", REPLICAS, copies, 0) == errno.EOPNOTSUPP
    ino = write(cluster, 0, b"/w", b"x" * 10)
    write(cluster, 0, b"/three", b"x" * 10)
    cluster.call(0, "set_xattr_path", b"/three", REPLICAS, b"3", 0)
    assert refused(cluster, 0, "set_xattr_path", b"/three", b"user.amfs.layout", b"striped", 0) == errno.EOPNOTSUPP
    cluster.call(0, "set_xattr_path", b"/s", b"user.amfs.layout", b"whole", 0)
    assert len(holders(cluster, Attr(*cluster.call(0, "walk", b"/s", True)[0]).ino)) == 2
    cluster.call(0, "set_xattr_path", b"/w", b"user.amfs.placement", b"1", 0)
    assert holders(cluster, ino) == [0, 1], "what is placed keeps its other copy"
    assert {node.fs.short_of_copies() for node in cluster.nodes.values()} == {(0, 0)}


def test_one_copy_costs_no_message() -> None:
    """The same operations ask the same questions in a session that knows of no copies."""
    asked = []
    for copies in (1, None):
        cluster = Cluster(3, 5)
        cluster.call(0, "set_xattr_path", b"/", REPLICAS if copies else b"user.other", b"1", 0)
        cluster.settle()
        before = sum(node.fs.asked for node in cluster.nodes.values())
        for number in range(6):
            write(cluster, number % 3, b"/%d" % number, b"x")
        cluster.settle()
        asked.append(sum(node.fs.asked for node in cluster.nodes.values()) - before)
    assert asked[0] == asked[1]
    assert not cluster.contents.digests


@pytest.mark.parametrize("before", [b"", b"old"], ids=["new", "cut"])
@pytest.mark.parametrize("seed", range(4))
def test_a_file_that_was_closed_empty_is_empty_when_its_writer_dies(seed: int, before: bytes) -> None:
    """It was lost: an empty file has no copies, and the mount had said that it is closed, but not that it is finished (chaos.mixed)."""
    cluster = session(4, seed)
    if before:
        write(cluster, 0, b"/f", before)
        cluster.settle()
    cluster.call(1, "open_path", b"/f", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, -1, 0, -1)
    ino = Attr(*cluster.call(0, "walk", b"/f", True)[0]).ino
    cluster.call(1, "secure", ino)
    cluster.kill(1)
    cluster.settle()
    for node in living(cluster):
        assert read(cluster, node, b"/f") == b""


@pytest.mark.parametrize("seed", range(4))
def test_a_file_that_was_closed_empty_and_has_grown_into_stripes_since_is_not_empty(seed: int) -> None:
    """Its node dies with all that is known of its length."""
    cluster = session(4, seed)
    handle, *_ = cluster.call(1, "open_path", b"/f", os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1)
    ino = Attr(*cluster.call(0, "walk", b"/f", True)[0]).ino
    cluster.call(1, "secure", ino)
    cluster.call(1, "write", handle, 0, bytes(100))
    cluster.nodes[1].grow(ino)
    cluster.wander(20)
    cluster.call(1, "secure", ino)
    cluster.kill(1)
    cluster.settle()
    assert refused(cluster, 0, "open_path", b"/f", os.O_RDONLY, 0, -1, 0, -1) == errno.EIO
