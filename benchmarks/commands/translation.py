"""``benchmarks translate`` and ``benchmarks simulate``: the cost of reading workflows, and how well the simulator predicts their runs.

Owns the tables. The measurements are in ``benchmarks.translation`` and ``benchmarks.prediction``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.commands.files import OUTPUT, REPEAT, numbers, say, show

if TYPE_CHECKING:
    from benchmarks.prediction import Report
    from benchmarks.translation import Curve, Point

FORMATS = ("tasklist", "jsonl", "dax", "pegasus", "wfformat", "makeflow")


@click.command()
@click.option("--only", "only", multiple=True, type=click.Choice(FORMATS), metavar="FORMAT", help="Only this format (repeatable).")
@click.option("--tasks", "sizes", multiple=True, type=click.IntRange(1), help="Size of a workflow (repeatable; 1000, 10000, 100000).")
@REPEAT
@OUTPUT
def translate(only: tuple[str, ...], sizes: tuple[int, ...], repeat: int, output: str) -> int:
    """Measure how much CPU time reading a workflow takes and how much memory, by format and number of tasks.

    FORMATs are tasklist, jsonl, dax, pegasus, wfformat and makeflow. Each document says the same workflow and is read by a process of
    its own.
    """
    from benchmarks.translation import TASKS, measure

    curve = measure(only or FORMATS, sizes or TASKS, repeat=repeat, say=say)
    show(curve, output, curve_table(curve))
    return 0


def curve_table(curve: Curve) -> str:
    """The curve as people read it: for each format the sizes below each other, and what ten times the tasks cost."""
    from amfs.display.progress import table_text

    rows = [["format", "tasks", "document", "CPU s", "µs a task", "KiB a task"]]
    before: Point | None = None
    for point in curve.points:
        new = before is None or before.format != point.format
        rows.append(
            [
                point.format if new else "",
                f"{point.tasks:,}",
                f"{point.document_bytes / 1e6:,.1f} MB",
                f"{point.seconds:,.3f}",
                f"{1e6 * point.seconds / point.tasks:,.1f}",
                f"{point.peak_bytes / 1024 / point.tasks:,.2f}",
            ]
        )
        before = point
    return f"{curve.machine} (median of {curve.repeat})\n\n{table_text(rows)}"


@click.command()
@click.argument("workflows", metavar="WORKFLOW...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--nodes", callback=numbers(1, 16), default="1,2,4", show_default=True, metavar="N,...", help="Local nodes.")
@click.option("--slots", type=click.IntRange(1, 256), default=4, show_default=True, help="Tasks at a time per node.")
@click.option("--time-scale", type=click.FloatRange(0), default=1.0, show_default=True, metavar="X", help="Recorded run times times this.")
@click.option("--size-scale", type=click.FloatRange(0), default=1.0, show_default=True, metavar="X", help="Recorded sizes times this.")
@REPEAT
@OUTPUT
def simulate(
    workflows: tuple[Path, ...], nodes: tuple[int, ...], slots: int, time_scale: float, size_scale: float, repeat: int, output: str
) -> int:
    """Compare the run times that `amfs simulate` predicts with those of real replays on local nodes.

    Each WORKFLOW must have recorded run times. Run `amfs bench costs` first, so that the simulator knows this machine. The exit status is
    1 if something could not be measured.
    """
    from benchmarks.prediction import Settings, measure

    settings = Settings(nodes, slots, time_scale, size_scale, repeat)
    report = measure([path.absolute() for path in workflows], settings, say=say)
    show(report, output, prediction_table(report))
    return 1 if any(row.failed for row in report.rows) else 0


def prediction_table(report: Report) -> str:
    """The comparison as people read it: a row for each workflow and number of nodes."""
    from amfs.display.progress import table_text

    settings = report.settings
    rows = [["workflow", "tasks", "nodes", "real", "simulated", "error"]]
    for row in report.rows:
        if row.error is not None:
            cells = [f"{row.tasks:,}", str(row.nodes), f"{row.real_s:.2f} s", f"{row.simulated_s:.2f} s", f"{100 * row.error:+.1f} %"]
            rows.append([row.workflow, *cells])
    failed = [f"{row.workflow} on {row.nodes} nodes: not measured: {row.failed}" for row in report.rows if row.failed]
    how = f"median of {settings.repeat}, {settings.slots} slots a node, times x {settings.time_scale:g}, sizes x {settings.size_scale:g}"
    return "\n".join([f"{report.machine} ({how})", "", table_text(rows), *([""] if failed else []), *failed])
