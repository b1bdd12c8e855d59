"""A list of many tasks needs well under 1 KiB a task with its plan, and twice the list twice the memory."""

from __future__ import annotations

import gc
import io
import tracemalloc

import pytest

from amfs.translate.detect import load_checked
from amfs.workflow.any_place import AnyPlace


def pairs(count: int) -> bytes:
    """``count`` tasks as in the paper's example: half of them produce what the others consume."""
    half = count // 2
    produce = [f"{at} -b /bin/produce -i files{at} -o temp{at} -a files{at} temp{at}\n" for at in range(half)]
    consume = [f"{half + at} -b /bin/consume -i temp{at} -o output{at} -a temp{at} output{at}\n" for at in range(half)]
    return "".join(produce + consume).encode()


def bytes_a_task(count: int) -> tuple[float, float]:
    """(kept, at the highest point), without the text itself."""
    text = io.BytesIO(pairs(count))
    gc.collect()
    tracemalloc.start()
    try:
        workflow, plan = load_checked(text, AnyPlace("/home/user"))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(workflow.tasks) == len(plan.walk()) == count
    assert len(plan.shared) == count // 2
    return kept / count, peak / count


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_bytes_a_task_and_linear(count: int) -> None:
    few, _ = bytes_a_task(5_000)
    many, peak = bytes_a_task(count)
    assert many < 800
    assert peak < 1024
    assert many < 1.25 * few
