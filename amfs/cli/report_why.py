"""Parts of the page of ``amfs report`` that say why a run took as long as it did: lost time, the critical path, the slowest tasks."""

from __future__ import annotations

import html
from collections.abc import Sequence

from amfs.display.progress import microseconds_text, plural, printable, size_text
from amfs.runs.critical import critical_path, losses, waited_us
from amfs.runs.trace import Trace

PATH_SHOWN = 40
SLOWEST_SHOWN = 15

_KINDS = (
    ("busy", "var(--busy)", "tasks ran"),
    ("chain", "var(--track)", "no task could start: its inputs were not made yet, or no task was left"),
    ("files", "#ee9b3b", "tasks that could start waited, and had files to fetch from other nodes"),
    ("dispatch", "var(--bad)", "tasks that could start waited, and had none to fetch: dispatcher and launcher"),
)


def why_not_faster(trace: Trace, slots: int, span: int) -> str:
    """A bar of what all slots did, and what follows from the critical path."""
    found = losses(trace, slots)
    whole = found.all or 1.0
    x, bars, words = 0.0, [], []
    for field, colour, text in _KINDS:
        share = getattr(found, field) / whole
        bars.append(f'<rect x="{1000 * x:.1f}" y="0" width="{1000 * share:.1f}" height="26" fill="{colour}"><title>{text}</title></rect>')
        words.append(f'<span><i class="chip" style="background:{colour}"></i>{100 * share:.1f}% {text}</span>')
        x += share
    path = critical_path(trace)
    ran = sum(trace.end[at] - trace.start[at] for at in path)
    advice = _advice(found.chain / whole, found.files / whole, found.dispatch / whole, ran / span)
    return (
        '<section id="why"><header><h2>Why it was not faster</h2>'
        f'<span class="note">the time of {plural(slots, "slot")}, {microseconds_text(span)} each</span></header>'
        '<svg viewBox="0 0 1000 26" height="26" width="100%" preserveAspectRatio="none" role="img" aria-label="shares of all slots\' time">'
        f'{"".join(bars)}</svg><div class="legend">{"".join(words)}</div><p>{html.escape(advice)}</p></section>'
    )


def _advice(chain: float, files: float, dispatch: float, path: float) -> str:
    """Advice to make it faster, in sentences: the largest loss, if there is one to speak of."""
    if path > 0.9:
        return (
            f"The critical path below fills {100 * path:.0f}% of the time: more slots would not help, shorter tasks on that path would."
        )
    largest = max(chain, files, dispatch)
    if largest < 0.1:
        return f"The slots were busy nearly all the time: more slots would help, down to {100 * path:.0f}% of it."
    if largest == chain:
        return "Slots were idle mostly because no task could start: fewer slots would have done, or tasks that are cut smaller."
    if largest == files:
        return "Slots were idle mostly while files were fetched: fewer nodes, or tasks that read where their inputs are, would help."
    return "Slots were idle mostly while tasks waited to be started: longer tasks, or more dispatchers (amfs up --unit-size), would help."


def critical_table(trace: Trace, colours: dict[int, str]) -> str:
    """The chain of tasks of which each waited for the one before it."""
    path = critical_path(trace)
    if len(path) < 2:
        return ""
    places = {task: at for at, task in enumerate(trace.task) if trace.ok[at]}
    cut = len(path) - PATH_SHOWN
    shown = path if cut <= 0 else [*path[: PATH_SHOWN // 2], *path[-PATH_SHOWN // 2 :]]
    ran = sum(trace.end[at] - trace.start[at] for at in path)
    waited = sum(waited_us(trace, at, places) for at in path)
    note = f"{plural(len(path), 'task')}: they ran {microseconds_text(ran)} and waited {microseconds_text(waited)}"
    note += f"; {cut:,} in the middle are left out" if cut > 0 else ""
    rows = [
        (*_task_cells(trace, at, colours), *map(microseconds_text, (_began(trace, at), waited_us(trace, at, places), _ran(trace, at))))
        for at in shown
    ]
    return _section("critical", "Critical path", note, ("task", "stage", "node", "began at", "waited", "ran"), rows)


def slowest_table(trace: Trace, colours: dict[int, str]) -> str:
    """The tasks that ran longest."""
    longest = sorted(range(len(trace)), key=lambda at: trace.start[at] - trace.end[at])[:SLOWEST_SHOWN]
    rows = [
        (*_task_cells(trace, at, colours), microseconds_text(_ran(trace, at)), size_text(trace.read[at]),
         size_text(trace.fetched[at]), size_text(trace.written[at]))
        for at in longest
    ]  # fmt: skip
    return _section("slowest", "Slowest tasks", "", ("task", "stage", "node", "ran", "read", "fetched", "written"), rows)


def _began(trace: Trace, at: int) -> int:
    return trace.start[at] - trace.begin_us


def _ran(trace: Trace, at: int) -> int:
    return trace.end[at] - trace.start[at]


def _task_cells(trace: Trace, at: int, colours: dict[int, str]) -> tuple[str, str, str]:
    chip = f'<i class="chip" style="background:{colours[trace.label[at]]}"></i>'
    return html.escape(printable(trace.task[at])), chip + html.escape(printable(trace.label_names[trace.label[at]])), str(trace.node[at])


def _section(name: str, title: str, note: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the cells are HTML."""
    head = "".join(f"<th>{text}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<section id="{name}"><header><h2>{title}</h2><span class="note">{html.escape(note)}</span></header>'
        f'<div class="wide"><table><tr>{head}</tr>{body}</table></div></section>'
    )
