"""Files of the session that a run has made and that are lost with a node: how its worker, shard and submitter have them made again."""

from __future__ import annotations

import pytest
from parts import CLIENT, RUN, info, key, keys, result
from submitter_client import Client, task
from test_fls import publish, shard, view
from worker_node import SHARD, Node, mine

from amfs.engine.fls import SHARED_RETENTION
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import CopyOut, Ended, FilesLost, FindLost, JobDone, StageIn
from amfs.workflow import origin
from amfs.workflow.resume import Remains, resume_whole

S = "amfs:/s"
ON_SHARED = m.Publish(RUN, (m.Published("7/a", 5, SHARED_RETENTION),))
GONE = m.Lost(RUN, ("7/a",), m.ON_SHARED)


# ── a worker ───────────────────────────────────────────────────────────────────────────────────────


def test_a_task_whose_input_the_session_has_lost_waits_until_it_is_made_again() -> None:
    node = Node(journal="mark").assign(mine(1, S)).forget().located(S)
    node.feed(JobDone(node.effect(StageIn).serial, "lost with node 2", 0, lost_of="mark"))
    assert node.take(m.Lost, SHARD) == m.Lost(RUN, keys(S), m.ON_SHARED)
    assert node.take(m.Locate, SHARD) == m.Locate(RUN, keys(S))
    assert not node.done()
    node.nothing_left()
    node.located(S, 3)
    assert node.take(m.Fetch, 3).names == keys(S)
    node.inline(S, 3)
    assert node.running() == [1]


@pytest.mark.parametrize("whose", ["", "another"])
def test_what_another_run_made_or_nobody_knows_who_is_not_made_again(whose: str) -> None:
    node = Node(journal="mark").assign(mine(1, S)).forget().located(S)
    node.feed(JobDone(node.effect(StageIn).serial, "amfs:/s: its content was lost", 0, lost_of=whose))
    (told,) = node.done()
    assert told.detail == "cannot read its input: amfs:/s: its content was lost"


def test_a_file_of_the_session_is_taken_out_with_its_origin() -> None:
    node = Node(journal="mark", kept="/j").assign(mine(1, outputs=S, final=True, name="first", argv=("cp", "a b", S))).exits(1, 12)
    made = node.effect(CopyOut)
    assert origin.unpack(made.origin) == origin.Origin("mark", "first", 0, "cp 'a b' amfs:/s", "/j")
    node = Node().assign(mine(1, outputs="on-shared-storage", final=True)).exits(1, 12)
    assert node.effect(CopyOut).origin == b""


def test_an_origin_stays_small() -> None:
    packed = origin.pack(info(), "t\n", 3, ["sh", "-c", "x" * 10**6])
    found = origin.unpack(packed)
    assert found is not None and len(packed) < 300
    assert (found.run, found.task, len(found.command)) == ("7", "t\\n", origin.COMMAND_MAX)
    assert origin.unpack(b"nonsense") is None


# ── a shard ────────────────────────────────────────────────────────────────────────────────────────


def test_a_shard_tells_the_submitter_that_a_file_of_the_session_is_lost() -> None:
    fls = shard().tell(1, publish("7/a")).tell(1, ON_SHARED)
    fls.feed(view(2, 1)).tell(2, GONE).nothing_left()
    fls.tell(2, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Lost, CLIENT) == GONE
    fls.tell(3, GONE).tell(3, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Lost, CLIENT) == GONE
    fls.tell(3, publish("7/a"))
    assert {to for to, _ in fls.take_all(m.Located)} == {2, 3}
    fls.tell(3, ON_SHARED).nothing_left()


def test_what_a_node_has_in_its_store_is_read_from_there() -> None:
    fls = shard().tell(1, publish("7/a")).tell(1, ON_SHARED).tell(2, GONE).nothing_left()
    fls.tell(2, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Located, 2).files[0].holders == (1,)
    fls.nothing_left()


def test_an_heir_that_has_never_heard_of_the_file_tells_it_too() -> None:
    fls = shard().tell(2, GONE).tell(2, m.Locate(RUN, ("7/a",)))
    assert fls.take(m.Lost, CLIENT) == GONE
    fls.nothing_left()


# ── a submitter ────────────────────────────────────────────────────────────────────────────────────


def retentions(client: Client) -> dict[int, tuple[int, ...]]:
    return {spec.tid: spec.retentions for _, submit in client.take_all(m.Submit) for spec in submit.tasks}


def lost(*names: str) -> m.Lost:
    return m.Lost(RUN, tuple(key(name) for name in names), m.ON_SHARED)


def test_a_lost_file_of_the_session_is_made_again_as_such_and_what_is_there_is_not() -> None:
    client = Client(task("a", "", f"amfs:/r {S} x", keep="x"), task("b", f"amfs:/r {S} x")).begun(0, 1)
    client.submitted()
    client.ends(0, result(0, node=1)).effects_of(Ended)
    client.view(0).tell(0, lost(S))
    assert retentions(client) == {0: (m.retention(1), m.retention(1, True), m.retention(1))}
    client.tell(0, lost(S)).nothing_left()
    client.ends(0, result(0)).effects_of(Ended)
    assert client.take(m.Publish, 0) == m.Publish(RUN, (m.Published(key(S), 0, SHARED_RETENTION),)), "for who asked meanwhile"
    client.ends(0, result(1)).effects_of(Ended)
    assert set(client.effect(FindLost).names) == {S, "amfs:/r"}


def test_at_its_end_a_run_that_lost_nodes_makes_again_what_nobody_has_read() -> None:
    client = Client(task("a", "", "x"), task("b", "x", S), task("c", "", "amfs:/r")).begun(0, 1)
    client.submitted()
    client.view(0).ends(0, *(result(tid) for tid in range(3))).effects_of(Ended)
    assert client.effect(FindLost) == FindLost((S, "amfs:/r"))
    client.nothing_left()
    client.feed(FilesLost([S]))
    assert client.take(m.ReadAgain, 0) == m.ReadAgain(RUN, keys("x"))
    assert client.submitted() == {0: [1]}
    client.tell(0, m.Lost(RUN, keys("x"), -1))
    assert client.submitted() == {0: [0]}, "and what it reads, if that is gone"
    client.ends(0, result(0), result(1)).run_ended(0)


def test_a_node_that_is_lost_while_it_looks_has_it_look_again() -> None:
    client = Client(task("a", "", S)).begun(0, 1, 2)
    client.submitted()
    client.view(0, 1).ends(0, result(0)).effects_of(Ended)
    client.effect(FindLost)
    client.view(0).nothing_left()
    client.feed(FilesLost([]))
    client.effect(FindLost)
    client.feed(FilesLost([]))
    client.run_ended(0)


def test_without_a_lost_node_nobody_looks() -> None:
    client = Client(task("a", "", S)).begun(0, 1)
    client.submitted()
    client.ends(0, result(0)).run_ended(0, 1)


def test_what_an_earlier_run_made_is_made_again_too_with_what_that_needs() -> None:
    client = Client(task("a", "", "x"), task("b", "x", S), task("c", S, "y"), skip=frozenset((0, 1)))
    client.machine.maker.ready.add(S)
    client.begun(0, 1)
    assert client.submitted() == {0: [2]}
    client.view(0).tell(0, lost(S))
    assert retentions(client) == {1: (m.retention(m.KEEP, True),)}
    client.tell(0, m.Lost(RUN, keys("x"), -1))
    assert retentions(client) == {0: (m.retention(m.KEEP),)}
    assert client.machine.skipped == 0


def test_a_shard_that_need_not_tell_what_is_missed_ends_the_run() -> None:
    client = Client(task("a", "", "x"), task("b", "x", S), task("c", S, "y"), skip=frozenset((0, 1)))
    client.machine.maker.ready.add(S)
    client.begun(0)
    client.submitted()
    client.tell(0, lost(S))
    client.run_ended(0, reason=f"{S}, which an earlier run has made, is lost; run again with --resume")


# ── a run that is resumed ──────────────────────────────────────────────────────────────────────────


def test_a_resumed_run_makes_what_the_session_has_lost_and_what_that_needs() -> None:
    tasks = [task("a", "", "x"), task("b", "x", S), task("c", S, "amfs:/t"), task("d", "", "amfs:/u")]
    client = Client(*tasks)
    sizes = {S: -1, "amfs:/t": 3, "amfs:/u": 3}
    remains = Remains(lambda one: (3,), lambda name: sizes.get(name, -1), {})
    resumed = resume_whole(tasks, client.machine.plan, remains, lambda one, name: name.startswith("amfs:/"))
    assert resumed.skip == {2, 3}, "the reader of what is lost has read it"
    sizes["amfs:/t"] = -1
    assert resume_whole(tasks, client.machine.plan, remains, lambda one, name: name.startswith("amfs:/")).skip == {3}
    sizes[S] = 3
    resumed = resume_whole(tasks, client.machine.plan, remains, lambda one, name: name.startswith("amfs:/"))
    assert (resumed.skip, resumed.ready) == ({0, 1, 3}, {S})
