"""A workflow as a Mermaid flowchart, which many Markdown viewers draw. Pure."""

from __future__ import annotations

import re

from amfs.translate.shape import Picture, picture_of
from amfs.translate.svg import colours_of
from amfs.workflow.workflow import Workflow, printable


def write(workflow: Workflow, grouped: bool | None = False) -> str:
    """The flowchart. ``grouped`` as in ``shape.picture_of``; a translation draws every task."""
    return draw(picture_of(workflow, grouped))


def draw(picture: Picture) -> str:
    lines = ["---", f"title: {_title(picture.title)}", "---", "flowchart LR"]
    for number, group in enumerate(picture.groups):
        lines.append(f'  n{number}["{_text(group.title)}"]')
    for edge in picture.edges:
        arrow = "-.->" if edge.ordered else "-->"
        count = f"|{edge.count}|" if edge.count > 1 else ""
        lines.append(f"  n{edge.start} {arrow}{count} n{edge.end}")
    colours = colours_of(picture)
    kinds: dict[str, list[int]] = {}
    for number, group in enumerate(picture.groups):
        kinds.setdefault(group.kind, []).append(number)
    for number, (kind, members) in enumerate(kinds.items()):
        lines.append(f"  classDef k{number} fill:{colours[kind]},stroke:#444,color:#111")
        lines.append(f"  class {','.join(f'n{member}' for member in members)} k{number}")
    return "\n".join([*lines, ""])


def _text(text: str) -> str:
    """Characters that mean something to Mermaid or HTML as their numbers."""
    return re.sub(r"""[^\w .,:/+×…-]""", lambda match: f"#{ord(match[0])};", printable(text))


def _title(text: str) -> str:
    plain = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'
