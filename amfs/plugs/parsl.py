"""A Parsl executor: apps are executed on the nodes of a session.

Owns what Parsl asks of an executor. Needs Parsl and the extra functions.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from parsl.executors.base import ParslExecutor
from parsl.executors.errors import InvalidResourceSpecification

from amfs.cluster import Cluster
from amfs.functions.executor import Executor

_T = TypeVar("_T")


class AmfsExecutor(ParslExecutor):
    """``Config(executors=[AmfsExecutor(session="lab")])``: in a session that is there. With ``nodes`` (and ``slots`` of each) a session of
    processes of this machine is started, which ends with Parsl. ``max_workers``: calls at a time (default: all slots)."""

    radio_config = None

    def __init__(
        self, label: str = "amfs", session: str | None = None, nodes: int | None = None, slots: int | None = None,
        max_workers: int | None = None, retries: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.label = label
        self.session = session
        self.nodes = nodes
        self.slots = slots
        self.max_workers = max_workers
        self.retries = retries
        self._cluster: Cluster | None = None
        self._executor: Executor | None = None

    def start(self) -> None:
        """Attach to the session, or start it. Raises SessionError."""
        self._cluster = Cluster(self.session, nodes=self.nodes, slots=self.slots)
        self._executor = self._cluster.executor(self.max_workers, retries=self.retries)

    def submit(self, func: Callable[..., _T], resource_specification: dict[str, object], *args: object, **kwargs: object) -> Future[_T]:
        if resource_specification:
            raise InvalidResourceSpecification(set(resource_specification), "a call on amfs takes one slot; it has no resources to say")
        assert self._executor is not None
        return self._executor.submit(func, *args, **kwargs)

    def shutdown(self) -> None:
        """End: Parsl has waited for its apps by now."""
        if self._cluster is not None:
            self._cluster.close()
