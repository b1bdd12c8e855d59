"""``benchmarks staging``: options; the measurement is ``benchmarks.staging``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from amfs.errors import SystemSetupError, UsageError
from benchmarks.commands.files import OUTPUT, PLOT, directory_of, ended_by_signals, numbers, save, say, show
from benchmarks.commands.study import DRAW, INSTALL, SAMPLES, lines_to

STORES = ("directory", "moto", "versitygw")
APPLICATIONS = ("lmps", "blast", "energyplus")  # benchmarks.staging.NAMES, not imported for --help
WAYS = ("staged", "shared")


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(APPLICATIONS))
@click.option("--size", type=click.IntRange(1), help="Hours, fragments or cases (default: those of the examples: 24, 12, 6).")
@click.option("--with", "wanted", multiple=True, type=click.Choice(STORES), default=STORES[:2], show_default=True, metavar="STORE",
              help="Over this store: directory, moto or versitygw (repeatable).")  # fmt: skip
@click.option("--way", "ways", multiple=True, type=click.Choice(WAYS), help="Only this (repeatable).")
@click.option("--nodes", callback=numbers(1, 64), default="4", show_default=True, metavar="N,...", help="Local nodes of each session.")
@click.option("--simulate", "simulated", callback=numbers(1, 4096), metavar="N,...",
              help="Simulate so many nodes, each a host, with what the runs and the stores cost here.")  # fmt: skip
@click.option("--simulate-size", type=click.IntRange(1), metavar="TASKS", help="Of the simulated ensemble (default: ten for each node).")
@click.option("--slots", type=click.IntRange(1), default=1, show_default=True, help="Of each node.")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="How often, in turn; medians are shown.")
@click.option("--disk", type=click.Path(path_type=Path), metavar="DIR", help="A directory on a disk (default: for temporary files).")
@INSTALL
@SAMPLES
@DRAW
@OUTPUT
@PLOT
def staging(
    names: tuple[str, ...], size: int | None, wanted: tuple[str, ...], ways: tuple[str, ...], nodes: tuple[int, ...],
    simulated: tuple[int, ...], simulate_size: int | None, slots: int, repeat: int, disk: Path | None, install: bool,
    samples: Path | None, draw: Path | None, output: str, plot: Path | None,
) -> int:  # fmt: skip
    """Run an ensemble of examples/ensembles whose tasks stage their own files, and the same one with its data in the session.

    NAME is lmps (the default), blast or energyplus, whose programs must be installed. Each task of the first gets its inputs from a store
    and puts its outputs there; of the second, the session does so for all tasks. The results are checked. With one number of nodes,
    --plot draws finished tasks over time and what each slot did when; with several, the times of the runs. --simulate also foretells the
    runs, with costs from those on the fewest nodes: how near it comes is told beside.
    """
    import msgspec

    from benchmarks import directories as d
    from benchmarks import stores
    from benchmarks.staging import Settings, ensemble, read_samples, report_text, run_staging
    from benchmarks.timelines import picture

    if draw is not None:
        report = read_samples(draw)
    else:
        with ended_by_signals(), ExitStack() as stack:
            local = stack.enter_context(d.workplace(directory_of(disk or d.disk_directory())))
            keep = lines_to(stack, samples)
            places = []
            if "directory" in wanted:
                (local / "store").mkdir()
                places.append(stores.disk(str(local / "store"), d.file_system(local)))
            started, missed, _ = stores.start(stack, [name for name in wanted if name != "directory"], 0, local, install, say)
            if missed:
                raise SystemSetupError("; ".join(missed.values()))
            sizes = {name: size or ensemble(name).QUICK for name in dict.fromkeys(names or APPLICATIONS[:1])}
            chosen = tuple(way for way in WAYS if not ways or way in ways)
            report = run_staging([*places, *started], Settings(sizes, nodes, slots, repeat, chosen, bool(simulated)), local, say, keep)
    save(picture(report), plot)
    text = report_text(report)
    if simulated:
        from benchmarks.makespan_prediction import predict, prediction_text

        tasks = simulate_size or 10 * max(simulated)
        try:
            rows = predict(report, simulated, dict.fromkeys(report.head.sizes, tasks))
        except ValueError as error:
            raise UsageError(str(error)) from None
        text += f"\n\n{prediction_text(rows, report.costs)}"
        report = msgspec.structs.replace(report, predicted=rows)
    show(report, output, text)
    return 0
