"""Nodes whose jobs end at a known time: which tasks begin there, and where the others go."""

from __future__ import annotations

import msgspec
import pytest
from parts import RUN
from worker_node import SHARD, Node, members, mine

from amfs.host.processes import job_end
from amfs.vocabulary import messages as m
from amfs.vocabulary.partition import PartitionTable

HOUR, SECOND = 3_600_000, 1_000


def node_with(**ends: float) -> Node:
    """Its job, and those of its neighbours, end so many seconds from now."""
    node = Node()
    of_jobs = {int(name.removeprefix("node")): node.now + left for name, left in ends.items()}
    node.feed(msgspec.structs.replace(members(PartitionTable([SHARD] * 8), [1, 2, 3]), ends=of_jobs))
    return node


def test_a_task_that_would_not_end_in_time_goes_to_a_node_that_has_the_time() -> None:
    node = node_with(node0=600.0, node1=600.0, node2=7200.0, node3=10.0)
    node.assign(mine(1, time_limit_ms=HOUR), mine(2, time_limit_ms=SECOND), mine(3))
    assert node.running() == [2, 3]
    assert [spec.tid for spec in node.take(m.Assign, 2).tasks] == [1]


def test_without_a_node_that_has_the_time_it_waits_and_says_so() -> None:
    node = node_with(node0=600.0, node1=600.0, node2=600.0, node3=600.0).assign(mine(1, time_limit_ms=HOUR))
    assert not node.running() and not node.take_all(m.Assign)
    assert "its time limit is longer than the job of this node has left" in node.machine.explain(RUN, 1)[0]
    node.feed(msgspec.structs.replace(members(PartitionTable([SHARD] * 8), [1, 2, 3, 5]), ends={0: node.now + 600.0}))
    [(_, given)] = node.take_all(m.Assign)
    assert [spec.tid for spec in given.tasks] == [1]


def test_nobody_gets_a_task_by_stealing_that_he_could_not_end() -> None:
    node = node_with(node1=600.0).assign(*(mine(tid, time_limit_ms=HOUR) for tid in range(1, 9)))
    node.forget().tell(1, m.StealAsk(4))
    assert node.take(m.StealNone, 1) is not None
    node.tell(2, m.StealAsk(4))
    assert node.take(m.Assign, 2).tasks


@pytest.mark.parametrize(("said", "end"), [("99999999999", 99999999999), ("1", 0), ("soon", 0), ("", 0)])
def test_when_a_job_ends(said: str, end: int) -> None:
    assert job_end({"SLURM_JOB_END_TIME": said}) == end
    assert job_end({"AMFS_JOB_END": "99999999998", "SLURM_JOB_END_TIME": said}) == 99999999998
