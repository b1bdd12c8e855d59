"""Order without files: the checks of ``after``, and how its tokens travel whatever comes in between."""

from __future__ import annotations

import pytest
from parts import BASE, RUN, result
from submitter_client import Client

from amfs.engine.fls import SHARED_RETENTION
from amfs.errors import WorkflowError
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Ended
from amfs.vocabulary.states import Outcome
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.checks import StreamChecker, check
from amfs.workflow.workflow import Task, Workflow


def task(name: str, after: str = "", inputs: str = "", outputs: str = "", scratch: str = "") -> Task:
    return Task(name, ("run",), tuple(inputs.split()), tuple(outputs.split()), after=tuple(after.split()), scratch=tuple(scratch.split()))


def told_shared(client: Client) -> list[tuple[str, int]]:
    return [(file.name, file.retention) for _, publish in client.take_all(m.Publish) for file in publish.files]


# ── checks ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_comes_after_those_it_names_wherever_they_stand() -> None:
    plan = check(Workflow([task("c", "b"), task("a"), task("b", "a")]), AnyPlace(BASE))
    assert list(plan.walk()) == [1, 2, 0]
    assert plan.after == {"b": 2, "a": 1}


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        ([task("a", "b")], "task a: is to come after 'b', and there is no task of that id"),
        ([task("a", "a")], "task a: it is to come after itself"),
        ([task("a", "b"), task("b", "a")], "cycle of tasks, each waiting for the one before it: a -> b -> a"),
        ([task("a", "b", outputs="f"), task("b", inputs="f")], "cycle of tasks, each waiting for the one before it: a -> b -> a"),
        ([task("a", scratch="f")], "task a: calls 'f' scratch, which is not among its outputs"),
    ],
)
def test_faults(tasks: list[Task], says: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        check(Workflow(tasks, source="list"), AnyPlace(BASE))
    assert [fault.message for fault in caught.value.faults] == [says]


def test_in_a_growing_list_the_earlier_task_is_written_first() -> None:
    checker = StreamChecker(AnyPlace(BASE))
    (fault,) = checker.add(task("b", "a"))
    assert "that task must be written first" in fault.message
    assert checker.add(task("a")) == [] == checker.add(task("b", "a"))
    assert checker.finish() == {}


def test_a_cycle_of_files_and_order_in_a_growing_list_is_found_at_its_end() -> None:
    checker = StreamChecker(AnyPlace(BASE), files={})
    checker.place.missing = lambda names: set(names)  # type: ignore[method-assign, assignment]
    assert checker.add(task("a", inputs="f")) == [] == checker.add(task("b", "a", outputs="f"))
    assert "cycle" in checker.finish()["f"]


# ── tokens ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_token_is_published_when_the_task_has_finished() -> None:
    client = Client(task("a"), task("b", "a")).begun(0)
    specs = [spec for _, submit in client.take_all(m.Submit) for spec in submit.tasks]
    assert [spec.inputs for spec in specs] == [(), ("7/./0",)]
    client.nothing_left()
    client.ends(0, result(0))
    assert told_shared(client) == [("7/./0", SHARED_RETENTION)]


def test_a_failed_task_poisons_its_token() -> None:
    client = Client(task("a"), task("b", "a")).begun(0)
    client.submitted()
    client.ends(0, result(0, Outcome.EXIT))
    assert client.take_all(m.Poison) == [(0, m.Poison(RUN, ("7/./0",), "task #0 failed"))]
    client.effects_of(Ended)


def test_nobody_waits_for_the_token_of_a_task_that_has_ended() -> None:
    client = Client(open_ended=True).begun(0)
    client.add(task("x"), task("f")).submitted()
    client.ends(0, result(0), result(1, Outcome.EXIT))
    client.effects_of(Ended)
    client.take_all(m.Poison)
    client.add(task("b", "x"), task("c", "f"))
    specs = [spec for _, submit in client.take_all(m.Submit) for spec in submit.tasks]
    position = {one.id: index for index, one in enumerate(client.tasks)}
    assert [spec.inputs for spec in specs] == [(), (f"7/./{position['f']}",)]
    assert [poison.names for _, poison in client.take_all(m.Poison)] == [(f"7/./{position['f']}",)], "it failed before anybody asked"


def test_a_shard_that_has_lost_its_memory_is_told_again() -> None:
    client = Client(task("a"), task("b"), task("c", "a b")).begun(0)
    client.submitted()
    client.ends(0, result(0))
    client.take_all(m.Publish)
    client.tell(0, m.Lost(RUN, ("7/./0", "7/./1"), -1))
    assert told_shared(client) == [("7/./0", SHARED_RETENTION)], "b has not finished: it will be told when it has"
    client.ends(0, result(1))
    assert told_shared(client) == [("7/./1", SHARED_RETENTION)]
    client.effects_of(Ended)


@pytest.mark.parametrize("joined", [False, True], ids=["its shard died", "so did a shard that was to hand over"])
def test_the_heirs_of_partitions_are_told_of_their_tokens(joined: bool) -> None:
    """A heir may have asked, and been answered, while we still believed another node to be the shard. Seed 872: that had given its
    partitions to the heir before it died, and our answer was lost with it."""
    client = Client(task("a"), task("f"), task("c", "a f")).begun(0, 1, shard=1)
    client.submitted()
    client.ends(0, result(0), result(1, Outcome.EXIT))
    client.take_all(m.Publish)
    client.take_all(m.Poison)
    if joined:
        client.view(0, 1, 2, shard=2)
        assert not told_shared(client) and not client.take_all(m.Poison), "the shard hands over by itself"
    nodes = (0, 2) if joined else (0,)
    client.view(*nodes, shard=nodes[-1])
    assert told_shared(client) == [("7/./0", SHARED_RETENTION)]
    assert [poison.names for _, poison in client.take_all(m.Poison)] == [("7/./1",)]
    client.view(*nodes, 3, shard=nodes[-1])
    assert not told_shared(client), "nothing has moved"


def test_scratch_does_not_go_to_shared_storage() -> None:
    client = Client(task("a", outputs="x y", scratch="x")).begun(0)
    (spec,) = [spec for _, submit in client.take_all(m.Submit) for spec in submit.tasks]
    assert spec.retentions == (m.retention(0), m.retention(0, True))
