"""The tables of ``benchmarks envelope``: rates and ratios of every place, the targets, and AMFS Shell's Table 1. Text only."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.envelope import EIGHT, JUDGED_CLIENTS, METRICS, Described, Report, Result

_WIDTH = 140
_GAP = 2


def report_text(report: Report) -> str:
    """All of a report as people read it."""
    head = f"{report.machine} (median of {report.repeat}; {report.seconds:g} s a phase, files of {report.mib} MiB)"
    parts = [head]
    for clients in report.clients:
        parts += matrix(report, clients)
    parts += targets(report)
    parts += remote(report)
    parts += [title + "\n" + aligned(rows, range(1, len(rows[0]))) for title, rows in table_1(report)]
    failed = [f"{place.title}: not measured: {place.error}" for place in report.places if place.error]
    return "\n\n".join([*parts, *failed])


def rate(value: float, unit: str) -> str:
    """"12.3 k" operations, "1.23" GB, both a second."""
    if unit == "GB/s":
        return f"{value / 1e9:.2f}" if value >= 1e7 else f"{value / 1e9:.4f}"
    if value >= 999_500:
        return f"{value / 1e6:.2f} M"
    return f"{value / 1e3:.1f} k" if value >= 1_000 else f"{value:.0f}"


def share(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.0995 else f"{ratio:.3f}" if ratio >= 0.00995 else f"{ratio:.4f}"


def times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio >= 0.95 else f"{share(ratio)}x"


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Rows of cells in columns; those numbered in ``right`` flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        padded = (cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row))
        lines.append((" " * _GAP).join(padded).rstrip())
    return "\n".join(lines)


def matrix(report: Report, clients: int) -> list[str]:
    """Every metric of every place with so many clients, as many places beside each other as a line holds."""
    columns = []
    for place in report.places:
        found = {metric.key: report.find(place.key, clients, metric.key) for metric in METRICS}
        if any(found.values()):
            columns.append([place.title, *(_cell(found[metric.key]) for metric in METRICS)])
    if not columns:
        return []
    names = [f"{clients} client{'s' if clients != 1 else ''}", *(f"{metric.title}, {metric.unit}" for metric in METRICS)]
    room = _WIDTH - max(map(len, names))
    blocks: list[list[list[str]]] = [[]]
    used = 0
    for column in columns:
        width = max(map(len, column)) + _GAP
        if used + width > room and blocks[-1]:
            blocks.append([])
            used = 0
        blocks[-1].append(column)
        used += width
    return [aligned(list(zip(names, *block, strict=True)), range(1, 1 + len(block))) for block in blocks]


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    return rate(result.value, result.unit) + (f" ({share(result.ratio)})" if result.place != "tmpfs" else "")


def targets(report: Report) -> list[str]:
    """The goal of each place and whether it reaches it; nothing if no place is judged."""
    head = (f"targets, {JUDGED_CLIENTS} clients, one node", "", "measured", "of tmpfs", "target", "")
    rows = [head]
    for place in report.places:
        named = place.title
        for metric in METRICS:
            result = report.find(place.key, JUDGED_CLIENTS, metric.key)
            if result is None or result.target is None:
                continue
            verdict = "PASS" if result.passed else "miss"
            value = f"{rate(result.value, result.unit)} {_per_second(result.unit)}"
            rows.append((named, metric.title, value, share(result.ratio), f"≥ {result.target:g}", verdict))
            named = ""
    return [aligned(rows, (2, 3))] if len(rows) > 1 else []


def remote(report: Report) -> list[str]:
    """The rows of files from another node."""
    if not report.remote:
        return []
    rows = [("from another node", "measured", "compared with", "", "ratio", "target", "")]
    for row in report.remote:
        if row.error:
            return [f"from another node: not measured: {row.error}"]
        sign = "≥" if row.relation == "at least" else "≤"
        value, reference = ("" if number is None else f"{number:.2f} {row.unit}" for number in (row.value, row.reference))
        cells = (value, row.compared_with, reference, "" if row.ratio is None else share(row.ratio))
        informal = row.relation == "at least" and row.target == 0
        rows.append((row.title, *cells, *(("", "") if informal else (f"{sign} {row.target:g}", "PASS" if row.passed else "miss"))))
    return [aligned(rows, (1, 3, 4))]


def _per_second(unit: str) -> str:
    return "GB/s" if unit == "GB/s" else "/s"


def table_1(report: Report) -> list[tuple[str, list[list[str]]]]:
    """(title, rows) as in Table 1 of AMFS Shell: the eight metrics at the first scale, and how many times as much at the others.

    Scale is the number of nodes where places differ in that, and the number of clients for the first place.
    """
    found = []
    for title, places in same_but_nodes(report).items():
        for clients in report.clients:
            scales = [(str(place.nodes), place.key, clients) for place in places]
            found.append((f"{title}: nodes, {clients} clients", _scale_rows(report, "nodes", scales)))
    mine = [place for place in report.places if place.key != "tmpfs" and not place.error]
    if len(report.clients) > 1 and mine:
        scales = [(str(clients), mine[0].key, clients) for clients in report.clients]
        found.append((f"{mine[0].title}: clients", _scale_rows(report, "clients", scales)))
    return found


def _scale_rows(report: Report, what: str, scales: Sequence[tuple[str, str, int]]) -> list[list[str]]:
    rows = [[what, *(metric.paper for metric in EIGHT)]]
    first: list[float | None] = []
    for scale, place, clients in scales:
        values = [result.value if (result := report.find(place, clients, metric.key)) else None for metric in EIGHT]
        if not any(values):
            continue  # it failed, which is said elsewhere
        if not first:
            first = values
            cells = ["" if value is None else rate(value, metric.unit) for value, metric in zip(values, EIGHT, strict=True)]
        else:
            cells = ["" if not value or not base else times(value / base) for value, base in zip(values, first, strict=True)]
        rows.append([scale, *cells])
    return rows


def same_but_nodes(report: Report) -> dict[str, list[Described]]:
    """The places that differ in their number of nodes only, by what they have in common: those of the key before its "@"."""
    groups: dict[str, list[Described]] = {}
    for place in report.places:
        if place.nodes:
            groups.setdefault(place.key.partition("@")[0], []).append(place)
    return {key: sorted(places, key=lambda place: place.nodes) for key, places in groups.items() if len(places) > 1}
