"""joblib, Dask and Parsl themselves over a session of two nodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dask
import dask.array
import dask.bag
import joblib
import numpy as np
import parsl
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import amfs
import amfs.plugs.joblib
from amfs.plugs.dask import get, getter
from amfs.plugs.parsl import AmfsExecutor

# Parsl leaves the file of its log to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def where(_: Any) -> int:
    return os.getpid()


def fails(number: int) -> int:
    if number == 7:
        raise ValueError(f"no {number}, please")
    return number


def test_joblib_runs_in_the_session(cluster: amfs.Cluster) -> None:
    with joblib.parallel_backend("amfs", cluster=cluster, n_jobs=-1):
        assert joblib.Parallel()(joblib.delayed(pow)(i, 2) for i in range(200)) == [i * i for i in range(200)]
        places = joblib.Parallel()(joblib.delayed(where)(i) for i in range(50))
    assert os.getpid() not in places


def test_joblib_tells_what_a_call_raised_and_goes_on(cluster: amfs.Cluster) -> None:
    with joblib.parallel_backend("amfs", cluster=cluster, n_jobs=2):
        with pytest.raises(ValueError, match="no 7, please"):
            joblib.Parallel()(joblib.delayed(fails)(i) for i in range(20))
        assert joblib.Parallel()(joblib.delayed(fails)(i) for i in range(5)) == list(range(5))


def test_grid_search_finds_what_it_finds_here(cluster: amfs.Cluster) -> None:
    data, target = load_iris(return_X_y=True)
    grid = {"C": [0.1, 1, 10], "gamma": [0.01, 0.1, 1]}
    here = GridSearchCV(SVC(), grid, cv=3).fit(data, target)
    with joblib.parallel_backend("amfs", cluster=cluster):
        there = GridSearchCV(SVC(), grid, cv=3, n_jobs=-1).fit(data, target)
    assert there.best_params_ == here.best_params_
    assert np.array_equal(there.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"])


def test_dask_computes_in_the_session(cluster: amfs.Cluster) -> None:
    numbers = dask.array.arange(1000, chunks=100)
    assert (numbers**2).sum().compute(scheduler=getter(cluster)) == sum(i * i for i in range(1000))
    with dask.config.set(scheduler=get):
        assert dask.bag.from_sequence(range(20), npartitions=5).map(lambda x: x + 1).sum().compute() == 210
    places = dask.compute([dask.delayed(where)(i) for i in range(10)], scheduler=getter(cluster))[0]
    assert os.getpid() not in places


def test_dask_tells_what_a_task_raised(cluster: amfs.Cluster) -> None:
    with pytest.raises(ValueError, match="no 7, please"):
        dask.compute([dask.delayed(fails)(i) for i in range(10)], scheduler=getter(cluster))
    assert dask.delayed(fails)(1).compute(scheduler=getter(cluster)) == 1


def test_parsl_apps_run_in_the_session(cluster: amfs.Cluster, tmp_path: Path) -> None:
    with parsl.load(parsl.Config(executors=[AmfsExecutor(session=cluster.name)], run_dir=str(tmp_path), usage_tracking=0)):
        square = parsl.python_app(lambda x: x * x)
        add = parsl.python_app(lambda *numbers: sum(numbers))
        wrong = parsl.python_app(fails)
        write = parsl.bash_app(lambda stdout=None: "echo of bash")
        assert add(*[square(i) for i in range(50)]).result(60) == sum(i * i for i in range(50))
        assert parsl.python_app(where)(0).result(60) != os.getpid()
        with pytest.raises(ValueError, match="no 7, please"):
            wrong(7).result(60)
        assert write(stdout=str(tmp_path / "out")).result(60) == 0
        assert (tmp_path / "out").read_text() == "of bash\n"


def test_parsl_starts_and_ends_a_session_of_its_own(tmp_path: Path) -> None:
    executor = AmfsExecutor(nodes=1, slots=2)
    with parsl.load(parsl.Config(executors=[executor], run_dir=str(tmp_path), usage_tracking=0)):
        assert parsl.python_app(pow)(3, 4).result(60) == 81
    assert executor._cluster is not None and executor._cluster.files.connection.closed
