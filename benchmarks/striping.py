"""``benchmarks striping``: how evenly a workflow's files fill the nodes, whole and in stripes; on real nodes and by arithmetic.

Owns the rows and the target. On real nodes the files of every task are written and read through the node that ``layouts.place`` gives it,
with the Python client. Then the nodes report the bytes that they hold, and ``layouts`` says how many they should.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from amfs.bench.dispatch import machine
from amfs.bench.process import Failed
from amfs.client.files import Files
from amfs.errors import AmfsError
from amfs.vocabulary.partition import PartitionTable, enough_for
from amfs.workflow.workflow import Task, Workflow
from benchmarks import layouts
from benchmarks.envelope_table import aligned
from benchmarks.mounts import Session

TARGET = 1.1
_CHUNK = 1 << 20


class Settings(NamedTuple):
    """``real``: nodes of the session, 0: none, arithmetic only. ``scale`` of the sizes there. ``tiles`` of Montage, and files of the
    aggregation, for each node. ``nodes``: for how many it is computed."""

    real: int = 4
    scale: float = 0.5
    tiles: int = 36
    nodes: tuple[int, ...] = (4, 16, 64, 256)


class Row(msgspec.Struct, frozen=True):
    """``bytes``: on each node. ``computed``: the same by arithmetic, of measured rows; ``fullest`` over the mean."""

    workload: str
    layout: str
    nodes: int
    measured: bool
    bytes: list[int]
    fullest: float
    computed: float | None
    target: float | None
    passed: bool | None


class Report(msgspec.Struct, frozen=True):
    machine: str
    tiles: int
    scale: float
    rows: list[Row]
    errors: dict[str, str]


def workloads(tiles: int, scale: float = 1.0) -> tuple[Workflow, Workflow]:
    return layouts.montage(tiles, scale), layouts.aggregation(tiles, round(8_000_000 * scale))


def row(workload: str, layout: str, counts: Sequence[int], computed: Sequence[int] | None = None) -> Row:
    """A row of the report; ``computed`` is given for measured ones."""
    fullest = layouts.balance(counts)
    target = TARGET if layout == "striped" else None
    expected = None if computed is None else layouts.balance(computed)
    passed = None if target is None else fullest <= target
    return Row(workload, layout, len(counts), computed is not None, list(counts), fullest, expected, target, passed)


def session_table(nodes: int) -> PartitionTable:
    """The table of a session whose nodes came one after the other."""
    return functools.reduce(lambda table, node: table.with_nodes([node]), range(1, nodes), PartitionTable.even([0], enough_for(nodes)))


def compute(workflow: Workflow, nodes: int) -> dict[str, list[int]]:
    """Bytes on each node by layout."""
    placed = layouts.place(workflow, nodes)
    table = session_table(nodes)
    return {"whole": layouts.whole_bytes(workflow, placed, nodes), "striped": layouts.striped_bytes(workflow, placed, table)}


def run_striping(settings: Settings, say: Callable[[str], None] = lambda text: None) -> Report:
    """Real nodes first, then arithmetic. A failure is reported as such."""
    rows: list[Row] = []
    errors: dict[str, str] = {}
    if settings.real:
        for workflow in workloads(settings.tiles * settings.real, settings.scale):
            expected = compute(workflow, settings.real)
            for layout in ("whole", "striped"):
                title = f"{workflow.name}, {layout}"
                say(f"{title} on {settings.real} nodes")
                try:
                    rows.append(row(workflow.name, layout, measure(workflow, layout, settings.real), expected[layout]))
                except (AmfsError, OSError) as error:
                    errors[title] = str(error)
                    say(f"{title} failed: {error}")
    for nodes in settings.nodes:
        say(f"computing for {nodes} nodes")
        for workflow in workloads(settings.tiles * nodes):
            rows += [row(workflow.name, layout, counts) for layout, counts in compute(workflow, nodes).items()]
    return Report(machine(), settings.tiles, settings.scale, rows, errors)


def measure(workflow: Workflow, layout: str, nodes: int) -> list[int]:
    """Bytes that each node of a new session holds when all tasks have written and read their files. Raises AmfsError, OSError."""
    with Session(nodes) as session, contextlib.ExitStack() as stack:
        faces = [stack.enter_context(Files(session.file, node=node)) for node in range(nodes)]
        faces[0].mkdir("/work")
        faces[0].set_layout("/work", layout)
        before = _held(faces[0], nodes)
        for task, node in layouts.place(workflow, nodes).tasks:
            carry_out(workflow, task, faces[node])
        return [now - then for now, then in zip(_held(faces[0], nodes), before, strict=True)]


def _held(files: Files, nodes: int) -> list[int]:
    used = {usage.node: usage.used for usage in files.df()}
    if sorted(used) != list(range(nodes)):
        raise Failed(f"nodes {sorted(used)} of {nodes} say what they hold")
    return [used[node] for node in range(nodes)]


def carry_out(workflow: Workflow, task: Task, files: Files) -> None:
    """Read the task's inputs from beginning to end, write its outputs in their sizes. Raises OSError, Failed."""
    for name in task.inputs:
        with files.open(f"/work/{name}", "rb") as file:
            length = 0
            while chunk := file.read(_CHUNK):
                length += len(chunk)
        if length != workflow.sizes[name]:
            raise Failed(f"{name} has {length} bytes instead of {workflow.sizes[name]}")
    block = bytes(range(256)) * (_CHUNK // 256)
    for name in task.outputs:
        with files.open(f"/work/{name}", "wb") as file:
            for start in range(0, workflow.sizes[name], _CHUNK):
                file.write(block[: min(_CHUNK, workflow.sizes[name] - start)])


def report_text(report: Report) -> str:
    """The report as people read it."""
    head = ("nodes", "", "layout", "", "mean MB", "fullest MB", "fullest / mean", "by arithmetic", "target", "")
    rows: list[Sequence[str]] = [head]
    for each in report.rows:
        mean = sum(each.bytes) / len(each.bytes)
        rows.append(
            (
                str(each.nodes),
                each.workload,
                each.layout,
                "measured" if each.measured else "computed",
                f"{mean / 1e6:,.1f}",
                f"{max(each.bytes) / 1e6:,.1f}",
                f"{each.fullest:.3f}" if each.fullest < 10 else f"{each.fullest:.1f}",
                "" if each.computed is None else f"{each.computed:.3f}",
                "" if each.target is None else f"≤ {each.target:g}",
                "" if each.passed is None else "PASS" if each.passed else "miss",
            )
        )
    title = f"{report.machine} ({report.tiles} tiles and files a node; sizes x {report.scale:g} where measured)"
    failed = [f"{name}: not measured: {why}" for name, why in report.errors.items()]
    return "\n\n".join([title, aligned(rows, (0, 4, 5, 6, 7)), *failed])
