"""Options that the commands about sessions share, and their parsing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from amfs.errors import UsageError
from amfs.net.records import NO_SLOTS
from amfs.provision.provisioner import NodeOptions

F = TypeVar("F", bound=Callable[..., Any])


def size_of(text: str) -> int:
    """Bytes from "4G", "500 MiB", "1048576", as in task lists. Raises UsageError."""
    from amfs.translate.tasklist import parse_size

    try:
        return parse_size("".join(text.split()))
    except ValueError:
        raise UsageError(f"'{text}' is not a size: write for example 500M or 4G") from None


#: Of a node, in a session or in a run without one.
SPILL_OPTIONS = (
    click.option("--spill-limit", metavar="SIZE", default="", help="How much a node may spill (default: as much as there is room for)."),
    click.option(
        "--spill", metavar="DIR", default="",
        help="A directory on a disk of each node, for files between tasks that memory cannot hold; 'none' switches that off "
        "(default: $TMPDIR or /tmp, if that is on a disk).",
    ),
    click.option(
        "--high-water", metavar="SHARE", type=click.FloatRange(0.0, 1.0, min_open=True), default=None,
        help="Spill what is above this share of the limit (default 0.8).",
    ),
)  # fmt: skip


def spill_sizes(given: dict[str, Any]) -> dict[str, Any]:
    """The values of these options as nodes take them. Raises UsageError."""
    spill = given["spill"]
    return {
        "high_water": given["high_water"] or 0.0, "spill_limit": size_of(given["spill_limit"] or "0"),
        "spill": os.path.abspath(spill) if spill and spill != "none" else spill,
    }  # fmt: skip


def with_spill_options(command: F) -> F:
    """Add them."""
    for option in SPILL_OPTIONS:
        command = option(command)
    return command


def _slots(ctx: click.Context, param: click.Parameter, value: str) -> int:
    if value == "none":
        return NO_SLOTS
    if not value.isdecimal() or int(value) > 1 << 16:
        raise click.BadParameter(f"'{value}' is neither a number of tasks nor 'none'", ctx, param)
    return int(value)


def node_options(command: F) -> F:
    """Add the options that say what a node is like."""
    slots = "Tasks at a time per node (default: usable CPUs); 'none': the node keeps files, but runs no tasks."
    memory = "Memory for tasks per node, such as 4G (default: not accounted)."
    tcp = "Also listen on ADDRESS[:PORT], encrypted, so that other hosts can join."
    store = "Where files are kept (default: /dev/shm)."
    limit = "How much each node may keep in memory, such as 8G (default: as much as there is room for)."
    drain = "How long a node that is told to end (SIGTERM) may hand over what only it has (default 30)."
    for option in (
        *SPILL_OPTIONS,
        click.option("--store-limit", metavar="SIZE", default="", help=limit),
        click.option("--drain-time", type=click.FloatRange(min=0), default=30.0, metavar="SECONDS", help=drain),
        click.option("--store", metavar="DIR", default="", type=click.Path(file_okay=False), help=store),
        click.option("--tcp", metavar="ADDRESS", default="", help=tcp),
        click.option("--memory", metavar="SIZE", default="", help=memory),
        click.option("--slots", "-s", callback=_slots, default="0", metavar="S", help=slots),
    ):
        command = option(command)
    return command


def chosen_options(given: dict[str, Any], unit_size: int = 0, replicas: int = 1, expected: int = 1) -> NodeOptions:
    """The options' values as the provisioner takes them. Raises UsageError."""
    store, store_limit = given["store"], given["store_limit"]
    place = os.path.abspath(store) if store else ""
    sizes: dict[str, Any] = {"memory": size_of(given["memory"] or "0"), "store_limit": size_of(store_limit or "0")}
    if store_limit and not sizes["store_limit"]:
        raise UsageError("--store-limit 0 leaves no room for files; leave the option out where there is to be no limit")
    chosen = {"slots": given["slots"], "tcp": given["tcp"], "store_dir": place, "unit_size": unit_size, "replicas": replicas}
    chosen["drain_s"] = given["drain_time"]
    return NodeOptions(expected=expected, **chosen, **sizes, **spill_sizes(given))
