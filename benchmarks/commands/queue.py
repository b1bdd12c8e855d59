"""``benchmarks queue``: the table. The measurement is in ``benchmarks.queueing``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarks.commands.files import OUTPUT, REPEAT, say, show

if TYPE_CHECKING:
    from benchmarks.queueing import Report

WAYS = {"true": "/bin/true", "program": "program AMFS_queue", "function": "function AMFS_queue"}


@click.command()
@click.option("--tasks", type=click.IntRange(10), default=5000, show_default=True, help="Tasks in a loop.")
@click.option("--quick", is_flag=True, help="Fewer tasks: seconds, and noisier.")
@REPEAT
@OUTPUT
def queue(tasks: int, quick: bool, repeat: int, output: str) -> int:
    """Measure what it costs to queue a task, beside /bin/true in the same loop, for the shells that are here."""
    from benchmarks.queueing import measure

    report = measure(tasks=min(tasks, 300) if quick else tasks, repeat=repeat, say=say)
    show(report, output, queue_table(report))
    return 0


def queue_table(report: Report) -> str:
    """The report as people read it."""
    from amfs.display.progress import table_text

    rows = [["shell", "command in the loop", "µs", "ratio", "target", ""]]
    for row in report.rows:
        target = "" if row.target is None else f"≤ {row.target:g}"
        verdict = "" if row.target is None else "PASS" if row.passed else "miss"
        rows.append([row.shell, WAYS[row.way], f"{row.task_us:,.0f}", f"{row.ratio:.2f}", target, verdict])
    return f"{report.tasks:,} tasks (median of {report.repeat})\n\n{table_text(rows)}"
