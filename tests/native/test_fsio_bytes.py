"""The data plane through Python: random operations on files of one, of several and of all nodes, against plain bytes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest
from fsio_nodes import APPEND, GREW, LOCAL, PARTITIONS, REMOTE, STRIPED, WHOLE, Nodes, content
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amfs._native import IoHandle

STRIPE = 4096
PUNCH = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
KEEP = 1


# ── against plain bytes ────────────────────────────────────────────────────────────────────────────

SPAN = 6 * STRIPE
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, SPAN), st.integers(1, 3 * STRIPE)),
        st.tuples(st.just("append"), st.integers(1, 2 * STRIPE), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, SPAN), st.just(0)),
        st.tuples(st.just("punch"), st.integers(0, SPAN), st.integers(1, SPAN)),
        st.tuples(st.just("allocate"), st.integers(0, SPAN), st.integers(1, STRIPE)),
        st.tuples(st.just("keep"), st.integers(0, SPAN), st.integers(1, STRIPE)),
        st.tuples(st.just("read"), st.integers(0, SPAN), st.integers(0, 2 * SPAN)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
    ),
    max_size=14,
)


def act(handle: IoHandle, model: bytearray, operation: tuple[str, int, int], seed: int) -> None:
    """One operation on both; they must agree."""
    what, first, second = operation
    if what in ("write", "append"):
        data = content(second if what == "write" else first, seed)
        offset = first if what == "write" else len(model)
        handle.write(data, first if what == "write" else APPEND)
        if len(model) < offset:
            model.extend(bytes(offset - len(model)))
        model[offset : offset + len(data)] = data
    elif what == "truncate":
        handle.truncate(first)
        model[:] = model[:first] + bytes(max(0, first - len(model)))
    elif what == "punch":
        handle.fallocate(PUNCH, first, second)
        end = min(first + second, len(model))
        model[first:end] = bytes(max(0, end - first))
    elif what in ("allocate", "keep"):
        handle.fallocate(0 if what == "allocate" else KEEP, first, second)
        if what == "allocate" and first + second > len(model):
            model.extend(bytes(first + second - len(model)))
    elif what == "read":
        assert handle.read(second, first) == bytes(model[first : first + second])
    else:
        handle.flush()
    assert handle.stat()[0] == len(model)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    it = Nodes(tmp_path_factory.mktemp("shared"), 3)
    yield it
    it.stop()


@pytest.mark.parametrize("kind", ["local", "striped", "remote to local", "remote to striped"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_files_are_what_plain_bytes_are(shared: Nodes, kind: str, operations: list[tuple[str, int, int]]) -> None:
    ino, model = shared.new(), bytearray()
    base = STRIPED if "striped" in kind else LOCAL
    home = shared.io[0].open(ino, base, stripe=STRIPE, writing=True, create=True)
    handle = shared.io[1].open(ino, REMOTE, 0, writing=True) if "remote" in kind else home
    for seed, operation in enumerate(operations):
        act(handle, model, operation, seed)
    for other in (home, handle):
        assert other.read(2 * SPAN + len(model), 0) == bytes(model)
    if handle is not home:
        handle.close()
    home.close()
    if base == STRIPED:
        assert shared.read(2, ino, STRIPED, len(model), stripe=STRIPE) == bytes(model)
        for i in range(3):
            assert all(size <= STRIPE for size in shared.parts(i, ino).values())
            assert all(index * STRIPE < len(model) for index in shared.parts(i, ino))
    else:
        assert shared.read(0, ino, LOCAL, len(model)) == bytes(model)
    for io in shared.io:
        io.part_delete(ino)
        io.take()


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Node 0 may keep 10 pages and owns every eighth stripe."""
    it = Nodes(tmp_path_factory.mktemp("narrow"), 3, [10 * STRIPE, 0, 0])
    it.set_table([0 if p % 8 == 0 else 1 + p % 2 for p in range(PARTITIONS)])
    yield it
    it.stop()


@pytest.mark.parametrize("through", [0, 1])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_files_that_grow_are_what_plain_bytes_are(narrow: Nodes, through: int, operations: list[tuple[str, int, int]]) -> None:
    ino, model = narrow.new(), bytearray()
    home = narrow.io[0].open(ino, LOCAL, stripe=STRIPE, writing=True, create=True)
    handle = narrow.io[1].open(ino, REMOTE, 0, writing=True) if through else home
    for seed, operation in enumerate([*operations, ("write", 0, 12 * STRIPE), *operations]):
        act(handle, model, operation, seed)
    assert home.read(10 * SPAN + len(model), 0) == bytes(model)
    if through:
        handle.close()
    home.close()
    assert WHOLE not in narrow.parts(0, ino)
    assert narrow.read(2, ino, STRIPED, len(model), stripe=STRIPE) == bytes(model)
    assert narrow.io[0].usage()[0] == narrow.bytes_on_disk(0) <= 10 * STRIPE
    for io in narrow.io:
        io.part_delete(ino)
    assert [event[0] for event in narrow.io[0].take()].count(GREW) == 1


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=5),
    start=st.integers(0, 40 * STRIPE),
    size=st.integers(0, 40 * STRIPE),
)
def test_data_and_holes_are_found(shared: Nodes, pieces: list[tuple[int, int]], start: int, size: int) -> None:
    """Holes by seek read as zeros, written bytes are data."""
    ino, model = shared.new(), bytearray(size)
    handle = shared.io[0].open(ino, STRIPED, stripe=3 * STRIPE, writing=True)
    handle.truncate(size)
    written: set[int] = set()
    for page, count in pieces:
        act(handle, model, ("write", page * STRIPE, count * STRIPE), page)
        written |= set(range(page, page + count))

    def seek(whence: int) -> int | None:
        try:
            return handle.seek(start, whence)
        except OSError as error:
            assert error.errno == errno.ENXIO
            return None

    data, hole = seek(os.SEEK_DATA), seek(os.SEEK_HOLE)
    first = min((max(start, page * STRIPE) for page in written if (page + 1) * STRIPE > start), default=None)
    assert data == first
    if start >= len(model):
        assert hole is None
    else:
        assert hole is not None and (hole == len(model) or not any(model[hole : hole // STRIPE * STRIPE + STRIPE]))
        assert all(page in written for page in range(start // STRIPE, hole // STRIPE))
    handle.close()
