"""Writes the man pages of amfs and its commands from what click knows of them: ``python tools/make_man_pages.py DIRECTORY``.

Owns the roff of the pages. The words are those of ``--help``, so that a page cannot say anything else. One page for each command and for
each command of a command (``amfs-bench-dispatch.1``).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from amfs import __version__
from amfs.cli import main as frame


def roff(text: str) -> str:
    """Text as troff takes it literally; a line that begins with a control character is protected."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("→", "\\(->").replace("×", "\\(mu")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in text.split("\n"))


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help text; one that begins with click's mark ``\\b`` keeps its lines."""
    for block in inspect.cleandoc(text).split("\n\n"):
        lines = block.strip("\n").split("\n")
        if lines[0].strip() == "\b":
            yield ".PP\n.nf\n" + roff("\n".join(lines[1:])) + "\n.fi"
        else:
            yield ".PP\n" + roff(" ".join(line.strip() for line in lines))


def page(context: click.Context, summary: str) -> str:
    """One page. ``summary``: the command in one line."""
    command, path = context.command, context.command_path
    usage = " ".join(command.collect_usage_pieces(context))
    text = [
        f'.TH "{roff(path.upper().replace(" ", "-"))}" 1 "" "amfs {__version__}" "amfs manual"',
        ".ad l",
        ".SH NAME", f"{roff(path.replace(' ', '-'))} \\- {roff(summary[:1].lower() + summary[1:].rstrip('.'))}",
        ".SH SYNOPSIS", f".B {roff(path)}", roff(usage),
    ]
    if command.help:
        text += [".SH DESCRIPTION", *paragraphs(command.help)]
    elif path == "amfs":
        text += [".SH DESCRIPTION", *paragraphs(frame.DESCRIPTION)]
    records = [record for option in command.get_params(context) if (record := option.get_help_record(context)) and record[1]]
    if records:
        text.append(".SH OPTIONS")
        for flags, words in records:
            text += [".TP", f".B {roff(flags)}", roff(" ".join(words.split()))]
    if path == "amfs":
        for title, names in frame.groups().items():
            text += [f'.SH "{title.upper()}"']
            for name in names:
                text += [".TP", f".BR amfs\\-{name} (1)", roff(frame.COMMANDS[name].help)]
    elif isinstance(command, click.Group):
        text.append(".SH COMMANDS")
        for name in command.list_commands(context):
            if (child := command.get_command(context, name)) and not child.hidden:
                text += [".TP", f".BR {roff(path.replace(' ', '-'))}\\-{roff(name)} (1)", roff(child.get_short_help_str(1000))]
    text += [".SH EXIT STATUS", *paragraphs(frame.EXIT_STATUS)]
    above = path.rpartition(" ")[0].replace(" ", "-")
    if above:
        text += [".SH SEE ALSO", f".BR {roff(above)} (1)"]
    return "\n".join(text) + "\n"


def pages(command: click.Command, name: str, summary: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """(name of the file, its text) of a command and of those below it."""
    context = click.Context(command, info_name=name, parent=parent)
    yield context.command_path.replace(" ", "-") + ".1", page(context, summary)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                known = frame.COMMANDS[child].help if parent is None else found.get_short_help_str(1000)
                yield from pages(found, child, known, context)


def main(directory: Path) -> int:
    """Write all pages into ``directory``; pages of commands that are no more are removed from it."""
    directory.mkdir(parents=True, exist_ok=True)
    texts = dict(pages(frame.group(), "amfs", "Run many-task workflows with their files in memory"))
    for old in directory.glob("amfs*.1"):
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    print(f"{len(texts)} man pages in {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "man")))
