"""``benchmarks urls``: the table. The measurement is in ``benchmarks.urls``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchmarks.commands.files import OUTPUT, REPEAT, say, show

if TYPE_CHECKING:
    from benchmarks.urls import Row


@click.command()
@click.argument("bucket")
@click.option("--objects", type=click.IntRange(1), default=1000, show_default=True, help="Small objects.")
@click.option("--mib", type=click.IntRange(64), default=512, show_default=True, help="MiB of the large one.")
@click.option("--nodes", type=click.IntRange(1), default=2, show_default=True, help="Nodes of the session.")
@REPEAT
@OUTPUT
def urls(bucket: str, objects: int, mib: int, nodes: int, repeat: int, output: str) -> int:
    """Load from and dump to BUCKET (of S3, which must be there), beside obstore alone.

    The storage is reached as for amfs load. A missed target does not change the exit status.
    """
    from benchmarks.urls import measure

    rows = measure(bucket, count=objects, mib=mib, nodes=nodes, repeat=repeat, say=say)
    show(rows, output, urls_table(rows))
    return 0


def urls_table(rows: list[Row]) -> str:
    """The rows as people read them."""
    from amfs.display.progress import table_text

    table = [["", "amfs, s", "obstore, s", "amfs beside it", "target", ""]]
    for row in rows:
        mine, theirs = (" ".join(f"{seconds:.2f}" for seconds in found) for found in (row.amfs, row.obstore))
        table.append([row.what, mine, theirs, f"{row.ratio:.2f} ×", f"≥ {row.target}", "PASS" if row.passed else "missed"])
    return table_text(table)
