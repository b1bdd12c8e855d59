"""Mutated scripts end in a checked program or in messages: never in another exception, never in a long wait."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from amfs.errors import WorkflowError
from amfs.swift.check import check
from amfs.swift.library_k import K
from amfs.swift.library_t import T
from amfs.swift.parse import parse
from amfs.swift.source import Source

SCRIPTS = Path(__file__).parent.parent / "data" / "swift"
PIECES = [*"(){}[];,=<>@-1x", '"', "/*", "#define x", "foreach", "if", "app", "type", "file", "\0", "é", "=>"]


def mutated(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 4)):
        at, end = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        end = min(end, at + 20)
        kind = chance.randrange(4)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + chance.choice(PIECES) + text[at:]
        elif kind == 2:
            text = text[:at] + text[at:end] * 2 + text[end:]
        else:
            other = chance.randrange(len(text) + 1)
            text = text[:at] + text[other : other + 15] + text[at:]
    return text


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", ["t", "k"])
def test_mutated_scripts(name: str, count: int) -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((SCRIPTS / name).glob("*.swift"))]
    library = T if name == "t" else K
    for seed in range(count):
        chance = random.Random(seed)
        text = mutated(chance.choice(texts), chance)
        try:
            check(parse(f"swift-{name}", Source("script.swift", text), lambda name: None), library)
        except WorkflowError as error:
            assert str(error)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {text!r}") from error
