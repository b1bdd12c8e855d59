"""The submitter and files that are lost: which tasks it gives out again, and what it tells the nodes that keep their records."""

from __future__ import annotations

import math

from parts import RUN, key, keys, result
from submitter_client import CHAIN, Client, task

from amfs.config import SubmitterLimits
from amfs.engine.fls import SHARED_RETENTION
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Ended, FilesFlushed
from amfs.vocabulary.states import Outcome
from amfs.workflow.workflow import Task


def test_files_that_died_and_are_missed_are_made_again() -> None:
    client = Client(task("a", "", "x"), task("b", "", "y"), task("c", "x y", "z")).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1), result(1, node=0)).effects_of(Ended)
    client.view(0).tell(0, m.Lost(RUN, keys("x"), -1))
    assert client.submitted() == {0: [0]}
    assert client.machine.redone_times == {0: 1}
    client.ends(0, result(0, node=0), result(2, node=0))
    client.run_ended(0)


def test_who_keeps_the_record_of_a_file_hears_once_that_a_task_reads_it_again() -> None:
    """Seed 700929: the task releases it once more, and was counted as two readers."""
    client = Client(task("a", "", "x"), task("b", "x", "y"), task("c", "x y")).begun(0, 1, unit_size=1)
    client.submitted()
    client.ends(0, result(0), result(1)).effects_of(Ended)
    client.tell(0, m.Lost(RUN, keys("y"), -1))
    assert client.take(m.ReadAgain, 0) == m.ReadAgain(RUN, keys("x"))
    (given,) = client.submitted()
    client.view(1 - given, unit_size=1, shard=1 - given)
    assert client.submitted()[1 - given].count(1) == 1
    client.nothing_left()


def test_files_that_died_and_nobody_misses_are_not_made_again() -> None:
    """A reader of them may have them already, and go on reading for long."""
    client = Client(*CHAIN, task("d")).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1)).effects_of(Ended)
    client.view(0).nothing_left()
    client.ends(0, result(3, node=1)).effects_of(Ended)
    client.nothing_left()


def test_finals_that_died_are_on_shared_storage_and_the_shard_that_misses_them_is_told() -> None:
    client = Client(task("a", "", "x", keep="x"), task("b", "x")).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1)).effects_of(Ended)
    client.view(0).nothing_left()
    client.tell(0, m.Lost(RUN, keys("x"), -1))
    assert client.take(m.Publish, 0) == m.Publish(RUN, (m.Published(key("x"), 0, SHARED_RETENTION),))
    client.nothing_left()


def test_outputs_of_tasks_without_a_sandbox_are_on_shared_storage() -> None:
    """Their writers have put them there themselves: to run them again would write on what others read."""
    loose = Task("a", ("run", "a"), outputs=("x",), staged=False)
    client = Client(loose, task("b", "x")).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1)).effects_of(Ended)
    client.view(0).tell(0, m.Lost(RUN, keys("x"), -1))
    assert client.take(m.Publish, 0) == m.Publish(RUN, (m.Published(key("x"), 0, SHARED_RETENTION),))
    client.nothing_left()


def test_a_second_making_leaves_alone_what_the_first_has_put_on_shared_storage() -> None:
    """Somebody may be reading it there. Whether the end of the first was heard of makes no difference."""
    final, scratch = m.retention(1, True), m.retention(1)
    writer = task("a", "", "x y", keep="x y")
    client = Client(writer, task("b", "x y"), task("c", "", "z"), task("d", "z")).begun(0, 1)
    client.submitted()
    client.tell(1, m.Flushed(RUN, (("x", 5, ""), ("y", 0, "no space left on device"))))
    client.effects_of(FilesFlushed)
    client.view(1)
    again = {spec.tid: spec.retentions for _, submit in client.take_all(m.Submit) for spec in submit.tasks}
    assert again[0] == (scratch, final), "of y nothing is there"

    client = Client(task("a", "", "x y", keep="x"), task("b", "x y")).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1)).effects_of(Ended)
    client.tell(0, m.Lost(RUN, keys("y"), -1))
    (spec,) = [spec for _, submit in client.take_all(m.Submit) for spec in submit.tasks]
    assert (spec.tid, spec.retentions) == (0, (scratch, scratch))


def test_a_shard_that_asked_too_early_is_answered_when_the_task_has_ended() -> None:
    """It asks while the task runs; the news of the end may then go to the shard that had the partition before."""
    client = Client(task("a", "", "x"), task("b", "x"), task("f", "", "y"), task("c", "y")).begun(0, 1, 2)
    client.submitted()
    client.tell(1, m.Lost(RUN, keys("x y"), -1)).nothing_left()
    client.ends(0, result(0), result(2, Outcome.EXIT)).effects_of(Ended)
    assert client.take(m.Locate, 0) == m.Locate(RUN, keys("x"))
    assert client.take(m.Poison, 0) == m.Poison(RUN, keys("y"), "task #2 failed")
    client.view(0, 1, shard=1)
    assert client.take(m.Locate, 1) == m.Locate(RUN, keys("x"))
    assert client.take(m.Poison, 1) == m.Poison(RUN, keys("y"), "task #2 failed")
    client.nothing_left()


def test_what_a_shard_misses_is_made_again_once() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1)).effects_of(Ended)
    client.tell(1, m.Lost(RUN, keys("x"), -1))
    assert client.submitted() == {0: [0]}
    client.tell(0, m.Lost(RUN, keys("x y"), -1)).nothing_left()


def test_a_shard_that_forgot_that_a_file_was_poisoned_is_told_again() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, Outcome.EXIT), result(1, Outcome.UPSTREAM_FAILED, detail="task #0 failed")).effects_of(Ended)
    client.tell(1, m.Lost(RUN, keys("x"), -1)).tell(1, m.Lost(RUN, keys("y"), -1))
    poisons = [poison for _, poison in client.take_all(m.Poison, 0)]
    assert poisons == [m.Poison(RUN, keys("x"), "task #0 failed"), m.Poison(RUN, keys("y"), "task #0 failed")]
    client.nothing_left()


def test_a_partial_result_that_is_lost_is_told_to_the_dispatcher_of_its_reduction() -> None:
    client = Client(*CHAIN).begun(0, 1)
    ((dispatcher, _), *_) = [item for item in client.submitted().items() if 0 in item[1]]
    client.tell(1, m.Lost(RUN, keys(".amfs-reduce/0/3"), -1))
    assert client.take_all(m.PartLost) == [(dispatcher, m.PartLost(RUN, 0, -3))]
    client.ends(dispatcher, result(0)).effects_of(Ended)
    client.tell(1, m.Lost(RUN, keys(".amfs-reduce/0/3"), -1))
    assert client.take_all(m.PartLost) == []


def test_a_file_that_is_lost_again_and_again_ends_the_run() -> None:
    client = Client(*CHAIN, limits=SubmitterLimits(heartbeat_s=math.inf, redo_max=2)).begun(0)
    client.submitted()
    for _ in range(2):
        client.ends(0, result(0)).tell(0, m.Lost(RUN, keys("x"), -1))
        assert client.submitted() == {0: [0]}
    client.ends(0, result(0)).tell(0, m.Lost(RUN, keys("x"), -1))
    client.run_ended(0, reason="what task a makes was lost 3 times")
