"""Options that the commands about sessions share, and their parsing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from amfs.errors import UsageError
from amfs.net.records import NO_SLOTS
from amfs.provision.provisioner import NodeOptions

if TYPE_CHECKING:
    from amfs.provision.provisioner import Provisioner

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


def job_options(command: F) -> F:
    """Add the options that say where nodes are started."""
    for option in (
        click.option("--wait", metavar="TIME", help="How long to wait for nodes on other hosts, such as 10m; of jobs, 0: they come later."),
        click.option("--time", "time_", metavar="TIME", help="The limit of each job, such as 2h (default: the batch system's)."),
        click.option("--at", metavar="ADDRESS", default="", help="With --on dask or ray: of the scheduler, or of the cluster."),
        click.option("--hosts", metavar="FILE", default="", help="With --on ssh: the hosts, one a line, such as 'n1' or 'n1 slots=4'."),
        click.option(
            "--on", metavar="SYSTEM",
            help="By 'slurm', 'ssh', 'dask' and others, or as a file says, or 'local' (default: the job around this, if any).",
        ),
        click.option(
            "--nodes", "-N", metavar="N", help="Nodes, or A..B of them (default: 1 on this machine; all hosts of a job, file or cluster)."
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def chosen_provisioner(given: dict[str, Any], more: Sequence[str]) -> Provisioner:
    """The provisioner that these options name. Raises UsageError."""
    from amfs.provision.choice import choose
    from amfs.provision.submission import Wanted

    seconds, wait = (_duration(given[name], flag) for name, flag in (("time_", "--time"), ("wait", "--wait")))
    if seconds is not None and seconds < 1:
        raise UsageError(f"--time {given['time_']}: a job needs a second at least; leave the option out for what the batch system has")
    wanted = Wanted(time_s=None if seconds is None else int(seconds), wait_s=wait, more=tuple(more), hosts=given["hosts"], at=given["at"])
    return choose(given["nodes"], given["on"], wanted, lambda text: click.echo(text, err=True))


@contextmanager
def session_for_run(given: dict[str, Any]) -> Iterator[None]:
    """With --on, a session that is there for one run; its nodes get the options that are for nodes. Raises UsageError."""
    from amfs.host.signals import postponed

    if given["on"] is None:
        if given["nodes"] or given["time_"] or given["wait"] or given["hosts"] or given["at"] or given["on_options"]:
            raise UsageError("--nodes, --time, --wait, --hosts, --at and --on-options need --on SYSTEM")
        yield
        return
    if given["session"] is not None or given["local"]:
        raise UsageError("--on and --session or --local exclude each other")
    provisioner = chosen_provisioner(given, shlex.split(given["on_options"]))
    session = provisioner.start(None, chosen_options({**given, "slots": given["slots"] or 0, "tcp": "", "drain_time": 30.0}))
    given.update(session=session.name, slots=None, store_limit="", spill="", spill_limit="", high_water=None)
    try:
        yield
    finally:
        with postponed():  # a second Ctrl-C would leave jobs in the queue
            for remark in provisioner.end(session, 10.0):
                click.echo(f"amfs: {session.name}: {remark}", err=True)


def _duration(text: str | None, option: str) -> float | None:
    from amfs.translate.tasklist import parse_duration

    try:
        return None if text is None else parse_duration(text)
    except ValueError:
        raise UsageError(f"{option} {text}: write for example 90s, 30m or 2h") from None
