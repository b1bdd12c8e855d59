"""``amfs multicast``, ``gather``, ``allgather`` and ``scatter``: collective file movement. Owns their options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from amfs.cli.fs_common import CONTEXT, Work, output_option, print_json, session_option
from amfs.engine.collectives import ALGORITHMS, MST


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    text = "Who sends: mst, a tree in which every node passes on what it got; sequential, one connection at a time."
    for option in (
        session_option,
        output_option,
        click.option("-v", "--verbose", is_flag=True, help="Say what was moved, and how fast."),
        click.option("--algorithm", type=click.Choice(ALGORITHMS), default=MST, show_default=True, help=text),
        click.argument("paths", nargs=-1, required=True, metavar="PATH..."),
    ):
        command = option(command)
    return click.command(context_settings=CONTEXT)(command)


def _root(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--root", type=click.IntRange(min=0), default=None, metavar="N", help="The node in the middle.")(command)


def _run(
    kind: str, paths: tuple[str, ...], algorithm: str, verbose: bool, form: str, session: str | None, root: int | None = None
) -> int:
    from amfs.display.progress import plural, size_text
    from amfs.operations.collective import move

    with Work(kind, session) as work:
        chosen = work.paths(paths)
        try:
            done = move(work.files, kind, chosen, root=root, algorithm=algorithm)
        except OSError as error:
            work.report_error(error)
            return work.status
        for path, why in done.failed.items():
            work.report_error(why, path)
        if done.remark:
            print(f"amfs: {kind}: {done.remark}", file=sys.stderr)
        if form == "json":
            facts = {"files": done.files, "striped": done.striped, "copies": done.transfers, "bytes": done.bytes, "rounds": done.rounds}
            print_json({**facts, "seconds": round(done.seconds, 6), "ok": done.ok})
        elif verbose:
            rate = f", {size_text(done.bytes / done.seconds)}/s" if done.seconds and done.bytes else ""
            text = f"{plural(done.files, 'file')}, {done.transfers} copies, {size_text(done.bytes)} in {plural(done.rounds, 'round')}"
            print(f"{text}, {done.seconds:.3f} s{rate}", file=sys.stderr)
            if done.striped:
                print(f"{plural(done.striped, 'file')} in stripes over all nodes left as it is", file=sys.stderr)
        return work.status


@_options
def multicast(paths: tuple[str, ...], algorithm: str, verbose: bool, form: str, session: str | None) -> int:
    """Copy files, and all files in directories, to every node, so that programs read them there without the network.

    \b
      amfs multicast amfs:/score.txt
    """
    return _run("multicast", paths, algorithm, verbose, form, session)


@_options
@_root
def gather(paths: tuple[str, ...], algorithm: str, verbose: bool, form: str, session: str | None, root: int | None) -> int:
    """Copy files, and all files in directories, to one node (default: the one that serves this command).

    \b
      amfs gather amfs:/result
    """
    return _run("gather", paths, algorithm, verbose, form, session, root)


@_options
@_root
def allgather(paths: tuple[str, ...], algorithm: str, verbose: bool, form: str, session: str | None, root: int | None) -> int:
    """Copy files, and all files in directories, to every node, over one that gathers them first (default: the one that has most)."""
    return _run("allgather", paths, algorithm, verbose, form, session, root)


@_options
@_root
def scatter(paths: tuple[str, ...], algorithm: str, verbose: bool, form: str, session: str | None, root: int | None) -> int:
    """Deal files, and all files in directories, out to the nodes: one after the other, by name, each to one node and to no other.

    They go out from one node (default: the one that has most), which gets the first file.
    """
    return _run("scatter", paths, algorithm, verbose, form, session, root)
