"""Time and memory of the translators, by format and number of tasks.

One workflow, written in every format: each task writes one file, and reads a shared file and the file of the task a hundred places before
it. Every document is read in a process of its own, whose peak of memory is compared with that before the reading. Run as a module it is
that process.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from amfs.bench.process import Failed, run

FORMATS = ("tasklist", "jsonl", "dax", "pegasus", "wfformat", "makeflow")
TASKS = (1_000, 10_000, 100_000)

WIDTH = 100
HANG_SECONDS = 600.0


class Point(msgspec.Struct):
    """One document read once (or the median of several times)."""

    format: str
    tasks: int
    document_bytes: int
    seconds: float  # of CPU: reading waits for nothing, and others on the machine do not change it much
    peak_bytes: int  # growth of the resident set while it was read, at its highest


class Curve(msgspec.Struct):
    machine: str
    repeat: int
    points: list[Point]


def measure(formats: Sequence[str], sizes: Sequence[int], *, repeat: int, say: Callable[[str], None]) -> Curve:
    """Raises Failed if a document cannot be read."""
    from amfs.bench.dispatch import machine

    points = []
    with tempfile.TemporaryDirectory(prefix="amfs-bench-") as directory:
        for format in formats:
            for tasks in sizes:
                path = Path(directory) / f"workflow.{format}"
                with open(path, "w", encoding="utf-8") as file:
                    WRITERS[format](file, tasks)
                found = [_read(path, format, tasks) for _ in range(repeat)]
                points.append(
                    Point(
                        format,
                        tasks,
                        path.stat().st_size,
                        statistics.median(each.seconds for each in found),
                        round(statistics.median(each.peak_bytes for each in found)),
                    )
                )
                path.unlink()
                say(f"{format}, {tasks:,} tasks: {points[-1].seconds:.2f} s of CPU")
    return Curve(machine(), repeat, points)


def _read(path: Path, format: str, tasks: int) -> Point:
    ran = run([sys.executable, "-m", "benchmarks.translation", str(path), format], path.parent, hang_seconds=HANG_SECONDS)
    try:
        point = msgspec.json.decode(ran.stdout, type=Point)
    except msgspec.DecodeError as error:
        raise Failed(f"{path.name}: {error}") from None
    if point.tasks != tasks:
        raise Failed(f"{path.name}: {point.tasks:,} tasks were read of {tasks:,}")
    return point


def read_here(path: str, format: str) -> Point:
    """Read a document in this process. The parts of the library that the reader needs are loaded before the clock starts."""
    import time

    from amfs.translate.detect import DOCUMENTS, load, make_document_reader

    if format in DOCUMENTS:
        make_document_reader(format, path)
    before = _memory("VmRSS")
    started = time.process_time()
    workflow = load(path)
    seconds = time.process_time() - started
    return Point(format, len(workflow.tasks), Path(path).stat().st_size, seconds, _memory("VmHWM") - before)


def _memory(field: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most since it began (getrusage would begin with what its parent had)."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


# ── the documents ──────────────────────────────────────────────────────────────────────────────────


def _tasks(count: int) -> Iterator[tuple[str, str, str]]:
    """(id, file it reads, file it writes)."""
    for number in range(count):
        made_by = number - WIDTH
        yield f"ID{number:07}", f"data/{made_by:07}.fits" if made_by >= 0 else "region.hdr", f"data/{number:07}.fits"


def _edges(count: int) -> Iterator[tuple[str, str]]:
    for number in range(WIDTH, count):
        yield f"ID{number - WIDTH:07}", f"ID{number:07}"


def _task_list(file: TextIO, count: int) -> None:
    for task, source, target in _tasks(count):
        file.write(f"{task} -b mProject -i catalog.tbl {source} -o {target} -a -X {source} {target} catalog.tbl\n")


def _json_lines(file: TextIO, count: int) -> None:
    for task, source, target in _tasks(count):
        line = {
            "type": "task", "id": task, "argv": ["mProject", "-X", source, target, "catalog.tbl"], "inputs": ["catalog.tbl", source],
            "outputs": [target], "label": "mProject", "scratch": [target],
        }  # fmt: skip
        file.write(json.dumps(line) + "\n")


def _dax(file: TextIO, count: int) -> None:
    file.write('<?xml version="1.0" encoding="UTF-8"?>\n<adag xmlns="http://pegasus.isi.edu/schema/DAX" version="3.6" name="w">\n')
    for task, source, target in _tasks(count):
        file.write(
            f'  <job id="{task}" name="mProject" version="3.3">\n'
            f'    <argument>-X <file name="{source}"/> <file name="{target}"/> <file name="catalog.tbl"/></argument>\n'
            f'    <uses name="catalog.tbl" link="input"/>\n    <uses name="{source}" link="input"/>\n'
            f'    <uses name="{target}" link="output" register="false" transfer="false" size="4000000"/>\n  </job>\n'
        )
    for parent, child in _edges(count):
        file.write(f'  <child ref="{child}">\n    <parent ref="{parent}"/>\n  </child>\n')
    file.write("</adag>\n")


def _pegasus(file: TextIO, count: int) -> None:
    file.write("x-pegasus:\n  apiLang: python\npegasus: 5.0.4\nname: w\njobs:\n")
    for task, source, target in _tasks(count):
        file.write(
            f"- type: job\n  name: mProject\n  id: {task}\n  arguments:\n  - -X\n  - {source}\n  - {target}\n  - catalog.tbl\n"
            f"  uses:\n  - lfn: catalog.tbl\n    type: input\n  - lfn: {source}\n    type: input\n"
            f"  - lfn: {target}\n    type: output\n    stageOut: false\n    registerReplica: false\n"
        )
    file.write("jobDependencies:\n")
    for parent, child in _edges(count):
        file.write(f"- id: {parent}\n  children:\n  - {child}\n")


def _wfformat(file: TextIO, count: int) -> None:
    file.write('{"name": "w", "schemaVersion": "1.5", "workflow": {"specification": {"tasks": [')
    for number, (task, source, target) in enumerate(_tasks(count)):
        node = {
            "name": "mProject", "id": task, "parents": [f"ID{number - WIDTH:07}"] if number >= WIDTH else [],
            "children": [f"ID{number + WIDTH:07}"] if number + WIDTH < count else [], "inputFiles": ["catalog.tbl", source],
            "outputFiles": [target],
        }  # fmt: skip
        file.write(("," if number else "") + "\n" + json.dumps(node))
    file.write('],\n"files": [')
    for number, (_, _, target) in enumerate(_tasks(count)):
        file.write(("," if number else "") + "\n" + json.dumps({"id": target, "sizeInBytes": 4_000_000}))
    file.write(']},\n"execution": {"makespanInSeconds": 1, "executedAt": "2020-01-01T00:00:00", "tasks": [')
    for number, (task, source, target) in enumerate(_tasks(count)):
        command = {"program": "mProject", "arguments": ["-X", source, target, "catalog.tbl"]}
        file.write(("," if number else "") + "\n" + json.dumps({"id": task, "runtimeInSeconds": 1.5, "command": command}))
    file.write("]}}}\n")


def _makeflow(file: TextIO, count: int) -> None:
    file.write("PROGRAM=mProject -X\n\n")
    for _, source, target in _tasks(count):
        file.write(f"{target}: catalog.tbl {source}\n\t$PROGRAM {source} {target} catalog.tbl\n\n")


WRITERS: dict[str, Callable[[TextIO, int], None]] = {
    "tasklist": _task_list,
    "jsonl": _json_lines,
    "dax": _dax,
    "pegasus": _pegasus,
    "wfformat": _wfformat,
    "makeflow": _makeflow,
}


if __name__ == "__main__":
    print(msgspec.json.encode(read_here(*sys.argv[1:3])).decode())
