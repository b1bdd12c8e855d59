"""Files made by attempts at blind tasks, by machines of several nodes: published or taken back wherever the records lie and go."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

import pytest
from fs_cluster import Cluster

from amfs.fs.vfs.attempts import DIRECTORY, FILE, LINK, RENAMED
from amfs.vocabulary.attr import PENDING_NODE_SHIFT, ROOT, Attr
from amfs.vocabulary.events import AttemptEnded, EndAttempt, Traces

NEW = os.O_WRONLY | os.O_CREAT


def mark(node: int, number: int) -> int:
    return (node + 1) << PENDING_NODE_SHIFT | number


def make(cluster: Cluster, node: int, number: int, dir: int, name: bytes) -> tuple[int, int, bytes, int]:
    attr, _ = cluster.call(node, "mknod", dir, name, stat.S_IFREG | 0o644, 0, mark(node, number))
    assert Attr(*attr).pending == mark(node, number)
    return FILE, dir, name, Attr(*attr).ino


def begin_end(cluster: Cluster, node: int, number: int, good: bool, made: list[Any], missed: tuple[Any, ...] = ()) -> list[Any]:
    """Filled with the error and the traces when the attempt has ended."""
    answers = cluster.settled[node, number] = []
    cluster.tell(cluster.nodes[node], EndAttempt(AttemptEnded((), number, tuple(made), missed), good))
    return answers


def end(cluster: Cluster, node: int, number: int, good: bool, made: list[Any], missed: tuple[Any, ...] = ()) -> Traces:
    answers = begin_end(cluster, node, number, good, made, missed)
    cluster.settle()
    error, traces = answers
    assert error is None
    return traces  # type: ignore[no-any-return]


def pending(cluster: Cluster, path: str) -> set[int]:
    """As every node says; empty: it is not there."""
    found: set[int] = set()
    for node in set(cluster.nodes) - cluster.dead:
        try:
            found.add(Attr(*cluster.call(node, "walk", path.encode(), False)[0]).pending)
        except OSError as error:
            assert error.errno == errno.ENOENT
    return found


@pytest.mark.parametrize("seed", range(6))
def test_published_wherever_the_records_go(seed: int) -> None:
    cluster = Cluster(3, seed)
    dir = Attr(*cluster.call(0, "mkdir", ROOT, b"d", 0o755)[0]).ino
    made = {node: [make(cluster, node, 7, dir, f"{node}-{i}".encode()) for i in range(12)] for node in range(3)}
    cluster.call(1, "rename", dir, b"1-0", ROOT, b"moved", 0)  # its record stays where it was
    made[1][0] = (FILE, ROOT, b"moved", made[1][0][3])
    cluster.call(2, "unlink", dir, b"2-0")
    answers = {node: begin_end(cluster, node, 7, node != 2, made[node], ((dir, b"gone"),)) for node in made}
    cluster.wander(1 + seed * 5)
    cluster.join(3)  # partitions move meanwhile
    cluster.settle()
    assert all(answer[0] is None for answer in answers.values())
    assert answers[0][1] == Traces((), tuple(f"/d/0-{i}" for i in range(12)))
    assert answers[1][1] == Traces((), ("/moved", *(f"/d/1-{i}" for i in range(1, 12))))
    assert answers[2][1] == Traces(("/d/gone",), ())
    for i in range(12):
        assert pending(cluster, f"/d/0-{i}") == {0}
        assert pending(cluster, f"/d/1-{i}" if i else "/moved") == {0}
        assert not pending(cluster, f"/d/2-{i}")


def test_what_is_taken_back_and_what_is_not() -> None:
    cluster = Cluster(3)
    old = Attr(*cluster.call(0, "mknod", ROOT, b"old", stat.S_IFREG | 0o644, 0)[0]).ino
    dirs = {name: Attr(*cluster.call(1, "mkdir", ROOT, name, 0o755)[0]).ino for name in (b"empty", b"used")}
    cluster.call(1, "link", old, ROOT, b"link")
    file, lost = make(cluster, 1, 1, dirs[b"used"], b"mine"), make(cluster, 1, 1, ROOT, b"replaced")
    cluster.call(2, "mknod", dirs[b"used"], b"other", stat.S_IFREG | 0o644, 0)
    cluster.call(2, "unlink", ROOT, b"replaced")
    cluster.call(2, "mknod", ROOT, b"replaced", stat.S_IFREG | 0o644, 0)  # the name is another file's by now
    cluster.call(1, "rename", ROOT, b"old", ROOT, b"new", 0)
    made = [(DIRECTORY, ROOT, name, ino) for name, ino in dirs.items()]
    traces = end(
        cluster, 1, 1, False, [*made, (LINK, ROOT, b"link", old), file, lost, (RENAMED, ROOT, b"new", 0)],
        ((dirs[b"empty"], b"a\xff"), (99, b"of no directory")),
    )  # fmt: skip
    assert traces == Traces(("/empty/a\udcff",), ())
    for path, there in {"/old": False, "/new": True, "/link": False, "/empty": False, "/used/mine": False, "/used/other": True,
                        "/replaced": True}.items():  # fmt: skip
        assert bool(pending(cluster, path)) == there, path
    assert Attr(*cluster.call(0, "walk", b"/new", True)[0]).nlink == 1


def create(cluster: Cluster, node: int, number: int, name: bytes, flags: int = NEW) -> tuple[int, int, bytes, int]:
    """As a mount does for a process of an attempt."""
    attr = Attr(*cluster.call(node, "create", ROOT, name, 0o644, flags, mark(node, number))[0])
    return FILE, ROOT, name, attr.ino


def test_another_attempt_takes_a_file_over() -> None:
    cluster = Cluster(3)
    first, log = create(cluster, 0, 1, b"f"), create(cluster, 0, 1, b"log")
    second = create(cluster, 1, 5, b"f")
    assert second[3] == first[3] and pending(cluster, "/f") == {mark(1, 5)}
    with pytest.raises(OSError, match="EEXIST"):
        create(cluster, 2, 1, b"f", NEW | os.O_EXCL)
    create(cluster, 2, 1, b"log", NEW | os.O_APPEND)
    assert pending(cluster, "/log") == {0}, "a log is everybody's"
    assert end(cluster, 0, 1, False, [first, log]) == Traces()
    assert pending(cluster, "/f") == {mark(1, 5)} and pending(cluster, "/log") == {0}
    assert end(cluster, 1, 5, True, [second]).made == ("/f",)
    assert pending(cluster, "/f") == {0}


def test_what_a_dead_node_left_pending() -> None:
    cluster = Cluster(3)
    names = [f"{i}".encode() for i in range(40)]
    for name in names:
        create(cluster, 2, 1, name)
    cluster.kill(2)
    cluster.settle()
    left = [name for name in names if pending(cluster, f"/{name.decode()}")]
    assert left, "all records lay on the node that died"
    assert {owner for name in left for owner in pending(cluster, f"/{name.decode()}")} == {mark(2, 1)}
    flags = [NEW | os.O_EXCL, NEW | os.O_TRUNC, NEW | os.O_APPEND]
    made = [create(cluster, 1, 2, name, flags[i % 3] | (os.O_TRUNC if i % 3 == 2 else 0)) for i, name in enumerate(left)]
    assert all(pending(cluster, f"/{name.decode()}") == {mark(1, 2)} for name in left)
    assert len(end(cluster, 1, 2, True, made).made) == len(left)
    assert all(pending(cluster, f"/{name.decode()}") == {0} for name in left)


@pytest.mark.parametrize("seed", range(4))
def test_a_node_dies_while_an_attempt_ends(seed: int) -> None:
    cluster = Cluster(4, seed)
    made = [make(cluster, 1, 1, ROOT, f"{i}".encode()) for i in range(30)]
    answers = begin_end(cluster, 1, 1, seed % 2 == 0, made)
    cluster.wander(1 + seed * 3)
    cluster.kill(3)
    cluster.settle()
    assert answers[0] is None
    left = [pending(cluster, f"/{i}") for i in range(30)]
    assert all(there <= {0} for there in left) and any(left) == (seed % 2 == 0)
    assert len(answers[1].made) >= sum(map(bool, left))
