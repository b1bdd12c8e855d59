"""The submitter and open lists: tasks that are added while they run, and what becomes of the files when the list is closed."""

from __future__ import annotations

import msgspec
from parts import RUN, keys, result
from submitter_client import Client, task

from amfs.vocabulary import messages as m
from amfs.vocabulary.events import AddTasks, CloseList, Ended, FilesFlushed, RunSkipped
from amfs.vocabulary.states import Outcome
from amfs.workflow.workflow import Task

# ── lists that grow ────────────────────────────────────────────────────────────────────────────────


def test_an_open_list_runs_as_it_grows_and_does_not_end_by_itself() -> None:
    client = Client(open_ended=True).begun(0).nothing_left()
    client.add(task("a", "", "x"))
    ((_, submit),) = client.take_all(m.Submit)
    assert submit.tasks[0].retentions == (m.retention(m.KEEP),), "nobody knows yet how often it will be read"
    client.ends(0, result(0)).effects_of(Ended)
    client.nothing_left()
    client.add(task("b", "x", "y"), task("c", "y"))
    assert client.submitted() == {0: [1, 2]}
    client.ends(0, result(1), result(2)).effects_of(Ended)
    client.nothing_left()
    client.feed(CloseList())
    assert client.take(m.FinalizeFiles, 0) == m.FinalizeFiles(RUN, (), keys("x y")), "all files have been read"
    client.run_ended(0)


def closed(*tasks: Task) -> Client:
    """An open list with these tasks, all finished on node 1, and about to be closed."""
    client = Client(open_ended=True).begun(0, 1).add(*tasks)
    client.submitted()
    client.ends(0, *(result(tid, node=1) for tid in range(len(tasks)))).effects_of(Ended)
    return client.nothing_left()


def test_a_closed_list_is_settled_before_the_run_ends() -> None:
    client = closed(task("a", "", "x"), task("b", "x", "y z", keep="z")).feed(CloseList())
    assert client.take(m.FinalizeFiles, 0) == m.FinalizeFiles(RUN, keys("y"), keys("x")), "z is there already, and b has read x"
    client.nothing_left()
    client.tell(1, m.Flushed(RUN, (("y", 5, ""),)))
    client.effect(FilesFlushed)
    client.run_ended(0, 1)


def test_what_a_task_declares_as_scratch_is_dropped_with_the_list() -> None:
    client = closed(msgspec.structs.replace(task("a", "", "x y"), scratch=("y",))).feed(CloseList())
    assert client.take(m.FinalizeFiles, 0) == m.FinalizeFiles(RUN, keys("x"), keys("y"))


def test_a_final_that_cannot_be_written_ends_the_waiting_too() -> None:
    client = closed(task("a", "", "x")).feed(CloseList())
    client.take(m.FinalizeFiles, 0)
    client.tell(1, m.Flushed(RUN, (("x", 0, "disk full"),)))
    assert client.effect(FilesFlushed).files == [("x", 0, "disk full")]
    client.run_ended(0, 1)


def test_finals_of_an_open_list_that_died_are_made_again_before_it_is_settled() -> None:
    client = closed(task("a", "", "x"), task("b", "", "y"))
    client.view(0).feed(CloseList())
    assert client.submitted() == {0: [0, 1]}
    client.ends(0, result(0), result(1))
    assert sorted(client.take(m.FinalizeFiles, 0).finals) == sorted(keys("x y"))


def test_a_node_that_dies_while_its_finals_are_copied_has_them_made_again() -> None:
    client = closed(task("a", "", "x"), task("b", "", "y")).feed(CloseList())
    client.take(m.FinalizeFiles)
    client.tell(1, m.Flushed(RUN, (("x", 5, ""),))).effect(FilesFlushed)
    client.view(0)
    assert client.submitted() == {0: [1]}, "x has arrived"
    client.ends(0, result(1, node=0))
    assert client.take(m.FinalizeFiles, 0).finals == keys("y")
    client.tell(0, m.Flushed(RUN, (("y", 5, ""),))).effect(FilesFlushed)
    client.run_ended(0)


def test_what_tasks_wait_for_in_vain_is_poisoned() -> None:
    client = Client(open_ended=True).begun(0)
    client.checker.states["never"] = client.checker.states.get("never")  # type: ignore[assignment]
    client.add(task("a", "never"))
    client.submitted()
    client.feed(CloseList(orphans=("never",)))
    assert client.take(m.Poison, 0) == m.Poison(RUN, keys("never"), "no task makes never")
    client.ends(0, result(0, Outcome.UPSTREAM_FAILED))
    client.run_ended(0)


# ── what a resumed run has already ─────────────────────────────────────────────────────────────────


def test_a_task_of_an_open_list_may_be_skipped_and_wanted_after_all() -> None:
    client = Client(open_ended=True).begun(0)
    client.tasks.extend([task("a", "", "x"), task("b", "x")])
    for one in client.tasks:
        client.checker.add(one)
    client.feed(AddTasks(2, skip=(0,)))
    assert client.submitted() == {0: [1]}
    assert client.machine.skipped == 1
    client.feed(RunSkipped((0,)))
    assert client.submitted() == {0: [0]}
    client.feed(RunSkipped((0,))).nothing_left()
    assert client.machine.skipped == 0


def test_a_final_that_an_earlier_run_left_in_the_store_is_copied_out_when_the_list_is_closed() -> None:
    client = Client(open_ended=True).begun(0)
    client.tasks.extend([task("a", "", "x y"), task("b", "", "z", keep="z")])
    for one in client.tasks:
        client.checker.add(one)
    client.feed(AddTasks(2, skip=(0, 1), unsaved=("x", "z"))).nothing_left()
    client.feed(CloseList())
    assert client.take(m.FinalizeFiles, 0).finals == keys("x z"), "y is nowhere, or on shared storage"


def test_files_that_an_earlier_run_left_on_shared_storage_are_read_from_there() -> None:
    client = Client(open_ended=True).begun(0)
    client.tasks.extend([task("a", "", "x", keep="x"), task("b", "x")])
    for one in client.tasks:
        client.checker.add(one)
    client.feed(AddTasks(2, skip=(0,), ready=("x",)))
    ((_, submit),) = client.take_all(m.Submit)
    assert [(spec.tid, spec.inputs, spec.shared) for spec in submit.tasks] == [(1, (), keys("x"))]
