"""``amfs info``: counts of a workflow, without running it. Owns the text; ``amfs.translate.shape`` counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from amfs.cli.jx_options import definitions, with_jx_options
from amfs.translate.detect import FORMATS

if TYPE_CHECKING:
    from amfs.translate.shape import Shape

PATH_SHOWN = 6
KINDS_SHOWN = 30


@click.command()
@click.argument("source", metavar="FILE", type=click.Path(allow_dash=True))
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS OF A SCRIPT]")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="auto", show_default=True, help="Format of FILE.")
@click.option("--files", metavar="LIST", type=click.Path(dir_okay=False), help="File list (ID NAME STATE) that goes with FILE.")
@with_jx_options
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def info(
    source: str,
    arguments: tuple[str, ...],
    format_: str,
    files: str | None,
    jx_args: tuple[str, ...],
    jx_define: tuple[str, ...],
    output: str,
) -> int:
    """Say what is in the workflow FILE ("-": standard input): tasks by kind, files by role, edges, depth, width, critical path, bytes.

    Nothing is run, and no file of the workflow needs to be there. Parts of the document that have no meaning here are told on stderr.
    """
    from amfs.translate.detect import load
    from amfs.translate.shape import later_in_words, shape_of
    from amfs.workflow.versions import versioned

    defined = definitions(jx_args, jx_define)
    workflow = versioned(load(source, format=format_, files=files, arguments=arguments, definitions=defined))
    shape = shape_of(workflow)
    for remark in workflow.remarks:
        click.echo(f"amfs: {remark}", err=True)
    later = later_in_words(workflow)
    for words in later:
        click.echo(f"amfs: {words}; the job is counted as one task", err=True)
    if output == "json":
        import msgspec

        from amfs.display.summary import json_safe

        fields = msgspec.to_builtins(shape) | {"remarks": [str(remark) for remark in workflow.remarks], "later": later}
        click.echo(msgspec.json.format(msgspec.json.encode(json_safe(fields)), indent=2).decode())
    else:
        click.echo(info_text(shape))
    return 0


def info_text(shape: Shape) -> str:
    """The shape as people read it."""
    from amfs.display.progress import plural, printable, size_text, time_text
    from amfs.translate.shape import SHARED

    lines = [f"{printable(shape.name)} ({printable(shape.source)})" if shape.source else printable(shape.name)]

    def say(title: str, text: str) -> None:
        lines.append(f"  {title:<14}{text}")

    if not shape.tasks:
        say("tasks", "none")
        return "\n".join(lines)
    where = f"; at most {shape.width:,} side by side (level {shape.widest_level})" if shape.depth > 1 else ""
    say("tasks", f"{shape.tasks:,} in {plural(shape.depth, 'level')}{where}")
    order = f", {shape.edges_by_order:,} by order only" if shape.edges_by_order else ""
    say("edges", f"{shape.edges:,}: {shape.edges_by_files:,} by files{order}" if shape.edges else "none")
    roles = ", ".join(f"{role.files:,} {role.role}{'s' if role.role == SHARED and role.files != 1 else ''}" for role in shape.roles)
    say("files", f"{shape.files:,}: {roles}" if shape.files else "none")
    if shape.unknown_sizes < shape.files:
        known = [role for role in shape.roles if role.unknown < role.files]
        parts = ", ".join(f"{role.role} {size_text(role.bytes)}" for role in known)
        unknown = f"; the size of {plural(shape.unknown_sizes, 'file')} is not known" if shape.unknown_sizes else ""
        say("bytes", f"{size_text(shape.bytes)}: {parts}{unknown}")
    if shape.timed:
        part = f" (of {shape.timed:,} tasks)" if shape.timed < shape.tasks else ""
        say("run time", f"{time_text(shape.runtime)} one after the other{part}")
    tasks = [printable(task) for task in shape.critical_tasks]
    if len(tasks) > PATH_SHOWN:
        tasks = [*tasks[: PATH_SHOWN // 2], "…", *tasks[-PATH_SHOWN // 2 :]]
    seconds = f"{time_text(shape.critical_path)}, " if shape.timed else ""
    say("critical path", f"{seconds}{plural(len(shape.critical_tasks), 'task')}: {' → '.join(tasks)}")
    return "\n".join([*lines, "", kind_table(shape)])


def kind_table(shape: Shape) -> str:
    """One row for each kind of task, in the order of the list."""
    from amfs.display.progress import printable, table_text, time_text

    rows = [["kind", "tasks", "levels", "reads", "writes", *(["run time"] if shape.timed else [])]]
    shown = shape.kinds
    if len(shown) > KINDS_SHOWN:
        shown = sorted(shown, key=lambda kind: -kind.tasks)[:KINDS_SHOWN]
    for kind in shown:
        levels = f"{kind.first_level:,}" if kind.first_level == kind.last_level else f"{kind.first_level:,} to {kind.last_level:,}"
        cells = [printable(kind.kind), f"{kind.tasks:,}", levels, f"{kind.reads:,}", f"{kind.writes:,}"]
        rows.append(cells + ([time_text(kind.runtime)] if shape.timed else []))
    table = table_text(rows)
    more = len(shape.kinds) - len(shown)
    return table + (f"\nand {more:,} more kinds with fewer tasks" if more else "")
