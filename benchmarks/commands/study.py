"""The measurements of the cloud storage study: many files to and from stores, and files between the pairs of nodes. Owns their options."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from amfs.errors import SystemSetupError, UsageError
from benchmarks.commands.files import OUTPUT, PLOT, directory_of, ended_by_signals, save, say, show

STORES = ("moto", "versitygw", "hdfs", "amfs-whole", "amfs-striped", "amfs-mounted")  # benchmarks.stores.NAMES, not imported for --help
QUICK = (1_000, 100_000, 10_000_000)
FULL = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)


def file_sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Sizes with commas between: "10kB,1MiB"."""
    from amfs.translate.tasklist import parse_size

    if value is None:
        return ()
    try:
        found = tuple(parse_size(word) for word in value.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    if not all(0 < size <= 1 << 40 for size in found):
        raise click.BadParameter(f"{value!r}: a file has at least one byte and at most 1 TiB", ctx, param)
    return tuple(dict.fromkeys(found))


def lines_to(stack: ExitStack, path: Path | None) -> Any:
    """Writes each thing that it is told to ``path`` at once, as a line of JSON. Raises SystemSetupError."""
    import msgspec

    if path is None:
        return lambda line: None
    try:
        file = stack.enter_context(path.open("wb", buffering=0))
    except OSError as error:
        raise SystemSetupError(f"cannot write {path}: {error.strerror}") from None
    return lambda line: file.write(msgspec.json.encode(line) + b"\n")


WITH = click.option("--with", "wanted", multiple=True, type=click.Choice(STORES), metavar="STORE", help="Only this store (repeatable).")
INSTALL = click.option("--install", is_flag=True, help="Fetch and compile the servers that are missing (Go for versitygw, Maven for HDFS).")
SAMPLES = click.option("--samples", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.jsonl", help="Keep every sample.")
DRAW = click.option("--draw", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.jsonl", help="Only show these samples.")


@click.command()
@click.argument("places", metavar="[DIR|URL]...", nargs=-1)
@WITH
@click.option("--files", type=click.IntRange(1, 100_000), help="How many of each size (default 8; 40 with --full).")
@click.option("--sizes", callback=file_sizes, metavar="SIZE,...", help="Of the files (default 1kB,100kB,10MB; 1kB to 1GB with --full).")
@click.option("--clients", type=click.IntRange(1, 256), help="Processes at a time (default 4; 40 with --full).")
@click.option("--nodes", type=click.IntRange(1, 64), help="Of the session, over which the clients are dealt (default 2; 4 with --full).")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="How often, in turn.")
@click.option("--most", callback=file_sizes, default="4GB", show_default=True, metavar="SIZE", help="Of all files of one size together.")
@click.option("--full", is_flag=True, help="40 files of 1 kB to 1 GB by 40 clients, as in the paper.")
@click.option("--disk", type=click.Path(path_type=Path), metavar="DIR", help="A directory on a disk (default: for temporary files).")
@INSTALL
@SAMPLES
@DRAW
@OUTPUT
@PLOT
def storage(
    places: tuple[str, ...], wanted: tuple[str, ...], files: int | None, sizes: tuple[int, ...], clients: int | None, nodes: int | None,
    repeat: int, most: tuple[int, ...], full: bool, disk: Path | None, install: bool, samples: Path | None, draw: Path | None, output: str,
    plot: Path | None,
) -> int:  # fmt: skip
    """Copy many files at a time from a local disk to a store, back, and there and back.

    STORE is moto or versitygw (S3), hdfs, or amfs-whole, amfs-striped, amfs-mounted: files of a session that lie whole or in stripes, by
    amfs's client, and those of its mounts. Without DIR, URL and --with, all of them that can be had. Servers and sessions are started and
    ended. s3://BUCKET/PREFIX and webhdfs://HOST:PORT/DIR are reached directly, other URLs by fsspec. The exit status is 1 if something
    could not be measured.
    """
    from benchmarks import directories as d
    from benchmarks import stores
    from benchmarks.storage import Missed, Place, Settings, picture, read_samples, report_text, run_storage
    from benchmarks.storage_clients import is_url, spot_of

    if draw is not None:
        report = read_samples(draw)
        save(picture(report), plot)
        show(report, output, report_text(report))
        return 1 if report.errors else 0
    usual = Settings(40, FULL, 40) if full else Settings(8, QUICK, 4)
    chosen = Settings(files or usual.files, sizes or usual.sizes, clients or usual.clients, repeat, most[0])
    with ended_by_signals(), ExitStack() as stack:

        def work(parent: Path) -> Path:
            return stack.enter_context(d.workplace(directory_of(parent)))

        local = work(disk or d.disk_directory())
        (local / "files").mkdir()
        (local / "copies").mkdir()
        keep = lines_to(stack, samples)
        found = [stores.disk(str(local / "copies"), d.file_system(local))]
        found += [Place(place, (spot_of(place if is_url(place) else str(work(Path(place)))),)) for place in dict.fromkeys(places)]
        started, missed, session = stores.start(
            stack, wanted or (() if places else STORES), nodes or (4 if full else 2), local, install, say
        )
        found += started
        report = run_storage(found, chosen, local / "files", say, stores.client_environment(session), keep)
        for name, why in missed.items():
            keep(Missed(name, why))
            report.errors[name] = why
    save(picture(report), plot)
    show(report, output, report_text(report))
    return 1 if report.errors else 0


@click.command()
@click.option("--nodes", type=click.IntRange(2, 64), default=4, show_default=True, help="Of the session that is started and ended.")
@click.option("--session", "running", metavar="NAME", help="Instead: a session that runs, such as one on the hosts of a cluster.")
@click.option("--size", callback=file_sizes, default="64MB", show_default=True, metavar="SIZE", help="Of the file whose rate is measured.")
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="How often; medians are shown.")
@SAMPLES
@DRAW
@OUTPUT
@PLOT
def network(
    nodes: int, running: str | None, size: tuple[int, ...], repeat: int, samples: Path | None, draw: Path | None, output: str,
    plot: Path | None,
) -> int:  # fmt: skip
    """Have each node of a session fetch a file from each other one: a large one for the rate, one of a byte for the latency.

    One pair at a time, in turn. --plot draws both as heat maps. Local nodes share one machine: their pairs differ by chance only.
    """
    from benchmarks.mounts import Session
    from benchmarks.network import Settings, picture, read_samples, report_text, run_network

    if len(size) > 1:
        raise UsageError("--size: one size")
    if draw is not None:
        report = read_samples(draw)
    else:
        with ended_by_signals(), ExitStack() as stack:
            keep = lines_to(stack, samples)
            name = running or stack.enter_context(Session(nodes)).file
            report = run_network(name, Settings(size[0], repeat), say, keep)
    save(picture(report), plot)
    show(report, output, report_text(report))
    return 0
