"""``amfs reduce``: many files into one with an associative command. Owns its options; the work is in ``amfs.operations.reducing``."""

from __future__ import annotations

import click

from amfs.cli.fs_common import CONTEXT, Work, session_option


@click.command(context_settings={**CONTEXT, "ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--arity", type=click.IntRange(2), default=8, show_default=True, metavar="N", help="Files in one step, at most.")
@session_option
@click.argument("source")
@click.argument("target")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND [ARG]...")
def reduce(arity: int, session: str | None, source: str, target: str, command: tuple[str, ...]) -> int:
    """Combine the files at and below SOURCE into the file TARGET: a tree of steps, each COMMAND on up to N neighbours in order.

    COMMAND must be associative. It gets the files of a step in the place of the word {in} (else at its end), and writes to {out} (else to
    its standard output).

    \b
      amfs reduce amfs:/counts amfs:/total.txt sort -m
      amfs reduce --arity 2 amfs:/parts amfs:/all.dat merge -o {out} {in}
    """
    from amfs.display.progress import summary_text
    from amfs.operations.reducing import reduce as work_of

    with Work("reduce", session) as work:
        there, to = work.path(source), work.path(target)
        try:
            done = work_of(work.files, there, to, command, arity=arity)
        except OSError as error:
            work.report_error(error)
            return work.status
        if not done.ok:
            click.echo(summary_text(done.summary), err=True)
        return done.exit_code
