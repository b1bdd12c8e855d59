"""A Dask scheduler: ``x.compute(scheduler=amfs.plugs.dask.get)`` executes the tasks of a Dask graph on the nodes of a session.

Owns the call of Dask's own asynchronous scheduler with an executor of ours. Results between tasks pass through this process. Needs Dask
and the extra functions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from dask.local import get_async

from amfs.cluster import Cluster, newest_cluster


def get(graph: Mapping[Hashable, object], keys: object, **options: object) -> object:
    """The values of ``keys``, in the newest Cluster of this process, else in the session that $AMFS_SESSION names or the newest one.
    Raises SessionError when there is none, and what a task raises."""
    with Cluster(newest_cluster() or None) as cluster:
        return getter(cluster)(graph, keys, **options)


def getter(cluster: Cluster) -> Callable[..., object]:
    """The same for one cluster: ``x.compute(scheduler=getter(cluster))``."""

    def get_here(graph: Mapping[Hashable, object], keys: object, num_workers: int | None = None, **options: object) -> object:
        workers = num_workers or cluster.slots
        with cluster.executor(workers) as executor:
            try:
                return get_async(executor.submit, workers, graph, keys, **options)
            except BaseException:
                executor.interrupt("the computation failed")  # nobody wants the results of its other tasks
                raise

    return get_here
