"""``amfs bench``: this machine, and amfs on it. Owns the tables; the measurements are in ``amfs.bench``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from amfs.bench.dispatch import Report, Result

ROW_KEYS = ("true", "noop", "pairs", "chain", "first", "load", "nodes", "transfer")


@click.group()
def bench() -> None:
    """Measure this machine and amfs on it."""


@bench.command()
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="How often; medians are shown.")
@click.option("--quick", is_flag=True, help="Fewer tasks: a minute instead of several, and noisier.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--only", "only", multiple=True, type=click.Choice(ROW_KEYS), metavar="ROW", help="Only this row (repeatable).")
def dispatch(repeat: int, quick: bool, output: str, only: tuple[str, ...]) -> int:
    """Compare amfs with xargs, with a bare C loop and with raw TCP, side by side.

    ROWs are true, noop, pairs, chain, first, load, nodes and transfer; docs/benchmarks.md explains them. Needs a C compiler. The exit
    status is 1 if something could not be measured; a missed target does not change it.
    """
    from amfs.bench.dispatch import run_rows

    def say(text: str) -> None:
        print(f"amfs bench: {text}", file=sys.stderr, flush=True)

    report = run_rows(only, repeat=repeat, quick=quick, say=say)
    if output == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        click.echo(dispatch_table(report))
    return 1 if any(row.error for row in report.rows) else 0


def dispatch_table(report: Report) -> str:
    """The report as people read it."""
    head = ("", "amfs", "compared with", "", "ratio", "target", "", "engine µs")
    cells = [head, *(_cells(row) for row in report.rows if not row.error)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    right = (1, 3, 4, 7)
    lines = []
    for row in cells:
        padded = (text.rjust(widths[i]) if i in right else text.ljust(widths[i]) for i, text in enumerate(row))
        lines.append("  ".join(padded).rstrip())
    failed = [f"{row.title.strip()}: not measured: {row.error}" for row in report.rows if row.error]
    how = f"median of {report.repeat}" + (", quick" if report.quick else "")
    return "\n".join([f"{report.machine} ({how})", "", *lines, *([""] if failed else []), *failed])


def _cells(row: Result) -> tuple[str, ...]:
    sign = "≥" if row.relation == "at least" else "≤"
    target = f"{sign} {row.target:g}" + ("" if row.ratio is not None else f" {row.unit.split()[0]}")
    return (
        row.title + (f" ({row.note})" if row.note else ""),
        _number(row.value, row.unit),
        row.compared_with,
        _number(row.reference, row.unit),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        target,
        "PASS" if row.passed else "miss",
        "" if row.engine_us is None else f"{row.engine_us:.0f}",
    )


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if value >= 100 else 2 if value >= 0.995 else 3
    return f"{value:,.{digits}f} {unit}"


@bench.command()
@click.option("--file", "path", type=click.Path(dir_okay=False, path_type=Path), help="Where to write (default: the user's cache).")
def costs(path: Path | None) -> int:
    """Measure what `amfs simulate` needs to know of this machine, and keep it for it."""
    from amfs.bench.costs import costs_path, save_costs
    from amfs.bench.measure import measure_costs

    def say(text: str) -> None:
        print(f"amfs bench: {text}", file=sys.stderr, flush=True)

    found = measure_costs(say)
    target = path or costs_path()
    save_costs(found, target)
    for name in found.__struct_fields__:
        value = getattr(found, name)
        click.echo(f"{name:<20} {value:.6g}")
    click.echo(f"written to {target}")
    return 0
