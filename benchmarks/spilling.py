"""``benchmarks spill``: a workflow whose files are several times the memory of its node, beside the same programs with their files on the
disk that amfs spills to.

Owns the programs: as many as there are files write one each, then as many read one each. With amfs all files live at once, in memory and in
the spill directory; the plain programs read and write the disk, through the kernel's page cache (*cached*), and past it (*direct*), as
when the memory is full. Turns of the three alternate, since a disk is never the same twice.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from amfs.bench.dispatch import work_parent
from amfs.errors import SystemSetupError
from amfs.host.file_systems import is_in_memory

TARGET = 1.5  # times the plain programs, at most
WAYS = ("direct", "cached", "amfs")
_MIB = 1 << 20


class Row(msgspec.Struct):
    """One way. Medians; ``ratio``: of amfs to it."""

    way: str
    seconds: float
    samples: list[float]
    ratio: float | None = None
    target: float | None = None
    error: str = ""

    @property
    def passed(self) -> bool:
        return self.target is None or self.ratio is None or self.ratio <= self.target


class Report(msgspec.Struct):
    rows: list[Row]
    files: int
    mib: int  # of a file
    limit_mib: int
    slots: int
    directory: str
    repeat: int


def measure(directory: str, *, files: int, mib: int, times: float, slots: int, repeat: int, say: Callable[[str], None]) -> Report:
    """Raises SystemSetupError if the directory is of no use for this."""
    if not os.path.isdir(directory) or not os.access(directory, os.W_OK | os.X_OK):
        raise SystemSetupError(f"cannot measure in {directory}: it is not a directory that this user may write in")
    if is_in_memory(directory):
        raise SystemSetupError(f"{directory} is in memory: name a directory on a disk")
    limit = max(1, int(files * mib / times))
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    errors: dict[str, str] = {}
    with (
        tempfile.TemporaryDirectory(prefix="amfs-bench-", dir=work_parent()) as work,
        tempfile.TemporaryDirectory(prefix="amfs-bench-", dir=directory) as disk,
    ):
        (Path(work) / "list").write_text(_workflow(files, mib))
        spilling = ["--local", "--no-journal", "-q", "--store-limit", f"{limit}M", "--spill", disk, "--slots", str(slots)]
        for turn in range(repeat):
            for way in WAYS:
                if way in errors:
                    continue
                say(f"{way}, {turn + 1} of {repeat}")
                os.sync()
                begin = time.monotonic()
                try:
                    if way == "amfs":
                        _run([sys.executable, "-m", "amfs", "run", *spilling, "list"], work)
                    else:
                        _plain(files, mib, slots, disk, direct=way == "direct")
                except subprocess.CalledProcessError as error:
                    errors[way] = (error.stderr or "").strip().rpartition("\n")[2] or f"exit status {error.returncode}"
                    continue
                finally:
                    took = time.monotonic() - begin
                    for path in Path(disk).glob("part*"):
                        path.unlink()
                samples[way].append(took)
    median = {way: statistics.median(found) for way, found in samples.items() if found}
    rows = [Row(way, median.get(way, 0.0), samples[way], error=errors.get(way, "")) for way in WAYS]
    for row in rows:
        if row.way != "amfs" and row.way in median and "amfs" in median:
            row.ratio = median["amfs"] / median[row.way]
            row.target = TARGET if row.way == "direct" else None
    return Report(rows, files, mib, limit, slots, directory, repeat)


def _run(words: list[str], directory: str) -> None:
    subprocess.run(words, cwd=directory, check=True, capture_output=True, text=True)


def _write(number: int, mib: int, flags: str = "") -> str:
    return f"dd if=/dev/zero of=part{number} bs={_MIB} count={mib} status=none{flags}"


def _read(number: int, flags: str = "") -> str:
    return f"dd if=part{number} of=/dev/null bs={_MIB} status=none{flags}"


def _workflow(files: int, mib: int) -> str:
    """The task list: the programs, and between them a task that waits for all files to be there."""
    lines = [f"make{i} -b sh -o part{i} -a -c '{_write(i, mib)}'" for i in range(files)]
    lines.append("all -b true -after " + " ".join(f"make{i}" for i in range(files)))
    lines += [f"read{i} -b sh -i part{i} -after all -a -c '{_read(i)}'" for i in range(files)]
    return "\n".join(lines) + "\n"


def _plain(files: int, mib: int, slots: int, disk: str, *, direct: bool) -> None:
    """The same programs in the same order, by xargs. Raises CalledProcessError."""
    output, input_ = (" oflag=direct", " iflag=direct") if direct else ("", "")
    for commands in ([_write(i, mib, output) for i in range(files)], [_read(i, input_) for i in range(files)]):
        subprocess.run(
            ["xargs", "-P", str(slots), "-d", "\n", "-n", "1", "sh", "-c", 'eval "$0"'],
            cwd=disk, input="\n".join(commands), check=True, capture_output=True, text=True,
        )  # fmt: skip
