"""Options of the commands that read a Makeflow in JX: names that are defined beside it. Owns the options; their meaning is the reader's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from amfs.errors import UsageError
from amfs.translate.document import Definitions

_F = TypeVar("_F", bound=Callable[..., Any])


def with_jx_options(command: _F) -> _F:
    """Adds ``--jx-args`` and ``--jx-define``; ``definitions`` takes what they say."""
    command = click.option(
        "--jx-define", multiple=True, metavar="NAME=EXPR", help="Of a Makeflow in JX: define NAME, whatever the file says. Repeatable."
    )(command)
    return click.option(
        "--jx-args",
        multiple=True,
        metavar="FILE",
        type=click.Path(),
        help="Of a Makeflow in JX: define the members of the object in FILE. Repeatable.",
    )(command)


def definitions(files: Sequence[str], expressions: Sequence[str], directory: str = "") -> Definitions:
    """The definitions of the two options. ``directory``: where names in the workflow begin. Raises UsageError."""
    pairs = []
    for words in expressions:
        name, sign, text = words.partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise UsageError(f"--jx-define {words}: it is NAME=EXPRESSION, such as --jx-define N=3 or --jx-define 'NAME=\"a text\"'")
        pairs.append((name, text))
    return Definitions(tuple(map(os.path.abspath, files)), tuple(pairs), {}, os.path.abspath(directory))
