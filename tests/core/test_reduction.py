"""Reduction trees: every input is combined exactly once and in order, whatever the arity and wherever the inputs are."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import SCOPE, key, spec

from amfs.vocabulary import messages as m
from amfs.vocabulary.records import pack_body, unpack_body
from amfs.workflow.reduction import expand, plan
from amfs.workflow.workflow import Task, value_faults

quickly = settings(max_examples=100, deadline=None)
FIRST = -1 - (3 << 32)


def reduction(count: int, arity: int, **options: Any) -> m.TaskSpec:
    names = " ".join(f"in{i}" for i in range(count))
    return spec(1, names, "sum", argv=("join", "-x", "{in}", "--", "-o{out}"), shared="list", reduce=arity, retries=2, **options)


@st.composite
def cases(draw: st.DrawFn) -> tuple[m.TaskSpec, list[m.FileAt]]:
    count, arity = draw(st.integers(1, 70)), draw(st.integers(2, 9))
    at = [
        m.FileAt(key(f"in{i}"), draw(st.integers(0, 1000)), tuple(draw(st.lists(st.integers(0, 4), max_size=2, unique=True))))
        for i in range(count)
    ]
    return reduction(count, arity), at


def run(tasks: list[m.TaskSpec], contents: dict[str, str]) -> None:
    """Do what the commands say, with strings for files: join the inputs."""
    for task in tasks:
        program, argv, _ = unpack_body(task.body)
        assert program == "/bin/t1"
        end = argv.index("--")
        assert argv[:2] == ["join", "-x"]
        assert tuple(SCOPE + word for word in argv[2:end]) == task.inputs, "what it reads is what it declares"
        (out,) = argv[end + 1 :]
        assert task.outputs == (SCOPE + out.removeprefix("-o"),)
        assert task.outputs[0] not in contents, "two tasks make one file"
        contents[task.outputs[0]] = " ".join(contents[name] for name in task.inputs)


@quickly
@given(cases())
def test_every_input_is_combined_once_and_in_order(case: tuple[m.TaskSpec, list[m.FileAt]]) -> None:
    task, at = case
    partial, root = plan(task, at, SCOPE, FIRST)
    contents = {name: str(i) for i, name in enumerate(task.inputs)}
    run([*partial, root], contents)  # leaves first: each finds its inputs
    assert contents[key("sum")].split() == [str(i) for i in range(len(at))]


@quickly
@given(cases())
def test_the_tree_is_no_larger_than_it_must_be(case: tuple[m.TaskSpec, list[m.FileAt]]) -> None:
    task, at = case
    assert task.options is not None
    arity = task.options.reduce
    partial, root = plan(task, at, SCOPE, FIRST)
    assert all(2 <= len(part.inputs) <= arity for part in partial)
    assert len(root.inputs) <= arity
    depth = dict.fromkeys(task.inputs, 0)
    for part in [*partial, root]:
        depth[part.outputs[0]] = 1 + max(depth[name] for name in part.inputs)
    needed = 1
    while arity**needed < len(at):
        needed += 1
    assert depth[key("sum")] == needed


@quickly
@given(cases())
def test_partial_results_are_read_once_and_their_tasks_have_ids_of_their_own(case: tuple[m.TaskSpec, list[m.FileAt]]) -> None:
    task, at = case
    partial, root = plan(task, at, SCOPE, FIRST)
    assert [part.tid for part in partial] == [FIRST - i for i in range(len(partial))]
    assert {part.retentions for part in partial} <= {(m.retention(1),)}
    again, _ = plan(task, at, SCOPE, FIRST - len(partial))
    assert not {part.outputs for part in partial} & {part.outputs for part in again}, "a tree that is planned anew has other files"
    assert (root.tid, root.outputs, root.retentions, root.attempt, root.origin) == (1, task.outputs, task.retentions, 0, task.origin)
    for part in [*partial, root]:
        assert part.shared == task.shared
        assert part.options is not None
        assert (part.options.reduce, part.options.retries) == (0, 2)


@quickly
@given(cases())
def test_each_step_is_wished_to_where_most_of_its_bytes_are(case: tuple[m.TaskSpec, list[m.FileAt]]) -> None:
    task, at = case
    partial, root = plan(task, at, SCOPE, FIRST)
    where = {one.name: (one.size, one.holders) for one in at}
    for part in [*partial, root]:
        held: dict[int, int] = {}
        for name in part.inputs:
            size, holders = where[name]
            for holder in holders:
                held[holder] = held.get(holder, 0) + size
        assert part.options is not None
        assert not part.options.pin_hard
        pin = part.options.pin
        assert (pin in held) if held else (pin == -1)
        if held:
            assert held[pin] >= max(held.values()) - len(part.inputs), "an empty file counts a little, too"
        where[part.outputs[0]] = (sum(where[name][0] for name in part.inputs), (pin,) if pin >= 0 else ())


def test_a_reduction_that_the_user_pinned_stays_there() -> None:
    task = reduction(9, 3, pin=2, pin_hard=True)
    partial, root = plan(task, [m.FileAt(name, 5, (1,)) for name in task.inputs], SCOPE, FIRST)
    assert len(partial) == 3
    for part in [*partial, root]:
        assert part.options is not None
        assert (part.options.pin, part.options.pin_hard) == (2, True)


def test_neighbours_on_one_node_are_combined_there() -> None:
    task = reduction(8, 4)
    at = [m.FileAt(name, 10, (1 if i < 4 else 2,)) for i, name in enumerate(task.inputs)]
    partial, _ = plan(task, at, SCOPE, FIRST)
    assert [part.options.pin for part in partial if part.options] == [1, 2]


def test_words_are_replaced_and_the_rest_of_the_command_is_kept() -> None:
    body = pack_body("/bin/sum", ["sum", "{in}", "x{in}", "a={out}"], env=["K=V"], cwd="d", stdin="i", stderr="e")
    program, argv, rest = unpack_body(expand(body, ["p", "q r"], "o"))
    assert (program, argv) == ("/bin/sum", ["sum", "p", "q r", "x{in}", "a=o"])
    assert rest == {"env": ["K=V"], "cwd": "d", "stdin": "i", "stdout": "", "stderr": "e"}


def test_the_inputs_must_be_a_word_by_itself() -> None:
    """Within a word they would not be replaced, and the command would run on a file named {in}."""
    task = Task("t", ("cat", "--from={in}", "{out}"), ("a", "b"), ("c",), reduce=2)
    assert value_faults(task) == ["a reduction needs {in} among its arguments, as a word by itself: it becomes several"]
    assert value_faults(msgspec.structs.replace(task, argv=("cat", "{in}", "-o{out}"))) == []
