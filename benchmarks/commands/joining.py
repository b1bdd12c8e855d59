"""``benchmarks joining``: its options and its tables. The measurement is in ``benchmarks.joining``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarks.commands.files import OUTPUT, REPEAT, ended_by_signals, say, show

if TYPE_CHECKING:
    from benchmarks.joining import Report


@click.command()
@click.argument("options", nargs=-1, metavar="[-- OPTION...]")
@click.option("--mib", type=click.IntRange(16, 1 << 20), default=1024, show_default=True, help="That two nodes hold before one more joins.")
@click.option("--on", default="", metavar="SYSTEM", help="Only until the first task of a job: a system of 'amfs up --on'.")
@REPEAT
@OUTPUT
def joining(options: tuple[str, ...], mib: int, on: str, repeat: int, output: str) -> int:
    """Time how long it takes until a node that is added runs its first task, and how long others wait while data moves to it.

    With --on slurm beside a bare job, in the directory of the user, which all hosts must have. OPTIONs go to the system's own command.
    """
    from benchmarks.joining import measure

    with ended_by_signals():
        report = measure(mib, repeat, on, options, say)
    show(report, output, text(report))
    return 0


def text(report: Report) -> str:
    """The report as people read it."""
    from amfs.display.progress import table_text

    parts = [report.machine]
    if report.pauses:
        rows = [["a node", "moved", "command", "moved after", "raw TCP", "longest read", "look", "write", "before", "wait / raw TCP"]]
        for one in report.pauses:
            longest = max(one.longest_s.values())
            rows.append([
                one.change, f"{one.moved / 1e6:.0f} MB", f"{one.command_s:.2f} s", f"{one.moving_s:.2f} s", f"{one.tcp_s:.2f} s",
                *(f"{1000 * one.longest_s[kind]:.0f} ms" for kind in ("read", "look", "write")),
                " ".join(f"{1000 * one.before_s[kind]:.0f}" for kind in ("read", "look", "write")) + " ms",
                f"{longest / one.tcp_s:.2f}" if one.tcp_s else "",
            ])  # fmt: skip
        parts.append(table_text(rows))
    rows = [["a node on", "first task", "a bare job", "ratio"]]
    for first in report.firsts:
        bare = ["", ""] if first.bare_s is None else [f"{first.bare_s:.2f} s", f"{first.task_s / first.bare_s:.1f}"]
        rows.append([first.on, f"{first.task_s:.2f} s", *bare])
    return "\n\n".join([*parts, table_text(rows)])
