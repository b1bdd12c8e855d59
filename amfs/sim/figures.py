"""The scaling figures of the AME paper (Zhang, Katz, Ripeanu, Wilde, Foster: AME, 2011; Figures 6-9 and 11), simulated.

``python -m amfs.sim.figures`` simulates the paper's experiments up to 16,384 cores and writes one SVG a figure and a table of the numbers
to ``docs/figures``. Twice: with the costs of this engine on a small machine of today, and with costs like those of the paper's machine,
without which there is no bottleneck to see. ``docs/simulator.md`` compares both with the paper.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from amfs.sim.settings import Costs, Storage
from amfs.sim.simulate import Report, simulate
from amfs.sim.svg import Axis, chart
from amfs.sim.workload import bag, pairs

SLOTS = 4
UNIT = 64
LENGTHS = (0.0, 1.0, 4.0, 16.0, 64.0)
CORES = (256, 512, 1024, 2048, 4096, 8192, 16384)

#: The engine of this repository on a machine with two slow CPUs, and a small network.
TODAY = Costs()

#: Blue Gene/P: cores of 850 MHz, a central dispatcher that manages about a thousand tasks a second, tens of milliseconds to start a task.
#: Fitted to what the paper says of its Figures 8 and 9 (which task length gives 90 % where), not measured by anybody.
AME_2011 = Costs(
    task_us_worker=20_000.0,
    task_us_dispatcher=700.0,
    task_us_submitter=5.0,
    task_us_fls=1_200.0,
    message_us=10.0,
    batch_us=200.0,
    latency_s=200e-6,
    bandwidth_bytes_s=3e8,
    spawn_us=40_000.0,
    file_us=4_000.0,
)


#: With today's costs nothing is to be seen with longer tasks.
STUDIES = (("today", "today's costs", TODAY, LENGTHS[:3]), ("ame2011", "costs as of 2011", AME_2011, LENGTHS))


class Row(NamedTuple):
    """One simulated experiment."""

    machine: str
    figure: str
    length_s: float
    report: Report


class Study:
    """All experiments on one kind of machine. ``say`` is told of each."""

    def __init__(
        self, machine: str, costs: Costs, lengths: Sequence[float], cores: Sequence[int], say: Callable[[str], None]
    ) -> None:
        self.machine = machine
        self.costs = costs
        self.lengths = lengths
        self.cores = cores
        self.say = say
        self.rows: list[Row] = []

    def _run(self, figure: str, cores: int, length: float, *, unit: int, paired: bool) -> Report:
        nodes = cores // SLOTS
        workload = pairs(nodes, SLOTS, 8, length) if paired else bag(cores, 16, length)
        # Shared storage is out of the question here; writes at the end of a task (it reads nothing) must not hide dispatching.
        report = simulate(workload, nodes=nodes, slots=SLOTS, unit_size=unit, costs=self.costs, storage=Storage(1e12, 0.0), stealing=False)
        self.say(
            f"{self.machine} figure {figure}: {cores} cores, {length:g} s: {report.makespan_s:.2f} s, {report.dispatch_rate:.0f} tasks/s, "
            f"{100 * report.utilisation:.1f} %, {report.events} events in {report.simulated_in_s:.0f} s"
        )
        self.rows.append(Row(self.machine, figure, length, report))
        return report

    def figures(self) -> dict[str, str]:
        """Simulate all; returns the charts as SVG by name."""
        charts: dict[str, str] = {}
        made: dict[tuple[int, float], Report] = {}
        for figures, unit, word in ((("6", "8"), 0, "centralized"), (("7", "9"), UNIT, "decentralized")):
            rate: dict[str, list[tuple[float, float]]] = {}
            share: dict[str, list[tuple[float, float]]] = {}
            for length in self.lengths:
                for cores in self.cores:
                    report = self._run("/".join(figures), cores, length, unit=unit, paired=False)
                    if unit:
                        made[cores, length] = report
                    rate.setdefault(f"{length:g} s", []).append((cores, report.dispatch_rate))
                    if length:
                        share.setdefault(f"{length:g} s", []).append((cores, 100 * report.utilisation))
            title = f"{word} dispatching, {self.machine}"
            axis = Axis("cores", 2)
            charts[f"fig{figures[0]}"] = chart(f"Fig. {figures[0]}: rate of {title}", axis, Axis("tasks/s", 10), rate)
            charts[f"fig{figures[1]}"] = chart(f"Fig. {figures[1]}: efficiency of {title}", axis, Axis("efficiency, %"), share)
        overhead: dict[str, list[tuple[float, float]]] = {}
        for length in self.lengths[1:]:
            for cores in self.cores:
                report = self._run("11", cores, length, unit=UNIT, paired=True)
                overhead.setdefault(f"{length:g} s", []).append((cores, max(0.0, report.makespan_s - made[cores, length].makespan_s)))
        charts["fig11"] = chart(f"Fig. 11: overhead of intermediate files, {self.machine}", Axis("cores", 2), Axis("seconds"), overhead)
        return charts


def table(rows: Sequence[Row]) -> str:
    """The numbers behind the figures, as Markdown."""
    lines = [
        "| machine | figures | cores | unit | task, s | makespan, s | tasks/s | efficiency, % | submitter busy, % | busiest node, % |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for machine, figure, length, r in rows:
        lines.append(
            f"| {machine} | {figure} | {r.slots} | {r.unit_size or 'all'} | {length:g} | {r.makespan_s:.2f} | {r.dispatch_rate:.0f} "
            f"| {100 * r.utilisation:.1f} | {100 * r.submitter_busy:.1f} | {100 * r.dispatcher_busy:.1f} |"
        )
    return "\n".join(lines) + "\n"


def gallery() -> str:
    """All charts, side by side, as Markdown."""
    lines = [f"| {' | '.join(study[1] for study in STUDIES)} |", f"|{' --- |' * len(STUDIES)}"]
    for number in (6, 7, 8, 9, 11):
        cells = [f"![Figure {number}, {machine}](fig{number}-{name}.svg)" for name, machine, _, _ in STUDIES]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def command(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m amfs.sim.figures", description="Simulate the figures of the AME paper.")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="directory to write to (default docs/figures)")
    parser.add_argument("--cores-max", type=int, default=CORES[-1], help=f"largest machine (default {CORES[-1]})")
    given = parser.parse_args(argv)
    cores = [count for count in CORES if count <= given.cores_max]
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for name, machine, costs, lengths in STUDIES:
        study = Study(machine, costs, lengths, cores, lambda text: print(text, flush=True))
        for figure, svg in study.figures().items():
            (given.out / f"{figure}-{name}.svg").write_text(svg, encoding="utf-8")
        rows += study.rows
    head = "# Simulated figures of the AME paper\n\nWritten by `python -m amfs.sim.figures`; see [the simulator](../simulator.md).\n\n"
    (given.out / "README.md").write_text(f"{head}{gallery()}\n{table(rows)}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(command())
