"""The shortest time that a workflow allows, beside which the engines of the Montage benchmark are put."""

from __future__ import annotations

from pathlib import Path

import pytest

from amfs.workflow.workflow import Task
from benchmarks.montage import least_time, runtimes_of

MAKE = [Task(f"make-{number}", ("true",), (), (f"part-{number}",)) for number in range(4)]
JOIN = Task("join", ("true",), tuple(f"part-{number}" for number in range(4)), ("whole",))


@pytest.mark.parametrize(
    ("slots", "seconds"),
    [(1, 14.0), (2, 10.0), (4, 8.0), (100, 8.0)],
    ids=["the sum of all", "the last one waits for both slots", "as long as the longest chain", "more slots are of no use"],
)
def test_a_task_starts_when_its_inputs_are_there_and_a_slot_is_free(slots: int, seconds: float) -> None:
    assert least_time([*MAKE, JOIN], [1.0, 2.0, 3.0, 4.0, 4.0], slots) == seconds


def test_the_order_of_ready_tasks_is_that_of_the_list_and_nothing_waits_for_a_later_one() -> None:
    tasks = [JOIN, *MAKE]
    assert least_time(tasks, [4.0, 4.0, 3.0, 2.0, 1.0], 2) == 9.0


def test_runtimes_are_read_by_number_whatever_ended_first(tmp_path: Path) -> None:
    log = tmp_path / "joblog"
    log.write_text("Seq\tHost\tStarttime\tJobRuntime\n2\t:\t10.0\t     0.500\n1\t:\t9.0\t     2.000\n")
    assert runtimes_of(log, 3) == [2.0, 0.5, 0.0]
