"""A Dask array on two nodes: make plug-dask."""

import dask.array

import amfs
from amfs.plugs.dask import getter

with amfs.Cluster(nodes=2, slots=1) as cluster:
    numbers = dask.array.arange(1_000_000, chunks=100_000)
    total = (numbers % 7).sum().compute(scheduler=getter(cluster))
print(f"sum: {total}")
assert total == sum(i % 7 for i in range(1_000_000))
