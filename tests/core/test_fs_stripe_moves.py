"""Stripes that move to a new owner: none is served before it is here, and what is waited for comes first."""

from __future__ import annotations

import pytest
from fs_cluster import Cluster, Node
from fs_steps import inodes_at

from amfs.fs.vfs import stripe_moves
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.events import FsAwaited, FsWork, FsWorked, ViewChanged

FILES = 20
STRIPES = 40


class Watched(Cluster):
    """Notes in which order stripes are fetched, and looks after each of them that nobody is served without."""

    def __init__(self, nodes: int, seed: int) -> None:
        super().__init__(nodes, seed)
        self.stripes = {(ino, index) for ino in inodes_at(self, FILES) for index in range(STRIPES)}
        for stripe in self.stripes:
            self.nodes[self.owner(stripe)].stripes_here.add(stripe)
        self.fetched: list[int] = []  # partitions

    def partition(self, stripe: tuple[int, int]) -> int:
        return self.nodes[0].meta.stripe_partition(*stripe)

    def owner(self, stripe: tuple[int, int]) -> int:
        return self.table.owners[self.partition(stripe)]

    def work(self, node: Node, effect: FsWork) -> FsWorked:
        if isinstance(effect.order, w.FetchStripe):
            self.fetched.append(self.partition((effect.order.ino, effect.order.index)))
        return super().work(node, effect)

    def add(self, number: int) -> None:
        self.nodes[number] = Node(self, number)
        self.table = self.table.with_nodes([number])
        self.view()

    def check_served(self) -> None:
        for number, node in self.nodes.items():
            owners = node.fs.members.owners
            lacking = {self.partition(stripe) for stripe in self.stripes - node.stripes_here}
            served = {part for part, owner in enumerate(owners) if owner == number} - node.moving
            assert not lacking & served, f"node {number} takes stripes that have not come for holes"

    def run_to_the_end(self) -> None:
        while self.step():
            self.check_served()
        for stripe in self.stripes:
            assert stripe in self.nodes[self.owner(stripe)].stripes_here
        for node in self.nodes.values():
            assert not node.moving and not node.fs.mover.is_fetching()


@pytest.mark.parametrize("seed", range(8))
def test_nobody_is_served_without_a_stripe_that_has_not_come(seed: int) -> None:
    """Not after a view that changes no owner either: the table says what still moves."""
    cluster = Watched(2, seed)
    cluster.add(2)
    for number in range(3):
        for _ in range(cluster.random.randrange(60)):
            cluster.step()
            cluster.check_served()
        for node in cluster.nodes.values():
            cluster.tell(node, ViewChanged(cluster.table.owners, cluster.table.version, 0, frozenset(cluster.nodes)))
            cluster.check_served()
        if number == 1:
            cluster.add(3)
    cluster.run_to_the_end()


@pytest.mark.parametrize("seed", range(4))
def test_a_partition_is_served_as_soon_as_it_is_here(seed: int) -> None:
    cluster = Watched(1, seed)
    cluster.add(1)
    node, before = cluster.nodes[1], len(cluster.stripes)
    most = 0  # stripes that were here and not served
    while cluster.step():
        cluster.check_served()
        most = max(most, sum(cluster.partition(stripe) in node.moving for stripe in node.stripes_here))
    partition = max(sum(cluster.partition(stripe) == part for stripe in cluster.stripes) for part in range(64))
    assert len(node.stripes_here) > before // 3
    assert most <= partition * stripe_moves.PARTITIONS_AT_ONCE


@pytest.mark.parametrize("seed", range(4))
def test_what_somebody_waits_for_is_brought_first(seed: int) -> None:
    cluster = Watched(1, seed)
    cluster.add(1)
    mine = [part for part, owner in enumerate(cluster.table.owners) if owner == 1]
    early, late = mine[-2], mine[-1]
    while 1 not in cluster.nodes or not cluster.nodes[1].moving:
        assert cluster.step()
    cluster.tell(cluster.nodes[1], FsAwaited(early))  # their records have not come yet
    while not cluster.fetched:
        assert cluster.step()
    cluster.tell(cluster.nodes[1], FsAwaited(late))
    cluster.run_to_the_end()
    order = list(dict.fromkeys(cluster.fetched))
    assert order.index(early) < stripe_moves.PARTITIONS_AT_ONCE
    assert order.index(late) <= 2 * stripe_moves.PARTITIONS_AT_ONCE
    assert len(order) == len(mine)


@pytest.mark.parametrize("seed", range(4))
def test_more_stripes_than_are_listed_at_once_come_too(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is waited for comes before the others although it was not listed."""
    monkeypatch.setattr(stripe_moves, "STRIPES_LISTED", 5)  # fewer than a partition has
    cluster = Watched(2, seed)
    cluster.add(2)
    last = max(part for part, owner in enumerate(cluster.table.owners) if owner == 2)
    while not cluster.fetched:
        assert cluster.step()
    cluster.tell(cluster.nodes[2], FsAwaited(last))
    cluster.run_to_the_end()
    order = list(dict.fromkeys(cluster.fetched))
    assert order.index(last) < 3 * len(order) // 4  # else the very last of its sender


@pytest.mark.parametrize("seed", range(3))
def test_nodes_that_wait_for_partitions_of_each_other_get_them(seed: int) -> None:
    """Nodes joined and drained before all stripes had come to them. Each was asked for partitions of which it had only some, and told of
    none. So nothing came, until those that drained left after 30 s, with stripes that nobody else had."""
    cluster = Watched(1, seed)
    cluster.held_works.add(w.FetchStripe)
    weigh = dict.fromkeys(range(4), 1)
    for number in (1, 2, 3):
        cluster.add(number)
        cluster.wander(400)
    for staying in ((0, 1, 2), (0, 1), (0,)):
        cluster.table = cluster.table.handed_over(set(range(4)) - set(staying), {node: weigh[node] for node in staying})
        cluster.view()
        for _ in range(400):
            cluster.step()
    cluster.held_works.clear()
    end = cluster.time + 20.0
    while any(node.moving or node.fs.mover.is_fetching() for node in cluster.nodes.values()):
        assert cluster.time < end, "they wait for each other"
        cluster.step()
        cluster.check_served()
    cluster.run_to_the_end()


class Peers(Watched):
    """Notes of each node which others its threads reach, and the owners in its table."""

    def __init__(self, seed: int) -> None:
        self.peers: dict[int, set[int]] = {}
        self.seen: dict[int, int] = {}  # node -> how many tables it has had
        super().__init__(1, seed)

    def work(self, node: Node, effect: FsWork) -> FsWorked:
        peers = self.peers.setdefault(node.number, set())
        if isinstance(effect.order, w.AddPeer):
            assert self.seen.get(node.number), "who asks a node without a table would take all that has not come for holes"
            peers.add(effect.order.node)
        if isinstance(effect.order, w.SetTable):
            if self.seen.get(node.number):
                assert set(effect.order.owners) <= peers | {node.number}, "what is written to its stripes is EIO"
            self.seen[node.number] = self.seen.get(node.number, 0) + 1
        return super().work(node, effect)


def test_an_owner_can_be_asked_before_a_table_names_it() -> None:
    """A program that wrote a file in stripes in the moment in which a node joined was told EIO."""
    cluster = Peers(1)
    for number in (1, 2, 3):
        cluster.add(number)
        cluster.run_to_the_end()
    assert all(count > 1 for number, count in cluster.seen.items() if number < 3)
