"""``amfs shuffle``: the lines of many files into parts by their key. Owns its options; the work is in ``amfs.operations.shuffle``."""

from __future__ import annotations

import sys
import time

import click

from amfs.cli.fs_common import CONTEXT, Work, output_option, print_json, session_option


@click.command(context_settings=CONTEXT)
@click.argument("source")
@click.argument("target")
@click.option("--key", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="The column that is the key.")
@click.option("--delimiter", metavar="C", default=None, help="The byte between columns (default: blanks, several are one).")
@click.option("--parts", type=click.IntRange(1, 4096), default=None, metavar="N", help="How many parts (default: one for each node).")
@click.option("-v", "--verbose", is_flag=True, help="Say what was done, and how fast.")
@output_option
@session_option
def shuffle(
    source: str, target: str, key: int, delimiter: str | None, parts: int | None, verbose: bool, form: str, session: str | None
) -> int:
    """Put the lines of the files at and below SOURCE into TARGET/part-00000, part-00001, …, so that each key is in one of them.

    The nodes that hold the files split their lines by the hash of the key column; each part is put together on a node of its own. A line
    goes as a whole, and one without a newline at the end of a file gets one. Parts lie on the nodes in turn.

    \b
      amfs shuffle amfs:/temp amfs:/target
      amfs shuffle --key 2 --delimiter , --parts 16 amfs:/csv amfs:/by-user
    """
    from amfs.display.progress import plural, size_text, summary_text
    from amfs.operations.shuffle import shuffle as work_of

    with Work("shuffle", session) as work:
        there, to = work.path(source), work.path(target)
        began = time.monotonic()
        try:
            done = work_of(work.files, there, to, key=key, delimiter=delimiter, parts=parts or 0)
        except OSError as error:
            work.report_error(error)
            return work.status
        seconds = time.monotonic() - began
        if not done.run.ok:
            click.echo(summary_text(done.run.summary), err=True)
        if form == "json":
            print_json({"files": done.files, "bytes": done.size, "parts": done.parts, "seconds": round(seconds, 6), "ok": done.run.ok})
        elif verbose and done.run.ok:
            rate = f"{size_text(done.size / seconds)}/s" if seconds else ""
            text = f"{plural(done.files, 'file')}, {size_text(done.size)}, into {plural(done.parts, 'part')} in {seconds:.2f} s ({rate})"
            print(text, file=sys.stderr)
        return done.run.exit_code
