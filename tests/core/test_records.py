"""Packed task records: they come out as they went in, and the native launcher takes them and refuses damaged ones."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amfs._native import Launcher
from amfs.vocabulary.records import HEADER, STAGED, pack_body, pack_record, unpack_body, unpack_record

quickly = settings(max_examples=150, deadline=None)

#: Words as they come from a command line: any bytes but NUL, those that are not UTF-8 as lone surrogates.
words = st.one_of(
    st.binary(max_size=8).filter(lambda raw: b"\0" not in raw).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
    st.sampled_from(["", " ", "\n", "é", "日本", "\udcff\udc80", "@", "-", "=", "a" * 5000]),
)
names = words.filter(bool)
numbers = st.integers(0, (1 << 32) - 1)
bodies = st.fixed_dictionaries(
    {"env": st.lists(words, max_size=3), "cwd": words, "stdin": words, "stdout": words, "stderr": words},
)


@quickly
@given(words, st.lists(words, max_size=5), bodies)
def test_a_command_comes_out_as_it_went_in(program: str, argv: list[str], rest: dict[str, Any]) -> None:
    assert unpack_body(pack_body(program, argv, **rest)) == (program, argv, rest)


@pytest.mark.parametrize("place", ["program", "argv", "env", "cwd", "stdin", "stdout", "stderr"])
def test_a_nul_is_refused_wherever_it_is(place: str) -> None:
    parts: dict[str, Any] = {"program": "/bin/p", "argv": ["p"], "env": [], "cwd": "", "stdin": "", "stdout": "", "stderr": ""}
    parts[place] = ["a\0b"] if isinstance(parts[place], list) else "a\0b"
    with pytest.raises(ValueError, match="NUL"):
        pack_body(parts.pop("program"), parts.pop("argv"), **parts)


@quickly
@given(
    st.integers(0, (1 << 64) - 1), st.lists(words, max_size=3), numbers, st.lists(st.tuples(names, names), max_size=4),
    st.lists(st.tuples(names, words), max_size=4), st.integers(0, (1 << 64) - 1), st.booleans(),
)  # fmt: skip
def test_a_record_comes_out_as_it_went_in(
    serial: int, argv: list[str], number: int, inputs: list[tuple[str, str]], outputs: list[tuple[str, str]], big: int, stamped: bool
) -> None:
    body = pack_body("/bin/p", argv)
    stamps = [(big, i) for i in range(len(inputs))]
    more = {"stamps": stamps} if stamped else {}
    packed = pack_record(
        serial, body, flags=7, context=number, cores=3, memory=big, time_limit_ms=number, depth=2, capture=number,
        inputs=inputs, outputs=outputs, **more,
    )  # fmt: skip
    record = unpack_record(packed)
    assert (record.serial, record.flags, record.context, record.cores, record.memory) == (serial, 7, number, 3, big)
    assert (record.time_limit_ms, record.depth, record.capture, record.body) == (number, 2, number, body)
    assert (list(record.inputs), list(record.outputs)) == (inputs, outputs)
    assert list(record.stamps) == (stamps if stamped else [(0, 0)] * len(inputs))


@quickly
@given(st.integers(1, 200))
def test_a_torn_record_is_noticed(missing: int) -> None:
    packed = pack_record(1, pack_body("/bin/p", ["p", "x" * 50]), inputs=[("/store/a", "a")], outputs=[("b", "/store/b")])
    with pytest.raises((ValueError, struct.error)):
        unpack_record(packed[:-missing])


# ── the other half of the contract ─────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """A real launcher whose only slot is taken: it does not start the tasks that it takes in."""
    root: Path = tmp_path_factory.mktemp("records")
    for directory in ("sandboxes", "base"):
        (root / directory).mkdir()
    launcher = Launcher(1, sandbox_dir=str(root / "sandboxes"), log_dir=str(root / "logs"))
    launcher.set_context(1, str(root / "base"), ["PATH=/bin"])
    launcher.submit([pack_record(1 << 40, pack_body("/bin/sleep", ["sleep", "1000"]), context=1, flags=0)])
    yield launcher
    launcher.stop()


serials = iter(range(1, 1 << 30))


def taken(launcher: Launcher, *records: bytes) -> int:
    """How many of them the launcher queues; they are withdrawn again before they could run."""
    before = launcher.queued()
    launcher.submit(records)
    count = launcher.queued() - before
    launcher.withdraw(count)
    return count


def files(pairs: list[tuple[str, str]], where: str) -> list[tuple[str, str]]:
    """Names in a sandbox must be plain: each pair gets one, and keeps its other half."""
    return [(f"/{other}", f"{where}{i}") for i, (other, _) in enumerate(pairs)]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(argv=st.lists(words, min_size=1, max_size=4), env=st.lists(words, max_size=2), pairs=st.lists(st.tuples(names, names), max_size=4))
def test_the_launcher_takes_what_is_packed(launcher: Launcher, argv: list[str], env: list[str], pairs: list[tuple[str, str]]) -> None:
    inputs = files(pairs, "in")
    outputs = [(name, path) for path, name in files(pairs, "out")]
    entries = [f"K{entry}=v" for entry in env if "=" not in entry]
    body = pack_body("/bin/true", argv, env=entries)
    assert taken(launcher, pack_record(next(serials), body, context=1, inputs=inputs, outputs=outputs)) == 1


GOOD = pack_record(
    7, pack_body("/bin/true", ["true", "x"], env=["K=V"]), context=1, inputs=[("/store/a", "a")], outputs=[("b", "/store/b")],
)  # fmt: skip
FIELDS = (
    "length", "flags", "serial", "context", "cores", "memory", "time_limit_ms", "depth", "argc", "envc", "inputs", "outputs", "capture",
    "body",
)  # fmt: skip


def damaged(**fields: int) -> bytes:
    """The good record with other values in its header."""
    values = dict(zip(FIELDS, HEADER.unpack_from(GOOD), strict=True))
    return HEADER.pack(*(values | fields).values()) + GOOD[HEADER.size :]


def test_the_good_record_is_taken(launcher: Launcher) -> None:
    assert taken(launcher, GOOD) == 1
    assert damaged() == GOOD


@pytest.mark.parametrize(
    "record",
    [
        b"",
        GOOD[:79],
        GOOD[:-1],
        GOOD + b"\0",
        damaged(length=len(GOOD) + 1),
        damaged(length=0),
        damaged(argc=0),
        damaged(argc=3),
        damaged(argc=(1 << 32) - 1),
        damaged(envc=0),
        damaged(inputs=0),
        damaged(inputs=2),
        damaged(inputs=(1 << 32) - 1),
        damaged(outputs=0),
        damaged(outputs=(1 << 31) + 1),
        damaged(body=0),
        damaged(body=len(GOOD)),
        damaged(body=(1 << 32) - 1),
        damaged(context=99),
        GOOD[:-1] + b"x",
    ],
    ids=repr,
)
def test_a_damaged_record_is_refused_with_all_that_came_with_it(launcher: Launcher, record: bytes) -> None:
    before = launcher.queued()
    with pytest.raises(ValueError) as caught:
        launcher.submit([GOOD, record])
    assert str(caught.value), "it names the fault"
    assert launcher.queued() == before
    assert not launcher.completions()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, HEADER.size - 17), value=st.integers(0, 255), cut=st.integers(0, 30))
def test_the_launcher_survives_any_damage(launcher: Launcher, at: int, value: int, cut: int) -> None:
    """Whatever the header says, the record is taken or refused; memory outside it is never touched (the sanitiser build watches)."""
    record = bytearray(GOOD[: len(GOOD) - cut])
    record[at] = value
    before = launcher.queued()
    try:
        launcher.submit([bytes(record)])
    except ValueError as error:
        assert str(error)
        assert launcher.queued() == before
    else:
        launcher.withdraw(launcher.queued() - before)


def test_staged_is_what_packing_means_unless_told() -> None:
    assert unpack_record(pack_record(1, pack_body("/bin/p", ["p"]))).flags == STAGED
