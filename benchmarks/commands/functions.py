"""``benchmarks functions``: the options and the table; the measurements are in ``benchmarks.functions``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from amfs.display.progress import table_text

if TYPE_CHECKING:
    from benchmarks.functions import FunctionReport

CONTESTANTS = ("amfs", "processes", "dask", "ray")


@click.command()
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="How often; medians are shown.")
@click.option("--quick", is_flag=True, help="A tenth of the calls: noisier.")
@click.option("--only", multiple=True, type=click.Choice(CONTESTANTS), metavar="NAME", help="Only this one (repeatable).")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def functions(repeat: int, quick: bool, only: tuple[str, ...], output: str) -> int:
    """Compare Python functions on two local workers: amfs, Python's ProcessPoolExecutor, Dask and Ray.

    NAMEs are amfs, processes, dask and ray. Dask and Ray come with the extra peers; those not installed are left out. The exit
    status is 1 if amfs could not be measured.
    """
    from benchmarks.functions import run

    def say(text: str) -> None:
        print(f"benchmarks: {text}", file=sys.stderr, flush=True)

    report = run(repeat=repeat, quick=quick, only=only, say=say)
    if output == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        click.echo(function_table(report))
    return 1 if "amfs" in report.missing else 0


def function_table(report: FunctionReport) -> str:
    """The report as people read it; in brackets how many times better amfs is."""
    from benchmarks.functions import LINES, TITLES

    names = list(report.values)
    rows = [["", *(TITLES[name] for name in names)]]
    ours = report.values.get("amfs", {})
    for key, (title, unit) in LINES.items():
        if not any(key in values for values in report.values.values()):
            continue
        row = [f"{title}, {unit}"]
        for name in names:
            value = report.values[name].get(key)
            if value is None:
                row.append("")
                continue
            text = f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
            if name != "amfs" and key in ours:
                ratio = ours[key] / value if unit.endswith("/s") else value / ours[key]
                text += f" ({ratio:.1f} ×)"
            row.append(text)
        rows.append(row)
    left_out = [f"{TITLES[name]} is left out: {why}" for name, why in report.missing.items()]
    how = f"median of {report.repeat}, {report.calls:,} calls on {report.slots} workers; in brackets: amfs is so many times better"
    head = f"{report.machine} ({how})"
    return "\n".join([head, "", table_text(rows), *([""] if left_out else []), *left_out])
