"""Moves between a node and storage at URLs, on a virtual clock: moves that begin, news of them, and when one is given up."""

from __future__ import annotations

from typing import Any

import pytest
from fs_cluster import Cluster

from amfs.fs.vfs.calls import Sleep
from amfs.fs.vfs.url_moves import GATHER, GATHER_S, LOOK_S, SILENT_S
from amfs.vocabulary import fs_works as w
from amfs.vocabulary import peer_requests as p
from amfs.vocabulary.url_moves import DIGEST, Secret, UrlEnd, UrlFile, UrlsMoved

SECRET = Secret(b"a-key-that-nobody-sees", ("s3://bucket/",))


class Moves:
    """Three nodes; the second one is asked through the first. ``begun``: orders to its I/O."""

    def __init__(self, seed: int) -> None:
        self.cluster = Cluster(3, seed)
        self.begun: list[Any] = []
        self.cluster.nodes[1].serve(
            w.OpenStorages.by(self.begun.append), w.CloseStorages.by(self.begun.append), w.CountMoved.by(lambda order: 7),
            w.ReadUrl.by(self.read),
        )  # fmt: skip

    def read(self, order: w.ReadUrl) -> UrlEnd:
        self.begun.append(order.file.number)
        return UrlEnd(order.file.number, 3, digest=b"digest")

    def ask(self, *numbers: int, heard: int = 0, over: bool = False) -> UrlsMoved:
        files = tuple(UrlFile(number, 0, f"key{number}") for number in numbers)
        known, ends, moved = self.cluster.call(0, "move_urls", 1, "move", DIGEST, SECRET, files, heard, over)
        return UrlsMoved(known, [UrlEnd(*end) for end in ends], moved)


@pytest.mark.parametrize("seed", range(5))
def test_a_call_that_is_repeated_begins_nothing_again_and_loses_no_end(seed: int) -> None:
    moves = Moves(seed)
    first = moves.ask(1, 2)
    again = moves.ask(1, 2)
    assert {end.number for end in again.ends} == {1, 2} >= {end.number for end in first.ends} and again.moved == 7
    third = moves.ask(3, heard=2)
    assert [end.number for end in third.ends] == [3]
    assert sorted(each for each in moves.begun if isinstance(each, int)) == [1, 2, 3]
    assert moves.ask(heard=3, over=True) == UrlsMoved(True, [], 0)
    assert [type(each) for each in moves.begun if not isinstance(each, int)] == [w.OpenStorages, w.CloseStorages]


def test_the_end_of_one_small_file_is_told_soon_and_a_long_wait_looks_seldom() -> None:
    node = Cluster(1, 1).nodes[0]
    node.serve(w.OpenStorages.by(lambda order: None), w.CountMoved.by(lambda order: 7))
    answering = node.fs.calls._handlers[p.MoveUrls](0, p.MoveUrls("move", DIGEST, SECRET, (UrlFile(0, 0, "key"),), 0, False, 0, 0))
    pauses = [next(answering)] + [answering.send(None) for _ in range(9)]
    assert all(isinstance(pause, Sleep) for pause in pauses)
    assert pauses[0].seconds <= 0.001 and sum(pause.seconds for pause in pauses[:4]) < 0.02 and pauses[-1].seconds == LOOK_S


@pytest.mark.parametrize("seed", range(3))
def test_a_client_that_is_silent_has_died_and_one_that_comes_again_is_told(seed: int) -> None:
    moves = Moves(seed)
    before = moves.cluster.time
    moves.ask(1)
    moves.cluster.settle()  # until no timer is left
    assert isinstance(moves.begun[-1], w.CloseStorages) and SILENT_S <= moves.cluster.time - before < 2 * SILENT_S
    assert not moves.ask(2, heard=1).known  # and nothing of it was begun
    assert 2 not in moves.begun
    assert moves.ask(2).known and 2 in moves.begun


def test_what_is_logged_has_no_keys() -> None:
    assert "nobody" not in repr(w.OpenStorages("move", SECRET)) and "<storage settings>" in repr(w.OpenStorages("move", SECRET))


def test_ends_that_come_in_a_short_time_are_told_together() -> None:
    cluster = Cluster(1, 1)
    node = cluster.nodes[0]
    node.serve(w.OpenStorages.by(lambda order: None), w.CloseStorages.by(lambda order: None), w.CountMoved.by(lambda order: 7))
    handler: Any = node.fs.calls._handlers[p.MoveUrls]
    files = tuple(UrlFile(number, 0, f"key{number}") for number in range(3 * GATHER))
    answering = handler(0, p.MoveUrls("move", DIGEST, SECRET, files, 0, False, 0, 0))
    assert isinstance(next(answering), Sleep)
    [move] = handler.__self__._moves.values()
    move.ends.append(UrlEnd(0))
    assert isinstance(answering.send(None), Sleep)  # for others
    cluster.time = node.fs.calls._machine.now = node.fs.calls.now + GATHER_S / 2
    assert isinstance(answering.send(None), Sleep)
    move.ends += [UrlEnd(number) for number in range(1, GATHER)]
    assert isinstance(answering.send(None), w.CountMoved)  # these are enough
    again = handler(0, p.MoveUrls("move", DIGEST, SECRET, (), len(move.ends) - 1, False, 0, 0))
    assert isinstance(next(again), Sleep)
    node.fs.calls._machine.now += 2 * GATHER_S
    assert isinstance(again.send(None), w.CountMoved)  # and so is the time
