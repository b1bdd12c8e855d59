"""``benchmarks metadata``: its options and its table. The measurement is in ``benchmarks.metadata``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarks.commands.files import OUTPUT, REPEAT, ended_by_signals, say, show

if TYPE_CHECKING:
    from benchmarks.metadata import Report


@click.command()
@click.option("--files", type=click.IntRange(1), default=1200, show_default=True, help="Files and directories of one turn.")
@REPEAT
@OUTPUT
def metadata(files: int, repeat: int, output: str) -> int:
    """Time the steps of mdtest, git clone and rm -rf by one client on a mount, beside tmpfs: one node, four, and four with two replicas.

    Files are read through the mount of another node. The exit status is 1 if something could not be measured; a missed target does not
    change it.
    """
    from benchmarks.metadata import measure

    with ended_by_signals():
        report = measure(files=files, repeat=repeat, say=say)
    show(report, output, table(report))
    return 1 if report.errors else 0


def table(report: Report) -> str:
    """The report as people read it."""
    from amfs.display.progress import table_text

    rows = [["session", "step", "tmpfs µs", "amfs µs", "times", "target", ""]]
    for row in report.rows:
        target = "" if row.target is None else f"≤ {row.target:g}"
        verdict = "" if row.target is None else "PASS" if row.times <= row.target else "miss"
        rows.append([row.session, row.step, f"{row.tmpfs_us:.1f}", f"{row.amfs_us:.1f}", f"{row.times:.0f}", target, verdict])
    rows += [[name, error, "", "", "", "", ""] for name, error in report.errors.items()]
    return f"{report.machine} ({report.files} files, median of {report.repeat})\n\n{table_text(rows)}"
