"""Frames and pages as plain text, for ``amfs status``. Owns the words. Must not know: where they come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from amfs.display.progress import plural, printable, rate_text, size_text, tail_lines, time_text
from amfs.vocabulary.live import AtWork, Failed, Frame, Node, Page, Run

NODES_SHOWN = 64


def per_second(rate: float) -> str:
    return rate_text(rate).removesuffix("/s") if rate else ""


def run_title(run: Run) -> str:
    """A run by what it runs and where."""
    where = "" if run.place == run.id else f" in {run.place}"
    return f"run of {printable(run.source)}{where} (process {run.pid})"


def run_line(run: Run, now: float) -> str:
    """How far a run is, in one sentence."""
    total = "" if run.total < 0 else f" of {run.total:,}"
    parts = [f"{run.finished:,}{total} done"]
    if run.failed:
        parts.append(f"{run.failed:,} failed")
    if run.over:
        return ", ".join([*parts, "its process is gone" if run.over == "gone" else run.over])
    parts.append(f"{run.running:,} running")
    if run.rate:
        parts.append(rate_text(run.rate))
    if run.moved:
        parts.append(f"{size_text(run.moved)} moved")
    if run.eta_s >= 0 and run.finished:
        parts.append(f"about {time_text(run.eta_s)} left")
    if run.silent:
        parts.append("does not answer")
    return f"for {time_text(max(0.0, now - run.began))}: {', '.join(parts)}"


def stage_rows(run: Run) -> list[list[str]]:
    """The stages of a run: head first."""
    rows = [["stage", "done", "of", "failed", "per second", "busy", "moved"]]
    for stage in run.stages:
        counts = [f"{count:,}" if count else "" for count in (stage.tasks, stage.failed)]
        rate, moved = per_second(stage.rate), size_text(stage.moved) if stage.moved else ""
        rows.append([printable(stage.label), f"{stage.finished:,}", *counts, rate, time_text(stage.busy_s), moved])
    return rows


def node_rows(nodes: Sequence[Node]) -> list[list[str]]:
    """Nodes: head first."""
    rows = [["node", "state", "host", "slots", "running", "wait for a slot", "wait for files", "per second", "memory", "spilled"]]
    for node in nodes:
        spilled = node.spilled
        rows.append([
            str(node.node), node.state, node.host, str(node.slots), str(node.running), f"{node.ready:,}", f"{node.waiting:,}",
            per_second(node.rate), size_text(node.memory), size_text(spilled) if spilled else "",
        ])  # fmt: skip
    return rows


def at_work_rows(tasks: Iterable[AtWork], now: float, runs: Sequence[Run] = ()) -> list[list[str]]:
    """Tasks at work: head first. Of more than one run the source is said."""
    names = {run.id: printable(run.source) for run in runs} if len(runs) > 1 else {}
    rows = [["task", "stage", "for", "memory", "node", "slot", "process", "run"]]
    for task in tasks:
        rows.append([
            printable(task.task) or f"#{task.number}", printable(task.label), time_text(max(0.0, now - task.since)),
            size_text(task.memory) if task.memory >= 0 else "", str(task.node), str(task.slot), str(task.pid), names.get(task.run, ""),
        ])  # fmt: skip
    return rows


def failure_lines(failed: Failed, lines: int = 5) -> list[str]:
    """A failed task, with its last words."""
    where = f" ({failed.where})" if failed.where else ""
    node = f" on node {failed.node}" if failed.node >= 0 else ""
    head = f"task {printable(failed.task)}{where} failed{node}: {printable(failed.why)}"
    return [head, *(f"    | {line}" for line in tail_lines(failed.stderr, lines))]


def left_and_right(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Rows as aligned columns; empty columns are left out."""
    kept = [place for place in range(len(rows[0])) if len(rows) == 1 or any(row[place] for row in rows[1:])]
    widths = {place: max(len(row[place]) for row in rows) for place in kept}
    return [
        "  ".join(row[place].ljust(widths[place]) if place in left else row[place].rjust(widths[place]) for place in kept).rstrip()
        for row in rows
    ]


def runs_text(frame: Frame, page: Page) -> list[str]:
    """The runs of a frame with their stages, and the tasks at work."""
    lines: list[str] = []
    for run in frame.runs:
        lines += [run_title(run), f"  {run_line(run, frame.at)}"]
        if len(run.stages) > 1:
            lines += [f"  {line}" for line in left_and_right(stage_rows(run))]
    if page.at_work:
        shown = f", the {len(page.at_work)} that run longest" if page.at_work_total > len(page.at_work) else ""
        lines.append(f"at work: {plural(page.at_work_total, 'task')}{shown}")
        lines += [f"  {line}" for line in left_and_right(at_work_rows(page.at_work, frame.at, frame.runs), (0, 1, 7))]
    return lines


def frame_text(frame: Frame, page: Page) -> list[str]:
    """A whole frame."""
    lines = [f"{note}" for note in frame.notes]
    for session in frame.sessions:
        nodes = [node for node in frame.nodes if node.place == session.name]
        up = sum(node.state in ("up", "draining") for node in nodes)
        slots = sum(node.slots for node in nodes)
        lines.append(f"session {session.name}: {up} of {plural(len(nodes), 'node')} up, {plural(slots, 'slot')}")
        lines += [f"  {line}" for line in left_and_right(node_rows(nodes[:NODES_SHOWN]), (1, 2))]
        if len(nodes) > NODES_SHOWN:
            lines.append(f"  and {len(nodes) - NODES_SHOWN:,} more nodes")
        lines += [f"  {line}" for line in (*filter(None, [session.paused, session.policy]), *session.decisions[-3:])]
    if not frame.runs:
        lines.append("no run is going on; 'amfs run FILE' starts one")
    return lines + runs_text(frame, page)
