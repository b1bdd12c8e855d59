"""``benchmarks collective`` and ``benchmarks shuffle``. Own their options; the measurements are in ``benchmarks``."""

from __future__ import annotations

from pathlib import Path

import click

from amfs.engine.collectives import KINDS
from benchmarks.commands.files import OUTPUT, PLOT, REPEAT, ended_by_signals, numbers, save, say, show
from benchmarks.commands.study import file_sizes


@click.command()
@click.option("--nodes", callback=numbers(2, 64), default="2,4,8,16", show_default=True, metavar="N,...", help="Local nodes.")
@click.option("--sizes", callback=file_sizes, default="1kB,100kB,1MB,10MB,100MB", show_default=True, metavar="SIZE,...", help="In all.")
@click.option("--only", "only", multiple=True, type=click.Choice(KINDS), metavar="KIND", help="Only this collective (repeatable).")
@click.option("--no-mpi", is_flag=True, help="Not beside MPI.")
@click.option("--quick", is_flag=True, help="2 and 4 nodes, three sizes, once.")
@REPEAT
@OUTPUT
@PLOT
def collective(
    nodes: tuple[int, ...], sizes: tuple[int, ...], only: tuple[str, ...], no_mpi: bool, quick: bool, repeat: int, output: str,
    plot: Path | None,
) -> int:  # fmt: skip
    """Time multicast, gather, allgather and scatter with both algorithms, and fit the cost model.

    Sessions of local nodes are started and ended. Beside them mpi4py's Bcast and Gather of the same bytes, if there is an mpiexec. The
    simulator goes on with the fitted costs, to 1,024 nodes. The exit status is 1 if something could not be measured.
    """
    from benchmarks.collective import Settings, picture, report_text, run_collective

    settings = Settings(nodes, sizes, repeat, kinds=tuple(only) or KINDS, mpi=not no_mpi)
    if quick:
        settings = settings._replace(nodes=(2, 4), sizes=(1_000, 1_000_000, 10_000_000), repeat=1)
    with ended_by_signals():
        report = run_collective(settings, say)
    save(picture(report), plot)
    show(report, output, report_text(report))
    return 1 if report.errors else 0


@click.command("shuffle")
@click.option("--size", "size", callback=file_sizes, default="200MB", show_default=True, metavar="SIZE", help="Of the file to partition.")
@click.option("--lines", callback=numbers(8, 100_000), default="20,60,200,1000", show_default=True, metavar="N,...", help="Bytes a line.")
@click.option("--parts", type=click.IntRange(1, 4096), default=16, show_default=True, help="Parts of that file.")
@click.option("--nodes", callback=numbers(1, 64), default="1,2,4,8", show_default=True, metavar="N,...", help="Local nodes, for shuffles.")
@click.option("--total", callback=file_sizes, default="20MB,200MB", show_default=True, metavar="SIZE,...", help="Bytes of a shuffle.")
@click.option("--quick", is_flag=True, help="Less of everything, once.")
@REPEAT
@OUTPUT
@PLOT
def shuffle(
    size: tuple[int, ...], lines: tuple[int, ...], parts: int, nodes: tuple[int, ...], total: tuple[int, ...], quick: bool, repeat: int,
    output: str, plot: Path | None,
) -> int:  # fmt: skip
    """Time the partitioner beside memcpy, awk, sort, polars and DuckDB, and whole shuffles on local nodes.

    polars and DuckDB are left out if they are not installed. awk, polars and DuckDB partition by hashes of their own; sort only sorts. The
    exit status is 1 if something could not be measured; a missed target does not change it.
    """
    from benchmarks.shuffle import Settings, picture, report_text, run_shuffle

    settings = Settings(size[0], lines, parts, nodes, total, repeat)
    if quick:
        settings = settings._replace(size=20_000_000, lines=(60,), nodes=(1, 2), total=(2_000_000, 20_000_000), repeat=1)
    with ended_by_signals():
        report = run_shuffle(settings, say)
    save(picture(report), plot)
    show(report, output, report_text(report))
    return 1 if report.errors else 0
