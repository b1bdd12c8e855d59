"""Splitting and quoting: as a POSIX shell does it, and every word has a form on one line."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workflow_strategies import any_words

from amfs.translate.shell_quoting import QuotingError, Word, quote, split


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  a \t b  ", ["a", "b"]),
        ("a'b c'd", ["ab cd"]),
        ("''", [""]),
        ("a '' b", ["a", "", "b"]),
        (r'"a\"b" "\$x" "\n" "`"', ['a"b', "$x", r"\n", "`"]),
        (r"a\ b \'", ["a b", "'"]),
        ("$HOME *.c ~", ["$HOME", "*.c", "~"]),
        (r"$'a\nb\t\x41\101\'' $'\xe2\x82\xac' $'\u20ac'", ["a\nb\tAA'", "€", "€"]),
        (r"$'\q\e\cA'", ["\\q\x1b\x01"]),
        ("a$'b'c$d", ["abc$d"]),
        ("a\u00a0b\x0bc", ["a\u00a0b\x0bc"]),  # blanks are space and tab only
        ("#x a#b", ["#x", "a#b"]),
    ],
)
def test_split(line: str, words: list[str]) -> None:
    assert split(line) == words


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a 'b c", "the quote ' in column 3 is not closed"),
        ('a "b', 'the quote " in column 3 is not closed'),
        ("x $'a\\'", "the quote ' in column 4 is not closed"),
        ("a\\", "a backslash ends the line"),
        (r"$'\0'", "NUL"),
        (r"$'\ud800'", "no character"),
    ],
)
def test_broken_quotes_are_named(line: str, says: str) -> None:
    with pytest.raises(QuotingError) as caught:
        split(line)
    assert says in str(caught.value)


def test_only_quoted_words_are_marked() -> None:
    words = split(r"-a '-a' \-a x")
    assert words == ["-a", "-a", "-a", "x"]
    assert [isinstance(word, Word) for word in words] == [False, True, True, False]


@given(st.lists(any_words, max_size=6))
def test_quoted_words_come_back(words: list[str]) -> None:
    line = " ".join(map(quote, words))
    assert split(line) == words
    assert "\n" not in line
    assert "\r" not in line


@given(st.text("ab '\"\\\t", max_size=12))
def test_splits_as_a_posix_shell(line: str) -> None:
    try:
        expected = shlex.split(line, comments=False)
    except ValueError:
        with pytest.raises(QuotingError):
            split(line, ansi=False)
    else:
        assert split(line, ansi=False) == expected


def test_a_nul_has_no_form() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote("a\0b")


def test_plain_words_stay_readable() -> None:
    assert quote("dir/file-1.fits") == "dir/file-1.fits"
    assert quote("{in}") == "{in}"
    assert quote("-x") == "-x"
    assert quote("-x", option_like=True) == "'-x'"
    assert quote("größe") == "größe"
