"""Samples that were kept: one line of JSON for each thing that was measured, written at once and read again. Knows no measurement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from amfs.errors import UsageError


def read_lines(path: Path, kinds: Any) -> Iterator[Any]:
    """What ``path`` has, each line one of ``kinds`` (a union of tagged structs). Raises UsageError."""
    decoder = msgspec.json.Decoder(kinds)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        try:
            yield decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise UsageError(f"{path}:{number}: {error}") from None


def no_head(path: Path, command: str) -> UsageError:
    """Samples without the line that says what they are of."""
    return UsageError(f"{path}: does not say what was measured; is it from python -m benchmarks {command} --samples?")
