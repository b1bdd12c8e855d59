"""Random calls on the mount and on tmpfs agree, result by result, and so do the trees: one mount, and two of two nodes in turn."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import torture
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twins import Turn, as_lines, random_op

#: Calls that the acceptance asks for; half of them for one mount, half for two.
SOAK_OPS = 1_000_000

turns = st.lists(
    st.builds(lambda rng, view: (view, random_op(rng)), st.randoms(use_true_random=False), st.integers(0, 1)), min_size=1, max_size=40
)


@given(turns)
@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_any_sequence_does_what_it_does_on_tmpfs(mounts: list[Path], oracle: Path, sequence: list[Turn]) -> None:
    found = torture.first_difference(oracle, mounts, sequence)
    assert found is None, f"after {found[0]} calls, on {len(mounts)} mounts:\n{as_lines(sequence[: found[0]])}\n  {found[1]}"


def long_run(mounts: list[Path], oracle: Path, seed: str, count: int) -> None:
    done = 0
    while done < count:
        sequence, differ = torture.explore(oracle, mounts, random.Random(f"{seed}.{done}"), min(torture.ROUND, count - done))
        if differ:
            short, told = torture.shortest(oracle, mounts, sequence, limit_s=60)
            where = f"seed {seed}, after {done + len(sequence)} calls: {differ}"
            pytest.fail(f"{where}\nshortened to {len(short)}:\n{as_lines(short)}\n  {told}", pytrace=False)
        done += len(sequence)


@pytest.mark.slow
def test_a_few_thousand_calls(mounts: list[Path], oracle: Path) -> None:
    long_run(mounts, oracle, os.environ.get("AMFS_POSIX_SEED", "1"), 4000)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_half_a_million_calls(mounts: list[Path], oracle: Path) -> None:
    long_run(mounts, oracle, os.environ.get("AMFS_POSIX_SEED", "soak"), SOAK_OPS // 2)
