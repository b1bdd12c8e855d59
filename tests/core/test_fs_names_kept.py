"""Nodes that die, and partitions that move: no acknowledged name is lost, and nothing is silently wrong."""

from __future__ import annotations

import errno
import os
import random
from typing import Any

import pytest
from fs_cluster import Cluster, Node, Real
from fs_steps import (
    LISTED,
    backup,
    inodes_at,
    kill_together,
    listed,
    living,
    name_at,
    names_at,
    owner,
    read,
    record_lost,
    refused,
    write,
)

from amfs.sim.file_backend import STRIPE
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import messages as m
from amfs.vocabulary.attr import LOST, STRIPED, WHOLE, Attr
from amfs.vocabulary.events import Received


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
    """The one before it died first. It also has the news that another node has; else the session begins again, without directories."""
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
    for each in cluster.nodes.values():
        each.meta.check()


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
        call: Any = event.message.call if isinstance(event, Received) and isinstance(event.message, m.PeerRequest) else [""]
        if call[0] == "Arrive":
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


def test_a_listing_that_meets_a_death_is_made_again() -> None:
    """The first page. A dump that began within two seconds of a node's death ended with an error (soak of versitygw)."""
    cluster = Cluster(3, 5)
    names = {name for node in range(3) for name in names_at(cluster, node, 2)}
    for name in names:
        write(cluster, 0, b"/" + name, b"x")
    cluster.settle()
    token = cluster.start(0, "list_path", b"/", 0, LISTED)
    cluster.kill(1)  # before it has answered
    found = cluster.finish(token)
    assert {entry[0] for entry in found[0]} == names and not found[2]


def test_a_file_that_another_closes_before_its_maker_is_answered_is_still_its_makers() -> None:
    """Seed 8001085: the record waited for a backup. A reader of the same node closed the file meanwhile, which passed for the end of the
    writing; later writes were in no record."""
    cluster = Cluster(3)
    path = b"/" + name_at(cluster, 0)
    cluster.held_backups = True
    token = cluster.start(0, "open_path", path, os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1)
    for _ in range(50):
        cluster.step()
    assert token not in cluster.answers
    handle, _ = cluster.call(0, "open_path", path, os.O_RDONLY, 0, -1, 0, -1, endpoint=2)
    assert bytes(cluster.call(0, "read", handle, 0, 10, endpoint=2)) == b""
    cluster.call(0, "close", handle, endpoint=2)
    cluster.held_backups = False
    handle, _ = cluster.finish(token)
    cluster.settle()
    cluster.call(0, "write", handle, 0, b"all of it")
    cluster.call(0, "close", handle)
    assert [read(cluster, node, path) for node in (0, 1)] == [b"all of it"] * 2
    cluster.settle()
    cluster.check()
