"""The preprocessor of Swift/T's scripts, and the places that its result comes from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.swift.preprocess import preprocess
from amfs.swift.source import At, Mistake, Source


def done(text: str, **files: str) -> Source:
    return preprocess(Source("s", text), lambda name: Source(name, files[name]) if name in files else None)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("#define N 3\nx = N + NN;", "x = 3 + NN;"),
        ("#define SQUARE(x) ((x) * (x))\ny = SQUARE(f(1, 2));", "y = ((f(1, 2)) * (f(1, 2)));"),
        ("#define A B\n#define B A\nA;", "A;"),
        ("#define A 1\n#undef A\nA;", "A;"),
        ("#define F(x) x\nF;", "F;"),
        ("#define N 3\n\"N\" // N\n/* N */ N", "\"N\" // N\n/* N */ 3"),
        ("#ifdef X\na;\n#else\nb;\n#endif\n", "b;"),
        ("#ifndef X\na;\n#else\nb;\n#endif\n", "a;"),
        ("#define X 2\n#if X == 2 && !defined(Y)\na;\n#elif 1\nb;\n#endif", "a;"),
        ("#if 0\n#if 1\na;\n#else\nb;\n#endif\n#else\nc;\n#endif", "c;"),
        ("#if 0\na;\n#elif 1\nb;\n#else\nc;\n#endif", "b;"),
        ("#define LONG a + \\\n  b\nLONG;", "a +    b;"),
        ("#include <builtins.swift>\nx;", "x;"),
        ("#include \"other\"\nx;", "y = 3;\n\nx;"),
        ("#!/usr/bin/env swift-t\nx;", "x;"),
        ('s = """\n# not a directive\n""";', 's = """\n# not a directive\n""";'),
    ],
)
def test_what_it_does(text: str, result: str) -> None:
    assert done(text, other="#define N 3\ny = N;\n").text.strip() == result.strip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#if 1\nx;", "has no #endif"),
        ("#endif", "has no #if"),
        ("#if 1\n#else\n#else\n#endif", "after #else"),
        ("#if ((\n#endif", "not understood"),
        ('#include "nowhere"', "no file 'nowhere'"),
        ('#include "itself"', "included by itself"),
        ("#foo", "no directive"),
        ("#error not like this", "not like this"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(Mistake, match=message):
        done(text, itself='#include "itself"')


def test_places() -> None:
    text = '#define N 3 + \\\n 4\nx = N; y;\n#include "other"\nz;'
    found = done(text, other="a;\nb;\n")
    for word, place in (("y", "s:3:8"), ("4", "s:3:5"), ("b", "other:2:1"), ("z", "s:5:1")):
        offset = found.text.index(word)
        assert str(At(found, offset, offset + 1)) == place


@given(st.text(alphabet='#defininclude \n"/*A(),1-', max_size=60))
def test_any_text_ends_in_text_or_a_mistake(text: str) -> None:
    try:
        found = done(text)
    except Mistake:
        return
    for offset in range(0, len(found.text), 7):
        str(At(found, offset, offset + 1))


def test_macros_that_grow_are_refused() -> None:
    text = "".join(f"#define A{n} A{n - 1} A{n - 1} A{n - 1} A{n - 1}\n" for n in range(1, 30)) + "A29"
    with pytest.raises(Mistake, match="2 MiB"):
        done(text)
