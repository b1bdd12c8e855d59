"""Steps that tests of several nodes repeat: programs on their files, nodes that come and go."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Any

from fs_cluster import Cluster, Node

from amfs.sim.file_backend import STRIPE
from amfs.vocabulary.attr import WHOLE, Attr
from amfs.vocabulary.events import TimerFired
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


def new_node(cluster: Cluster, number: int) -> Node:
    """It is a member, and nothing has been said to it yet."""
    node = cluster.nodes[number] = Node(cluster, number)
    cluster.table = cluster.table.with_nodes([number])
    return node


def name_at(cluster: Cluster, node: int) -> bytes:
    """A name in the topmost directory whose entry is that node's."""
    meta = cluster.nodes[0].meta
    return next(name for name in (b"n%d" % n for n in range(1000)) if owner(cluster, meta.name_partition(1, name)) == node)


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


def lose(cluster: Cluster, heir: int, *parts: int) -> None:
    """Stripes of these partitions were lost on their way to the heir, which begins to tell everybody."""
    node = cluster.nodes[heir]
    node.fs.calls.spawn(node.fs.stripe_moves.lose(list(parts), False))
    cluster.tell(node, TimerFired(None))


def names_at(cluster: Cluster, node: int, count: int = 1) -> list[bytes]:
    meta = cluster.nodes[0].meta
    return [name for name in (b"%d" % i for i in range(100)) if owner(cluster, meta.name_partition(1, name)) == node][:count]


def backup(cluster: Cluster, name: bytes) -> int:
    part = cluster.nodes[0].meta.name_partition(1, name)
    found = cluster.table.backup_of(part)
    assert found is not None
    return found


def kill_together(cluster: Cluster, *numbers: int) -> None:
    """All of them die before anybody learns of it."""
    for number in numbers[:-1]:
        cluster.dead.add(number)
        cluster.forget_messages(number)
        cluster.table = cluster.table.without(number)
    cluster.table = PartitionTable(cluster.table.owners, cluster.table.version)
    cluster.kill(numbers[-1])


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


def inodes_at(cluster: Cluster, count: int) -> list[int]:
    return [write(cluster, 0, b"/f%d" % number, b"") for number in range(count)]
