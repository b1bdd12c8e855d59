"""``benchmarks swift``: the table. The measurement is in ``benchmarks.scripts``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarks.commands.files import OUTPUT, REPEAT, say, show

if TYPE_CHECKING:
    from benchmarks.scripts import Report


@click.command()
@click.option("--calls", type=click.IntRange(100), default=100_000, show_default=True, help="Calls of a function in a script.")
@click.option("--quick", is_flag=True, help="Fewer calls: half a minute, and noisier.")
@REPEAT
@OUTPUT
def swift(calls: int, quick: bool, repeat: int, output: str) -> int:
    """Measure what Swift scripts cost: function calls, app calls beside a task list, memory, the time to the first task, translation."""
    from benchmarks.scripts import measure

    report = measure(calls=min(calls, 10_000) if quick else calls, repeat=1 if quick else repeat, say=say)
    show(report, output, swift_table(report))
    return 0


def swift_table(report: Report) -> str:
    """The report as people read it."""
    from amfs.display.progress import table_text

    rows = [["", "measured", "", "target", "", "beside"]]
    for row in report.rows:
        beside = row.compared_with + (f" ({row.reference:,.4g})" if row.reference is not None else "")
        sign = "≥" if row.relation == "at least" else "≤"
        shown = f"{row.value:,.0f}" if row.value >= 100 else f"{row.value:.2f}"
        rows.append([row.title, shown, row.unit, f"{sign} {row.target:,g}", "PASS" if row.passed else "miss", beside])
    return "\n".join([f"median of {report.repeat}", "", table_text(rows), *(f"\n{remark}" for remark in report.remarks)])
