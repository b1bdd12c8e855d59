"""``benchmarks montage``: options and table; the measurement is ``benchmarks.montage``."""

from __future__ import annotations

import os

import click

from benchmarks.commands.files import ended_by_signals, numbers, say, show


@click.command()
@click.option("--grids", default="5,10", show_default=True, callback=numbers(2, 40), help="Images a side of the sky: 5 are 25 images.")
@click.option("--size", type=click.IntRange(50), default=300, show_default=True, help="Pixels a side of an image.")
@click.option("--slots", type=click.IntRange(1), default=None, help="Programs at a time. Default: one per CPU.")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True)
@click.option("--tools", type=click.Choice(["auto", "montagepy", "debian"]), default="auto", show_default=True)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def montage(grids: tuple[int, ...], size: int, slots: int | None, repeat: int, tools: str, output: str) -> int:
    """Montage by amfs, GNU make and Makeflow in turn on tmpfs; times beside what the tasks themselves took.

    "over": the time of the whole command, divided by (time of all tasks / slots). "least": how long those tasks take by an engine that
    costs nothing; "over" behind it is beside that. CPU: of the engine's own process, and of its tasks.
    """
    from benchmarks.montage import measure

    with ended_by_signals():
        report = measure(
            grids=grids, size=size, slots=slots or len(os.sched_getaffinity(0)), repeat=repeat, tools=tools, say=say
        )  # fmt: skip
    lines = [f"{report.machine}, {report.slots} slots", ""]
    lines += ["images  tasks  engine       time  tasks / slots   over    least   over  CPU: engine    tasks"]
    lines += [
        f"{row.images:6,}  {row.tasks:5,}  {row.engine:8}  {row.seconds:6.2f} s  {row.ideal_s:11.2f} s  {row.over:5.2f}"
        f"  {row.least_s:5.2f} s  {row.over_least:5.2f}  {row.engine_cpu_s:9.2f} s  {row.tasks_cpu_s:5.2f} s"
        for row in report.rows
    ]
    lines += [f"{name} is not installed" for name in report.absent]
    show(report, output, "\n".join(lines))
    return 0
