"""Vectors and matrices: printed, and read from blobs of floats."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import format_t
from amfs.swift.library_t.registry import T
from amfs.swift.requests import Print, Request


def _item(x: Any) -> str:
    return format_t("%0.4f" if isinstance(x, float) else "%i", [x])


@T.asking("(void v) vector_print(float x[])", "(void v) vector_print_integer(int x[])")
def vector_print(x: dict[int, Any]) -> Generator[Request, Any, None]:
    yield Print("".join(f"{index}: {_item(value)}\n" for index, value in x.items()))


@T.asking("(void v) matrix_print(float A[][], int rows)", "(void v) matrix_print_integer(int A[][], int rows)")
def matrix_print(rows: dict[int, dict[int, Any]], count: int) -> Generator[Request, Any, None]:
    lines = [f"matrix rows: {count}\n"]
    for number in range(count):
        if number not in rows:
            raise Failure(f"matrix_print: there is no row {number}")
        lines.append(f"row {number}: {''.join(' ' + _item(value) for value in rows[number].values())}\n")
    yield Print("".join(lines))


@T.function("(float o[][]) matrix_from_blob_fortran(blob b, int m, int n)")
def matrix_from_blob_fortran(b: bytes, m: int, n: int) -> dict[int, dict[int, float]]:
    """m rows, n columns, column after column."""
    if m < 0 or n < 0 or len(b) != 8 * m * n:
        raise Failure(f"matrix_from_blob_fortran: {len(b)} bytes are not {m} times {n} floats")
    values = struct.unpack(f"={m * n}d", b)
    return {row: {column: values[column * m + row] for column in range(n)} for row in range(m)}
