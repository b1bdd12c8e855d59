"""Checks before anything runs: every fault by itself, all at once, and the plan that remains."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.errors import WorkflowError
from amfs.vocabulary.object_versions import ObjectVersion
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.checks import Plan, StreamChecker, check
from amfs.workflow.workflow import DeclaredState, Task, Workflow, canonical, complete, value_faults

BASE = "/home/u"


class MapPlace:
    """A place made of sets: files that exist, programs, directories where nothing can be written."""

    base = BASE

    def __init__(self, *, exist: Iterable[str] = (), programs: Iterable[str] = ("x", "y"), closed: Iterable[str] = ()) -> None:
        self.exist = set(exist)
        self.programs = set(programs)
        self.closed = set(closed)

    def missing(self, names: Iterable[str]) -> set[str]:
        return set(names) - self.exist

    def versions(self, urls: Iterable[str]) -> dict[str, ObjectVersion]:
        return {url: ObjectVersion(len(url), url) for url in urls}

    def real(self, directory: str) -> str:
        return posixpath.normpath(posixpath.join(BASE, directory))

    def unwritable(self, directory: str) -> str:
        return f"{directory or BASE} is closed" if directory in self.closed else ""

    def find_program(self, name: str, *, here: bool) -> tuple[str, str]:
        return (f"/bin/{name}", "") if name in self.programs else ("", "was not found")


def task(task_id: str, inputs: str = "", outputs: str = "", *, line: int = 0, argv: tuple[str, ...] = ("x",), **more: object) -> Task:
    return Task(task_id, argv, tuple(inputs.split()), tuple(outputs.split()), line=line, **more)  # type: ignore[arg-type]


def plan_of(*tasks: Task, place: MapPlace | None = None, files: dict[str, DeclaredState] | None = None) -> Plan:
    return check(Workflow(list(tasks), source="list", files=files or {}), place or MapPlace(exist=["in"]))


def faults_of(*tasks: Task, place: MapPlace | None = None, files: dict[str, DeclaredState] | None = None) -> list[str]:
    with pytest.raises(WorkflowError) as caught:
        plan_of(*tasks, place=place, files=files)
    for fault in caught.value.faults:
        assert "\n" not in str(fault)
    return [str(fault) for fault in caught.value.faults]


# ── what is fine ───────────────────────────────────────────────────────────────────────────────────


def test_plan() -> None:
    plan = plan_of(task("a", "in", "t"), task("b", "t in", "o"), task("c", "t", "p"))
    assert plan.writers == {"t": 0, "o": 1, "p": 2}
    assert plan.readers == {"in": 2, "t": 2}
    assert plan.order is None
    assert list(plan.walk()) == [0, 1, 2]
    assert plan.shared == {"in": f"{BASE}/in"}
    assert plan.programs == {"x": "/bin/x"}
    assert plan.aliases == {}
    assert plan.base == BASE


def test_list_order_need_not_respect_dependencies() -> None:
    plan = plan_of(task("b", "t", "o"), task("a", "in", "t"))
    assert plan.order is not None
    assert list(plan.walk()) == [1, 0]


def test_names_are_the_same_file_however_spelled() -> None:
    plan = plan_of(task("a", "./in", "d/../t"), task("b", "t ./t ../u/t", "../o"), place=MapPlace(exist=["in"]))
    assert plan.writers == {"t": 0, "/home/o": 1}
    assert plan.readers == {"in": 1, "t": 1}
    assert plan.aliases == {"./in": "in", "d/../t": "t", "./t": "t", "../u/t": "t", "../o": "/home/o"}
    assert plan.shared == {"in": f"{BASE}/in"}


def test_tasks_are_made_complete() -> None:
    workflow = Workflow([Task("a", ("x",), ("in", "in"), stdin="i", stdout="o", stderr="o"), Task("b", ("x",), stdin="/dev/zero")])
    check(workflow, MapPlace(exist=["in", "i"]))
    assert workflow.tasks[0].inputs == ("in", "i")
    assert workflow.tasks[0].outputs == ("o",)
    assert workflow.tasks[1].inputs == ()


def test_a_program_may_be_a_file_of_the_workflow() -> None:
    plan = plan_of(task("a", outputs="bin/p q"), task("b", "bin/p", argv=("bin/p",)), task("c", "./q", argv=("q",)))
    assert plan.programs == {"x": "/bin/x", "bin/p": "bin/p", "q": "./q"}


def test_bare_commands_ignore_files_of_the_workflow_as_a_shell_does() -> None:
    plan = plan_of(task("a", outputs="y"), task("b", argv=("y",), staged=False))
    assert plan.programs["y"] == "/bin/y"


def test_an_empty_workflow_is_fine() -> None:
    plan = plan_of()
    assert list(plan.walk()) == []


def test_any_place_has_everything() -> None:
    plan = check(Workflow([task("a", "in", "d/o", argv=("./p",))]), AnyPlace("/x"))
    assert plan.programs == {"./p": "/x/p"}
    assert plan.shared == {"in": "/x/in"}


@given(st.permutations(range(30)))
def test_any_order_of_a_chain_is_put_right(places: list[int]) -> None:
    chain = [task(str(link), f"f{link}" if link else "", f"f{link + 1}") for link in range(30)]
    plan = plan_of(*[chain[place] for place in places])
    assert [places[index] for index in plan.walk()] == list(range(30))


# ── faults ─────────────────────────────────────────────────────────────────────────────────────────


def test_duplicate_id() -> None:
    assert faults_of(task("a", line=1), task("b", line=2), task("a", line=3)) == ["list:3: task id 'a' is already taken (line 1)"]


def test_two_writers() -> None:
    found = faults_of(task("a", outputs="o", line=1), task("b", outputs="./o", line=2))
    assert found == ["list:2: task b: output './o' is already written by task a (line 1)"]


def test_cycle_is_named_as_a_path() -> None:
    found = faults_of(task("a", "z", "y", line=1), task("b", "y", "z", line=2), task("c", "z", line=3))
    assert found == ["list:1: cycle of tasks, each waiting for the one before it: a -> b -> a"]


def test_one_fault_a_knot() -> None:
    found = faults_of(task("a", "2", "1"), task("b", "1", "2"), task("c", "4", "3"), task("d", "3", "4"), task("e", "4 1", "5"))
    assert [line.rpartition(": ")[2] for line in found] == ["a -> b -> a", "c -> d -> c"]


def test_long_cycles_are_cut_in_the_middle() -> None:
    [found] = faults_of(*[task(f"t{i}", f"f{i}", f"f{(i + 1) % 50}") for i in range(50)])
    assert "t0 -> t1" in found
    assert "... (33 more)" in found
    assert found.endswith("-> t49 -> t0")


def test_reads_what_it_writes() -> None:
    assert faults_of(task("a", "f", "f", line=4)) == ["list:4: task a: reads 'f', which it writes itself"]


def test_missing_input_names_reader_and_near_output() -> None:
    found = faults_of(task("a", "in", "temp0", line=1), task("b", "tmep0", line=2), task("c", "tmep0", line=3))
    expected = "input 'tmep0' of task b and 1 more does not exist in /home/u, and no task makes it; did you mean the output 'temp0'?"
    assert found == [f"list:2: {expected}"]


def test_missing_input_in_another_directory() -> None:
    [found] = faults_of(task("a", outputs="out/Data.fits"), task("b", "data.fits"))
    assert "did you mean the output 'out/Data.fits'?" in found


def test_missing_stdin() -> None:
    [found] = faults_of(task("a", stdin="nothing"))
    assert "input 'nothing' of task a does not exist" in found


def test_unwritable_place() -> None:
    place = MapPlace(closed=["", "d"])
    found = faults_of(task("a", outputs="o", line=1), task("b", outputs="d/p", line=2), place=place)
    assert found == [
        "list:1: task a: output 'o' cannot be written: /home/u is closed",
        "list:2: task b: output 'd/p' cannot be written: d is closed",
    ]


def test_files_between_tasks_need_no_place_unless_kept() -> None:
    place = MapPlace(closed=["d"])
    tasks = [task("a", outputs="d/t"), task("b", "d/t", "o")]
    plan_of(*tasks, place=place)
    [found] = faults_of(task("a", outputs="d/t", keep=("d/t",)), tasks[1], place=place)
    assert "output 'd/t' cannot be written" in found


def test_unknown_program() -> None:
    found = faults_of(task("a", argv=("nope",), line=1), task("b", argv=("nope",), line=2), task("c", argv=("./nope",), line=3))
    assert found == ["list:1: program 'nope' of task a and 1 more was not found", "list:3: program './nope' of task c was not found"]


def test_a_program_made_by_a_task_must_be_an_input() -> None:
    found = faults_of(task("a", outputs="p"), task("b", argv=("./p",), line=2))
    assert found == ["list:2: task b: its program './p' is made by task a, so it must be among the inputs of this task"]


def test_a_missing_program_that_is_an_input_is_told_once() -> None:
    [found] = faults_of(task("b", "./p", argv=("./p",)))
    assert "input 'p' of task b does not exist" in found


def test_file_list_faults() -> None:
    files = {"in": DeclaredState.INVALID, "o": DeclaredState.SHARED, "never": DeclaredState.INVALID, "./t": DeclaredState.INVALID}
    found = faults_of(task("a", "in", "o", line=1), task("b", outputs="t", line=2), files=files)
    assert found == [
        "list:1: task a: writes 'o', which the file list says is Shared already",
        "list:1: input 'in' of task a is Invalid in the file list, but no task makes it",
    ]


def test_odd_names() -> None:
    found = faults_of(Task("a", ("x",), ("",), ("d/", "."), line=1), Task("b", ("x", "\0"), line=2), Task("c", ("x",), ("i\0",), line=3))
    assert found == [
        "list:1: task a: a file name is empty",
        "list:1: task a: output 'd/' names a directory; name the files in it",
        "list:1: task a: output '.' names a directory; name the files in it",
        "list:2: task b: a word of its command contains a NUL character",
        "list:3: task c: file name 'i\\x00' contains a NUL character",
    ]


@pytest.mark.parametrize("outputs", [("",), ("a", "")])
def test_an_empty_name_alone_is_seen(outputs: tuple[str, ...]) -> None:
    assert faults_of(Task("a", ("x",), (), outputs), task("b")) == ["list: task a: a file name is empty"]


def test_a_file_is_no_directory() -> None:
    [found] = faults_of(task("a", outputs="d", line=1), task("b", outputs="d/e/f", line=2))
    assert found == "list:1: task a: output 'd' is a file, but other names lie below it as in a directory"


def test_a_directory_is_known_by_who_names_it_with_what_is_in_it() -> None:
    maker, reader = task("a", outputs="d d/e d/e/f"), task("b", "d/e/f d", "o")
    assert plan_of(maker, reader).writers["d/e"] == 0
    assert plan_of(task("a", outputs="d"), task("b", "d", "d/x"), task("c", "d/x", "o")).writers["d/x"] == 1


def test_two_spellings_that_cannot_be_one() -> None:
    [found] = faults_of(task("a", outputs="f", line=1), task("b", f"{BASE}/f", line=2), place=MapPlace(exist=[f"{BASE}/f"]))
    assert found == "list:2: the same file is named '/home/u/f' by task b and 'f' by task a; use one name"
    plan_of(task("a", "in"), task("b", f"{BASE}/in"), place=MapPlace(exist=["in", f"{BASE}/in"]))  # reading both ways harms nobody


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"cores": 0}, "cores must be at least 1, not 0"),
        ({"memory": -1}, "memory must not be negative"),
        ({"time_limit": -1.0}, "the time limit must lie between 0 and"),
        ({"time_limit": float("nan")}, "the time limit must lie"),
        ({"time_limit": float("inf")}, "the time limit must lie"),
        ({"retries": -2}, "retries must not be negative"),
        ({"priority": 1 << 40}, "the priority must fit in 32 bits"),
        ({"node": -2}, "the node must not be negative"),
        ({"node_soft": True}, "node_soft without a node"),
        ({"keep": ("k",)}, "keeps 'k', which is not among its outputs"),
        ({"env": ("A",)}, "environment entry 'A' is not of the form NAME=VALUE"),
        ({"env": ("=A",)}, "environment entry '=A'"),
        ({"cwd": "/tmp"}, "working directory '/tmp' lies outside the sandbox"),
        ({"cwd": "a/../.."}, "lies outside the sandbox"),
        ({"cwd": "gone", "staged": False}, "working directory 'gone' does not exist"),
        ({"argv": ()}, "no program to run"),
        ({"argv": ("",)}, "no program to run"),
        ({"reduce": 2, "argv": ("x", "{in}", "{out}"), "inputs": ("in",)}, "a reduction has exactly one output, not 0"),
        ({"reduce": 1, "argv": ("x", "{in}", "{out}"), "inputs": ("in",), "outputs": ("o",)}, "combines at least 2 files"),
        ({"reduce": 2, "argv": ("x", "{out}"), "inputs": ("in",), "outputs": ("o",)}, "a reduction needs {in} among its arguments"),
        ({"reduce": 2, "argv": ("x", "{in}", "{out}"), "outputs": ("o",)}, "a reduction needs inputs"),
    ],
)
def test_values(fields: dict[str, object], says: str) -> None:
    [found] = faults_of(Task("a", **{"argv": ("x",), **fields}, line=7))  # type: ignore[arg-type]
    assert found.startswith("list:7: task a: ")
    assert says in found


def test_empty_id() -> None:
    assert faults_of(task("", line=3)) == ["list:3: the task id is empty"]


def test_all_faults_at_once_in_order_of_lines() -> None:
    found = faults_of(
        task("a", "gone", "o", line=1),
        task("b", "q", "p", line=2),
        task("c", "p", "q", line=3),
        task("a", "in", "o", line=4, cores=0),
        task("d", argv=("nope",), line=5),
    )
    assert [line.split(":")[1] for line in found] == ["1", "2", "4", "4", "4", "5"]


def test_messages_stay_on_one_line() -> None:
    [found] = faults_of(task("a\nb", argv=("no\npe",)))
    assert "a\\nb" in found


def test_completing() -> None:
    whole = task("a", "i", "o")
    assert complete(whole) is whole
    assert complete(Task("a", ("x",), stdout="/dev/stderr")).outputs == ()
    assert value_faults(whole) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a", "a"), ("./a", "a"), ("a//b", "a/b"), ("a/./b", "a/b"), ("a/../b", "b"), ("", ""), ("../a", "/home/a"), ("../u/a", "a"),
        ("../../..", "/"), ("/a/../b", "/b"), ("//a", "/a"), ("/home/u/a", "/home/u/a"), ("..", "/home"), ("../u", "/home/u"), ("a/", "a"),
    ],
)  # fmt: skip
def test_canonical(name: str, expected: str) -> None:
    assert canonical(name, BASE) == expected


# ── lists that are still growing ───────────────────────────────────────────────────────────────────


def stream(*tasks: Task, place: MapPlace | None = None, files: dict[str, DeclaredState] | None = None) -> tuple[StreamChecker, list[str]]:
    checker = StreamChecker(place or MapPlace(exist=["in"]), "pipe", files)
    faults = [str(fault) for one in tasks for fault in checker.add(one)]
    return checker, faults


def test_stream_of_good_tasks() -> None:
    checker, faults = stream(task("a", "in later", "t"), task("b", "t"), task("c", outputs="./later"))
    assert faults == []
    assert checker.finish() == {}
    assert checker.plan.writers == {"t": 0, "later": 2}
    assert checker.plan.readers == {"in": 1, "later": 1, "t": 1}
    assert checker.plan.shared == {"in": f"{BASE}/in"}
    assert checker.plan.count == 3
    assert checker.plan.programs == {"x": "/bin/x"}


def test_stream_faults() -> None:
    _, faults = stream(
        task("a", "in", "o", line=1),
        task("a", line=2),
        task("b", outputs="o", line=3),
        task("c", "f", "f", line=4),
        task("d", argv=("nope",), line=5),
        task("e", outputs="in", line=6),
        task("f", cores=0, line=7),
        task("g", outputs="d/x", line=8),
        Task("h", ("x",), ("",), line=9),
        task("i", "in ./in", line=10),
        place=MapPlace(exist=["in"], closed=["d"]),
    )
    assert [fault.partition(": ")[0] for fault in faults] == [f"pipe:{line}" for line in range(2, 11)]
    assert "is already taken (line 1)" in faults[0]
    assert "already written by task a (line 1)" in faults[1]
    assert "which existed when task a (line 1) was to read it; in a list that grows, write the producer first" in faults[4]


def test_a_task_with_faults_is_not_taken_in() -> None:
    checker, _ = stream(task("a", cores=0, outputs="o"), task("b", "o", line=2))
    assert checker.plan.count == 1
    assert list(checker.finish()) == ["o"]


def test_stream_end_tells_what_nobody_makes() -> None:
    checker, _ = stream(task("a", "never", line=4))
    assert checker.finish() == {"never": "'never' does not exist in /home/u, and no task makes it (task a (line 4) reads it)"}


def test_stream_end_tells_cycles() -> None:
    checker, faults = stream(task("a", "y", "x"), task("b", "x", "y z"), task("c", "z"))
    assert faults == []
    vain = checker.finish()
    assert set(vain) == {"x", "y"}
    assert vain["x"].endswith("a -> b -> a")


def test_stream_knows_the_file_list() -> None:
    files = {"in": DeclaredState.INVALID, "s": DeclaredState.SHARED}
    checker, faults = stream(task("a", "in"), task("b", outputs="s"), task("c", outputs="in"), files=files)
    assert [fault.partition(": ")[2] for fault in faults] == ["task b: writes 's', which the file list says is Shared already"]
    assert checker.finish() == {}


def test_stream_program_made_by_the_workflow() -> None:
    checker, faults = stream(task("b", "p", argv=("./p",)), task("a", outputs="p"))
    assert faults == []
    assert checker.plan.programs["./p"] == "./p"


@given(st.lists(st.tuples(st.sets(st.integers(0, 6), max_size=3), st.sets(st.integers(0, 6), max_size=2)), max_size=6))
def test_stream_and_whole_agree(shape: list[tuple[set[int], set[int]]]) -> None:
    """A list without files outside: the stream accepts in the end what the whole check accepts."""
    tasks = [task(str(at), " ".join(map(str, ins)), " ".join(map(str, outs))) for at, (ins, outs) in enumerate(shape)]
    place = MapPlace()
    checker, faults = stream(*tasks, place=place)
    accepted = not faults and not checker.finish()
    try:
        plan = plan_of(*tasks, place=place)
    except WorkflowError:
        assert not accepted
    else:
        assert accepted
        assert checker.plan.writers == plan.writers
        assert checker.plan.readers == plan.readers


def test_a_reduction_of_what_no_task_makes() -> None:
    one = task("sum", "given", "out", argv=("x", "{in}", "{out}"), reduce=2)
    with pytest.raises(WorkflowError, match="task sum: a reduction combines files that tasks make, and no task makes any of its inputs"):
        check(Workflow([one]), MapPlace(exist={"given"}))


def test_what_was_seen_of_inputs_at_urls_stays_in_the_plan() -> None:
    """Under the names that tasks know, by catalogs too."""
    place = MapPlace(exist=["in", "s3:/b/k", "s3://c/k"])
    reader = task("a", "in here s3:/b/k")
    plan = check(Workflow([reader], paths={"here": "s3://c/k"}), place)
    seen = {"here": ObjectVersion(8, "s3://c/k"), "s3:/b/k": ObjectVersion(8, "s3://b/k")}
    assert plan.versions == seen
    checker = StreamChecker(place)
    assert not checker.add(task("a", "in s3:/b/k")) and checker.plan.versions == {"s3:/b/k": seen["s3:/b/k"]}
    assert StreamChecker(place).plan.versions == {}, "each list has its own"
