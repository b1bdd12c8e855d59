"""Backups over real connections (peer_meta_backup.c): the backup knows each name that a mount was told of, whichever way it heard of it."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from peer_meta_nodes import GUARD_S, PARTITIONS, ROOT, Cluster, Kernel, connected
from waiting import until

NAMES = 150
STALL_MS = 400
IN_STEP = 2


class Pair(Cluster):
    """Two nodes, each the backup of the other."""

    def set_table(self, owners: list[int], pause_s: float = 0.0) -> None:
        """``pause_s``: between one node's hearing of it and the other's."""
        self.version += 1
        for node in self.nodes if self.version % 2 else reversed(self.nodes):
            node.meta.set_table(owners, self.version)
            node.meta.set_backups([1 - owner if owner == node.number else -1 for owner in owners], [1 - node.number])
            node.io.backups_changed()
            time.sleep(pause_s)

    def in_step(self) -> bool:
        return all(node.meta.count_backups()[1] == PARTITIONS // 2 for node in self.nodes)

    def inherit(self, heir: int) -> None:
        meta = self.nodes[heir].meta
        meta.forget_node(1 - heir)
        meta.set_table([heir] * PARTITIONS, self.version + 1)
        for part in range(PARTITIONS):
            meta.promote(part)
        meta.check()


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("pair"))
    until(made.in_step, "the backups are not in step")
    yield made
    made.stop()


def make(kernel: Kernel, prefix: str, made: list[bytes], wrong: list[object]) -> None:
    for number in range(NAMES):
        name = f"{prefix}{number}".encode()
        unique = kernel.send(35, ROOT, kernel.create_body(name))
        error, data = kernel.wait(unique)
        if error:
            wrong.append((name, error))
            return
        made.append(name)
        kernel.release(int.from_bytes(data[:8], "little"), int.from_bytes(data[128:136], "little"))


def test_a_backup_that_cannot_be_reached_is_not_waited_for_without_end(tmp_path: Path) -> None:
    pair = Pair(tmp_path, stall_ms=STALL_MS)
    (owner, backup), nowhere = pair.nodes, socket.create_server(("127.0.0.1", 0))
    try:
        until(pair.in_step, "the backups are not in step")
        kernel, name = pair.mount(0), pair.name_at(0)
        owner.io.forget_peer(1)
        owner.io.set_peer(1, "127.0.0.1", nowhere.getsockname()[1])
        unique = kernel.send(35, ROOT, kernel.create_body(name))
        owner.io.await_backups(7, owner.meta.ticket() + 1)
        assert kernel.wait(unique)[0] == errno.EIO
        until(lambda: (0, 7, 0, 0, errno.EIO) in owner.io.take(), "the poll loop waits on")
        owner.io.set_peer(1, "127.0.0.1", backup.io.port)
        until(lambda: owner.meta.backed_up() == owner.meta.ticket(), "it does not go on")
        assert kernel.create(pair.name_at(0, "g"))[0] == 0
    finally:
        nowhere.close()
        pair.stop()


@pytest.mark.parametrize("heir", [0, 1])
@pytest.mark.parametrize("tables", [0, 6])
def test_all_that_was_answered_is_inherited(pair: Pair, heir: int, tables: int) -> None:
    kernels = [pair.mount(0), pair.mount(1)]
    for kernel, node in zip(kernels, pair.nodes, strict=True):
        connected(kernel, node, pair.name_at(1 - node.number, "x"))
    made: list[list[bytes]] = [[], []]
    wrong: list[object] = []
    makers = [threading.Thread(target=make, args=(kernels[i], f"m{i}-", made[i], wrong)) for i in range(2)]
    for maker in makers:
        maker.start()
    for _ in range(tables):
        pair.set_table([part % 2 for part in range(PARTITIONS)], 0.005)
        time.sleep(0.005)
    for maker in makers:
        maker.join(GUARD_S)
        assert not maker.is_alive(), "a maker hangs"
    assert not wrong
    there = set().union(*made)
    assert len(there) == 2 * NAMES
    pair.inherit(heir)
    assert {name for name, *_ in pair.nodes[heir].meta.list(ROOT, 0, 4000)} == there
