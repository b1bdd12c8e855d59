"""``amfs report``: one HTML page, complete in itself, from the trace of a run.

Owns the content of the page: the timeline of every slot (busy and idle, as Figure 10 of the Hercules paper), completions, tasks at work,
bytes moved, stages, failures. Reads only the trace. All pictures are SVG made here, so the page says the same without its script.
"""

from __future__ import annotations

import html
import math
import time
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from amfs import __version__
from amfs.cli.report_why import critical_table, slowest_table, why_not_faster
from amfs.display.page import SCRIPT, STYLE
from amfs.display.progress import microseconds_text, printable, size_text, tail_lines, time_text
from amfs.errors import UsageError
from amfs.runs.timeline import COLUMNS, Row, all_drawn, draw_bars, draw_cells, shares, stage_colours, ticks_of, timeline_rows
from amfs.runs.trace import Trace, read_trace

FAILURES_SHOWN = 50

esc = html.escape


@click.command("report")
@click.argument("trace", metavar="TRACE", type=click.Path(dir_okay=False))
@click.option("-o", "--output", metavar="FILE", help="Where to write the page; '-' for standard output. [default: TRACE with .html]")
@click.option("--otlp", is_flag=True, help="Instead: a span for each attempt in OpenTelemetry's JSON, TRACE with .otlp.json.")
def report(trace: str, output: str | None, otlp: bool) -> int:
    """Make one self-contained HTML page from TRACE, as written by `amfs run --trace TRACE`.

    TRACE itself is what Perfetto and chrome://tracing open.
    """
    found = read_trace(trace)
    if otlp:
        from amfs.runs.otlp import export

        made = export(found, found.facts.get("name") or Path(trace).name)
    else:
        made = make_page(found, Path(trace).name).encode()
    if output == "-":
        click.echo(made, nl=False)
        return 0
    path = Path(output) if output else Path(trace).with_suffix(".otlp.json" if otlp else ".html")
    try:
        path.write_bytes(made)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    click.echo(str(path))
    return 0


def make_page(trace: Trace, source: str) -> str:
    """The page as HTML text."""
    span = max(1, trace.end_us - trace.begin_us)
    rows = timeline_rows(trace)
    order, colours = stage_colours(trace)
    name = trace.facts.get("name") or source
    parts = [
        f"<h1>{esc(name)}</h1>",
        f'<p class="sub">{_subtitle(trace, source)}</p>',
        _cards(trace, rows, span),
    ]
    if len(trace):
        parts += [
            _timeline(trace, rows, span, order, colours),
            '<div class="pair">',
            _completions(trace, span),
            _at_work(trace, span),
            "</div>",
            why_not_faster(trace, max(int(trace.facts.get("slots", 1)), sum(row.slots for row in rows), 1), span),
            _stages(trace, span, order, colours),
            critical_table(trace, colours),
            slowest_table(trace, colours),
        ]
        parts += [_moved(trace, span)] if any(trace.fetched) else []
    parts += [_shared_storage(trace), _failures(trace)]
    return _document(name, "".join(parts), _data(trace, rows, span))


def _document(name: str, body: str, data: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{esc(name)} · amfs</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style></head>\n<body><main>{body}'
        f"<footer>Made by amfs {esc(__version__)}. Wheel zooms the timeline, dragging moves it, a double click shows all.</footer></main>"
        f'<div id="tip" role="status"></div><script type="application/json" id="data">{data}</script><script>{SCRIPT}</script>'
        "</body></html>\n"
    )


# ── numbers ────────────────────────────────────────────────────────────────────────────────────────


def _quantile(ordered: Sequence[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# ── parts of the page ──────────────────────────────────────────────────────────────────────────────


def _subtitle(trace: Trace, source: str) -> str:
    facts = trace.facts
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(facts.get("started_us", 0) / 1e6))
    text = f"run of {when} on {facts.get('nodes', 1)} node(s) with {facts.get('slots', 1)} slot(s), from {source}"
    if not trace.complete:
        text += "; the trace was cut off, this is what there is of it"
    return esc(text.replace("1 node(s)", "1 node").replace("(s)", "s"))


def _cards(trace: Trace, rows: list[Row], span: int) -> str:
    done = sum(trace.ok)
    failed = len(trace.failures)
    never = sum(sum(counts.values()) for counts in trace.never_ran.values())
    slots = max(int(trace.facts.get("slots", 1)), sum(row.slots for row in rows), 1)
    busy = sum(row.busy_us for row in rows) / (span * slots) if len(trace) else 0.0
    cards = [
        (f"{done:,}", "tasks finished", ""),
        (time_text(span / 1e6), "first to last", ""),
        (f"{done / (span / 1e6):,.0f}" if done * 1e6 >= span else f"{done / (span / 1e6):.2f}", "tasks a second", ""),
        (f"{100 * busy:.1f}%", f"of {slots:,} slot{'s' * (slots != 1)} busy", ""),
        (size_text(sum(trace.fetched)), "moved between nodes", ""),
    ]
    cpu = (trace.summary or {}).get("engine_cpu_seconds", 0)
    if cpu and done:
        cards.append((f"{cpu / done * 1e6:,.0f} µs", "of engine CPU a task", ""))
    if failed:
        cards.append((f"{failed:,}", "attempts failed", " bad"))
    if never:
        cards.append((f"{never:,}", "never started", " bad"))
    boxes = "".join(f'<div class="card{kind}"><b>{value}</b><span>{words}</span></div>' for value, words, kind in cards)
    return f'<div class="cards">{boxes}</div>'


def _axis(span: int, ticks: int = 8, identity: str = "") -> str:
    marks = ticks_of(span, ticks)
    digits = max(0, math.ceil(-math.log10(marks[1] / 1e6) - 1e-9)) if len(marks) > 1 else 0
    texts = "".join(f'<span style="left:{100 * t / span:.3f}%">{t / 1e6:.{digits}f} s</span>' for t in marks)
    return f'<div class="axis"{identity}>{texts}</div>'


def _timeline(trace: Trace, rows: list[Row], span: int, order: list[int], colours: dict[int, str]) -> str:
    row_height = max(2.0, min(26.0, 420 / len(rows)))
    height = row_height * len(rows)
    bar = row_height * (0.8 if row_height > 5 else 1)
    pad = (row_height - bar) / 2
    drawn = all_drawn(trace, rows)
    tracks = "".join(
        f'<rect class="track" x="0" y="{i * row_height + pad:.2f}" width="{COLUMNS}" height="{bar:.2f}"/>' for i in range(len(rows))
    )
    bars = (draw_bars if drawn else draw_cells)(trace, rows, span, colours, row_height, bar, pad)
    # neighbours' names must not overlap: name every n-th row when rows are thin
    every = max(1, math.ceil(15 / row_height))
    names, idle = [], []
    for i, row in enumerate(rows):
        if i % every == 0:
            place = f'<span style="top:{(i + 0.5) * row_height:.1f}px">'
            names.append(f"{place}{esc(row.name)}</span>")
            idle.append(f"{place}{100 * row.busy_us / (span * row.slots):.0f}%</span>")
    legend = "".join(
        f'<span><i class="chip" style="background:{colours[label]}"></i>{esc(printable(trace.label_names[label]))}</span>'
        for label in order
    )
    fail = '<span><i class="chip" style="background:var(--bad)"></i>failed</span>' if not all(trace.ok) else ""
    note = (
        "percentages: time busy" if drawn else "percentages: time busy; too many tasks to draw each: the height of a bar is the share busy"
    )
    return (
        f'<section><header><h2>Slots over time</h2><span class="note">{note}</span>'
        '<button data-mode="stage" aria-pressed="true">by stage</button>'
        '<button data-mode="two" aria-pressed="false">busy and idle</button></header>'
        f'<div class="plot"><div class="rows">{"".join(names)}</div>'
        f'<svg id="timeline" viewBox="0 0 {COLUMNS} {height:.2f}" height="{height:.2f}" preserveAspectRatio="none" role="img"'
        f' aria-label="when each slot was busy">{tracks}{bars}</svg><div class="rows busy">{"".join(idle)}</div>'
        f'{_axis(span, identity=" id=axis")}</div><div class="legend" data-legend="stage">{legend}{fail}</div>'
        '<div class="legend" data-legend="two" hidden><span><i class="chip" style="background:var(--busy)"></i>busy</span>'
        f'<span><i class="chip" style="background:var(--idle)"></i>idle</span>{fail}</div></section>'
    )


def _chart(title: str, note: str, span: int, top: float, top_text: str, drawing: str, kind: str = "") -> str:
    grid = "".join(f'<line class="grid" x1="0" x2="{COLUMNS}" y1="{y}" y2="{y}"/>' for y in (0.5, 50, 100, 150, 199.5))
    half = _compact(top / 2) if not kind else size_text(top / 2)
    return (
        f'<section><header><h2>{title}</h2><span class="note">{note}</span></header><div class="plot chart">'
        f'<div class="rows"><span style="top:6px">{top_text}</span>'
        f'<span style="top:100px">{half}</span><span style="top:194px">0</span></div>'
        f'<svg viewBox="0 0 {COLUMNS} 200" height="200" preserveAspectRatio="none" role="img" aria-label="{title}">'
        f"{grid}{drawing}</svg><span></span>"
        f"{_axis(span, 5)}</div></section>"
    )


def _compact(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _running_total(trace: Trace, amounts: Sequence[int], span: int) -> list[tuple[float, float]]:
    """(time share, total so far) at up to 600 moments, from amounts that fall due when their task ends."""
    order = sorted(range(len(trace)), key=trace.end.__getitem__)
    ends = [trace.end[i] - trace.begin_us for i in order]
    totals = [0]
    for i in order:
        totals.append(totals[-1] + amounts[i])
    return [(step / 600, totals[bisect_right(ends, span * step / 600)]) for step in range(601)]


def _line(points: Sequence[tuple[float, float]], top: float, kind: str = "") -> str:
    text = " ".join(f"{x * COLUMNS:.1f},{198 - 196 * y / top:.1f}" for x, y in points)
    return f'<polyline class="curve{kind}" points="{text}"/>'


def _completions(trace: Trace, span: int) -> str:
    done = _running_total(trace, [int(ok) for ok in trace.ok], span)
    failed = _running_total(trace, [int(not ok) for ok in trace.ok], span)
    top = max(1, done[-1][1], failed[-1][1])
    curves = _line(done, top) + (_line(failed, top, " fail") if failed[-1][1] else "")
    window = 12  # of the 600 moments
    steepest = max(after - before for (_, before), (_, after) in zip(done, done[window:], strict=False)) / (window / 600 * span / 1e6)
    note = f"at best {_compact(steepest)} tasks a second" if len(trace) >= 50 else ""
    return _chart("Tasks finished", note, span, top, _compact(top), curves)


def _at_work(trace: Trace, span: int) -> str:
    columns = 300
    cells = shares(trace, range(len(trace)), trace.begin_us, span, columns)
    slots = int(trace.facts.get("slots", 1))
    top = max(1.0, slots, *cells)
    heights = [f"{198 - 196 * cell / top:.1f}" for cell in cells]
    step = COLUMNS / columns
    outline = " ".join(f"{i * step:.1f},{y} {(i + 1) * step:.1f},{y}" for i, y in enumerate(heights))
    level = 198 - 196 * slots / top
    drawing = f'<polygon class="area" points="0,198 {outline} {COLUMNS},198"/>'
    drawing += f'<line class="limit" x1="0" x2="{COLUMNS}" y1="{level:.1f}" y2="{level:.1f}"/>'
    return _chart("Tasks at work", "dashed: slots there are", span, top, _compact(top), drawing)


def _moved(trace: Trace, span: int) -> str:
    points = _running_total(trace, trace.fetched, span)
    top = max(1.0, points[-1][1])
    return _chart(
        "Bytes moved between nodes", "fetched for tasks; each file once per node", span, top, size_text(top), _line(points, top), "bytes"
    )


def _stages(trace: Trace, span: int, order: list[int], colours: dict[int, str]) -> str:
    by_label: dict[int, list[int]] = {label: [] for label in order}
    for i, label in enumerate(trace.label):
        by_label[label].append(i)
    body = []
    for label in order:
        tasks = by_label[label]
        times = sorted(trace.end[i] - trace.start[i] for i in tasks)
        failed = sum(not trace.ok[i] for i in tasks)
        first, last = min(trace.start[i] for i in tasks), max(trace.end[i] for i in tasks)
        moments = (
            first - trace.begin_us, last - trace.begin_us, _quantile(times, 0.5), _quantile(times, 0.95), times[-1], sum(times),
        )  # fmt: skip
        cells = shares(trace, tasks, trace.begin_us, span, 120)
        top = max(cells) or 1.0
        shape = " ".join(f"{i},{20 - 19 * cell / top:.1f} {i + 1},{20 - 19 * cell / top:.1f}" for i, cell in enumerate(cells))
        spark = '<svg width="120" height="20" viewBox="0 0 120 20" preserveAspectRatio="none">'
        spark += f'<polygon fill="{colours[label]}" points="0,20 {shape} 120,20"/></svg>'
        body.append(
            f'<tr><td><i class="chip" style="background:{colours[label]}"></i>'
            f"{esc(printable(trace.label_names[label]))}</td><td>{len(tasks):,}</td>"
            f"<td{' class=no' if failed else ''}>{failed or ''}</td>"
            f"{''.join(f'<td>{microseconds_text(each)}</td>' for each in moments)}<td>{size_text(sum(trace.read[i] for i in tasks))}</td>"
            f"<td>{size_text(sum(trace.fetched[i] for i in tasks))}</td>"
            f"<td>{size_text(sum(trace.written[i] for i in tasks))}</td><td>{spark}</td></tr>"
        )
    head = "".join(
        f"<th>{text}</th>"
        for text in ("stage", "tasks", "failed", "from", "to", "median", "95%", "longest", "in all", "read", "fetched", "written", "when")
    )
    return f'<section><header><h2>Stages</h2></header><div class="wide"><table><tr>{head}</tr>{"".join(body)}</table></div></section>'


def _shared_storage(trace: Trace) -> str:
    """The paper's Table 2, from the summary of the run."""
    stages: list[dict[str, Any]] = (trace.summary or {}).get("stages", [])
    fields = ("without_bytes", "from_shared_bytes", "to_shared_bytes", "between_nodes_bytes")
    totals = [sum(stage[field] for stage in stages) for field in fields]
    if not any(totals):
        return ""
    body = []
    for name, sizes in [(s["label"], [s[f] for f in fields]) for s in stages] + [("total", totals)]:
        through = sizes[1] + sizes[2]
        saved = f"{100 * (1 - through / sizes[0]):.0f}%" if sizes[0] else ""
        cells = "".join(f"<td>{size_text(size)}</td>" for size in sizes)
        body.append(f"<tr{' class=sum' if name == 'total' else ''}><td>{esc(printable(name))}</td>{cells}<td>{saved}</td></tr>")
    head = "".join(
        f"<th>{t}</th>" for t in ("stage", "without amfs", "from shared storage", "to shared storage", "between nodes", "kept off it")
    )
    return (
        '<section><header><h2>Shared storage</h2><span class="note">what went through it, and what would have without amfs</span></header>'
        f'<div class="wide"><table><tr>{head}</tr>{"".join(body)}</table></div></section>'
    )


def _failures(trace: Trace) -> str:
    if not trace.failures and not trace.never_ran:
        return ""
    items: list[str] = []
    for failure in trace.failures[:FAILURES_SHOWN]:
        where = f"node {failure['node']}, " if failure["node"] >= 0 else ""
        stderr = "\n".join(tail_lines(failure.get("stderr", ""), 20))
        task, label = esc(printable(failure["id"])), esc(printable(failure["label"]))
        what = esc(printable(failure.get("detail") or failure["outcome"]))
        head = f'<b>{task}</b> ({label}) {what} <span class="why">{where}at {microseconds_text(failure["ts"] - trace.begin_us)}</span>'
        shown = " open" if len(items) < 3 and stderr else ""
        words = f"<pre>{esc(stderr)}</pre>" if stderr else ""
        items.append(f"<details{shown}><summary>{head}</summary>{words}</details>")
    if len(trace.failures) > FAILURES_SHOWN:
        items.append(f"<p>and {len(trace.failures) - FAILURES_SHOWN:,} more</p>")
    for label, counts in trace.never_ran.items():
        reasons = {"UPSTREAM_FAILED": "because an input was never made", "CANCELLED": "because the run ended before"}
        items += [f"<p>{count:,} × {esc(label)} never started, {reasons.get(outcome, outcome)}</p>" for outcome, count in counts.items()]
    return f"<section><header><h2>Failures</h2></header>{''.join(items)}</section>"


def _data(trace: Trace, rows: list[Row], span: int) -> str:
    """Data for the script: for zooming, and for naming the task under the pointer."""
    drawn = all_drawn(trace, rows)
    lines: list[dict[str, object]] = []
    for row in rows:
        line: dict[str, object] = {"name": row.name, "busy": f"{100 * row.busy_us / (span * row.slots):.1f}%"}
        if drawn:
            line["tasks"] = [
                (
                    trace.start[i] - trace.begin_us,
                    trace.end[i] - trace.start[i],
                    trace.label[i],
                    printable(trace.task[i]),
                    int(trace.ok[i]),
                    trace.read[i],
                    trace.fetched[i],
                    trace.written[i],
                )
                for i in row.tasks
            ]
        lines.append(line)
    height = max(2.0, min(26.0, 420 / max(1, len(rows)))) * len(rows)
    data = {"span": span, "height": round(height, 2), "labels": [printable(name) for name in trace.label_names], "rows": lines}
    return msgspec.json.encode(data).decode().replace("</", "<\\/")
