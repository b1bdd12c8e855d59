"""``amfs graph``: a picture of a workflow. Owns the choice of the form and the writing; the drawing is ``amfs.translate``'s."""

from __future__ import annotations

import os
import shutil
import subprocess

import click

from amfs.cli.jx_options import definitions, with_jx_options
from amfs.errors import SystemSetupError, UsageError
from amfs.translate.detect import FORMATS

#: Ending of the file's name -> form.
ENDINGS = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".png": "png"}
FORMS = ("svg", "dot", "mermaid", "png")

PNG_SECONDS_MAX = 60


@click.command()
@click.argument("source", metavar="FILE", type=click.Path(allow_dash=True))
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS OF A SCRIPT]")
@click.option("-o", "--output", metavar="OUT", type=click.Path(allow_dash=True), default="-", show_default="stdout", help="Write here.")
@click.option("--to", type=click.Choice(FORMS), help="Form of the picture (default: by the ending of OUT, else svg).")
@click.option("--group/--all", "grouped", default=None, help="One box for tasks of one kind and level, or one for every task.")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="auto", show_default=True, help="Format of FILE.")
@click.option("--files", metavar="LIST", type=click.Path(dir_okay=False), help="File list (ID NAME STATE) that goes with FILE.")
@with_jx_options
def graph(
    source: str,
    arguments: tuple[str, ...],
    output: str,
    to: str | None,
    grouped: bool | None,
    format_: str,
    files: str | None,
    jx_args: tuple[str, ...],
    jx_define: tuple[str, ...],
) -> int:
    """Draw the workflow FILE ("-": standard input): who waits for whom, from left to right.

    Solid lines are files, dashed ones order without files. With more than 60 tasks, or 30 side by side, tasks of one kind and level
    become one box, unless --all is given. SVG needs no other program; PNG needs rsvg-convert.
    """
    from amfs.cli.writing import write_out
    from amfs.translate import dot, mermaid, svg
    from amfs.translate.detect import load
    from amfs.translate.shape import later_in_words, picture_of

    form = to or ENDINGS.get(os.path.splitext(output)[1].lower(), "" if output != "-" else "svg")
    if not form:
        raise UsageError(f"the name {output} says no form; let it end in {', '.join(ENDINGS)}, or say --to {'|'.join(FORMS)}")
    converter = shutil.which("rsvg-convert") if form == "png" else ""
    if converter is None:
        raise SystemSetupError("PNG needs rsvg-convert (Debian: librsvg2-bin), which is not on PATH; every browser shows the SVG")
    workflow = load(source, format=format_, files=files, arguments=arguments, definitions=definitions(jx_args, jx_define))
    for remark in workflow.remarks:
        click.echo(f"amfs: {remark}", err=True)
    for words in later_in_words(workflow):
        click.echo(f"amfs: {words}; the job is drawn as one task", err=True)
    picture = picture_of(workflow, grouped)
    draw = {"dot": dot.draw, "mermaid": mermaid.draw}.get(form, svg.draw)
    data = draw(picture).encode("utf-8", "backslashreplace")
    write_out(output, [_png(data, converter) if converter else data])
    return 0


def _png(data: bytes, converter: str) -> bytes:
    try:
        result = subprocess.run([converter], input=data, capture_output=True, timeout=PNG_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemSetupError(f"cannot make a PNG: {error}") from error
    if result.returncode:
        raise SystemSetupError(f"cannot make a PNG: {result.stderr.decode('utf-8', 'replace').strip() or 'rsvg-convert failed'}")
    return result.stdout
