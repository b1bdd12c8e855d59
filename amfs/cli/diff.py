"""``amfs diff``: compare the contents of two directories. Owns its options; the work is in ``amfs.operations.differences``."""

from __future__ import annotations

import click

from amfs.cli.fs_common import CONTEXT, Work, bytes_field, line, name_text, output_option, print_json, session_option

TROUBLE = 2


@click.command(context_settings=CONTEXT)
@click.argument("first")
@click.argument("second")
@click.option("-q", "--quiet", is_flag=True, help="Only the exit status.")
@click.option("--storage", metavar="FILE", help="How storages of URLs are reached, as for amfs load.")
@output_option
@session_option
def diff(first: str, second: str, quiet: bool, storage: str | None, form: str, session: str | None) -> int:
    """Compare the contents of the files at and below FIRST and SECOND, whatever their names.

    The files must have the same contents, equally often. Files that only one side has are listed, with < for FIRST and > for SECOND.
    The nodes that hold the files take their digests; no content moves. FIRST and SECOND may be URLs: the nodes read
    the objects. Exit status: 0 the same, 1 different, 2 trouble.
    """
    from amfs.operations.differences import diff as work_of

    with Work("diff", session) as work:
        one, other = (place if "://" in place and not work.is_inside(place) else work.path(place) for place in (first, second))
        try:
            found = work_of(work.files, one, other, storage=storage)
        except OSError as error:
            work.report_error(error, status=TROUBLE)
            return work.status
        if form == "json":
            sides = {"first": found.only_first, "second": found.only_second}
            print_json({"same": found.same, **{side: [bytes_field("path", path) for path in paths] for side, paths in sides.items()}})
        elif not quiet:
            for sign, paths in ((b"< ", found.only_first), (b"> ", found.only_second)):
                for path in paths:
                    line(sign + name_text(path))
        return 0 if found.same else 1
