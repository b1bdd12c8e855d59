"""``benchmarks elastic``: its options and its table. The measurement is in ``benchmarks.elastic``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarks.commands.files import OUTPUT, numbers, say, show

if TYPE_CHECKING:
    from benchmarks.elastic import Report


@click.command()
@click.option("--policy", "named", multiple=True, default=("paper-1", "paper-2"), show_default=True, metavar="FILE")
@click.option("--nodes", callback=numbers(2, 4096), default="16,64", show_default=True, metavar="N,...", help="By the default policy.")
@OUTPUT
def elastic(named: tuple[str, ...], nodes: tuple[int, ...], output: str) -> int:
    """Simulate workflows on sessions that grow and shrink by a policy, beside sessions that have all nodes from beginning to end.

    The paper's policies were 13 to 23 % slower, and took 55 to 63 % less node-hours.
    """
    from benchmarks.elastic import measure

    report = measure(named=named, nodes=nodes, say=say)
    show(report, output, table(report))
    return 0


def table(report: Report) -> str:
    """The report as people read it."""
    from amfs.display.progress import table_text

    rows = [["workflow", "policy", "nodes", "changes", "time", "static", "slower", "node-hours saved"]]
    for row in report.rows:
        rows.append([
            row.workload, row.policy, f"{row.nodes}..{row.most}", str(row.changes), f"{row.makespan_s:.0f} s", f"{row.static_s:.0f} s",
            f"{100 * row.slower:.0f} %", f"{100 * row.saved:.0f} %",
        ])  # fmt: skip
    return f"{report.machine}\n\n{table_text(rows)}"
