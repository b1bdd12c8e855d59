"""A frame as metrics for Prometheus. Owns the names of the metrics. Needs prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from amfs.display.summary import json_safe
from amfs.vocabulary.live import Frame

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_RUN_COUNTERS = {
    "finished": "tasks that finished", "failed": "tasks that failed", "moved": "bytes moved between nodes", "reruns": "further attempts",
}  # fmt: skip
_NODE_GAUGES = {
    "slots": "slots for tasks", "running": "tasks that run", "ready": "tasks that wait for a slot or for memory",
    "waiting": "tasks that wait for files", "memory": "bytes of files in memory", "memory_limit": "the most of them",
    "spilled": "bytes of files on disk",
}  # fmt: skip
_NODE_COUNTERS = {"ended": "tasks that ended here", "fetched": "bytes fetched from other nodes"}


def text_of(frame: Frame) -> bytes:
    """The frame in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(frame))
    return generate_latest(registry)


class _Once:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def collect(self) -> Iterator[Metric]:
        frame = self._frame
        of_run = ["run", "source", "place"]
        for name, words in _RUN_COUNTERS.items():
            counter = CounterMetricFamily(f"amfs_run_{name}", words, labels=of_run)
            for run in frame.runs:
                counter.add_metric([run.id, _label(run.source), run.place], getattr(run, name))
            yield counter
        for name, words in {"total": "tasks of the run", "running": "tasks that run"}.items():
            gauge = GaugeMetricFamily(f"amfs_run_tasks_{name}", words, labels=of_run)
            for run in frame.runs:
                gauge.add_metric([run.id, _label(run.source), run.place], max(0, getattr(run, name)))
            yield gauge
        for name in ("finished", "failed"):
            stage_counter = CounterMetricFamily(f"amfs_stage_{name}", f"tasks of a stage that {name}", labels=["run", "stage"])
            for run in frame.runs:
                for stage in run.stages:
                    stage_counter.add_metric([run.id, _label(stage.label)], getattr(stage, name))
            yield stage_counter
        for name, words in _NODE_GAUGES.items():
            gauge = GaugeMetricFamily(f"amfs_node_{name}", words, labels=["place", "node", "host"])
            for node in frame.nodes:
                gauge.add_metric([node.place, str(node.node), node.host], getattr(node, name))
            yield gauge
        for name, words in _NODE_COUNTERS.items():
            counter = CounterMetricFamily(f"amfs_node_{name}", words, labels=["place", "node", "host"])
            for node in frame.nodes:
                counter.add_metric([node.place, str(node.node), node.host], getattr(node, name))
            yield counter


def _label(text: str) -> str:
    return str(json_safe(text))
