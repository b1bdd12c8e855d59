"""IPAC tables, in which Montage's programs tell each other what they found: read, combine, write.

Values stay the text that Montage printed, so that a table loses nothing on its way through here. Standard library only: programs that
run thousands of times import this.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple


class Table(NamedTuple):
    """Column names, their types, and rows of text."""

    columns: list[str]
    types: list[str]
    rows: list[list[str]]

    def column(self, name: str) -> list[str]:
        """All values of one column. Raises ValueError when there is no such column."""
        if name not in self.columns:
            raise ValueError(f"the table has no column {name!r}, only {', '.join(self.columns)}")
        index = self.columns.index(name)
        return [row[index] for row in self.rows]


def parse(text: str) -> Table:
    """A table from its text. Raises ValueError when there is no header line."""
    columns: list[str] = []
    types: list[str] = []
    ends: list[int] = []
    rows: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not columns:
                columns = cells
                ends = [i for i, c in enumerate(line) if c == "|"]
            elif not types:
                types = cells
        elif line.strip() and not line.startswith("\\"):
            # A column reaches from bar to bar; the last one to the end of the line.
            rows.append([line[a : b + 1].strip() for a, b in itertools.pairwise(ends[:-1])] + [line[ends[-2] :].strip()])
    if not columns:
        raise ValueError("no header line: not an IPAC table")
    return Table(columns, types or ["char"] * len(columns), rows)


def render(table: Table) -> str:
    """The text of a table, every column as wide as its widest value."""
    widths = [
        max(len(name), len(kind), *(len(row[i]) for row in table.rows), 1) + 2
        for i, (name, kind) in enumerate(zip(table.columns, table.types, strict=True))
    ]
    lines = ["|" + "|".join(cell.rjust(w) for cell, w in zip(cells, widths, strict=True)) + "|" for cells in (table.columns, table.types)]
    lines += [" " + " ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) + " " for row in table.rows]
    return "\n".join([*lines, ""])


def merge_images(tables: list[Table]) -> Table:
    """One image table from several: sorted by file name, numbered anew, a file named twice counted once.

    Associative and commutative: whatever the tree of partial tables looked like, the last one is the same.
    """
    found: dict[str, list[str]] = {}
    for table in tables:
        if table.columns != tables[0].columns:
            raise ValueError("image tables with different columns cannot be combined")
        for name, row in zip(table.column("fname"), table.rows, strict=True):
            found[name] = row
    count = tables[0].columns.index("cntr")
    rows = []
    for number, name in enumerate(sorted(found)):
        row = list(found[name])
        row[count] = str(number)
        rows.append(row)
    return Table(tables[0].columns, tables[0].types, rows)


FIT_COLUMNS = (
    ("plus", "int"), ("minus", "int"), ("a", "double"), ("b", "double"), ("c", "double"), ("crpix1", "double"), ("crpix2", "double"),
    ("xmin", "int"), ("xmax", "int"), ("ymin", "int"), ("ymax", "int"), ("xcenter", "double"), ("ycenter", "double"), ("npixel", "int"),
    ("rms", "double"), ("boxx", "double"), ("boxy", "double"), ("boxwidth", "double"), ("boxheight", "double"), ("boxang", "double"),
)  # fmt: skip
_FORMATS = {"a": ".5e", "b": ".5e", "c": ".5e", "rms": ".5e", "crpix1": ".2f", "crpix2": ".2f", "xcenter": ".2f", "ycenter": ".2f"}


def fit_row(plus: int, minus: int, status: str) -> list[str] | None:
    """The row for one overlap from mDiffFit's status file, with the digits that mConcatFit prints; None when it found no fit."""
    values = dict(part.split("=", 1) for part in status.strip().removeprefix("[struct ").removesuffix("]").split(", ") if "=" in part)
    if values.get("stat") != '"OK"':
        return None
    row = [str(plus), str(minus)]
    for name, kind in FIT_COLUMNS[2:]:
        value = float(values[name])
        row.append(str(int(value)) if kind == "int" else format(value, _FORMATS.get(name, ".1f")))
    return row


def merge_fits(rows: list[list[str]]) -> Table:
    """One table of fits from rows of several, sorted by pair of images: associative and commutative, too."""
    unique = {(int(row[0]), int(row[1])): row for row in rows}
    return Table([c for c, _ in FIT_COLUMNS], [t for _, t in FIT_COLUMNS], [unique[key] for key in sorted(unique)])
