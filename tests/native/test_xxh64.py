"""XXH64 and partitions() against golden vectors and the xxhash package."""

from __future__ import annotations

import array

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from amfs._native import partitions, xxh64

# The reference's own vectors: seed 0 and a prime, over the generator of its sanity check.
PRIME32 = 2654435761
GOLDEN = [
    (b"", 0, 0xEF46DB3751D8E999),
    (b"a", 0, 0xD24EC4F1A98C6E5B),
    (b"abc", 0, 0x44BC2CF5AD770999),
    (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    (b"xxhash", 0, 0x32DD38952C4BC720),
    (b"xxhash", 20141025, 0xB559B98D844E0635),
    (b"", PRIME32, 0xAC75FDA2929B17EF),
]


@pytest.mark.parametrize(("data", "seed", "value"), GOLDEN)
def test_golden_vectors(data: bytes, seed: int, value: int) -> None:
    assert xxh64(data, seed) == value


@pytest.mark.parametrize("length", range(200))
def test_every_tail_length(length: int) -> None:
    data = bytes((i * 37 + length) & 0xFF for i in range(length))
    assert xxh64(data) == xxhash.xxh64_intdigest(data)
    assert xxh64(memoryview(b"?" + data)[1:], 7) == xxhash.xxh64_intdigest(data, 7)


@given(st.binary(max_size=5000), st.integers(min_value=0, max_value=2**64 - 1))
def test_bytes_like_the_reference(data: bytes, seed: int) -> None:
    assert xxh64(data, seed) == xxhash.xxh64_intdigest(data, seed)
    assert xxh64(data, seed=seed) == xxh64(bytearray(data), seed)


@given(st.text())
def test_text_is_hashed_as_utf8(text: str) -> None:
    assert xxh64(text) == xxhash.xxh64_intdigest(text.encode())


def test_a_name_that_is_not_utf8_is_hashed_as_its_bytes() -> None:
    raw = b"image-\xff\xfe.fits"
    assert xxh64(raw.decode("utf-8", "surrogateescape")) == xxhash.xxh64_intdigest(raw)


def test_a_megabyte() -> None:
    data = bytes(range(256)) * 4096
    assert xxh64(data) == xxhash.xxh64_intdigest(data)


@given(st.lists(st.text(max_size=40)), st.integers(min_value=1, max_value=2**40))
def test_partitions(names: list[str], count: int) -> None:
    assert partitions(names, count) == [xxhash.xxh64_intdigest(name.encode()) % count for name in names]
    assert partitions(tuple(names), count) == partitions(names, count)


@pytest.mark.parametrize(
    ("data", "error"), [(12, TypeError), (None, TypeError), (memoryview(array.array("i", range(8)))[::2], BufferError)]
)
def test_what_cannot_be_hashed(data: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        xxh64(data)  # type: ignore[arg-type]


def test_arguments_out_of_range() -> None:
    with pytest.raises(OverflowError):
        xxh64(b"", -1)
    with pytest.raises(OverflowError):
        xxh64(b"", 2**64)
    with pytest.raises(ValueError, match="at least 1"):
        partitions(["a"], 0)
    with pytest.raises(TypeError):
        partitions([1], 4)  # type: ignore[list-item]
