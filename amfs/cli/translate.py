"""``amfs translate``: convert a workflow between formats, or only check it.

Owns the command line and the writing of the result; formats are ``amfs.translate``'s business.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from amfs.cli.jx_options import definitions, with_jx_options
from amfs.cli.writing import write_out
from amfs.errors import Fault, UsageError, WorkflowError
from amfs.translate.detect import FORMATS, load, load_checked
from amfs.translate.place import HostPlace
from amfs.translate.shape import Graph, later_in_words
from amfs.workflow.versions import versioned
from amfs.workflow.workflow import Workflow

__all__ = ["translate"]

#: Values of ``--to``, and which of them are pictures.
PICTURES = ("dot", "mermaid")
OUTPUTS = ("tasklist", "jsonl", "filelist", "wfformat", "dot", "mermaid")


@click.command()
@click.argument("source", metavar="FILE", type=click.Path(allow_dash=True))
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS OF A SCRIPT]")
@click.option("--to", type=click.Choice(OUTPUTS), help="Format to write. Without it, FILE is only checked.")
@click.option(
    "-o", "--output", metavar="OUT", type=click.Path(allow_dash=True), default="-", show_default="stdout", help="Write here, not to stdout."
)
@click.option("--format", "format_", type=click.Choice(FORMATS), default="auto", show_default=True, help="Format of FILE.")
@click.option("--files", metavar="LIST", type=click.Path(dir_okay=False), help="File list (ID NAME STATE) that goes with FILE.")
@click.option("--check", "checked", is_flag=True, help="Check also what 'amfs run' checks: files, programs, cycles.")
@with_jx_options
@click.option("--strict", is_flag=True, help="Constructs that have no meaning here are faults, not remarks.")
def translate(
    source: str,
    arguments: tuple[str, ...],
    to: str | None,
    output: str,
    format_: str,
    files: str | None,
    checked: bool,
    jx_args: tuple[str, ...],
    jx_define: tuple[str, ...],
    strict: bool,
) -> None:
    """Convert the workflow in FILE ("-": standard input) between formats, or only check it.

    Read are task lists, JSON Lines, command lines, Pegasus DAX and YAML, WfFormat, Makeflow and Swift; which one FILE is in is found by its
    content. Task list and JSON Lines say all that can be said of a workflow: nothing is lost either way. Parts without a meaning here are
    told on standard error. A file with several writers becomes several files (see docs/reference/dax.md).
    """
    if to is None and output != "-":
        raise UsageError("-o needs --to: say which format to write")
    if format_ == "filelist":
        raise UsageError("a file list alone is no workflow; give it with --files")
    defined = definitions(jx_args, jx_define)
    if checked or to is None:
        place = HostPlace()
        workflow, _ = load_checked(source, place, format=format_, files=files, arguments=arguments, strict=strict, definitions=defined)
    else:
        workflow = versioned(load(source, format=format_, files=files, arguments=arguments, strict=strict, definitions=defined))
        Graph(workflow)  # raises for cycles, as 'amfs info' does
    for remark in workflow.remarks:
        click.echo(f"amfs: {remark}", err=True)
    if later := later_in_words(workflow):
        if to not in (None, *PICTURES):
            why = "so they cannot be written down here; 'amfs run' adds them then"
            raise WorkflowError([Fault(workflow.source, 0, f"{words}, {why}") for words in later])
        for words in later:
            click.echo(f"amfs: {words}; the job is {'drawn' if to else 'checked'} as one task", err=True)
    if to is None:
        tasks = len(workflow.tasks)
        click.echo(f"{workflow.source}: {tasks} task{'s' if tasks != 1 else ''}, no faults found", err=True)
        return
    try:
        _write(output, _lines(workflow, to))
    except ValueError as error:
        raise UsageError(f"cannot be written as {to}: {error}") from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}") from error


def _lines(workflow: Workflow, to: str) -> Iterable[str]:
    if to == "tasklist":
        from amfs.translate import tasklist

        return tasklist.write(workflow)
    if to == "jsonl":
        from amfs.translate import jsonl

        return jsonl.write(workflow)
    if to == "wfformat":
        from amfs.translate import wfformat_out

        return [wfformat_out.write(workflow).rstrip("\n")]
    if to == "dot":
        from amfs.translate import dot

        return [dot.write(workflow).rstrip("\n")]
    if to == "mermaid":
        from amfs.translate import mermaid

        return [mermaid.write(workflow).rstrip("\n")]
    from amfs.translate import filelist

    return filelist.write(filelist.states(workflow))


def _write(output: str, lines: Iterable[str]) -> None:
    write_out(output, (line.encode("utf-8", "surrogateescape") + b"\n" for line in lines))
