"""The evaluation of Swift programs as a machine: whatever the order of events, the same tasks, files and output."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amfs.errors import WorkflowError
from amfs.swift import requests as r
from amfs.swift.depth import deep
from amfs.swift.evaluate.dynamic import WRAP, matching, members
from amfs.swift.evaluate.effects import Answered, Ask, Begin, Event, Finished, Forget, Limits, Submit, TaskEnded
from amfs.swift.evaluate.machine import Machine
from amfs.swift.evaluate.statements import compile_program
from amfs.swift.source import Source
from amfs.swift.static import tasks_of
from amfs.swift.tree import Program
from amfs.translate.swift import program_of
from amfs.workflow.workflow import Task


class Outcome:
    """The acts of a program."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tasks: dict[str, Task] = {}
        self.files: dict[str, str] = {}
        self.forgotten: list[str] = []
        self.error = ""
        self.most_out = 0


def pretend(task: Task, files: dict[str, str]) -> bool:
    """Do what the tasks of these tests do: ``fail``, or write their words and what their inputs hold."""
    assert all(name in files for name in task.inputs), (task.id, task.inputs)
    if task.argv[0] == "fail":
        return False
    text = " ".join([*task.argv, *(files[name] for name in task.inputs if name in task.argv)])
    files.update(dict.fromkeys(task.outputs, text))
    return True


def evaluate(
    text: str | Program, *, language: str = "swift-t", seed: int | None = None, files: dict[str, str] | None = None,
    limits: Limits | None = None, on_machine: Callable[[Machine], None] | None = None,
) -> Outcome:  # fmt: skip
    """Run it with a world that answers in an order of chance."""
    found = Outcome()
    found.files = dict(files or {})
    program = text if isinstance(text, Program) else program_of(Source("test.swift", text), language)
    machine = compile_program(program, limits)
    chance = random.Random(seed)
    events: list[Event] = [Begin()]
    running: dict[str, Task] = {}

    def work() -> None:
        while True:
            ready: list[Any] = [*events, *(task for task in running.values() if all(name in found.files for name in task.inputs))]
            assert ready, f"{found.lines}: nothing is out, and the program has not ended"
            one = ready[chance.randrange(len(ready)) if seed is not None else 0]
            if isinstance(one, Task):
                del running[one.id]
                one = TaskEnded(one.id, pretend(one, found.files))
            else:
                events.remove(one)
            for effect in machine.handle(one):
                if isinstance(effect, Submit):
                    assert not {task.id for task in effect.tasks} & found.tasks.keys(), "an id twice"
                    found.tasks.update({task.id: task for task in effect.tasks})
                    running.update({task.id: task for task in effect.tasks})
                    found.most_out = max(found.most_out, len(running))
                elif isinstance(effect, Forget):
                    found.forgotten += effect.names
                    for name in effect.names:
                        found.files.pop(name, None)  # whoever wants it now fails
                elif isinstance(effect, Ask):
                    answer_to(effect, found, events)
                elif isinstance(effect, Finished):
                    found.error = str(effect.error) if effect.error is not None else ""
                    return
            if on_machine is not None:
                on_machine(machine)

    deep(work)
    return found


def answer_to(ask: Ask, found: Outcome, events: list[Event]) -> None:
    request: object = ask.request
    answer: object = None
    if isinstance(request, r.Print):
        found.lines += request.text.splitlines()
    elif isinstance(request, r.ReadFile):
        answer = found.files[request.name].encode() if request.name in found.files else r.Refused("not there")
    elif isinstance(request, r.WriteFile):
        found.files[request.name] = request.data.decode()
    elif isinstance(request, r.Stat):
        answer = r.Status(len(found.files[request.name]), 0.0, "file") if request.name in found.files else None
    elif isinstance(request, r.Present):
        answer = [name for name in request.names if name in found.files]
    elif isinstance(request, r.Arguments):
        answer = ([], {})
    else:
        assert isinstance(request, r.Pause), request
    if ask.serial:
        events.append(Answered(ask.serial, answer))


def static(text: str, language: str = "swift-t") -> list[Task]:
    return tasks_of(program_of(Source("test.swift", text), language), lambda request: r.Refused("not here"))


# ── order ──────────────────────────────────────────────────────────────────────────────────────────

PROGRAMS = {
    "closing": """
        int A[]; int B[];
        foreach i in [0:9] { A[i] = slow(i); }
        foreach a, i in A { if (a %% 2 == 0) { B[i] = a; } else { B[100 + i] = sum(A); } }
        trace(size(A), size(B), sum(B));
        (int o) slow(int i) { sleep(0.1) => o = i * i; }
    """,
    "files": """
        app (file o) make(int i) { "make" i @stdout=o; }
        app (file o) join(file parts[]) { "join" parts @stdout=o; }
        file parts[];
        foreach i in [0:4] { parts[i] = make(i); }
        file all<"all.txt"> = join(parts);
        file copy<"copy.txt"> = all;
        trace(read(all) == read(copy));
    """,
    "nested": """
        int A[][];
        foreach i in [0:3] { foreach j in [0:i] { sleep(0.1) => A[i][j] = i * j; } }
        foreach row, i in A { trace(i, size(row), sum(row)); }
    """,
    "recursion": """
        (int o) fib(int n) { if (n < 2) { o = n; } else { o = fib(n - 1) + fib(n - 2); } }
        trace(fib(9));
    """,
    "loops": """
        for (int i = 0, int x = 1; i < 8; i = i + 1, x = next) { int next = step(x); trace(i, x); }
        (int o) step(int x) { sleep(0.1) => o = x * 2; }
        int C[];
        iterate n { sleep(0.1) => C[n] = n; } until (n == 3);
        trace(sum(C));
    """,
    "structs": """
        type pair { int a; int b[]; }
        (pair o) make(int i) { o.a = i; foreach j in [0:i] { sleep(0.1) => o.b[j] = j; } }
        pair P[];
        foreach i in [0:3] { P[i] = make(i); }
        foreach p, i in P { trace(i, p.a, sum(p.b)); }
    """,
    "order": """
        app (void v) first(int i) { "first" i; }
        app (file o) second() { "second" @stdout=o; }
        void done[];
        foreach i in [0:3] { done[i] = first(i); }
        wait deep (done) { file f<"second.txt"> = second(); trace(read(f)); }
    """,
    "elements that wait for each other": """
        int A[];
        A[0] = 1;
        foreach i in [1:20] { A[i] = A[i - 1] + 1; }
        trace(A[20]);
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), rounds=st.sampled_from([1, 3, 64]), tasks=st.sampled_from([1, 4, 1000]))
def test_the_order_of_events_changes_nothing(name: str, seed: int, rounds: int, tasks: int) -> None:
    text = PROGRAMS[name]
    plain, shuffled = evaluate(text), evaluate(text, seed=seed, limits=Limits(tasks=tasks, waiting=rounds, rounds=rounds))
    assert not plain.error and plain.lines
    assert not shuffled.error
    assert sorted(shuffled.lines) == sorted(plain.lines)
    assert shuffled.tasks == plain.tasks
    assert shuffled.files == plain.files


def test_results_are_those_of_the_language() -> None:
    assert evaluate(PROGRAMS["closing"]).lines == ["trace: 10,10,1545"]
    assert evaluate(PROGRAMS["recursion"]).lines == ["trace: 34"]
    assert evaluate(PROGRAMS["elements that wait for each other"]).lines == ["trace: 21"]


# ── unfolding ──────────────────────────────────────────────────────────────────────────────────────


def test_a_long_loop_unfolds_only_as_far_as_tasks_end() -> None:
    most = 0

    def look(machine: Machine) -> None:
        nonlocal most
        most = max(most, len(machine.ready) + len(machine.waiting) + len(machine.tasks))

    text = 'app f(int i) { "f" i; } foreach i in [0:9999] { f(i); }'
    found = evaluate(text, limits=Limits(tasks=50, rounds=16), on_machine=look)
    assert len(found.tasks) == 10_000
    assert most < 100


def test_loops_that_wait_for_a_later_loop_do_not_keep_it_back() -> None:
    text = """
        int A[]; int B[];
        foreach i in [0:299] { B[i] = A[i] + 1; }
        foreach i in [0:299] { A[i] = late(i); }
        (int o) late(int i) { file f = make(i); wait (f) { o = i; } }
        app (file o) make(int i) { "make" i @stdout=o; }
        trace(sum(B));
    """
    assert evaluate(text, limits=Limits(tasks=10, waiting=20, rounds=8), seed=1).lines == [f"trace: {sum(range(1, 301))}"]


def test_a_range_of_a_million_takes_no_memory_to_speak_of() -> None:
    found = evaluate("int s = 1; foreach i in [0:199999] { int x = i * s; } trace(s);")
    assert found.lines == ["trace: 1"]


def test_deep_recursion_of_a_program_is_none_of_python() -> None:
    text = "(int o) f(int n) { if (n == 0) { o = 0; } else { o = f(n - 1) + 1; } } trace(f(5000));"
    assert evaluate(text).lines == ["trace: 5000"]


def test_deep_expressions() -> None:
    text = f"int x = {'(' * 3000}1{' + 1)' * 3000}; trace(x);"
    assert evaluate(text).lines == ["trace: 3001"]


# ── mistakes at run time ───────────────────────────────────────────────────────────────────────────


def test_a_deadlock_names_what_nobody_assigns_and_who_waits() -> None:
    found = evaluate("int A[];\nint n = count(A); (int o) count(int B[]) { o = size(B); }\nA[n] = 1;\ntrace(n);")
    assert "stuck" in found.error and "A is never closed" in found.error and "line 2" in found.error


def test_an_element_that_is_assigned_twice() -> None:
    found = evaluate("int A[];\nforeach i in [0:3] { A[i %/ 2] = i; }\ntrace(size(A));")
    assert "A[0] is assigned twice" in found.error and "test.swift:2" in found.error


def test_an_element_that_nobody_assigns() -> None:
    assert "A[5]" in evaluate("int A[] = [1, 2];\ntrace(A[5]);").error


def test_division_by_zero_names_the_place() -> None:
    assert "test.swift:2" in evaluate("int x = 0;\ntrace(1 %/ x);").error


def test_what_waits_for_a_failed_task_is_no_deadlock() -> None:
    found = evaluate('app (file o) f() { "fail" @stdout=o; }\nfile x = f();\ntrace(read(x));\ntrace("other");')
    assert found.error == "" and found.lines == ["trace: other"]


# ── tasks ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_is_named_by_its_call_path() -> None:
    text = """app (file o) leaf(int i) { "leaf" i @stdout=o; }
(file o) middle(int i) { o = leaf(i); }
foreach i in [5:6] {
  file f = middle(i);
}"""
    tasks = evaluate(text).tasks
    assert set(tasks) == {"3[0]/middle:4/leaf:2", "3[1]/middle:4/leaf:2"}
    task = tasks["3[0]/middle:4/leaf:2"]
    assert task.line == 2 and task.label == "leaf" and task.argv == ("leaf", "5")
    assert task.scratch == task.outputs == (task.stdout,) and task.stdout.startswith("_swift/") and not task.keep


def test_names_of_files_that_the_program_gives() -> None:
    text = 'app (file o) f(file i) { "f" i o; } file a<"a.txt">; file b<"out/b.txt"> = f(a);'
    task = evaluate(text, files={"a.txt": "x"}).tasks["f:1"]
    assert (task.inputs, task.outputs, task.keep, task.scratch) == (("a.txt",), ("out/b.txt",), ("out/b.txt",), ())


def test_a_compound_function_passes_the_name_on_without_a_copy() -> None:
    text = 'app (file o) leaf() { "leaf" @stdout=o; } (file o) outer() { o = leaf(); } file b<"b.txt"> = outer();'
    assert [task.outputs for task in evaluate(text).tasks.values()] == [("b.txt",)]


def test_unnamed_files_are_passed_on_without_a_copy() -> None:
    text = 'app (file o) leaf() { "leaf" @stdout=o; } file a = leaf(); file b = a; trace(read(b));'
    assert len(evaluate(text).tasks) == 1


def test_words_that_name_files_of_the_user_are_inputs() -> None:
    text = """
        app (file o) f(string s, string t) { "f" s t (s + t) @stdout=o; }
        file a<"a.txt"> = f("data.txt", "none.txt");
        file b<"b.txt"> = f("a.txt", "b.txt") => file c = f("b.txt", "--data.txt");
    """
    tasks = evaluate(text, files={"data.txt": "x", "--data.txt": "y", "a.txt": "of an earlier run"}).tasks
    assert tasks["f:3"].inputs == ("data.txt",)
    assert tasks["f:4"].inputs == ()  # a.txt is being made, and b.txt is what this one makes
    assert next(task for id, task in tasks.items() if id.startswith("f:4:")).inputs == ("b.txt",)


def test_an_app_without_files_runs_where_the_user_stands() -> None:
    text = 'app f(int i) { "f" i; } f(1); app (file o) g() { "g" @stdout=o; } g(); app (void v) h(string s) { "h" s; } h("data.txt");'
    tasks = evaluate(text, files={"data.txt": "x"}).tasks
    assert [tasks[id].staged for id in ("f:1", "g:1", "h:1")] == [False, True, True]


def test_priority_and_place() -> None:
    text = """
        app f(int i) { "f" i; }
        @prio=3 f(1);
        @location=locationFromRank(2) f(2);
        @soft_location=locationFromRank(1) f(3);
    """
    tasks = {task.argv[1]: task for task in evaluate(text).tasks.values()}
    assert tasks["1"].priority == 3
    assert (tasks["2"].node, tasks["2"].node_soft) == (2, False)
    assert (tasks["3"].node, tasks["3"].node_soft) == (1, True)


# ── task lists ─────────────────────────────────────────────────────────────────────────────────────


def test_a_static_program_is_a_task_list() -> None:
    found = static(PROGRAMS["files"].replace("trace(read(all) == read(copy));", ""))
    assert [task.argv[0] for task in found] == [*["make"] * 5, "join", "cp"]
    assert found[5].inputs == tuple(task.outputs[0] for task in found[:5])


def test_a_task_list_keeps_the_order_of_signals() -> None:
    text = """
        app (void v) first() { "first"; }
        app second() { "second"; }
        app third(void v) { "third"; }
        void v = first();
        wait (v) { second(); }
        third(v);
        first() => second();
    """
    tasks = {task.id: task for task in static(text)}
    assert tasks["second:6"].after == ("first:5",)
    assert tasks["third:7"].after == ("first:5",)
    assert tasks["second:8"].after == ("first:8",)


def test_what_needs_a_run_is_named_with_its_place() -> None:
    with pytest.raises(WorkflowError) as caught:
        static('app (file o) f() { "f" @stdout=o; }\nfile x = f();\nint n = string2int(read(x));\nforeach i in [0:n] { f(); }')
    assert "test.swift:3:20: this needs a run" in str(caught.value)


def test_small_files_that_a_program_writes_are_tasks_of_the_list() -> None:
    text = 'app (file o) f(file i) { "f" i @stdout=o; } file x = write("content"); file y<"y"> = f(x);'
    write, use = static(text)
    assert write.argv == ("printf", "%s", "content") and write.stdout == use.inputs[0]


def test_an_input_that_is_not_there_matters_to_those_who_read_it() -> None:
    named = 'import files;\nfile f<"absent.txt">;\ntrace(filename(f));\n'
    assert evaluate(named).lines == ["trace: absent.txt"]
    assert "test.swift:4" in (error := evaluate(named + "trace(read(f));").error) and "'absent.txt' does not exist" in error
    assert "'s3://b/k' is a URL" in evaluate('import files; file f = input("s3://b/k");').error


# ── arrays that apps return ────────────────────────────────────────────────────────────────────────


def archive(directory: Path, files: dict[str, bytes]) -> bytes:
    """Made by tar, as the task makes it."""
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    words = ["/bin/sh", "-c", WRAP, "sh", "deep/archive.tar", "true"]
    (directory / "deep").mkdir(exist_ok=True)
    subprocess.run(words, cwd=directory, check=True)
    return (directory / "deep" / "archive.tar").read_bytes()


def test_archives_are_read_as_tar_writes_them(tmp_path: Path) -> None:
    files = {"a": b"", "b/c.txt": b"x" * 1000, f"{'d' * 60}/{'e' * 90}": b"long name", "n\nl": b"\0" * 512}
    assert dict(members(archive(tmp_path, files))) == files


def test_patterns_of_mappers_fit_names_of_files() -> None:
    names = ["a.txt", "b.txt", "d/a.txt", "d/e/a.txt", "a.dat"]
    assert matching("*.txt", names) == ["a.txt", "b.txt"]
    assert matching("./?.txt", names) == ["a.txt", "b.txt"]
    assert matching("d/*.txt", names) == ["d/a.txt"]
    assert matching("**/a.txt", names) == ["a.txt", "d/a.txt", "d/e/a.txt"]
    assert matching("[[]x", ["[x", "x"]) == ["[x"]


# ── files that nothing can name any more ───────────────────────────────────────────────────────────

STEPS = """
    app (file o) make(int i) { "make" i @stdout=o; }
    app (file o) next(file i) { "next" i @stdout=o; }
    (file o) twice(file i) { o = next(next(i)); }
    foreach i in [0:49] { file last<sprintf("last-%i", i)> = twice(make(i)); }
"""


@pytest.mark.parametrize("seed", range(5))
def test_files_between_tasks_are_forgotten_as_soon_as_their_readers_have_ended(seed: int) -> None:
    found = evaluate(STEPS, seed=seed, limits=Limits(tasks=8, rounds=2))
    assert not found.error and len(found.tasks) == 150
    assert len(found.forgotten) == len(set(found.forgotten))
    assert set(found.forgotten) <= {name for task in found.tasks.values() for name in task.scratch}
    kept = [name for name in found.files if name.startswith("_swift/")]
    assert len(kept) <= 1, "the last event's own objects live to its end"
    assert {f"last-{i}" for i in range(50)} == set(found.files) - set(kept)


def test_what_a_variable_still_names_is_kept() -> None:
    found = evaluate("""
        app (file o) make(int i) { "make" i @stdout=o; }
        app (file o) join(file parts[]) { "join" parts @stdout=o; }
        file parts[];
        foreach i in [0:9] { parts[i] = make(i); }
        void late = propagate(join(parts)) => file again = join(parts) => trace(read(again));
    """)
    assert not found.error and len(found.lines) == 1
