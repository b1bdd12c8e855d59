"""Options that the commands about sessions share, and their parsing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from amfs.errors import UsageError
from amfs.provision.provisioner import NodeOptions

F = TypeVar("F", bound=Callable[..., Any])


def size_of(text: str) -> int:
    """Bytes from "4G", "500 MiB", "1048576", as in task lists. Raises UsageError."""
    from amfs.translate.tasklist import parse_size

    try:
        return parse_size("".join(text.split()))
    except ValueError:
        raise UsageError(f"'{text}' is not a size: write for example 500M or 4G") from None


def node_options(command: F) -> F:
    """Add the options that say what a node is like."""
    slots = "Tasks at a time per node (default: usable CPUs)."
    memory = "Memory for tasks per node, such as 4G (default: not accounted)."
    tcp = "Also listen on ADDRESS[:PORT], encrypted, so that other hosts can join."
    store = "Where files are kept (default: /dev/shm)."
    limit = "How much of the file system each node may keep, such as 8G (default: as much as there is room for)."
    for option in (
        click.option("--store-limit", metavar="SIZE", default="", help=limit),
        click.option("--store", metavar="DIR", default="", type=click.Path(file_okay=False), help=store),
        click.option("--tcp", metavar="ADDRESS", default="", help=tcp),
        click.option("--memory", metavar="SIZE", default="", help=memory),
        click.option("--slots", "-s", type=click.IntRange(min=0), default=0, metavar="S", help=slots),
    ):
        command = option(command)
    return command


def chosen_options(slots: int, memory: str, tcp: str, store: str, store_limit: str, unit_size: int = 0) -> NodeOptions:
    """The options' values as the provisioner takes them. Raises UsageError."""
    place = os.path.abspath(store) if store else ""
    sizes = {"memory": size_of(memory or "0"), "store_limit": size_of(store_limit or "0")}
    if store_limit and not sizes["store_limit"]:
        raise UsageError("--store-limit 0 leaves no room for files; leave the option out where there is to be no limit")
    return NodeOptions(slots=slots, unit_size=unit_size, tcp=tcp, store_dir=place, **sizes)
