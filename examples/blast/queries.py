"""Pieces of a genome with some letters changed, always the same: queries.py GENOME COUNT FILE.

A piece is called "q17_FIRST_LAST" after where it was cut.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path


def pieces(genome_file: str, count: int) -> Iterator[tuple[str, str]]:
    """Their names and letters."""
    rng = random.Random(1)
    genome = "".join(line.strip() for line in Path(genome_file).read_text().splitlines() if not line.startswith(">")).upper()
    for number in range(count):
        first = rng.randrange(len(genome) - 200)
        piece = list(genome[first : first + 200])
        for at in rng.sample(range(20, 180), 6):
            piece[at] = rng.choice("ACGT".replace(piece[at], ""))
        yield f"q{number}_{first + 1}_{first + 200}", "".join(piece)


def main(genome_file: str, count: str, out: str) -> None:
    with open(out, "w") as file:
        file.writelines(f">{name}\n{letters}\n" for name, letters in pieces(genome_file, int(count)))


if __name__ == "__main__":
    main(*sys.argv[1:])
