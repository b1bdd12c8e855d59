"""``benchmarks elastic``: its options and its table. The measurement is in ``benchmarks.elastic``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarks.commands.files import OUTPUT, ended_by_signals, say, show

if TYPE_CHECKING:
    from benchmarks.elastic import Report


@click.command()
@click.option("--policy", "named", multiple=True, default=("paper-1", "paper-2", "default", "lean"), show_default=True, metavar="FILE")
@click.option("--only", "workloads", multiple=True, type=click.Choice(["montage", "blast"]), default=("montage", "blast"))
@click.option("--nodes", type=click.IntRange(4, 4096), default=16, show_default=True, help="At most; the paper's are scaled to it.")
@click.option("--least", type=click.IntRange(1, 4096), default=1, show_default=True, help="Nodes of other policies than the paper's.")
@click.option("--time-scale", type=click.FloatRange(0), default=0.0, help="Of the times of the tasks (default: each workflow's own).")
@click.option("--simulate", is_flag=True, help="Simulated nodes, by the same policies: seconds instead of minutes.")
@click.option("--reasons", is_flag=True, help="Also what the policies said.")
@OUTPUT
def elastic(
    named: tuple[str, ...], workloads: tuple[str, ...], nodes: int, least: int, time_scale: float, simulate: bool, reasons: bool,
    output: str,
) -> int:  # fmt: skip
    """Run workflows in sessions that grow and shrink by a policy, beside a session that has all nodes from begin to end.

    The nodes are processes of this machine with 256 MB for files each; tasks sleep, and their files are real. The paper's policies were 13
    to 23 % slower, with 55 to 63 % less unused memory.
    """
    from benchmarks.elastic import Settings, measure

    with ended_by_signals():
        report = measure(Settings(workloads, named, nodes, min(least, nodes), time_scale), real=not simulate, say=say)
    show(report, output, table(report, reasons=reasons))
    return 0


def table(report: Report, *, reasons: bool = False) -> str:
    """The report as people read it."""
    from amfs.display.progress import size_text, table_text

    columns = ["workflow", "policy", "nodes", "changes", "time", "slower", "node-hours saved"]
    rows = [columns if report.simulated else [*columns, "unused memory saved", "half free", "spilled at most"]]
    for row in report.rows:
        alone = not row.policy
        rows.append([
            row.workload, row.policy or "static", str(row.most) if alone else f"{row.first}..{row.most}", str(row.changes),
            f"{row.seconds:.0f} s", *(("", "") if alone else (f"{100 * row.slower:.1f} %", f"{100 * row.saved:.0f} %")),
        ])  # fmt: skip
        if not report.simulated:
            rows[-1] += ["", ""] if alone else [f"{100 * row.unused_saved:.0f} %", f"{100 * row.half_free:.0f} %"]
            rows[-1].append(size_text(row.spilled))
    how = "simulated" if report.simulated else "processes of this machine"
    text = f"{report.machine}\nat most {report.nodes} nodes, {how}\n\n{table_text(rows)}"
    if reasons:
        for row in report.rows:
            if row.said:
                text += f"\n\n{row.workload}, {row.policy}:\n" + "\n".join(f"  {line}" for line in row.said)
    return text
