"""When an open list is closed, its finals reach shared storage, in whatever order settlement and publication arrive."""

from __future__ import annotations

import pytest

from amfs.engine.fls import SHARED_RETENTION, FlsShard
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Effect, MembersChanged, Received, Send
from amfs.vocabulary.partition import PartitionTable

SUBMITTER, WORKER, RUN = 9, 2, 7
KEPT = m.retention(m.KEEP)


def sent(effects: list[Effect]) -> list[tuple[int, object]]:
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)]


def settle(shard: FlsShard) -> list[tuple[int, object]]:
    return sent(shard.handle(Received(SUBMITTER, m.FinalizeFiles(RUN, ("7/a",), ())), 0.0))


def publish(shard: FlsShard, retention: int = KEPT) -> list[tuple[int, object]]:
    return sent(shard.handle(Received(WORKER, m.Publish(RUN, (m.Published("7/a", 5, retention),))), 0.0))


def test_a_published_final_is_copied_out_by_its_holder() -> None:
    shard = FlsShard(0)
    publish(shard)
    assert settle(shard) == [(WORKER, m.Flush(RUN, ("7/a",)))]


def test_a_final_settled_before_its_publication_arrives_is_copied_out_when_it_does() -> None:
    shard = FlsShard(0)
    assert settle(shard) == []
    shard.check_invariants()
    assert publish(shard) == [(WORKER, m.Flush(RUN, ("7/a",)))]
    assert publish(shard) == [], "a repeated publication asks for no second copy"


def test_a_final_on_shared_storage_needs_no_copy() -> None:
    shard = FlsShard(0)
    publish(shard, SHARED_RETENTION)
    assert settle(shard) == [(SUBMITTER, m.Flushed(RUN, (("a", 5, ""),)))]


@pytest.mark.parametrize("published", [True, False])
def test_a_final_whose_node_died_is_reported_so_that_the_run_can_end(published: bool) -> None:
    shard = FlsShard(0)
    if published:
        publish(shard)
        shard.handle(MembersChanged(PartitionTable([0], 2), {}, {WORKER}), 0.0)
        said = settle(shard)
    else:
        settle(shard)
        said = sent(shard.handle(MembersChanged(PartitionTable([0], 2), {}, {WORKER}), 0.0))
    assert said == [(SUBMITTER, m.Flushed(RUN, (("a", 5 if published else 0, "it was lost with its node"),)))]
