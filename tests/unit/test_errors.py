"""Long lists of faults, as people read them."""

from __future__ import annotations

import errno

import pytest

from amfs.errors import KINDS_TOLD, TOLD_OF_A_KIND, Fault, WorkflowError, in_words


@pytest.mark.parametrize(
    "message",
    [
        "job {id}: output '/data/{n}/x' lies outside of the directory of the run",
        "task {id}: output 'it''s {n}' is already written by task other{n} (line {n})",
        "program 'p{n}' of task {id} and {n} more was not found on PATH",
        'field "{id}": expected {n}',
        "job {id} is given twice",
    ],
)
def test_many_faults_of_one_kind_are_counted(message: str) -> None:
    faults = [Fault("w.json", n, message.format(n=n, id=f"t-{n}_x")) for n in range(1, 102)]
    lines = str(WorkflowError(faults)).splitlines()
    assert lines[:-1] == [str(fault) for fault in faults[:TOLD_OF_A_KIND]]
    assert lines[-1] == f"w.json: {101 - TOLD_OF_A_KIND} more like this: {faults[0].message}"


def test_other_faults_among_them_are_told() -> None:
    faults = [Fault("w", 0, f"task t{n}: reads 'f{n}', which it writes itself") for n in range(50)]
    faults.insert(25, Fault("w", 3, "a cycle"))
    faults.append(Fault("v", 0, "task t1: reads 'f1', which it writes itself"))
    lines = str(WorkflowError(faults)).splitlines()
    assert len(lines) == TOLD_OF_A_KIND + 3
    assert "w:3: a cycle" in lines
    assert str(faults[-1]) in lines
    assert lines[-1] == f"w: {50 - TOLD_OF_A_KIND} more like this: task t0: reads 'f0', which it writes itself"


def test_many_kinds_of_faults_are_counted() -> None:
    words = ["".join(chr(97 + int(digit)) for digit in str(n)) for n in range(500)]
    lines = str(WorkflowError([Fault("w", 0, word) for word in words])).splitlines()
    assert lines[:KINDS_TOLD] == [f"w: {word}" for word in words[:KINDS_TOLD]]
    assert lines[KINDS_TOLD:] == [f"{500 - KINDS_TOLD} more faults of other kinds"]


def test_few_faults_are_told_as_they_are() -> None:
    faults = [Fault("w", n, f"task {n}: no") for n in range(TOLD_OF_A_KIND)]
    assert str(WorkflowError(faults)) == "\n".join(map(str, faults))
    assert str(Fault("", 0, "no place")) == "no place"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "ENOSPC"), "No space left on device"),
        (OSError(errno.ENOSPC, "the disk is full"), "the disk is full"),
        (OSError(0, "there is no file system"), "there is no file system"),
        (OSError(4321, "error 4321"), "error 4321"),
        (OSError("told in words"), "told in words"),
    ],
)
def test_an_error_of_the_system_is_told_in_words(error: OSError, words: str) -> None:
    assert in_words(error) == words
