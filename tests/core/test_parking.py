"""Parked tasks: woken by files, looked for before they are given up, never lost."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from amfs.engine.parking import Parking, lacks_files
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import LookFor
from amfs.vocabulary.states import Outcome
from amfs.workflow.workflow import Task

TASKS = [Task(str(tid), ("x",), blind=True) for tid in range(8)]
OPTIONS = m.Options(blind="/")


def specs(*tids: int) -> list[m.TaskSpec]:
    return [m.TaskSpec(tid, b"", options=OPTIONS) for tid in tids]


def failed(tid: int, *names: str) -> m.Result:
    return m.Result(tid, outcome=Outcome.EXIT, code=1, detail="exit status 1", missing=names)


def sift(parking: Parking, *results: m.Result) -> list[int]:
    return [result.tid for result in parking.sift(results, bytearray(len(TASKS)), TASKS)]


def test_a_task_goes_again_when_another_has_made_its_file() -> None:
    parking = Parking()
    parking.sent(specs(0, 1))
    assert sift(parking, failed(0, "/f")) == []
    due, looks, over = parking.turn(2)
    assert (due, over) == ([], []) and looks[0].names == ("/f",)
    assert sift(parking, m.Result(1, made=("/f",))) == [1]
    assert parking.turn(1)[0] == [0] and not parking.parked


def test_a_file_made_before_the_failure_was_heard_of_is_not_missed() -> None:
    parking = Parking()
    parking.sent(specs(0, 1))
    assert sift(parking, m.Result(1, made=("/f",)), failed(0, "/f")) == [1]
    assert parking.turn(1)[0] == [0]
    parking.sent(specs(0))
    assert sift(parking, failed(0, "/f")) == [], "it was there, and it is gone: only another making sends the task out again"
    assert parking.turn(1)[0] == []


def test_what_nobody_makes_is_looked_for_once_more_and_then_given_up() -> None:
    parking = Parking()
    parking.sent(specs(0, 1))
    sift(parking, failed(0, "/f"), failed(1, "/f", "/g"))
    _, looks, _ = parking.turn(3)
    parking.seen(looks[0].serial, [])
    assert parking.turn(3) == ([], [], []), "a third task has not ended"
    _, looks, over = parking.turn(2)
    assert set(looks[0].names) == {"/f", "/g"} and not over
    assert parking.turn(2) == ([], [], []), "the answer is awaited"
    parking.seen(looks[0].serial, [])
    due, looks, over = parking.turn(2)
    assert (due, looks) == ([], []) and [result.tid for result in over] == [0, 1]
    assert over[0].detail == "exit status 1, and nothing is left that could make it"
    assert over[1].missing == ("/f", "/g") and not parking.parked and not parking.waiting


def test_a_look_wakes_a_task_once_for_a_name() -> None:
    parking = Parking()
    for time in range(3):
        parking.sent(specs(0))
        sift(parking, failed(0, "/f"))
        _, looks, over = parking.turn(1)
        parking.seen(looks[-1].serial, ["/f"])
        if time == 0:
            assert parking.turn(1)[0] == [0]
        else:
            assert [result.tid for result in parking.turn(1)[2]] == [0] and not over
            return


def test_what_fails_otherwise_is_not_parked() -> None:
    parking = Parking()
    parking.sent(specs(0, 1, 2))
    endings = (Outcome.TIME_LIMIT, Outcome.CANCELLED, Outcome.SETUP)
    others = [m.Result(tid, outcome=outcome, missing=("/f",)) for tid, outcome in enumerate(endings)]
    assert sift(parking, *others) == [0, 1, 2]
    assert not lacks_files(m.Result(0, outcome=Outcome.EXIT)) and lacks_files(m.Result(0, outcome=Outcome.SIGNAL, missing=("/f",)))


@given(st.integers(0, 1 << 30))
def test_whatever_happens_every_task_ends_and_those_that_can_end_well(seed: int) -> None:
    rng = random.Random(seed)
    count = len(TASKS)
    reads = {tid: {f"/{rng.randrange(count + 2)}" for _ in range(rng.randint(0, 2))} for tid in range(count)}
    files: set[str] = {"/8"} if rng.random() < 0.5 else set()
    can: set[int] = set()
    made = set(files)
    while more := {tid for tid in range(count) if tid not in can and reads[tid] <= made}:
        can |= more
        made |= {f"/{tid}" for tid in more}
    parking, state = Parking(), bytearray(count)
    out = list(range(count))
    looks: list[LookFor] = []
    parking.sent(specs(*out))
    ended: dict[int, m.Result] = {}
    on_the_way: list[m.Result] = []
    for _ in range(2000):
        if len(ended) == count:
            break
        step = rng.random()
        if step < 0.4 and out:
            tid = out.pop(rng.randrange(len(out)))
            missing = tuple(reads[tid] - files)
            if not missing:
                files.add(f"/{tid}")
            on_the_way.append(failed(tid, *missing) if missing else m.Result(tid, made=(f"/{tid}",)))
        elif step < 0.7 and on_the_way:
            result = on_the_way.pop(rng.randrange(len(on_the_way)))
            for counted in parking.sift([result], state, TASKS):
                ended[counted.tid] = counted
                state[counted.tid] = 1
        elif looks:
            look = looks.pop(0)
            parking.seen(look.serial, [name for name in look.names if name in files])
        due, asked, over = parking.turn(count - len(ended))
        parking.check_invariants()
        looks += asked
        out += due
        parking.sent(specs(*due))
        for result in over:
            ended[result.tid] = result
            state[result.tid] = 1
    assert len(ended) == count, "a task was forgotten"
    assert {tid for tid, result in ended.items() if not result.outcome} == can
    assert all(set(result.missing) & reads[tid] for tid, result in ended.items() if result.outcome)


def doubted(tid: int, *names: str) -> m.Result:
    return m.Result(tid, outcome=Outcome.EXIT, code=0, missing=names)


def test_who_ended_well_without_its_file_does_without_only_when_nobody_makes_it() -> None:
    parking = Parking()
    parking.sent(specs(0, 1))
    assert sift(parking, doubted(0, "/f"), failed(1, "/g")) == []
    due: list[int] = []
    while not due:
        due, looks, over = parking.turn(2)
        assert not over, "task 0 may make what task 1 waits for"
        for look in looks:
            parking.seen(look.serial, [])
    assert due == [0]
    assert parking.lenient == {0}
    parking.sent(specs(0))
    assert sift(parking, m.Result(0, made=("/g",))) == [0]
    assert parking.turn(1)[0] == [1]


def test_who_ended_well_without_its_file_goes_again_when_it_is_made() -> None:
    parking = Parking()
    parking.sent(specs(0, 1))
    assert sift(parking, doubted(0, "/f"), m.Result(1, made=("/f",))) == [1]
    assert parking.turn(1)[0] == [0] and not parking.lenient
