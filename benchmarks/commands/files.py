"""``benchmarks envelope`` and its like: the measurements of the file system. Owns their options; the measurements are in ``benchmarks``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from amfs.errors import SystemSetupError, UsageError


def say(text: str) -> None:
    print(f"benchmarks: {text}", file=sys.stderr, flush=True)


def numbers(low: int, high: int) -> Callable[[click.Context, click.Parameter, str], tuple[int, ...]]:
    """Makes whole numbers of an option like "1,4,8"."""

    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
        if value is None:
            return ()
        try:
            found = tuple(int(word) for word in value.split(","))
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a list of numbers like 1,4,8", ctx, param) from None
        if not all(low <= number <= high for number in found):
            raise click.BadParameter(f"{value!r}: each number must be from {low} to {high}", ctx, param)
        return tuple(dict.fromkeys(found))

    return convert


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end a benchmark as Ctrl-C does: everything is unmounted and ended first."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def show(report: Any, output: str, text: str) -> None:
    if output == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        click.echo(text)


def save(picture: str, plot: Path | None) -> None:
    """Write ``picture`` to ``plot``, if given. Raises SystemSetupError."""
    if plot is not None:
        try:
            plot.write_text(picture, encoding="utf-8")
        except OSError as error:
            raise SystemSetupError(f"cannot write {plot}: {error.strerror}") from None
        say(f"plotted to {plot}")


def directory_of(path: Path) -> Path:
    """Raises UsageError if it is none."""
    if not path.is_dir():
        raise UsageError(f"{path} is not a directory")
    return path


OUTPUT = click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
PLOT = click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.svg", help="Also draw it.")
REPEAT = click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="How often; medians are shown.")


MODE_KEYS = ("amfs", "copy", "open", "fusepy", "staged", "remote")
FUSES = {"native": ("amfs", "copy", "open", "remote"), "fusepy": ("fusepy",)}


@click.command()
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--nodes", callback=numbers(1, 4), default="1", show_default=True, metavar="N,...", help="Local nodes, without DIR.")
@click.option("--clients", callback=numbers(1, 64), default="1,4,8", show_default=True, metavar="N,...", help="Processes at a time.")
@REPEAT
@click.option("--fuse", type=click.Choice(FUSES), multiple=True, help="Only mounts of this kind, without DIR (repeatable).")
@click.option("--only", "only", multiple=True, type=click.Choice(MODE_KEYS), metavar="MODE", help="Only this, without DIR (repeatable).")
@click.option("--seconds", type=click.FloatRange(0.01, 60), default=0.25, show_default=True, help="Of each phase of small operations.")
@click.option("--size", type=click.IntRange(1, 4096), default=100, show_default=True, metavar="MIB", help="Of the big file of each client.")
@click.option("--tmpfs", type=click.Path(path_type=Path), metavar="DIR", help="The tmpfs to compare with (default /dev/shm).")
@click.option("--disk", type=click.Path(path_type=Path), metavar="DIR", help="A directory on a disk (default: for temporary files).")
@click.option("--judge", "judged_as", default="", metavar="KIND", help="Hold DIR to these targets: passthrough, copy, staged.")
@OUTPUT
@PLOT
def envelope(
    directories: tuple[Path, ...],
    nodes: tuple[int, ...],
    clients: tuple[int, ...],
    repeat: int,
    fuse: tuple[str, ...],
    only: tuple[str, ...],
    seconds: float,
    size: int,
    tmpfs: Path | None,
    disk: Path | None,
    judged_as: str,
    output: str,
    plot: Path | None,
) -> int:
    """Measure the MTC Envelope of each DIR beside raw tmpfs and a disk.

    Without DIR, that of amfs itself: sessions are started, mounted in every mode, and ended. MODEs are amfs (as mounted by default), copy
    (without passthrough), open (cached opens), fusepy, staged (in a task's sandbox) and remote (files of another node);
    docs/benchmarks.md explains them.

    The exit status is 1 if something could not be measured; a missed target does not change it. Needs a C compiler.
    """
    import msgspec

    from amfs.bench.transfer import huge_pages
    from benchmarks import directories as d
    from benchmarks.envelope import TARGETS, Place, Settings, run_places
    from benchmarks.envelope_table import report_text
    from benchmarks.modes import REMOTE, make_places, measure_remote
    from benchmarks.plots import envelope_picture

    if judged_as and judged_as not in TARGETS:
        raise UsageError(f"--judge {judged_as}: there are targets for {', '.join(sorted(TARGETS))}")
    if directories and (fuse or only):
        raise UsageError("--fuse and --only are for amfs's own sessions; leave out the directories")
    keys = [key for key in MODE_KEYS if (not only or key in only) and (not fuse or any(key in FUSES[kind] for kind in fuse))]
    if not keys:
        raise UsageError(f"--only {', '.join(only)} is nothing of --fuse {', '.join(fuse)}")
    settings = Settings(clients, repeat, seconds, size)
    with ended_by_signals():
        with ExitStack() as stack:

            def work(parent: Path) -> tuple[str, ...]:
                return (str(stack.enter_context(d.workplace(directory_of(parent)))),)

            memory = Place("tmpfs", "tmpfs", work(tmpfs or d.memory_directory()))
            if directories:
                places = [Place(str(path), str(path), work(path), judged_as) for path in dict.fromkeys(directories)]
            else:
                places = make_places(stack, keys, nodes, say)
            (huge,) = work(tmpfs or d.memory_directory())
            if stack.enter_context(huge_pages(Path(huge))):
                places.append(Place("huge", "tmpfs, huge pages", (huge,)))
            disk = disk or d.disk_directory()
            places.append(Place("disk", f"disk ({d.file_system(disk)})", work(disk)))
            report = run_places(memory, places, settings, say)
        if not directories and REMOTE in keys:
            report = msgspec.structs.replace(report, remote=measure_remote(repeat, size, say))
    save(envelope_picture(report), plot)
    show(report, output, report_text(report))
    return 1 if any(place.error for place in report.places) or any(row.error for row in report.remote) else 0


WAYS = ("staged", "mounted")


@click.command()
@click.option("--nodes", callback=numbers(1, 64), default="1,2,4", show_default=True, metavar="N,...", help="Nodes of the session.")
@click.option("--files", type=click.IntRange(1), default=4, show_default=True, help="Files for each node.")
@click.option("--size", type=click.IntRange(1, 65536), default=64, show_default=True, metavar="MIB", help="Of a file.")
@click.option("--chunk", type=click.IntRange(1, 1024), default=8, show_default=True, metavar="MIB", help="Of a read or write.")
@click.option("--only", "ways", multiple=True, type=click.Choice(WAYS), help="Only staged tasks, or only through mounts.")
@REPEAT
@click.option("--disk", type=click.Path(path_type=Path), metavar="DIR", help="A directory on a disk (default: for temporary files).")
@OUTPUT
def filecopy(
    nodes: tuple[int, ...], files: int, size: int, chunk: int, ways: tuple[str, ...], repeat: int, disk: Path | None, output: str
) -> int:
    """Copy files as Hercules does: one task writes, one reads.

    Data placement hashed (DP-def) or dealt evenly (DP-inf), task placement that ignores the data (TP-loc-ag) or follows it (TP-loc-aw);
    beside them the same tasks on a disk and on tmpfs. The exit status is 1 if something could not be measured. Needs a C compiler.
    """
    from benchmarks import directories as d
    from benchmarks.filecopy import Settings, report_text, run_filecopy

    place = directory_of(disk or d.disk_directory())
    settings = Settings(tuple(way for way in WAYS if not ways or way in ways), nodes, files, size, chunk, repeat)
    with ended_by_signals():
        report = run_filecopy(settings, place, d.memory_directory(), say)
    show(report, output, report_text(report))
    return 1 if report.errors else 0


@click.command()
@click.option("--real", type=click.IntRange(0, 16), default=4, show_default=True, metavar="N", help="Nodes to measure on; 0: only compute.")
@click.option("--scale", type=click.FloatRange(0.001, 10), default=0.5, show_default=True, help="Of the sizes of files on real nodes.")
@click.option("--tiles", type=click.IntRange(1, 10_000), default=36, show_default=True, help="Images, and parts to collect, for each node.")
@click.option("--nodes", callback=numbers(1, 4096), default="4,16,64,256", show_default=True, metavar="N,...", help="Nodes to compute for.")
@OUTPUT
def striping(real: int, scale: float, tiles: int, nodes: tuple[int, ...], output: str) -> int:
    """Show how evenly Montage and an aggregation fill the nodes, with whole files and with stripes.

    Measured on the nodes of a session, and computed with the same partition tables for many. The exit status is 1 if something could not be
    measured; a missed target does not change it.
    """
    from benchmarks.striping import Settings, report_text, run_striping

    with ended_by_signals():
        report = run_striping(Settings(real, scale, tiles, nodes), say)
    show(report, output, report_text(report))
    return 1 if report.errors else 0


@click.command()
@click.option("--nodes", callback=numbers(2, 4096), default="4,16,64,256", show_default=True, metavar="N,...", help="Sizes of clusters.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="Random clusters of each size.")
@click.option("--clusters", type=click.IntRange(0, 100_000), default=1000, show_default=True, help="Of random size, Y0 beside the table.")
@OUTPUT
def hashing(nodes: tuple[int, ...], seeds: int, clusters: int, output: str) -> None:
    """Show how evenly nodes share the partitions by their capacities, and what moves when one comes or goes.

    The table of amfs beside rendezvous hashing, consistent hashing, jump hashing and Y0. Computed: no session is started.
    """
    from benchmarks.hashing import report_text, run_hashing

    report = run_hashing(nodes, seeds, clusters, say)
    show(report, output, report_text(report))
