"""``benchmarks elastic``: sessions that grow and shrink by a policy beside as many nodes as they have at most, from begin to end (MemFS,
Fig. 6 and Table I), on real nodes or simulated.

Owns the comparison: which policies, between which bounds, the meaning of "slower" and "saved". Must not know: the workflows
(``elastic_workloads``); how a session is driven (``elastic_session``).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from amfs.bench.dispatch import machine, work_parent
from amfs.engine.policy import Policy
from amfs.provision import policies
from amfs.sim.simulate import simulate
from benchmarks.elastic_workloads import MEMORY, SHAPES, SLOTS, Shape, workload_of

COMES_S = 2.0  # from the decision until a simulated node is there, as with a process
PAPER_NODES = 64
PAPER = ("paper-1", "paper-2")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """``policy`` "": all nodes from begin to end. ``first``, ``most``: nodes that there were. ``slower``, ``saved``, ``unused_saved``:
    time, node-seconds and byte-seconds of memory without files beside that; the last is what the paper calls resource usage improvement.
    ``half_free``: share of the time in which there were at most half of the nodes. ``spilled``: the most bytes at a time. The last three
    are not known of simulated runs."""

    workload: str
    policy: str
    first: int
    most: int
    seconds: float
    node_s: float
    slower: float = 0.0
    saved: float = 0.0
    unused: float = 0.0
    unused_saved: float = 0.0
    half_free: float = 0.0
    spilled: int = 0
    changes: int = 0
    said: list[str] = []


class Report(msgspec.Struct, frozen=True):
    machine: str
    simulated: bool
    nodes: int
    rows: list[Row]


class Settings(NamedTuple):
    """``nodes`` at most. ``time_scale`` 0: each workflow's own. ``least``: of policies other than the paper's."""

    workloads: tuple[str, ...] = tuple(SHAPES)
    named: tuple[str, ...] = (*PAPER, "default")
    nodes: int = 16
    least: int = 1
    time_scale: float = 0.0


def scaled(text: str, nodes: int) -> str:
    """A policy of the paper for ``nodes`` instead of its 64: the same shares of the cluster."""

    def fewer(found: re.Match[str]) -> str:
        return f"{found[1]}{max(1, int(found[2]) * nodes // PAPER_NODES)}"

    return re.sub(r"(?m)(^(?:min|max|start) = |\"(?:add|drain) )(\d+)", fewer, text)


def chosen(settings: Settings, directory: Path) -> list[tuple[str, str, Policy]]:
    """The name of each policy, its file, and the policy between its bounds. Raises UsageError."""
    found = []
    for name in settings.named:
        policy = policies.load(name)
        text, bounds = policy.text, (settings.least, settings.nodes)
        if name in PAPER:
            text, bounds = scaled(text, settings.nodes), (0, 0)
        path = directory / f"{Path(name).stem}.toml"
        path.write_text(text, encoding="utf-8")
        found.append((Path(name).name, str(path), policies.load(str(path), *bounds)))
    return found


def measure(settings: Settings, *, real: bool, say: Callable[[str], None]) -> Report:
    """Raises UsageError, Failed."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="amfs-bench-", dir=work_parent()) as place:
        named = chosen(settings, Path(place))
        for key in settings.workloads:
            shape = SHAPES[key](settings.nodes)
            scale = settings.time_scale or shape.time_scale
            rows += (_real if real else _simulated)(shape, scale, settings.nodes, named, say)
    return Report(machine(), not real, settings.nodes, rows)


def _beside(static: Row, row: Row) -> Row:
    return msgspec.structs.replace(
        row, slower=row.seconds / static.seconds - 1, saved=1 - row.node_s / static.node_s,
        unused_saved=1 - row.unused / static.unused if static.unused else 0.0,
    )  # fmt: skip


def _simulated(
    shape: Shape, scale: float, nodes: int, named: Sequence[tuple[str, str, Policy]], say: Callable[[str], None]
) -> list[Row]:
    say(f"{shape.name}, simulated, {len(shape.tasks)} tasks ...")
    found = simulate(workload_of(shape, scale), nodes=nodes, slots=SLOTS, memory=MEMORY)
    rows = [Row(workload=shape.name, policy="", first=nodes, most=nodes, seconds=found.makespan_s, node_s=found.node_s)]
    for name, _, policy in named:
        first = policy.start or policy.least
        found = simulate(workload_of(shape, scale), nodes=first, slots=SLOTS, memory=MEMORY, policy=policy, comes_s=COMES_S)
        said = [f"{one.at_s:.1f} s: {one.reason}" for one in found.decisions]
        rows.append(_beside(rows[0], Row(
            workload=shape.name, policy=name, first=first, most=found.nodes_most, seconds=found.makespan_s, node_s=found.node_s, said=said,
            changes=sum(1 for one in found.decisions if one.nodes),
        )))  # fmt: skip
    return rows


def _real(shape: Shape, scale: float, nodes: int, named: Sequence[tuple[str, str, Policy]], say: Callable[[str], None]) -> list[Row]:
    from benchmarks.elastic_session import run

    rows: list[Row] = []
    for name, path, policy in [("", "", None), *named]:
        first = nodes if policy is None else policy.start or policy.least
        say(f"{shape.name}, {name or f'all {nodes} nodes'} ...")
        found = run(shape, scale, first, nodes, path, (policy.least, policy.most) if policy is not None else (0, 0))
        row = Row(
            workload=shape.name, policy=name, first=first, most=found.most, seconds=found.seconds, node_s=found.node_s,
            unused=found.unused, half_free=found.half_free, spilled=found.spilled, changes=found.changes, said=found.said,
        )  # fmt: skip
        rows.append(_beside(rows[0], row) if rows else row)
        say(f"... {row.seconds:.0f} s, {row.node_s:.0f} node-seconds")
    return rows
