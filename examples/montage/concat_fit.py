#!/usr/bin/env python3
"""mConcatFit as an associative command: the table of fits of any mixture of mDiffFit's status files and such tables.

    python concat_fit.py OUT.tbl IN…

A status file is named after its pair of images, `fit.000003.000004.txt`, as Montage names it. Pairs for which mDiffFit found no fit are
left out and counted on stderr. Sorted by pair, so grouping and order of the parts do not matter.
"""

from __future__ import annotations

import os
import re
import sys

import ipac

_NAME = re.compile(r"fit\.(\d+)\.(\d+)\.txt")


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    out, inputs = sys.argv[1], sys.argv[2:]
    rows: list[list[str]] = []
    failed = 0
    for path in inputs:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        pair = _NAME.fullmatch(os.path.basename(path))
        if pair is None:
            rows += ipac.parse(text).rows
            continue
        row = ipac.fit_row(int(pair[1]), int(pair[2]), text)
        if row is None:
            failed += 1
        else:
            rows.append(row)
    if failed:
        print(f"{failed} of {len(inputs)} overlaps gave no fit", file=sys.stderr)
    with open(out, "w", encoding="utf-8") as file:
        file.write(ipac.render(ipac.merge_fits(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
