#!/usr/bin/env python3
"""mImgtbl as an associative command: the image table of any mixture of FITS files and image tables.

    python imgtbl_reduce.py (montagepy|debian) OUT.tbl IN…

FITS files go through mImgtbl, tables are merged. The table is sorted by file name and numbered anew, so it does not depend on the order or
the grouping in which the parts came: amfs may run it as a tree over the nodes that hold the images.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import ipac
import toolkit


def main() -> int:
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    kind, out, inputs = sys.argv[1], sys.argv[2], sys.argv[3:]
    images = [path for path in inputs if path.endswith(".fits")]
    tables = []
    for path in inputs:
        if not path.endswith(".fits"):
            with open(path, encoding="utf-8") as file:
                tables.append(ipac.parse(file.read()))
    if images:
        with tempfile.TemporaryDirectory(dir=".") as scratch:
            wanted, found = os.path.join(scratch, "list.tbl"), os.path.join(scratch, "images.tbl")
            with open(wanted, "w", encoding="utf-8") as file:
                file.write(ipac.render(ipac.Table(["fname"], ["char"], [[path] for path in images])))
            command = toolkit.Tools(kind).command("mImgtbl", "-t", wanted, ".", found)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr or done.stdout, end="", file=sys.stderr)
                return done.returncode
            with open(found, encoding="utf-8") as file:
                table = ipac.parse(file.read())
        missing = set(images) - set(table.column("fname"))
        if missing:
            print(f"mImgtbl found no image in {', '.join(sorted(missing))}", file=sys.stderr)
            return 1
        tables.append(table)
    with open(out, "w", encoding="utf-8") as file:
        file.write(ipac.render(ipac.merge_images(tables)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
