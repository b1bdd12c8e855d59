"""Processes that do the same at the same time, on one node and on two: of what only one may do exactly one does, and nothing is lost."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROCESSES = 4
PATIENCE_S = 90.0

context = multiprocessing.get_context("fork")


def together(work: Callable[..., Any], places: list[Path], *arguments: Any) -> list[Any]:
    """``work(place, number, *arguments)`` in several processes that begin at once, in turn on the mounts; the result of each."""
    ready, answers = context.Barrier(PROCESSES), context.Queue()

    def one(number: int) -> None:
        ready.wait(PATIENCE_S)
        try:
            answers.put((number, work(places[number % len(places)], number, *arguments)))
        except BaseException as error:
            answers.put((number, f"{type(error).__name__}: {error}"))

    processes = [context.Process(target=one, args=(number,)) for number in range(PROCESSES)]
    for process in processes:
        process.start()
    end = time.monotonic() + PATIENCE_S
    try:
        found = dict(answers.get(timeout=max(0.1, end - time.monotonic())) for _ in processes)
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    return [found[number] for number in range(PROCESSES)]


def won(call: Callable[..., Any], *arguments: Any) -> int:
    """1 when it was we who did it. Other errors than those of having lost are raised."""
    try:
        call(*arguments)
    except (FileExistsError, FileNotFoundError):
        return 0
    return 1


@pytest.fixture
def places(mounts: list[Path]) -> Iterator[list[Path]]:
    """A fresh directory, through each mount."""
    name = f"races-{os.urandom(4).hex()}"
    (mounts[0] / name).mkdir()
    yield [mount / name for mount in mounts]
    shutil.rmtree(mounts[0] / name)


def make_exclusively(place: Path, number: int, rounds: int) -> list[int]:
    return [won(lambda name: os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)), place / f"f{n}") for n in range(rounds)]


def make_directories(place: Path, number: int, rounds: int) -> list[int]:
    return [won(os.mkdir, place / f"d{n}") for n in range(rounds)]


def make_links(place: Path, number: int, rounds: int) -> list[int]:
    return [won(os.link, place / "source", place / f"l{n}") for n in range(rounds)]


def make_symlinks(place: Path, number: int, rounds: int) -> list[int]:
    return [won(os.symlink, str(number), place / f"s{n}") for n in range(rounds)]


def remove_files(place: Path, number: int, rounds: int) -> list[int]:
    return [won(os.unlink, place / f"f{n}") for n in range(rounds)]


def remove_directories(place: Path, number: int, rounds: int) -> list[int]:
    return [won(os.rmdir, place / f"d{n}") for n in range(rounds)]


def rename_away(place: Path, number: int, rounds: int) -> list[int]:
    return [won(os.rename, place / f"f{n}", place / f"mine{number}-{n}") for n in range(rounds)]


@pytest.mark.parametrize(
    ("work", "prepare"),
    [
        (make_exclusively, ""),
        (make_directories, ""),
        (make_links, ""),
        (make_symlinks, ""),
        (remove_files, "file"),
        (remove_directories, "directory"),
        (rename_away, "file"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_one_wins(places: list[Path], work: Callable[..., list[int]], prepare: str) -> None:
    rounds = 100
    (places[0] / "source").write_text("x")
    for number in range(rounds):
        if prepare == "file":
            (places[0] / f"f{number}").write_text(str(number))
        if prepare == "directory":
            (places[0] / f"d{number}").mkdir()
    results = together(work, places, rounds)
    assert all(isinstance(result, list) for result in results), results
    assert [sum(row) for row in zip(*results, strict=True)] == [1] * rounds
    names = [sorted(os.listdir(place)) for place in places]
    assert names[0] == names[-1]
    if work is rename_away:
        expected = ["source", *(f"mine{results.index(r)}-{n}" for r in results for n in range(rounds) if r[n])]
        assert names[0] == sorted(expected)
        assert all((places[-1] / name).read_text() == name.split("-")[1] for name in expected[1:])
    elif work is make_links:
        assert (places[-1] / "source").stat().st_nlink == rounds + 1
    elif prepare:
        assert names[0] == ["source"]
    else:
        assert len(names[0]) == rounds + 1


def append_records(place: Path, number: int, records: int) -> int:
    fd = os.open(place / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for record in range(records):
        os.write(fd, f"{number} {record:05d}\n".encode())
    os.close(fd)
    return records


def test_records_appended_at_once_are_all_there(places: list[Path]) -> None:
    """On one node. Writers on two nodes at a time are not coherent, by design."""
    assert together(append_records, places[:1], 300) == [300] * PROCESSES
    lines = (places[-1] / "log").read_text().splitlines()
    assert sorted(lines) == sorted(f"{number} {record:05d}" for number in range(PROCESSES) for record in range(300))
    for number in range(PROCESSES):
        assert [line for line in lines if line.startswith(f"{number} ")] == [f"{number} {record:05d}" for record in range(300)]


def replace_or_read(place: Path, number: int, rounds: int) -> int:
    """Two replace a file by renaming over it, two read it: never a piece, never nothing."""
    seen = 0
    for n in range(rounds):
        if number < 2:
            fresh = place / f"fresh{number}"
            fresh.write_bytes(bytes([65 + (n + number) % 26]) * (1000 + 700 * (n % 90)))
            os.rename(fresh, place / "shared")
        else:
            data = (place / "shared").read_bytes()
            size = len(data)
            assert size and data == data[:1] * size, f"{size} bytes of several files"
            assert (size - 1000) % 700 == 0, f"{size} bytes: a piece of a file"
            seen += 1
    return seen


def test_a_replaced_file_is_seen_whole(places: list[Path]) -> None:
    (places[0] / "shared").write_bytes(b"A" * 1000)
    # 0 and 2, the first writer and the first reader, are on one node; 1 and 3 on the other if there is one.
    assert together(replace_or_read, places, 150) == [0, 0, 150, 150]


def move_about(place: Path, number: int, rounds: int) -> int:
    """Renames of directories into each other, which must never make a circle, and of files between them."""
    done = 0
    for n in range(rounds):
        one, other = f"d{(number + n) % 3}", f"d{(number + n * 2 + 1) % 3}"
        for source, target in ((one, f"{other}/{one}"), (f"{other}/{one}", one), (f"{one}/f{n % 5}", f"{other}/f{n % 5}")):
            try:
                os.rename(place / source, place / target)
                done += 1
            except OSError as error:
                # Gone, there, no directory, into itself, not empty, in a circle of links; and, between the kernels of two nodes that both
                # have just moved it, stale.
                if error.errno not in (2, 17, 20, 22, 39, 40, 116):
                    raise
    return done


def test_directories_moved_into_each_other_make_no_circle(places: list[Path]) -> None:
    for directory in range(3):
        (places[0] / f"d{directory}").mkdir()
    for file in range(5):
        (places[0] / f"d{file % 3}" / f"f{file}").write_text(str(file))
    results = together(move_about, places, 120)
    assert all(isinstance(result, int) for result in results), results
    found = {}
    for place in places:
        found[place] = sorted(f"{os.path.relpath(top, place)}/{name}" for top, names, files in os.walk(place) for name in (*names, *files))
    listing = found[places[0]]
    assert found[places[-1]] == listing
    names = [path.rsplit("/", 1)[1] for path in listing]
    assert sorted(name for name in names if name[0] == "d") == ["d0", "d1", "d2"], listing
    # A file may be renamed over none of another name, so all five are still there.
    assert sorted(name for name in names if name[0] == "f") == [f"f{n}" for n in range(5)], listing


def make_and_remove(place: Path, number: int, rounds: int) -> int:
    for n in range(rounds):
        directory = place / "shared" / f"{number}"
        directory.mkdir()
        for file in range(5):
            (directory / f"f{file}").write_text(f"{number} {n} {file}")
        assert sorted(os.listdir(directory)) == [f"f{file}" for file in range(5)]
        assert (directory / "f3").read_text() == f"{number} {n} 3"
        os.rename(directory, place / "shared" / f"old{number}")
        shutil.rmtree(place / "shared" / f"old{number}")
    return rounds


def test_each_in_its_own_directory_is_not_disturbed(places: list[Path]) -> None:
    (places[0] / "shared").mkdir()
    assert together(make_and_remove, places, 30) == [30] * PROCESSES
    for place in places:
        assert os.listdir(place / "shared") == []
        assert (place / "shared").stat().st_nlink == 2


def write_own_part(place: Path, number: int, size: int) -> int:
    fd = os.open(place / "parts", os.O_RDWR)
    for piece in range(number, 64, PROCESSES):
        os.pwrite(fd, bytes([piece + 1]) * size, piece * size)
    os.close(fd)
    return 1


@pytest.mark.parametrize("size", [100, 4096, 50_000])
def test_parts_of_one_file_written_at_once(places: list[Path], size: int) -> None:
    """On one node, by descriptors of their own."""
    (places[0] / "parts").write_bytes(b"")
    assert together(write_own_part, places[:1], size) == [1] * PROCESSES
    assert (places[-1] / "parts").read_bytes() == b"".join(bytes([piece + 1]) * size for piece in range(64))
