"""``amfs check``: the mistakes of Swift scripts, without running them. Owns the output; ``amfs.swift`` finds the mistakes."""

from __future__ import annotations

import click


@click.command()
@click.argument("scripts", metavar="SCRIPT...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--format", "format_", type=click.Choice(["auto", "swift-t", "swift-k"]), default="auto", show_default=True, help="Their language."
)
def check(scripts: tuple[str, ...], format_: str) -> int:
    """Parse and check each SCRIPT ("-": standard input): names, types, calls, variables assigned twice or never.

    All mistakes are told, with line, column and a suggestion. Exit status 2 if there is one, else 0.
    """
    from amfs.display.progress import plural
    from amfs.errors import WorkflowError
    from amfs.translate.swift import LANGUAGES, language_of, program_of, source_of

    status = 0
    for name in scripts:
        with click.open_file(name, "rb") as file:
            data = file.read()
        shown = "(standard input)" if name == "-" else name
        try:
            program = program_of(source_of(shown, data), format_)
        except WorkflowError as error:
            click.echo(f"amfs: {error}", err=True)
            taken = language_of(data.decode(errors="replace")) if format_ == "auto" else format_
            click.echo(f"{shown}: taken for {LANGUAGES[taken]}; --format says another language", err=True)
            status = 2
            continue
        told: set[str] = set()
        for at, words in program.remarks:
            if words not in told:
                told.add(words)
                click.echo(f"{at}: {words}", err=True)
        click.echo(f"{shown}: {LANGUAGES[program.language]}, {plural(len(program.functions), 'function')}, no mistakes")
    return status
