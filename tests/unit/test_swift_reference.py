"""Random programs: amfs prints the lines that a small reference interpreter prints, in whatever order tasks and answers come."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from swift_generator import Generator
from swift_reference import printed
from test_swift_evaluate import evaluate

from amfs.errors import WorkflowError
from amfs.swift.depth import deep
from amfs.swift.evaluate.effects import Limits
from amfs.swift.source import Source
from amfs.translate.swift import program_of


def compare(chance: random.Random, statements: int, wrong: bool) -> None:
    text = Generator(chance, statements, wrong).program()
    try:
        program = program_of(Source("test.swift", text), "swift-t")
    except WorkflowError:  # some mistakes are seen in the text
        assert wrong, text
        return
    wanted = deep(lambda: printed(program))
    assert (wanted is None) == wrong, text
    limits = Limits(tasks=4, waiting=chance.choice([1, 40_000]), rounds=chance.choice([1, 3, 64]))
    for found in (evaluate(program), evaluate(program, seed=chance.randrange(1 << 30), limits=limits)):
        if wanted is None:
            assert found.error, text
        else:
            assert not found.error, found.error + text
            assert sorted(found.lines) == sorted(wanted), text


@settings(max_examples=40)
@given(chance=st.randoms(use_true_random=False), statements=st.integers(1, 8), wrong=st.sampled_from([False, False, False, True]))
def test_lines_are_those_of_the_reference(chance: random.Random, statements: int, wrong: bool) -> None:
    compare(chance, statements, wrong)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_lines_are_those_of_the_reference_3000_times() -> None:
    for seed in range(3000):
        chance = random.Random(seed)
        try:
            compare(chance, chance.randint(1, 12), chance.random() < 0.2)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
