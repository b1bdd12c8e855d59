"""YAML as a stream: the same values as PyYAML's own loader of text, with lines; and nothing that a hostile document could use."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from amfs.translate.yaml_stream import ALIASED_MAX, Map, YamlDocument, YamlError


def read(text: str | bytes) -> dict[str, Any]:
    document = YamlDocument([text.encode() if isinstance(text, str) else text])
    return {key: document.value() for key, _ in document.pairs()}


def test_numbers_and_booleans_stay_as_written() -> None:
    assert read("a: 4.0\nb: '4.0'\nc: 010\nd: true\ne: 1_000\nf: 2020-01-01\n") == {
        "a": "4.0", "b": "4.0", "c": "010", "d": "true", "e": "1_000", "f": "2020-01-01",
    }  # fmt: skip


def test_what_is_plainly_nothing_is_none() -> None:
    assert read("a:\nb: ~\nc: null\nd: ''\ne: 'null'\n") == {"a": None, "b": None, "c": None, "d": "", "e": "null"}


def test_mappings_know_their_lines() -> None:
    document = YamlDocument([b"x: 1\njobs:\n- id: a\n  uses:\n  - lfn: f\n- {id: b}\n"])
    found: list[tuple[str, int, Any]] = []
    for key, line in document.pairs():
        found += [(key, at, value) for at, value in document.elements()] if key == "jobs" else [(key, line, document.value())]
    assert [(key, line) for key, line, _ in found] == [("x", 1), ("jobs", 3), ("jobs", 6)]
    first = found[1][2]
    assert isinstance(first, Map)
    assert first.line == 3
    assert first["uses"][0].line == 5


def test_a_value_that_is_not_asked_for_is_skipped() -> None:
    document = YamlDocument([b"a: {b: [1, 2, {c: d}]}\nz: 1\n"])
    assert [key for key, _ in document.pairs()] == ["a", "z"]


def test_elements_of_an_aliased_list_and_of_nothing() -> None:
    document = YamlDocument([b"a: &x [1, 2]\nb: *x\nc:\n"])
    assert [[value for _, value in document.elements()] for _ in document.pairs()] == [["1", "2"], ["1", "2"], []]


def test_merging() -> None:
    text = "base: &b {x: 1, y: 2}\none:\n  <<: *b\n  y: 3\ntwo:\n  <<: [*b, {z: 4}]\nthree: {'<<': 5}\n"
    assert read(text) == {
        "base": {"x": "1", "y": "2"}, "one": {"x": "1", "y": "3"}, "two": {"x": "1", "y": "2", "z": "4"}, "three": {"<<": "5"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 0, "empty"),
        ("a: 1\na: 2\n", 2, "'a' appears twice"),
        ("x:\n  b: 1\n  b: 2\n", 3, "'b' appears twice"),
        ("a: &x [1, *x]\n", 1, "*x stands for nothing"),
        ("a: !!python/object/apply:os.system [id]\n", 1, "!!python/object/apply:os.system is not allowed"),
        ("a: !mine 1\n", 1, "!mine is not allowed"),
        ("!!python/tuple\na: 1\n", 1, "!!python/tuple is not allowed"),
        ("? !!python/name:os.system\n: 1\n", 1, "is not allowed"),
        ("a: [1,\n", 2, "not valid YAML"),
        ("a:\n\t- b\n", 2, "cannot start any token"),
        ("- a\n", 1, "must be a mapping"),
        ("a: 1\n---\nb: 2\n", 2, "second YAML document"),
        ("? [a]\n: 1\n", 1, "a key must be a word"),
        ("a: 1\nb: \x01\n", 2, "control characters"),
        ("a: <<\nb: {<<: 1}\n", 2, "only mappings can be merged"),
    ],
)
def test_what_is_refused(text: str, line: int, words: str) -> None:
    with pytest.raises(YamlError, match=words.replace("*", "\\*").replace("[", "\\[")) as caught:
        read(text)
    assert caught.value.line == line


def test_bytes_that_are_not_utf8_have_a_line() -> None:
    with pytest.raises(YamlError, match="UTF-8") as caught:
        read(b"a: 1\nb: \xff\n")
    assert caught.value.line == 2


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "a:\n" + "".join(f"{' ' * n}- \n" for n in range(1, 300)), "a: " + "{b: " * 5000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(YamlError):
        read(text)


def test_nested_deeply_in_blocks() -> None:
    with pytest.raises(YamlError, match="deeper than 100"):
        read("".join(f"{' ' * n}k:\n" for n in range(200)) + " " * 200 + "v\n")


def test_an_alias_bomb_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    before = time.monotonic()
    with pytest.raises(YamlError, match=f"more than {ALIASED_MAX:,} values"):
        read("\n".join(lines))
    assert time.monotonic() - before < 5


def test_a_long_list_named_often_is_counted_each_time() -> None:
    text = "l: &l [" + ", ".join(["x"] * 1000) + "]\nj:\n" + "- *l\n" * (ALIASED_MAX // 1000 + 1)
    with pytest.raises(YamlError, match="aliases multiply"):
        read(text)


def test_one_value_is_bounded_but_a_list_taken_piece_by_piece_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amfs.translate.yaml_stream.VALUES_MAX", 100)
    text = "jobs:\n" + "- [a, b, c]\n" * 1000
    with pytest.raises(YamlError, match="more than 100 values in one"):
        read(text)
    document = YamlDocument([text.encode()])
    assert [len(list(document.elements())) for _ in document.pairs()] == [1000]


odd_words = st.sampled_from(["a: b", "- x", "#c", "'q'", '"', "&a", "*a", "~"])
leaves = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12) | odd_words
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(leaves, inner, max_size=4), max_leaves=20)


@given(st.dictionaries(leaves, values, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_reads_what_pyyaml_writes(data: dict[str, Any], flow: bool, ascii_only: bool) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=not ascii_only)
    assert _without_none(read(text)) == _without_none(yaml.load(text, yaml.BaseLoader))


def _without_none(value: Any) -> Any:
    """BaseLoader reads nothing as the empty text."""
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_none(each) for each in value]
    return "" if value in (None, "~", "null", "Null", "NULL") else value


@given(st.binary(max_size=60) | st.text("ab:-[]{}&*!#|>\"'\n\t ,?%@0", max_size=60).map(str.encode))
def test_any_bytes_end_in_values_or_an_error(data: bytes) -> None:
    try:
        read(data)
    except YamlError as error:
        assert "\n" not in str(error)
