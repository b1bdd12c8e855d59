"""``amfs load`` and ``amfs dump``: directories into a session and out of it. Owns their options; ``operations.loading`` does the work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from amfs.cli.completion import local_files
from amfs.cli.fs_common import CONTEXT, Work, output_option, print_json, session_option
from amfs.errors import UsageError

if TYPE_CHECKING:
    from amfs.operations.loading_common import Transferred

_WAYS = ("auto", "nodes", "client")


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    text = "Who copies: every node its share, this command, or (auto) the nodes if all of them see the place."
    for option in (
        session_option,
        output_option,
        click.option("--progress/--no-progress", default=None, help="Show how far it is (default: on a terminal)."),
        click.option(
            "--storage", metavar="FILE", help="How storages of URLs are reached (default: $AMFS_STORAGE, else ~/.config/amfs/storage.toml)."
        ),
        click.option("-v", "--verbose", is_flag=True, help="Say what was copied, and how fast."),
        click.option("--by", "way", type=click.Choice(_WAYS), default="auto", show_default=True, help=text),
        click.argument("names", nargs=-1, required=True, shell_complete=local_files, metavar="SOURCE... TARGET"),
    ):
        command = option(command)
    return click.command(context_settings=CONTEXT)(command)


def _finish(work: Work, done: Transferred, verbose: bool, form: str) -> int:
    from amfs.display.progress import plural, size_text

    for name, why in done.failed.items():
        work.report_error(why, name)
    if form == "json":
        facts = {"files": done.files, "same": done.same, "bytes": done.bytes, "by": done.way}
        print_json({**facts, "seconds": round(done.seconds, 6), "ok": done.ok})
    elif verbose:
        rate = f" ({size_text(done.bytes / done.seconds)}/s)" if done.seconds else ""
        same = f", {plural(done.same, 'file')} there already" if done.same else ""
        who = "the nodes" if done.way == "nodes" else "this command"
        print(f"{plural(done.files, 'file')}, {size_text(done.bytes)} in {done.seconds:.2f} s{rate} by {who}{same}", file=sys.stderr)
    return work.status


def _split(names: tuple[str, ...], command: str) -> tuple[list[str], str]:
    if len(names) < 2:
        raise UsageError(f"{command}: missing destination after '{names[0]}'")
    return list(names[:-1]), names[-1]


@_options
def load(
    names: tuple[str, ...], way: str, verbose: bool, storage: str | None, progress: bool | None, form: str, session: str | None
) -> int:
    """Copy local files into the session, all nodes at the same time, and check every copy.

    Of a directory its content goes to TARGET. Files and patterns go into TARGET if it is a directory or ends with a slash. Every SOURCE
    may be a URL. Files that are there already with the same content are left, so a load that broke off goes on.

    \b
      amfs load /scratch/survey amfs:/survey
      amfs load 's3://bucket/2024/*.fits' amfs:/raw/
    """
    from amfs.cli.fs_progress import Transfer
    from amfs.operations.loading import load as work_of

    sources, target = _split(names, "load")
    with Work("load", session) as work:
        to = work.path(target) + (b"/" if target.endswith("/") else b"")
        try:
            with Transfer(0, progress) as transfer:
                done = work_of(work.files, sources, to, way=way, storage=storage, progress=transfer.add)
        except OSError as error:
            work.report_error(error)
            return work.status
        return _finish(work, done, verbose, form)


@_options
def dump(
    names: tuple[str, ...], way: str, verbose: bool, storage: str | None, progress: bool | None, form: str, session: str | None
) -> int:
    """Copy files of the session out, all nodes at the same time, and check every copy.

    Of a directory its content goes to the local directory TARGET. Files and patterns go into TARGET if it is a directory or ends with a
    slash. TARGET may be a URL. A file gets its name when it is whole. Files that are there
    already with the same content are left.

    \b
      amfs dump amfs:/result /scratch/result
      amfs dump amfs:/result s3://bucket/run-7
    """
    from amfs.cli.fs_progress import Transfer
    from amfs.operations.loading import dump as work_of

    sources, target = _split(names, "dump")
    with Work("dump", session) as work:
        chosen = work.paths(sources)
        try:
            with Transfer(0, progress) as transfer:
                done = work_of(work.files, chosen, target, way=way, storage=storage, progress=transfer.add)
        except OSError as error:
            work.report_error(error)
            return work.status
        return _finish(work, done, verbose, form)
