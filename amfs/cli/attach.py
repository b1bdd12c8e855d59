"""``amfs attach``: follow a run that was started with ``amfs run --detach``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from amfs.runs.detached import Detached


@click.command(epilog="Exit status: that of the run; 1 if it was killed; 130 if you stop looking (the run goes on).")
@click.argument("number", type=click.IntRange(min=1), required=False)
@click.option("--list", "list_", is_flag=True, help="List the runs.")
@click.option("--stop", is_flag=True, help="Interrupt the run, as Ctrl-C would, and follow it to its end.")
def attach(number: int | None, list_: bool, stop: bool) -> int:
    """Show the output of run NUMBER (default: the newest) from its beginning to its end. Ctrl-C only ends the looking."""
    from amfs.runs import detached

    if list_:
        for one in detached.every():
            click.echo(_line(one))
        return 0
    run = detached.find(number)
    if stop:
        run.stop()
    try:
        for data in run.follow():
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        click.echo(f"\namfs: run {run.record.number} goes on; amfs attach {run.record.number} --stop ends it", err=True)
        return 130
    status = run.status()
    if status is None:
        click.echo(f"amfs: run {run.record.number} was killed; amfs run --resume does the rest, unless it ran with --no-journal", err=True)
        return 1
    return status


def _line(one: Detached) -> str:
    from amfs.errors import UsageError

    try:
        going = one.goes_on()
        status = one.status()  # read last: it may have ended meanwhile
        state = "running" if going and status is None else "killed" if status is None else f"ended with status {status}"
    except UsageError:
        state = f"on {one.record.host.split('/')[0]}"
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.record.began))
    return f"{one.record.number:>4}  {began}  {state:<20} amfs {' '.join(one.record.words)}"
