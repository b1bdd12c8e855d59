"""``benchmarks staging``: an ensemble of the cloud storage paper whose tasks stage their own files, beside the same one with shared data.

Owns the task lists, the runs, the samples and the table. *Staged*: no task declares files; each gets its inputs from a store, runs its
program and puts its outputs there (``benchmarks.stage``). *Shared*: the list says what each task reads and writes; the session brings the
inputs from the store, keeps what goes from task to task in memory, and puts the results into the store. Both run in one session, with the
same programs, and end with the results in the store, where they are checked as the ensembles check them.
"""

from __future__ import annotations

import datetime
import importlib
import os
import shlex
import shutil
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from amfs.bench import process
from amfs.bench.dispatch import machine
from amfs.bench.process import Failed
from amfs.errors import SystemSetupError
from amfs.host.processes import usable_cpus
from amfs.runs.trace import Trace, read_trace
from benchmarks.envelope_table import aligned, share
from benchmarks.makespan_model import Predicted
from benchmarks.mounts import Session
from benchmarks.samples import no_head, read_lines
from benchmarks.stage import NOTES, STORE, Note, words_of
from benchmarks.storage import Place
from benchmarks.storage_clients import store_of
from benchmarks.store_costs import StoreCosts, measure_store

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "ensembles"
NAMES = ("lmps", "blast", "energyplus")
WAYS = ("staged", "shared")
HANG_S = 3600.0


class Step(Protocol):
    """As in examples/ensembles/steps.py."""

    id: str
    label: str
    program: str
    arguments: list[str]
    inputs: list[str]
    outputs: list[str]


class Settings(NamedTuple):
    """``sizes``: application -> hours, fragments or cases."""

    sizes: Mapping[str, int]
    nodes: tuple[int, ...] = (4,)
    slots: int = 1
    repeat: int = 1
    ways: tuple[str, ...] = WAYS
    costs: bool = False  # are those of the stores measured, too?


class Head(msgspec.Struct, frozen=True, tag="head"):
    """The measurements, where and when; ``load``: programs that wanted a CPU in the minute before."""

    machine: str
    date: str
    slots: int
    repeat: int
    sizes: dict[str, int]
    load: float
    cpus: int = 0  # 0: not known


class ShapeStep(msgspec.Struct, frozen=True):
    """Files with their bytes; 0: not known."""

    id: str
    label: str
    inputs: dict[str, int]
    outputs: dict[str, int]


class Shape(msgspec.Struct, frozen=True, tag="shape"):
    """The steps of an ensemble."""

    application: str
    steps: list[ShapeStep]


class Run(msgspec.Struct, frozen=True, tag="run"):
    """``seconds``: of the whole ``amfs run``; ``answer``: of the check of the results."""

    application: str
    way: str
    store: str
    nodes: int
    turn: int
    tasks: int
    seconds: float
    answer: str
    made: dict[str, int] = {}  # files that it left in the store -> bytes

    @property
    def series(self) -> str:
        return f"{self.way}, {self.store}"


class Span(msgspec.Struct, frozen=True, tag="span"):
    """One task of a run, by its trace; seconds since ``amfs run`` was started. ``marks``, of a task that stages: when it began with that,
    had its inputs, had run its program, had put its outputs. ``cpu``: seconds of a processor, of all its processes."""

    application: str
    way: str
    store: str
    nodes: int
    turn: int
    task: str
    label: str
    node: int
    slot: int
    begun: float
    ended: float
    marks: list[float]
    cpu: float = 0.0

    @property
    def parts(self) -> list[tuple[str, float, float]]:
        """The PARTS that were done, each from when to when."""
        if not self.marks:
            return [(COMPUTE, self.begun, self.ended)]
        began, loaded, computed, put = self.marks
        around = (AROUND, self.begun, began), (AROUND, put, self.ended)
        return [around[0], (STAGE_IN, began, loaded), (COMPUTE, loaded, computed), (STAGE_OUT, computed, put), around[1]]


Line = Head | Shape | StoreCosts | Run | Span  # of the samples
PARTS = AROUND, STAGE_IN, COMPUTE, STAGE_OUT = "start and end", "stage in", "compute", "stage out"  # the first: of the program that stages


class Row(msgspec.Struct, frozen=True):
    """Medians of the turns; ``ratio`` to the first series of the same application and nodes; ``parts``: seconds of all tasks together."""

    application: str
    series: str
    nodes: int
    tasks: int
    seconds: float
    ratio: float
    parts: dict[str, float]


class Report(msgspec.Struct, frozen=True):
    head: Head
    runs: list[Run]
    spans: list[Span]
    shapes: list[Shape] = []
    costs: list[StoreCosts] = []
    predicted: list[Predicted] = []

    def spans_of(self, run: Run) -> list[Span]:
        key = (run.application, run.way, run.store, run.nodes, run.turn)
        return [one for one in self.spans if (one.application, one.way, one.store, one.nodes, one.turn) == key]

    def groups(self) -> dict[tuple[str, int, str], list[Run]]:
        """(application, nodes, series) -> its turns, the shortest first."""
        found: dict[tuple[str, int, str], list[Run]] = defaultdict(list)
        for run in self.runs:
            found[run.application, run.nodes, run.series].append(run)
        return {key: sorted(each, key=lambda run: run.seconds) for key, each in found.items()}

    def rows(self) -> list[Row]:
        rows: list[Row] = []
        first: dict[tuple[str, int], float] = {}
        for (application, nodes, series), runs in self.groups().items():
            seconds = statistics.median(run.seconds for run in runs)
            parts: dict[str, list[float]] = defaultdict(list)
            for run in runs:
                spans = self.spans_of(run)
                for part in PARTS:
                    parts[part].append(sum(end - begin for span in spans for name, begin, end in span.parts if name == part))
            ratio = seconds / first.setdefault((application, nodes), seconds)
            medians = {part: statistics.median(each) for part, each in parts.items()}
            rows.append(Row(application, series, nodes, runs[0].tasks, seconds, ratio, medians))
        return rows


# ── task lists ──


def ensemble(name: str) -> Any:
    """The module of the ensemble. Raises SystemSetupError without the examples."""
    if not (EXAMPLES / f"{name}.py").is_file():
        raise SystemSetupError(f"there is no {EXAMPLES}/{name}.py")
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


def prepare(name: str, work: Path, size: int) -> list[Step]:
    """The inputs in ``work``, and the steps. Raises SystemSetupError without the programs."""
    work.mkdir()
    try:
        steps: list[Step] = ensemble(name).prepare(work, size)
    except SystemExit as error:  # the examples' word for a program that is missing
        raise SystemSetupError(str(error)) from None
    return steps


def outside(steps: Sequence[Step]) -> tuple[list[str], list[str]]:
    """Inputs from outside of the workflow, and its results: files that no step makes, and files that none reads."""
    made = dict.fromkeys(name for step in steps for name in step.outputs)
    read = dict.fromkeys(name for step in steps for name in step.inputs)
    return [name for name in read if name not in made], [name for name in made if name not in read]


def staged_list(steps: Sequence[Step]) -> str:
    """No files, but the order that they would have given."""
    maker = {name: step.id for step in steps for name in step.outputs}
    lines = []
    for step in steps:
        after = dict.fromkeys(maker[name] for name in step.inputs if name in maker)
        words = [step.id, "-b", sys.executable, "-label", step.label, *(["-after", *after] if after else [])]
        command = words_of(step.id, step.inputs, step.outputs, [step.program, *step.arguments])
        lines.append(shlex.join([*words, "-a", "-m", "benchmarks.stage", *command]))
    return "".join(f"{line}\n" for line in lines)


def shared_list(steps: Sequence[Step], url: str) -> str:
    """``url``: of the store; "": the run stands in its directory."""
    lines = []
    if url:
        come, leave = outside(steps)
        lines += [f"#amfs path {shlex.quote(name)} {shlex.quote(f'{url}/{name}')}" for name in (*come, *leave)]
    line_of = ensemble("steps").line
    lines += [line_of(step) for step in steps]
    return "".join(f"{line}\n" for line in lines)


# ── runs ──


def run_staging(
    places: Sequence[Place],
    settings: Settings,
    local: Path,
    say: Callable[[str], None] = lambda text: None,
    keep: Callable[[Line], None] = lambda line: None,
) -> Report:
    """Each application in each way over each of ``places`` (directories, or buckets), in sessions of so many local nodes.

    ``local``: a directory for inputs, lists and traces. Raises Failed if a run fails or its results are wrong."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    load = round(os.getloadavg()[0], 1)
    head = Head(machine(), today, settings.slots, settings.repeat, dict(settings.sizes), load, usable_cpus())
    keep(head)
    runs: list[Run] = []
    spans: list[Span] = []
    shapes: list[Shape] = []
    costs: list[StoreCosts] = []
    prepared = {}
    for name, size in settings.sizes.items():
        prepared[name] = local / name, prepare(name, local / name, size)
        prepared[f"{name}-warm"] = local / f"{name}-warm", prepare(name, local / f"{name}-warm", max(2, *settings.nodes))
        shapes.append(shape_of(name, *prepared[name]))
        keep(shapes[-1])
    for place in places if settings.costs else ():
        say(f"what {place.title} costs")
        costs.append(measure_store(place, local / "costs"))
        keep(costs[-1])
    number = 0
    for nodes in settings.nodes:
        say(f"starting a session of {nodes} node{'s' if nodes > 1 else ''}")
        with Session(nodes, settings.slots) as session:
            for name in settings.sizes:
                for turn in range(-1, settings.repeat):  # the first one, a small one, has all programs and libraries loaded; it is not kept
                    work, steps = prepared[name if turn >= 0 else f"{name}-warm"]
                    ways = [(way, place) for place in places for way in settings.ways]
                    for way, place in reversed(ways) if turn % 2 else ways:
                        number += 1
                        if turn >= 0:
                            say(f"{name}, {way}, {place.title}, {turn + 1} of {settings.repeat}")
                        done = Attempt(session, name, way, place, work, steps, local / f"run{number}").carry_out(turn)
                        if turn >= 0:
                            for line in done:
                                keep(line)
                            runs.append(done[0])
                            spans += done[1:]
    return Report(head, runs, spans, shapes, costs)


def shape_of(name: str, work: Path, steps: Sequence[Step]) -> Shape:
    """``work`` has what comes from outside."""

    def sizes(files: Sequence[str]) -> dict[str, int]:
        return {file: os.path.getsize(work / file) if (work / file).is_file() else 0 for file in files}

    return Shape(name, [ShapeStep(step.id, step.label, sizes(step.inputs), sizes(step.outputs)) for step in steps])


class Attempt(NamedTuple):
    """One run. ``work`` has the inputs; ``place``: a directory or a bucket; ``scratch``: a new directory for what it makes."""

    session: Session
    name: str
    way: str
    place: Place
    work: Path
    steps: list[Step]
    scratch: Path

    def carry_out(self, turn: int) -> tuple[Any, ...]:
        """The run and its spans. Raises Failed."""
        spot = self.place.spots[0].below(self.scratch.name)
        store = store_of(spot)
        come, leave = outside(self.steps)
        self.scratch.mkdir()
        store.prepare()
        try:
            for name in come:
                store.put(name, str(self.work / name))
            url = "" if spot.kind == "directory" else spot.where
            text = staged_list(self.steps) if self.way == "staged" else shared_list(self.steps, url)
            (self.scratch / "tasks").write_text(text)
            cwd = Path(spot.where) if self.way == "shared" and not url else self.scratch
            path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
            theirs = {STORE: msgspec.json.encode(spot).decode(), NOTES: str(self.scratch / "notes"), "PYTHONPATH": path}
            environment = {**self.session.env, **_credentials(spot.options), **theirs}
            words = ["run", str(self.scratch / "tasks"), "--session", self.session.file, "--quiet", "--no-journal"]
            command = [sys.executable, "-m", "amfs.cli.main", *words, "--trace", str(self.scratch / "trace")]
            ran = process.run(command, cwd, env=environment, hang_seconds=HANG_S)
            checked = self.scratch / "checked"
            shutil.copytree(self.work, checked)
            for name in leave:
                store.get(name, str(checked / name))
        finally:
            store.remove()
        try:
            answer = str(ensemble(self.name).check(checked, self.steps))
            made = {name: os.path.getsize(checked / name) for name in leave}
        except ValueError as error:
            raise Failed(f"{self.name}, {self.way}, {self.place.title}: wrong: {error}") from None
        shutil.rmtree(checked)
        of = (self.name, self.way, self.place.title, self.session.nodes, turn)
        spans = self._spans(read_trace(self.scratch / "trace"), of, ran.started_s)
        return Run(*of, len(self.steps), ran.seconds, answer, made), *spans

    def _spans(self, trace: Trace, of: tuple[str, str, str, int, int], started_s: float) -> list[Span]:
        notes: dict[str, list[int]] = {}
        if self.way == "staged":
            notes = {one.task: one.marks for one in read_lines(self.scratch / "notes", Note)}
        if sorted(trace.task) != sorted(step.id for step in self.steps) or (notes and len(notes) != len(self.steps)):
            raise Failed(f"{self.name}: of {len(self.steps)} tasks {len(trace)} are in the trace, {len(notes)} have noted what they staged")
        late = trace.facts["started_us"] / 1e6 - started_s  # the trace begins with the run, not with the command
        return [
            Span(
                *of, trace.task[i], trace.label_names[trace.label[i]], trace.node[i], trace.slot[i], late + trace.start[i] / 1e6,
                late + trace.end[i] / 1e6, [mark / 1e6 - started_s for mark in notes.get(trace.task[i], ())], trace.cpu[i] / 1e6,
            )
            for i in range(len(trace))
        ]  # fmt: skip


def _credentials(options: Mapping[str, str]) -> dict[str, str]:
    """The environment by which a run reaches a bucket."""
    names = {
        "access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY", "region": "AWS_REGION",
        "endpoint": "AWS_ENDPOINT_URL",
    }  # fmt: skip
    return {names[name]: value for name, value in options.items() if name in names}


def read_samples(path: Path) -> Report:
    """The report of what was kept. Raises UsageError."""
    head: Head | None = None
    runs: list[Run] = []
    spans: list[Span] = []
    shapes: list[Shape] = []
    costs: list[StoreCosts] = []
    for one in read_lines(path, Line):
        if isinstance(one, Head):
            head = one
        elif isinstance(one, Run):
            runs.append(one)
        elif isinstance(one, Shape):
            shapes.append(one)
        elif isinstance(one, StoreCosts):
            costs.append(one)
        else:
            spans.append(one)
    if head is None:
        raise no_head(path, "staging")
    return Report(head, runs, spans, shapes, costs)


# ── for people ──


def report_text(report: Report) -> str:
    """The report as people read it: the time of each run, and what its tasks spent it on, added up."""
    head = report.head
    parts = [f"{head.machine}, {head.date}, load {head.load:g} (slots a node: {head.slots}, medians of {head.repeat})"]
    for application in head.sizes:
        rows = [[application, "nodes", "tasks", "time", "ratio", *PARTS]]
        for row in report.rows():
            if row.application == application:
                spent = (f"{row.parts[part]:.2f} s" if row.parts[part] else "" for part in PARTS)
                rows.append([row.series, str(row.nodes), str(row.tasks), f"{row.seconds:.2f} s", share(row.ratio), *spent])
        parts.append(aligned(rows, range(1, len(rows[0]))))
        parts.append("\n".join(dict.fromkeys(run.answer for run in report.runs if run.application == application)))
    return "\n\n".join(parts)
