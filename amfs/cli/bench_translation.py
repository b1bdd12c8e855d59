"""``amfs bench translate``: time and memory of the translators. Owns the table; what is measured is in ``amfs.bench.translation``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from amfs.bench.translation import Curve, Point

FORMATS = ("tasklist", "jsonl", "dax", "pegasus", "wfformat", "makeflow")


@click.command()
@click.option("--only", "only", multiple=True, type=click.Choice(FORMATS), metavar="FORMAT", help="Only this format (repeatable).")
@click.option("--tasks", "sizes", multiple=True, type=click.IntRange(1), help="Size of a workflow (repeatable; 1000, 10000, 100000).")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="How often; medians are shown.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def translate(only: tuple[str, ...], sizes: tuple[int, ...], repeat: int, output: str) -> int:
    """Measure how much CPU time reading a workflow takes and how much memory, by format and number of tasks.

    FORMATs are tasklist, jsonl, dax, pegasus, wfformat and makeflow. Each document says the same workflow and is read by a process of
    its own.
    """
    from amfs.bench.translation import TASKS, measure

    def say(text: str) -> None:
        print(f"amfs bench: {text}", file=sys.stderr, flush=True)

    curve = measure(only or FORMATS, sizes or TASKS, repeat=repeat, say=say)
    if output == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(curve)).decode())
    else:
        click.echo(curve_table(curve))
    return 0


def curve_table(curve: Curve) -> str:
    """The curve as people read it: for each format the sizes below each other, and what ten times the tasks cost."""
    from amfs.cli.output import table_text

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
