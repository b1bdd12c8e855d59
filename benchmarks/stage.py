"""A task that stages its own files: ``python -m benchmarks.stage ID INPUTS OUTPUTS PROGRAM ARGUMENT…``.

INPUTS and OUTPUTS are counts and names: ``2 a b 1 c``. Gets the inputs from the store into the working directory, runs the program, puts
the outputs into the store, and notes when each of that was done. The store (a Spot, in JSON) and the file for the notes come by the
environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import msgspec

from amfs.errors import AmfsError
from benchmarks.storage_clients import Spot, store_of

STORE, NOTES = "AMFS_BENCH_STORE", "AMFS_BENCH_NOTES"


class Note(msgspec.Struct, frozen=True):
    """``marks``: microseconds since the epoch when it began, had its inputs, had run its program, and had put its outputs."""

    task: str
    marks: list[int]


def words_of(task: str, inputs: list[str], outputs: list[str], command: list[str]) -> list[str]:
    """The arguments of this program."""
    return [task, str(len(inputs)), *inputs, str(len(outputs)), *outputs, *command]


def parted(words: list[str]) -> tuple[str, list[str], list[str], list[str]]:
    """What ``words_of`` was given."""
    task, count, *rest = words
    inputs, (more, *rest) = rest[: int(count)], rest[int(count) :]
    return task, inputs, rest[: int(more)], rest[int(more) :]


def stage(words: list[str]) -> int:
    """Exit status: that of the program; 1 if a file could not be staged."""
    marks = [time.time_ns() // 1000]
    task, inputs, outputs, command = parted(words)
    try:
        store = store_of(msgspec.json.decode(os.environ[STORE], type=Spot))
        for name in inputs:
            store.get(name, name)
        marks.append(time.time_ns() // 1000)
        status = subprocess.run(command, check=False).returncode
        if status:
            return status if status > 0 else 128 - status
        marks.append(time.time_ns() // 1000)
        for name in outputs:
            store.put(name, name)
    except Exception as error:  # whatever the store's library raises is what the run is told
        print(f"{task}: {error if isinstance(error, AmfsError) else repr(error)}", file=sys.stderr)
        return 1
    marks.append(time.time_ns() // 1000)
    line = msgspec.json.encode(Note(task, marks)) + b"\n"
    fd = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, line)  # whole: other tasks append to the same file
    finally:
        os.close(fd)
    return 0


if __name__ == "__main__":
    sys.exit(stage(sys.argv[1:]))
