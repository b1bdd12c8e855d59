"""The partitioner and the plan of a shuffle: records in are records out, each key in exactly one part, nothing but newlines added."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amfs._native import xxh64
from amfs.libexec import program
from amfs.workflow.shuffle import Input, Rule, part_name, plan, spread

files_of_lines = st.lists(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b" ")), max_size=12), max_size=4)
delimiters = st.sampled_from([None, b",", b"\t", b" ", b"\xff", b":"])


def key_of(line: bytes, column: int, delimiter: bytes | None) -> bytes:
    columns = line.replace(b"\t", b" ").split(b" ") if delimiter is None else line.split(delimiter)
    if delimiter is None:
        columns = [each for each in columns if each]
    return columns[column - 1] if len(columns) >= column else b""


def partition(directory: Path, inputs: list[bytes], rule: Rule) -> list[bytes]:
    """The parts that amfs-partition makes of these files."""
    source, target = directory / "in", directory / "out"
    for place in (source, target):
        subprocess.run(["rm", "-rf", place], check=True)
        place.mkdir()
    for number, data in enumerate(inputs):
        (source / f"{number:03d}").write_bytes(data)
    how: list[str | bytes] = [program("amfs-partition"), "-k", str(rule.column), "-n", str(rule.parts)]
    how += [b"-d", rule.delimiter] if rule.delimiter is not None else []
    how += [f"{target}/p", str(source)]
    done = subprocess.run(how, capture_output=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [(target / f"p{part}").read_bytes() for part in range(rule.parts)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=files_of_lines, ended=st.booleans(), parts=st.integers(1, 9), column=st.integers(1, 3), delimiter=delimiters)
def test_lines_go_whole_and_in_order_to_the_part_of_their_key(
    tmp_path: Path, contents: list[list[bytes]], ended: bool, parts: int, column: int, delimiter: bytes | None
) -> None:
    wanted = [b""] * parts
    inputs = []
    for lines in contents:
        data = b"".join(line + b"\n" for line in lines)
        if not ended and lines and lines[-1]:
            data = data[:-1]
        inputs.append(data)
        for line in lines:
            wanted[xxh64(key_of(line, column, delimiter)) % parts] += line + b"\n"
    assert partition(tmp_path, inputs, Rule(parts, column, delimiter)) == wanted


def test_a_hot_key_long_lines_and_all_bytes(tmp_path: Path) -> None:
    long = b"hot " + bytes(each for each in range(256) if each != 10) * 20_000  # 5 MB, far more than a buffer
    lines = [b"hot %d" % number for number in range(50_000)] + [long, b"x" * 3_000_000, b"", b"last"]
    found = partition(tmp_path, [b"\n".join(lines)], Rule(5))
    assert Counter(line for part in found for line in part.split(b"\n")[:-1]) == Counter(lines)
    assert found[xxh64(b"hot") % 5].startswith(b"hot 0\nhot 1\n") and long + b"\n" in found[xxh64(b"hot") % 5]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["-n", "0", "p", "x"], 2, "1 to 4096"),
        (["-n", "2", "-k", "0", "p", "x"], 2, "columns"),
        (["-n", "2", "-d", "ab", "p", "x"], 2, "one byte"),
        (["p", "x"], 2, "how many parts"),
        (["-n", "2", "p", "nothing-here"], 1, "nothing-here: No such file"),
        (["-n", "2", "/nowhere/p", "."], 1, "/nowhere/p0: No such file"),
        (["-j", "out", "nothing-here"], 1, "nothing-here: No such file"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path: Path, arguments: list[str], status: int, words: str) -> None:
    done = subprocess.run([program("amfs-partition"), *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == status and words in done.stderr and done.stderr.count("\n") == 1


def test_pieces_are_joined_in_order(tmp_path: Path) -> None:
    for number, size in enumerate((0, 10, 3_000_000)):
        (tmp_path / str(number)).write_bytes(bytes([number + 65]) * size)
    subprocess.run([program("amfs-partition"), "-j", "out", "2", "0", "1"], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "out").read_bytes() == b"C" * 3_000_000 + b"B" * 10
    subprocess.run([program("amfs-partition"), "-j", "nothing"], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "nothing").read_bytes() == b""


# ── the plan ───────────────────────────────────────────────────────────────────────────────────────

some_inputs = st.lists(
    st.tuples(st.integers(0, 10**6), st.lists(st.integers(0, 6), max_size=2)), max_size=25
).map(lambda found: [Input(b"/in/%d" % number, size, tuple(nodes)) for number, (size, nodes) in enumerate(found)])  # fmt: skip
some_slots = st.dictionaries(st.integers(0, 6), st.integers(1, 3), min_size=1, max_size=5)


@given(inputs=some_inputs, slots=some_slots)
def test_every_file_is_in_one_task_where_it_lies(inputs: list[Input], slots: dict[int, int]) -> None:
    groups = spread(inputs, slots)
    assert sorted(each for _, files in groups for each in files) == sorted(inputs)
    per_node = Counter(node for node, _ in groups)
    assert all(per_node[node] <= slots[node] for node in per_node)
    for node, files in groups:
        assert files
        for each in files:
            assert node in each.nodes or not set(each.nodes) & set(slots)


@given(inputs=some_inputs, slots=some_slots, parts=st.integers(1, 12))
def test_every_piece_is_made_once_and_joined_once_own_node_first(inputs: list[Input], slots: dict[int, int], parts: int) -> None:
    workflow = plan(inputs, b"/in", b"/out", slots, Rule(parts), "/bin/partition")
    made = [name for task in workflow.tasks if task.label == "partition" for name in task.outputs]
    used = [name for task in workflow.tasks if task.label == "join" for name in task.inputs]
    assert Counter(made) == Counter(used) and len(set(made)) == len(made)
    where = {name: task.node for task in workflow.tasks for name in task.outputs}
    joins = [task for task in workflow.tasks if task.label == "join"]
    assert [task.outputs for task in joins] == [(f"amfs:/out/{part_name(part)}",) for part in range(parts)]
    ring = sorted(slots)
    for part, task in enumerate(joins):
        assert task.node == ring[part % len(ring)]
        away = [(ring.index(task.node) - ring.index(where[name])) % len(ring) for name in task.inputs]
        assert away == sorted(away), "the pieces of its own node first, then those of the neighbours in order"


def test_rules_that_make_no_sense_are_refused() -> None:
    for rule in (Rule(0), Rule(4097), Rule(1, 0), Rule(1, 1, b""), Rule(1, 1, b"ab"), Rule(1, 1, b"\n")):
        assert rule.fault()
        with pytest.raises(ValueError, match=r".+"):
            plan([], b"/in", b"/out", {0: 1}, rule, "/bin/partition")
    assert not Rule(4096, 7, b"\xff").fault()
