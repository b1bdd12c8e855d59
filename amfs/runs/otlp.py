"""A trace as OpenTelemetry has it: one span for the run, one below it for each attempt, in OTLP's JSON for a collector or a file importer.

Owns the form (OTLP 1.x, ``ExportTraceServiceRequest``). Reads only the trace.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from amfs import __version__
from amfs.display.summary import json_safe
from amfs.runs.trace import Trace

_INTERNAL, _OK, _ERROR = 1, 1, 2  # kind of span, codes of status


def export(trace: Trace, name: str) -> bytes:
    """The request, as bytes of JSON. The same trace gives the same ids."""
    started = int(trace.facts.get("started_us", 0))
    identity = hashlib.sha256(f"{name} {started} {len(trace)}".encode("utf-8", "backslashreplace")).hexdigest()
    trace_id, root = identity[:32], identity[32:48]
    failed = {(failure["id"], failure["ts"]): failure for failure in trace.failures}
    spans = [_span(trace_id, root, "", name, started + trace.begin_us, started + trace.end_us, {"amfs.tasks": len(trace)}, not failed, "")]
    for at, task in enumerate(trace.task):
        facts = {
            "amfs.task": task, "amfs.node": trace.node[at], "amfs.slot": trace.slot[at], "amfs.bytes_read": trace.read[at],
            "amfs.bytes_fetched": trace.fetched[at], "amfs.bytes_written": trace.written[at],
        }  # fmt: skip
        why = failed.get((task, trace.end[at]), {}).get("detail", "")
        begin, end = started + trace.start[at], started + trace.end[at]
        spans.append(_span(trace_id, f"{at + 1:016x}", root, trace.label_names[trace.label[at]], begin, end, facts, trace.ok[at], why))
    facts = {"service.name": "amfs", "service.version": __version__, "amfs.nodes": trace.facts.get("nodes", 1)}
    resource = {"attributes": _attributes(facts)}
    whole = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "amfs", "version": __version__}, "spans": spans}]}]}
    try:
        return msgspec.json.encode(whole)
    except UnicodeEncodeError:  # a name that is not UTF-8
        return msgspec.json.encode(json_safe(whole))


def _span(trace_id: str, span: str, parent: str, name: str, begin_us: int, end_us: int, facts: dict[str, Any], ok: bool, why: str) -> Any:
    return {
        "traceId": trace_id, "spanId": span, "parentSpanId": parent, "name": name, "kind": _INTERNAL,
        "startTimeUnixNano": str(begin_us * 1000), "endTimeUnixNano": str(end_us * 1000), "attributes": _attributes(facts),
        "status": {"code": _OK} if ok else {"code": _ERROR, "message": why},
    }  # fmt: skip


def _attributes(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}}
        for key, value in facts.items()
    ]
