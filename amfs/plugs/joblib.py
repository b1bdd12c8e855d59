"""A joblib backend: ``with joblib.parallel_backend("amfs"): …`` runs on the nodes of a session.

Owns what joblib asks of a backend. To import it registers it. Needs joblib and the extra functions.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from joblib import register_parallel_backend
from joblib._parallel_backends import AutoBatchingMixin
from joblib.parallel import Parallel, ParallelBackendBase

from amfs.cluster import Cluster, newest_cluster
from amfs.functions.executor import Executor

_T = TypeVar("_T")


class AmfsBackend(AutoBatchingMixin, ParallelBackendBase):
    """``parallel_backend("amfs", cluster=…)``; without ``cluster`` it attaches to the newest Cluster of this process, else to the session
    that $AMFS_SESSION names or the newest one. Raises SessionError when there is none."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, cluster: Cluster | None = None, retries: int = 0, **options: object) -> None:
        super().__init__(**options)
        self._attached = None if cluster is not None else Cluster(newest_cluster() or None)
        self._cluster = cluster or self._attached
        self._retries = retries
        self._executor: Executor | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """-1: as many as the session has slots; -2: one fewer, and so on."""
        assert self._cluster is not None
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 has no meaning")
        if n_jobs is None:
            return 1
        return n_jobs if n_jobs > 0 else max(1, self._cluster.slots + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Parallel | None = None, **options: object) -> int:
        assert self._cluster is not None
        self.parallel = parallel
        count = self.effective_n_jobs(n_jobs)
        if self._executor is None:
            self._executor = self._cluster.executor(count, retries=self._retries)
        return count

    def submit(self, func: Callable[[], _T], callback: Callable[[Future[_T]], object] | None = None) -> Future[_T]:
        assert self._executor is not None
        future = self._executor.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[_T]) -> _T:
        return out.result()

    def terminate(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Kill what is executed."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None
        if ensure_ready and self.parallel is not None:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)


register_parallel_backend("amfs", AmfsBackend)
