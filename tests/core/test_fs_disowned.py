"""Files whose making was not answered: whoever wanted them was told so, and the record does not stay "being written" by that node."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from fs_cluster import Cluster
from fs_steps import name_at, read, refused, write

from amfs.sim.file_backend import STRIPE
from amfs.vocabulary.attr import STRIPED, WHOLE, Attr


def begin_making(cluster: Cluster, node: int, path: bytes, layout: int = WHOLE) -> object:
    stripe = STRIPE if layout == STRIPED else 0
    return cluster.start(node, "open_path", path, os.O_WRONLY | os.O_CREAT, 0o644, layout, stripe, -1)


def error_of(cluster: Cluster, token: object) -> int:
    try:
        cluster.finish(token)
    except OSError as error:
        return error.errno or 0
    return 0


def until(cluster: Cluster, condition: Callable[[], bool]) -> None:
    """Deliver until then: not more, or time would pass."""
    while not condition():
        assert cluster.step()


def recorded(cluster: Cluster, name: bytes) -> Attr | None:
    """By whichever node has it."""
    for number in sorted(set(cluster.nodes) - cluster.dead):
        try:
            _, _, attr = cluster.nodes[number].meta.lookup(1, name, number)
        except OSError:
            continue
        if attr is not None:
            return Attr(*attr)
    return None


@pytest.mark.parametrize("layout", [WHOLE, STRIPED], ids=["whole", "striped"])
@pytest.mark.parametrize("seed", range(6))
def test_a_file_whose_maker_is_not_answered_is_finished_when_its_shard_has_died(seed: int, layout: int) -> None:
    cluster = Cluster(3, seed)
    name = name_at(cluster, 1)
    token = begin_making(cluster, 0, b"/" + name, layout)
    until(cluster, lambda: recorded(cluster, name) is not None)
    cluster.held_links.add((1, 0))
    meta = cluster.nodes[1].meta
    until(cluster, lambda: meta.backed_up() == meta.ticket())
    assert token not in cluster.answers
    cluster.kill(1)
    assert error_of(cluster, token) == errno.EIO
    cluster.settle()
    attr = recorded(cluster, name)
    assert attr is not None, "its backup knows of it"
    assert (attr.writer, attr.finished, attr.size) == (-1, 1, 0)
    assert [read(cluster, node, b"/" + name) for node in (2, 0)] == [b"", b""]
    write(cluster, 2, b"/" + name, b"anew", flags=os.O_CREAT | os.O_TRUNC)
    assert [read(cluster, node, b"/" + name) for node in (0, 2)] == [b"anew"] * 2
    cluster.settle()
    cluster.check()


@pytest.mark.parametrize("look", ["read", "stat"])
def test_a_file_that_is_made_when_its_maker_has_given_up_is_finished_when_somebody_looks(look: str) -> None:
    """Its shard lived, and was slow: when the maker asked what had become of the file there was none yet, or no answer came."""
    cluster = Cluster(3)
    name = name_at(cluster, 1)
    cluster.held_links.add((0, 1))
    token = cluster.start(0, "create", 1, name, 0o644, os.O_WRONLY)
    assert error_of(cluster, token) == errno.EIO
    cluster.settle()  # nor is there an answer to what it has asked since
    cluster.held_links.clear()
    cluster.settle()
    attr = recorded(cluster, name)
    assert attr is not None and attr.writer == 0 and not attr.finished
    if look == "read":
        assert read(cluster, 2, b"/" + name) == b""
    else:
        assert Attr(*cluster.call(2, "walk", b"/" + name, True)[0]).finished
    attr = recorded(cluster, name)
    assert attr is not None and attr.writer == -1 and attr.finished
    cluster.settle()
    cluster.check()


def test_a_making_that_backups_did_not_confirm_leaves_no_writer() -> None:
    """The maker has the record itself."""
    cluster = Cluster(3)
    name = name_at(cluster, 0)
    cluster.held_backups = cluster.silent = True
    assert refused(cluster, 0, "open_path", b"/" + name, os.O_WRONLY | os.O_CREAT, 0o644, -1, 0, -1) == errno.EIO
    cluster.held_backups = cluster.silent = False
    cluster.settle()
    attr = recorded(cluster, name)
    assert attr is not None and attr.writer == -1 and attr.finished
    cluster.check()


@pytest.mark.parametrize("layout", [WHOLE, STRIPED], ids=["whole", "striped"])
@pytest.mark.parametrize("seed", range(8))
def test_whoever_looks_takes_nothing_from_a_writer_that_is_closing_the_file(seed: int, layout: int) -> None:
    """Its record says that the node writes it, and no handle is open there any more: the closing is still to be told."""
    cluster = Cluster(3, seed)
    path = b"/" + name_at(cluster, 1)
    handle, _ = cluster.finish(begin_making(cluster, 0, path, layout))
    cluster.call(0, "write", handle, 0, b"all of it")
    cluster.held_links.add((0, 1))
    closing = cluster.start(0, "close", handle)
    looks = [cluster.start(2, "walk", path, True), cluster.start(2, "open_path", path, os.O_RDONLY, 0, -1, 0, -1)]
    for _ in range(cluster.random.randrange(60)):
        if cluster.time < 5:  # else answers come too late
            cluster.step()
    cluster.held_links.clear()
    assert error_of(cluster, closing) == 0
    assert error_of(cluster, looks[0]) == 0
    handle, _ = cluster.finish(looks[1])
    cluster.call(2, "close", handle)
    assert [read(cluster, node, path) for node in (0, 1, 2)] == [b"all of it"] * 3
    cluster.settle()
    cluster.check()


@pytest.mark.parametrize("home", [0, 1])
@pytest.mark.parametrize("seed", range(8))
def test_whoever_looks_takes_nothing_from_a_maker_that_is_not_answered_yet(seed: int, home: int) -> None:
    """The record is there, and waits for its backup. Others look at it meanwhile, and open and close it."""
    cluster = Cluster(3, seed)
    path = b"/" + name_at(cluster, home)
    cluster.held_backups = True
    making = begin_making(cluster, 0, path)
    until(cluster, lambda: recorded(cluster, path[1:]) is not None)
    assert making not in cluster.answers
    looks = [cluster.start(node, "walk", path, True) for node in (0, 1, 2)]
    opens = [(node, cluster.start(node, "open_path", path, os.O_RDONLY, 0, -1, 0, -1, endpoint=2)) for node in (0, 1, 2)]
    for _ in range(cluster.random.randrange(400)):
        if cluster.time < 5:  # as above
            cluster.step()
        for node, token in opens:
            if token in cluster.answers:
                cluster.start(node, "close", cluster.answers.pop(token)[1][0], endpoint=2)
                opens.remove((node, token))
                break
    assert making not in cluster.answers
    cluster.held_backups = False
    handle, _ = cluster.finish(making)
    for token in looks:
        cluster.finish(token)
    for node, token in opens:
        other, _ = cluster.finish(token)
        cluster.call(node, "close", other, endpoint=2)
    cluster.settle()
    cluster.call(0, "write", handle, 0, b"all of it")
    cluster.call(0, "close", handle)
    assert [read(cluster, node, path) for node in (0, 1, 2)] == [b"all of it"] * 3
    cluster.settle()
    cluster.check()
