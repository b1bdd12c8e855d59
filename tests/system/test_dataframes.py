"""pandas, pyarrow, numpy and Dask read and write the files of a session by their URL."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import amfs
from amfs.client.fsspec import AmfsFileSystem


@pytest.fixture(scope="module")
def cluster() -> Iterator[amfs.Cluster]:
    with amfs.Cluster(nodes=2, slots=1) as cluster:
        yield cluster
        AmfsFileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    count = 50_000
    return pd.DataFrame({"key": np.arange(count) % 7, "value": np.linspace(0, 1, count), "name": [f"row {n}" for n in range(count)]})


def test_pandas(cluster: amfs.Cluster, table: pd.DataFrame) -> None:
    for ending in ("parquet", "csv", "csv.gz", "json", "pickle"):
        url = cluster.url(f"/pandas/a.{ending}")
        cluster.files.makedirs("/pandas", exist_ok=True)
        if ending == "parquet":
            table.to_parquet(url)
            again = pd.read_parquet(url, columns=["key", "value", "name"], filters=[("key", "<", 7)])
        elif ending.startswith("csv"):
            table.to_csv(url, index=False)
            again = pd.read_csv(url)
        elif ending == "json":
            table.to_json(url, orient="records", lines=True, double_precision=15)
            again = pd.read_json(url, lines=True)
        else:
            table.to_pickle(url)
            again = pd.read_pickle(url)
        pd.testing.assert_frame_equal(again, table, check_exact=False)
    assert cluster.files.stat("/pandas/a.csv").st_size == len(table.to_csv(index=False))


def test_pyarrow(cluster: amfs.Cluster, table: pd.DataFrame) -> None:
    whole = pa.Table.from_pandas(table)
    system = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(AmfsFileSystem(session=cluster.name, auto_mkdir=True)))
    pq.write_table(whole, "/arrow/one.parquet", filesystem=system)
    assert pq.read_table("/arrow/one.parquet", filesystem=system).equals(whole)
    pyarrow.dataset.write_dataset(whole, "/arrow/parts", format="parquet", partitioning=["key"], filesystem=system)
    parts = pyarrow.dataset.dataset("/arrow/parts", format="parquet", partitioning=["key"], filesystem=system)
    assert parts.count_rows() == len(table)
    assert parts.to_table(filter=pyarrow.dataset.field("key") == 3).num_rows == (table["key"] == 3).sum()
    with system.open_output_stream("/arrow/one.csv") as stream:
        pyarrow.csv.write_csv(whole, stream)
    with system.open_input_stream("/arrow/one.csv") as stream:
        assert pyarrow.csv.read_csv(stream).num_rows == len(table)


def test_numpy(cluster: amfs.Cluster) -> None:
    given = np.random.default_rng(1).normal(size=(300, 200))
    with fsspec.open(cluster.url("/matrix.npy"), "wb") as file:
        np.save(file, given)
    with fsspec.open(cluster.url("/matrix.npy"), "rb") as file:
        assert (np.load(file) == given).all()
    with cluster.open("/several.npz", "wb") as file:
        np.savez_compressed(file, given=given, twice=2 * given)
    with cluster.open("/several.npz", "rb") as file:
        assert (np.load(file)["twice"] == 2 * given).all()
    with cluster.open("/rows.txt", "w") as file:
        np.savetxt(file, given[:5])
    with cluster.open("/rows.txt") as file:
        np.testing.assert_allclose(np.loadtxt(file), given[:5])


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # between Dask and pandas
def test_dask(cluster: amfs.Cluster, table: pd.DataFrame) -> None:
    import dask  # takes seconds, in every process that collects tests
    import dask.dataframe as dd

    with dask.config.set(scheduler="threads", num_workers=2):
        frame = dd.from_pandas(table, npartitions=4)
        frame.to_parquet(cluster.url("/dask/parts"))
        again = dd.read_parquet(cluster.url("/dask/parts"))
        assert again.npartitions == 4
        means = again.groupby("key")["value"].mean().compute()
        pd.testing.assert_series_equal(means.sort_index(), table.groupby("key")["value"].mean(), check_exact=False)
        frame.to_csv(cluster.url("/dask/csv/part-*.csv"), index=False)
        assert len(dd.read_csv(cluster.url("/dask/csv/part-*.csv"))) == len(table)


def test_frames_travel_between_functions_as_files(cluster: amfs.Cluster, table: pd.DataFrame) -> None:
    table.to_parquet(cluster.url("/functions/in.parquet"), storage_options={"auto_mkdir": True})
    url = cluster.url("/functions")

    def part(key: int) -> str:
        import pandas

        frame = pandas.read_parquet(f"{url}/in.parquet")
        target = f"{url}/{key}.parquet"
        frame[frame["key"] == key].to_parquet(target)
        return target

    with cluster.executor() as executor:
        made = list(executor.map(part, range(7)))
    assert sum(len(pd.read_parquet(target)) for target in made) == len(table)
