"""``amfs bench spill``: the table. The measurement is in ``amfs.bench.spilling``."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

import click

from amfs.cli.bench_files import OUTPUT, REPEAT, say, show

if TYPE_CHECKING:
    from amfs.bench.spilling import Report

WAYS = {"direct": "on the disk, past the page cache", "cached": "on the disk, through the page cache", "amfs": "amfs, spilling to it"}


@click.command()
@click.option("--directory", metavar="DIR", default="", help="On the disk to spill to (default: $TMPDIR or /tmp).")
@click.option("--files", type=click.IntRange(2), default=64, show_default=True, help="Files, which all live at once.")
@click.option("--mib", type=click.IntRange(1), default=32, show_default=True, help="MiB of a file.")
@click.option("--times", type=click.FloatRange(1.0), default=5.0, show_default=True, help="Their size together, in memory limits.")
@click.option("--slots", "-s", type=click.IntRange(0), default=0, help="Programs at a time (default: usable CPUs).")
@click.option("--quick", is_flag=True, help="An eighth of the files: seconds, and noisier.")
@REPEAT
@OUTPUT
def spill(directory: str, files: int, mib: int, times: float, slots: int, quick: bool, repeat: int, output: str) -> int:
    """Run a workflow whose files are --times the memory limit, beside the same programs with their files on the disk.

    The exit status is 1 if something could not be measured; a missed target does not change it.
    """
    from amfs.bench.spilling import measure
    from amfs.host.processes import usable_cpus

    report = measure(
        os.path.abspath(directory or tempfile.gettempdir()), files=max(2, files // 8) if quick else files, mib=mib, times=times,
        slots=slots or usable_cpus(), repeat=repeat, say=say,
    )  # fmt: skip
    show(report, output, spill_table(report))
    return 1 if any(row.error for row in report.rows) else 0


def spill_table(report: Report) -> str:
    """The report as people read it."""
    from amfs.display.progress import table_text

    rows = [["files", "seconds", "amfs beside it", "target", ""]]
    for row in report.rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f} ×"
        target = "" if row.target is None else f"≤ {row.target:g} ×"
        verdict = row.error if row.error else "" if row.target is None else "PASS" if row.passed else "miss"
        rows.append([WAYS[row.way], f"{row.seconds:.2f}", ratio, target, verdict])
    head = f"{report.files} files of {report.mib} MiB, limit {report.limit_mib} MiB, {report.slots} at a time, in {report.directory}"
    return f"{head} (median of {report.repeat})\n\n{table_text(rows)}"
