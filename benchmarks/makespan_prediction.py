"""How long ensembles would take on more nodes than this machine has: simulated with what was measured here, beside the runs themselves.

Owns what is taken from the runs on the fewest nodes, and the two ways of simulation: staged tasks by ``makespan_model``, shared data by
amfs's own simulator. The same costs foretell the runs on more nodes of this machine, which are measured, too: that is the check. Only what
other programs left of the processors is taken from each run itself. Then each node gets a host of its own, with nothing else on it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from amfs.host.processes import usable_cpus
from amfs.sim.settings import Storage
from amfs.sim.simulate import simulate
from amfs.sim.workload import Workload
from amfs.workflow.workflow import Task
from benchmarks.envelope_table import aligned
from benchmarks.makespan_model import Machines, Predicted, StagedTask, makespan_s
from benchmarks.staging import AROUND, COMPUTE, Report, Run, Shape, ShapeStep, Span
from benchmarks.store_costs import Access, StoreCosts

_OUTSIDE = "s3:/store/"  # files that a node brings from the store are named by URLs


class Taken(NamedTuple):
    """Of the runs of one series on the fewest nodes. ``cpu_s``: of a processor, by label: before the inputs, of the program, after the
    outputs. ``lead_s`` and ``tail_s``: before the first task begins, and after the last has ended. ``gap_s``: of a slot between two tasks.
    ``others``: programs that had the processors besides."""

    cpu_s: dict[str, tuple[float, float, float]]
    lead_s: float
    tail_s: float
    gap_s: float
    others: float

    def quiet(self, cpus: float) -> Taken:
        """The same on a machine that does nothing else: all that amfs does takes a processor, and only that."""
        share = min(1.0, cpus / (1 + self.others))
        return self._replace(lead_s=self.lead_s * share, tail_s=self.tail_s * share, gap_s=self.gap_s * share, others=0.0)


def take(runs: Sequence[tuple[Run, Sequence[Span]]], slots: int, cpus: float) -> Taken:
    """Medians of the turns. Raises ValueError without the processor time of the tasks."""
    every = [span for _, spans in runs for span in spans]
    if not all(span.cpu for span in every):
        raise ValueError("the samples do not tell how much of a processor the tasks took")
    cpu_s = {}
    for label in dict.fromkeys(span.label for span in every):
        parts = [_cpu_parts(span) for span in every if span.label == label]
        before, program, after = (statistics.median(part[at] for part in parts) for at in range(3))
        cpu_s[label] = before, program, after
    busy = min(runs[0][0].nodes * slots, runs[0][0].tasks)
    share = sum(span.cpu for span in every) / sum(_on_cpu(span) for span in every)
    leads, tails, gaps = [], [], []
    for run, spans in runs:
        first, last = min(span.begun for span in spans), max(span.ended for span in spans)
        leads.append(first)
        tails.append(max(0.0, run.seconds - last))
        gaps.append(max(0.0, ((last - first) * busy - sum(span.ended - span.begun for span in spans)) / len(spans)))
    others = max(0.0, cpus / share - busy) if share < 1 else 0.0
    return Taken(cpu_s, statistics.median(leads), statistics.median(tails), statistics.median(gaps), others)


def _on_cpu(span: Span) -> float:
    return sum(end - begin for part, begin, end in span.parts if part in (AROUND, COMPUTE))


def _cpu_parts(span: Span) -> tuple[float, float, float]:
    """The processor time of a task, dealt to its parts as they lasted."""
    lasted = [end - begin for part, begin, end in span.parts if part in (AROUND, COMPUTE)]
    whole = sum(lasted) or 1.0
    before, program, after = lasted if len(lasted) == 3 else (0.0, lasted[0], 0.0)
    return span.cpu * before / whole, span.cpu * program / whole, span.cpu * after / whole


def scaled(shape: Shape, tasks: int) -> list[ShapeStep]:
    """So many copies of an ensemble that it has about so many tasks. All copies read the outside files that several of its steps read."""
    made = {name for step in shape.steps for name in step.outputs}
    common = {name for name, count in Counter(name for step in shape.steps for name in step.inputs).items() if count > 1} - made
    copies = max(1, round(tasks / len(shape.steps)))

    def named(files: dict[str, int], copy: int) -> dict[str, int]:
        return {name if name in common else f"{copy}/{name}": size for name, size in files.items()}

    return [
        ShapeStep(f"{step.id}.{copy}", step.label, named(step.inputs, copy), named(step.outputs, copy))
        for copy in range(copies) for step in shape.steps
    ]  # fmt: skip


def staged_s(steps: Sequence[ShapeStep], taken: Taken, machines: Machines, get: Access, put: Access) -> float:
    maker = {name: number for number, step in enumerate(steps) for name in step.outputs}
    gap = taken.gap_s * machines.share(1) if machines.one_host else taken.gap_s
    tasks = []
    for step in steps:
        before, program, after = taken.cpu_s[step.label]
        predecessors = tuple({maker[name] for name in step.inputs if name in maker})
        tasks.append(StagedTask(before + gap, program, after, tuple(step.inputs.values()), tuple(step.outputs.values()), predecessors))
    return taken.lead_s + makespan_s(tasks, machines, get, put) + taken.tail_s


def shared_s(steps: Sequence[ShapeStep], taken: Taken, machines: Machines, get: Access, put: Access, bucket: bool) -> float:
    """``bucket``: nodes bring the inputs; else tasks read them where they are."""
    made = {name for step in steps for name in step.outputs}
    read = {name for step in steps for name in step.inputs}
    names = {name: f"{_OUTSIDE}{name}" if bucket and (name not in made or name not in read) else name for name in made | read}
    sizes = {names[name]: size for step in steps for name, size in (*step.inputs.items(), *step.outputs.items())}
    name_of = names.__getitem__
    tasks = [Task(step.id, ("program",), tuple(map(name_of, step.inputs)), tuple(map(name_of, step.outputs))) for step in steps]
    workload = Workload(tasks, sizes=sizes, bytes_each=0)
    busy = min(len(steps), machines.nodes * machines.slots) if machines.one_host else min(machines.slots, len(steps))
    share = machines.share(busy)
    gap = taken.gap_s * machines.share(1) if machines.one_host else taken.gap_s
    for number, step in enumerate(steps):
        workload.seconds[number] = (sum(taken.cpu_s[step.label]) + gap) / share
    latency, request, each = ((one + other) / 2 for one, other in zip(get, put, strict=True))
    storage = Storage(each, latency, request)
    report = simulate(workload, nodes=machines.nodes, slots=machines.slots, storage=storage)
    return taken.lead_s + report.makespan_s + taken.tail_s


def predict(report: Report, nodes: Sequence[int], sizes: dict[str, int]) -> list[Predicted]:
    """The runs of ``report`` as the costs foretell them, then ensembles of ``sizes`` (application -> tasks) on so many hosts. Raises
    ValueError if the report has not what that needs."""
    slots, cpus = report.head.slots, float(report.head.cpus or usable_cpus())
    costs = {one.store: one for one in report.costs}
    shapes = {one.application: one for one in report.shapes}
    groups = report.groups()
    found: list[Predicted] = []
    for application, series in dict.fromkeys((application, series) for application, _, series in groups):
        mine = {count: runs for (name, count, each), runs in groups.items() if (name, each) == (application, series)}
        store = next(iter(mine.values()))[0].store
        if store not in costs or application not in shapes:
            raise ValueError("the samples do not tell what the store costs")
        fewest = min(mine)
        taken_of = {count: take([(run, report.spans_of(run)) for run in runs], slots, cpus) for count, runs in mine.items()}
        taken = taken_of[fewest]
        shape = with_results(shapes[application], [run for runs in mine.values() for run in runs])
        one = _Series(application, series, costs[store], "directory" not in store and "disk" not in store)
        for count, runs in sorted(mine.items()):
            here = Machines(count, slots, cpus, True, taken_of[count].others)  # time that others took is no cost of ours
            measured = statistics.median(run.seconds for run in runs)
            seconds = one.seconds(shape.steps, taken, here)
            found.append(Predicted(application, series, count, len(shape.steps), seconds, measured, count == fewest))
        steps = scaled(shape, sizes.get(application, len(shape.steps)))
        quiet = taken.quiet(cpus)
        for count in nodes:
            seconds = one.seconds(steps, quiet, Machines(count, slots, cpus))
            found.append(Predicted(application, series, count, len(steps), seconds, hosts=True))
    return found


class _Series(NamedTuple):
    application: str
    series: str
    costs: StoreCosts
    bucket: bool

    def seconds(self, steps: Sequence[ShapeStep], taken: Taken, machines: Machines) -> float:
        if self.series.startswith("staged"):
            return staged_s(steps, taken, machines, self.costs.get(), self.costs.put())
        return shared_s(steps, taken, machines, self.costs.get(), self.costs.put(), self.bucket)


def with_results(shape: Shape, runs: Sequence[Run]) -> Shape:
    """The shape with the sizes of what the runs left in the store."""
    made = {name: size for run in runs for name, size in run.made.items()}
    return Shape(shape.application, [
        ShapeStep(step.id, step.label, step.inputs, {name: made.get(name, size) for name, size in step.outputs.items()})
        for step in shape.steps
    ])  # fmt: skip


def prediction_text(rows: Sequence[Predicted], costs: Sequence[StoreCosts]) -> str:
    """Three tables: the costs of the stores, the check, and cases that nobody has measured."""
    told = [["store", "load", "get: alone", "of the store", "bytes/s", "put: alone", "of the store", "bytes/s"]]
    for one in costs:
        cells = []
        for access in (one.get(), one.put()):
            alone = access.latency_s + access.request_s
            cells += [f"{1000 * alone:.2f} ms", f"{1000 * access.request_s:.2f} ms", f"{access.bytes_s / 1e6:.0f} MB"]
        told.append([one.store, f"{one.load:g}", *cells])
    check = [["predicted / measured", "nodes", "predicted", "measured", "ratio"]]
    for row in rows:
        if row.measured_s:
            note = "(costs are from here)" if row.base else f"{row.ratio:.2f}"
            check.append([f"{row.application}, {row.series}", str(row.nodes), f"{row.predicted_s:.1f} s", f"{row.measured_s:.1f} s", note])
    simulated = [row for row in rows if row.hosts]
    counts = list(dict.fromkeys(row.nodes for row in simulated))
    table = [["simulated, each node a host", "tasks", *(f"{count} nodes" for count in counts)]]
    for key in dict.fromkeys((row.application, row.series, row.tasks) for row in simulated):
        seconds = {row.nodes: row.predicted_s for row in simulated if (row.application, row.series, row.tasks) == key}
        table.append([f"{key[0]}, {key[1]}", str(key[2]), *(f"{seconds[count]:.1f} s" for count in counts)])
    return "\n\n".join(aligned(rows, range(1, len(rows[0]))) for rows in (told, check, table))
