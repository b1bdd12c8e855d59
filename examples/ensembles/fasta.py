"""Sequences and hits.

    fasta.py split FASTA PART…  deals the sequences to the parts in turn
    fasta.py merge OUT HITS…    sorts hits by query and score
"""

from __future__ import annotations

import contextlib
import sys


def split(source: str, *parts: str) -> None:
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(part, "w")) for part in parts]
        number = -1
        with open(source) as sequences:
            for line in sequences:
                number += line.startswith(">")
                files[number % len(files)].write(line)


def merge(out: str, *parts: str) -> None:
    hits = []
    for part in parts:
        with open(part) as file:
            hits += file.readlines()
    hits.sort(key=lambda line: (line.split("\t")[0], -float(line.split("\t")[11]), line))
    with open(out, "w") as file:
        file.writelines(hits)


if __name__ == "__main__":
    {"split": split, "merge": merge}[sys.argv[1]](*sys.argv[2:])
