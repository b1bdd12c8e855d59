"""The fit of cost models finds the costs that made the times, and says how far off it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.collective import model
from benchmarks.fitting import fit

costs = st.floats(1e-6, 1e-1)


@given(alpha=costs, rate=st.floats(1e7, 1e10))
def test_exact_times_give_the_costs_back(alpha: float, rate: float) -> None:
    cases = [model("multicast", "mst", nodes, size) for nodes in (2, 4, 8, 16) for size in (1_000, 10**6, 10**8)]
    found, error = fit(cases, [rounds * alpha + size / rate for rounds, size in cases])
    assert found == [pytest.approx(alpha, rel=1e-3), pytest.approx(1 / rate, rel=1e-3)]
    assert error < 1e-3


def test_no_cost_is_negative_and_the_error_is_told() -> None:
    found, error = fit([(1.0, 1.0), (1.0, 2.0), (1.0, 4.0)], [4.0, 2.0, 1.0])
    assert min(found) >= 0 and error > 0.1
    with pytest.raises(ValueError, match="fewer times than costs"):
        fit([(1.0, 2.0)], [1.0])


def test_the_formulas_are_the_paper_s() -> None:
    assert model("multicast", "mst", 16, 100) == (4, 400.0)
    assert model("gather", "mst", 16, 1600) == (4, 1500.0)
    assert model("allgather", "mst", 16, 1600) == (8, 4 * 1600 + 1500.0)
    assert model("multicast", "sequential", 16, 100) == (15, 1500.0)
