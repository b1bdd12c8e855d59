"""``amfs scrub``: look whether what the nodes hold is what was written. Owns its options; the work is in ``amfs.operations.scrubbing``."""

from __future__ import annotations

import click

from amfs.cli.fs_common import CONTEXT, Work, encoded, line, name_text, output_option, print_json, session_option

TROUBLE = 2


@click.command(context_settings=CONTEXT)
@click.argument("path", required=False)
@click.option("--rate", metavar="SIZE", default="", help="Bytes of files in a second, such as 100M (default: as fast as it goes).")
@click.option("--accept-lost-names", "accept", is_flag=True, help="Names that were lost with their nodes count as never there.")
@click.option("-q", "--quiet", is_flag=True, help="Only the exit status.")
@click.option("--remote", metavar="URL", default="", help="Remove parts of unfinished uploads whose keys begin like that instead.")
@click.option("--older", type=click.FloatRange(min=0), default=24, show_default=True, metavar="HOURS", help="Those that began so long ago.")
@click.option("--storage", metavar="FILE", help="How the storage of --remote is reached, as for amfs load.")
@output_option
@session_option
def scrub(
    path: str | None, rate: str, accept: bool, quiet: bool, remote: str, older: float, storage: str | None, form: str,
    session: str | None,
) -> int:  # fmt: skip
    """Look whether the content of files is what was written, at and below PATH; without PATH everywhere, files of runs too.

    Each node compares its copies with their digests. It drops what is damaged: another copy is used, or the task that made the file runs
    again. A file without any other copy is lost, and named. Exit status: 0 nothing is lost, 1 some is, 2 trouble.

    If nodes died that had all records of some names, nobody knows these names any more: a name that is not there may be one of them, so to
    look for it is an error. --accept-lost-names ends that. Look first at what is missing.

    A dump to a bucket of S3 that is killed may leave parts that nobody sees and that are paid for; one to sftp, HDFS or Chirp a file with
    a name of its own. --remote URL removes those whose keys begin like that. No storage says who began an upload, so one that is still at
    work after --older hours goes, too. (A file is as old as what was written to it last.)
    """
    from amfs.operations.scrubbing import Bad
    from amfs.operations.scrubbing import scrub as work_of
    from amfs.vocabulary.attr import LOSSES

    def say(bad: Bad) -> None:
        if form == "text" and not quiet:
            where = f"node {bad.node}: damaged; " if bad.node >= 0 else ""
            line(name_text(encoded(bad.path)) + encoded(f"  {where}{bad.done}"))

    with Work("scrub", session) as work:
        if remote:
            from amfs.cli import fs_urls

            return fs_urls.scrub(work, remote, older * 3600, storage, "quiet" if quiet else form)
        bytes_in_a_second = _rate_of(rate)
        try:
            names_lost = int(work.files.getxattr("/", LOSSES))
            if accept and names_lost:
                work.files.setxattr("/", LOSSES, b"accepted")
            found = work_of(work.files, work.path(path or "amfs:/"), path is None, bytes_in_a_second, say)
        except OSError as error:
            work.report_error(error, status=TROUBLE)
            return work.status
        if form == "json":
            print_json({**found._asdict(), "names_lost": names_lost, "bad": [bad._asdict() for bad in found.bad]})
        elif not quiet:
            from amfs.display.progress import size_text

            runs = f", {found.run_files} files of runs ({size_text(found.run_size)})" if path is None else ""
            what = f"{found.copies} copies of {found.files} files ({size_text(found.size)}){runs}"
            line(f"{what}: {len(found.bad)} damaged, {found.lost} lost")
            for count, what in (
                (found.unknown, "had no digest yet, and have one from now on"),
                (found.busy, "are being written"),
            ):
                if count:
                    line(f"{count} {what}")
            if names_lost:
                what = "count as never there from now on" if accept else "may be missing: --accept-lost-names"
                line(f"names of {names_lost} partitions were lost with nodes, and {what}")
        return 1 if found.lost or (names_lost and not accept) else 0


def _rate_of(text: str) -> int:
    from amfs.cli.session_options import size_of

    return size_of(text) if text else 0
