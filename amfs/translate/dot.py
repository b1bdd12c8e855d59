"""A workflow as a Graphviz graph. Pure."""

from __future__ import annotations

from amfs.translate.shape import Picture, picture_of
from amfs.translate.svg import colours_of
from amfs.workflow.workflow import Workflow, printable


def write(workflow: Workflow, grouped: bool | None = False) -> str:
    """The graph in DOT. ``grouped`` as in ``shape.picture_of``; a translation draws every task."""
    return draw(picture_of(workflow, grouped))


def draw(picture: Picture) -> str:
    colours = colours_of(picture)
    lines = [
        f"digraph {_quoted(picture.title)} {{",
        "  rankdir=LR;",
        f"  label={_quoted(picture.title)}; labelloc=t;",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11];',
        '  edge [color="#00000060", arrowsize=0.6, fontname="sans-serif", fontsize=9];',
    ]
    for number, group in enumerate(picture.groups):
        tip = f", tooltip={_quoted(group.detail)}" if group.detail else ""
        lines.append(f'  n{number} [label={_quoted(group.title)}, fillcolor="{colours[group.kind]}"{tip}];')
    for edge in picture.edges:
        options = [f'label="{edge.count:,}"'] if edge.count > 1 else []
        options += ["style=dashed"] if edge.ordered else []
        lines.append(f"  n{edge.start} -> n{edge.end}" + (f" [{', '.join(options)}]" if options else "") + ";")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
