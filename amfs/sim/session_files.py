"""Files of the session (``amfs:/``) that simulated tasks read and make: how a node moves them, and a look at them from outside.

The content of such a file is its name: one making of it is as good as another, and anything else is noticed.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from amfs._native import Meta
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import LOST, ROOT, Attr
from amfs.vocabulary.messages import CLIENT_ID_MIN
from amfs.vocabulary.paths import namespace_path

if TYPE_CHECKING:
    from amfs.sim.file_backend import SimFileBackend
    from amfs.sim.node_io import NodeIO
    from amfs.sim.world import World

# ── a node's I/O ───────────────────────────────────────────────────────────────────────────────────


def serve(files: SimFileBackend, node_io: NodeIO) -> None:
    """Have the file system of a node move content from and to the store of its runs."""

    def to_store(order: w.ToStore) -> int:
        found = bytes(files.content(order.ino, order.opened))
        assert found == content_of(_short(order.key)), f"node {files.number} stages {found[:60]!r} as {order.key}"
        size = node_io.workload.size_of(_short(order.key))
        node_io.keep(node_io.path_of(order.key), size, node_io.world.stamp())
        return size

    def from_store(order: w.FromStore) -> int:
        if not node_io.has(order.key):
            raise OSError(errno.ENOENT, "not in the store")
        data = content_of(_short(order.key))
        if order.ino:
            files.parts[order.ino] = bytearray(data)
            files.contents.written[order.ino] = files.contents.clock()
        else:
            files.write(w.Write(order.handle, 0, data))
        return node_io.workload.size_of(_short(order.key))

    files.serve(w.ToStore.by(to_store), w.FromStore.by(from_store), w.OwnerOfStored.by(lambda order: (0, 0, 0o644, 0o755)))


def _short(key: str) -> str:
    return key.partition("/")[2]


def content_of(name: str) -> bytes:
    return name.encode()


# ── what is there ──────────────────────────────────────────────────────────────────────────────────


class Elsewhere(Exception):
    """Partitions are on their way: it is not to be seen now."""


def _living(world: World) -> dict[int, Any]:
    """Nodes, by their numbers."""
    return {number: process for number, process in world.processes.items() if process.alive and number < CLIENT_ID_MIN}


def _newest_table(nodes: dict[int, Any]) -> Meta:
    """The metadata of the node that has the newest table of partitions."""
    members = [node.core.fs.members for node in nodes.values() if node.core.fs is not None]
    meta: Meta = nodes[max(members, key=lambda one: one.version).node].files.meta
    return meta


def record_of(world: World, ino: int) -> tuple[Attr | None, list[int]]:
    """The record of a file of the session, and the nodes that hold it; None: there is no such file. Raises Elsewhere."""
    nodes = _living(world)
    table = _newest_table(nodes)
    try:
        owner = nodes[table.owner(table.ino_partition(ino))].files.meta
        return Attr(*owner.getattr(ino, -1)), list(owner.holders(ino))
    except KeyError:
        raise Elsewhere from None
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None, []
        raise Elsewhere from None


def look(world: World, name: str) -> tuple[Attr | None, bytes]:
    """The record and the content of a file of the session, seen from outside; None: there is no such file. Raises Elsewhere."""
    nodes = _living(world)
    metas: dict[int, Meta] = {number: node.files.meta for number, node in nodes.items()}
    table = _newest_table(nodes)
    *above, last = namespace_path(name)[1:].split(b"/")
    try:
        dir = ROOT
        for each in above:
            dir = table.dir_find(dir, each)[0]
        ino = metas[table.owner(table.name_partition(dir, last))].lookup(dir, last, -1)[0]
        owner = metas[table.owner(table.ino_partition(ino))]
        attr, holders = Attr(*owner.getattr(ino, -1)), owner.holders(ino)
    except KeyError:
        raise Elsewhere from None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EIO):  # EIO: names were lost, and perhaps this one
            return None, b""
        raise Elsewhere from None
    parts = [bytes(nodes[holder].files.parts.get(ino, b"not there")) for holder in holders if holder in nodes]
    return attr, parts[0] if parts else b"nowhere"


def lost_of(world: World, names: tuple[str, ...]) -> list[str]:
    """Those whose content is lost. Raises Elsewhere."""
    found = []
    for name in names:
        attr, _ = look(world, name)
        if attr is not None and attr.finished == LOST:
            found.append(name)
    return found
