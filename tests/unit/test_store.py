"""A node's store: the caller that deletes does not wait until it is done."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from amfs.host import orphans
from amfs.node.store import Store
from amfs.vocabulary.events import StoreInline


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store("test", 0, str(orphans.SHM) if os.access(orphans.SHM, os.W_OK) else "")
    yield store
    store.close()


def put(store: Store, key: str, data: bytes = b"x") -> None:
    store.write(StoreInline(key, data, 0o444))


def aside(store: Store) -> list[Path]:
    return [path for path in Path(store.aside).rglob("*") if path.is_file()]


def test_the_files_of_a_run_lose_their_names_at_once_and_go_by_a_thread(store: Store) -> None:
    for number in range(10):
        put(store, f"1/{number}/name")
    free = threading.Event()
    store.remover.submit(free.wait)
    store.drop_scope("1/")
    assert not list(store.inventory("1/"))
    put(store, "1/again")  # nobody takes it for what goes
    assert len(aside(store)) == 10, "they were deleted while the poll loop waited"
    free.set()
    until(lambda: not os.listdir(store.aside), "they are not deleted at all")
    assert [key for key, *_ in store.inventory("1/")] == ["1/again"]
    store.drop_scope("2/")  # of which nothing was ever here


def test_large_files_likewise(store: Store) -> None:
    put(store, "1/large")
    put(store, "1/small")
    fd = os.open(store.path_of("1/large"), os.O_WRONLY)
    os.posix_fallocate(fd, 0, 65 << 20)
    os.close(fd)
    free = threading.Event()
    store.remover.submit(free.wait)
    store.delete(["1/large", "1/small", "1/none"])
    assert not list(store.inventory("1/"))
    assert len(aside(store)) == 1
    free.set()
    until(lambda: not os.listdir(store.aside), "it is not deleted at all")


def test_a_store_that_is_closed_meanwhile_leaves_nothing(store: Store) -> None:
    for number in range(1000):
        put(store, f"1/{number}")
    store.drop_scope("1/")
    store.close()
    store.remover.shutdown()
    assert not store.path.exists()


def test_what_was_set_aside_is_brought_in_as_far_as_there_is_room(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        put(store, f"1/d/{name}", name.encode())
    assert store.set_aside("1/", tmp_path / "aside") == (3, 3)
    store.drop_scope("1/")
    copy, copied = shutil.copy2, []

    def copy_until_full(source: str, target: str) -> None:
        copy(source, target)
        copied.append(target)
        if len(copied) == 2:
            raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(shutil, "copy2", copy_until_full)
    store.take_back(tmp_path / "aside")
    assert len(list(store.inventory("1/"))) == 1, "no file that is there in part"
    assert store.adopted and not (tmp_path / "aside").exists()


def test_a_spilled_file_that_the_disk_has_lost_is_none(store: Store, tmp_path: Path) -> None:
    put(store, "1/a")
    put(store, "1/b", b"bytes")
    (tmp_path / "1f").write_bytes(b"bytes")
    for name, there in (("a", tmp_path / "gone"), ("b", tmp_path / "1f")):
        link = Path(store.back) / "1f"
        link.symlink_to(there)
        store.replace(str(link), f"1/{name}")
    assert [(key, size) for key, size, _ in store.inventory("1/")] == [("1/b", 5)]
    assert not os.path.lexists(store.path_of("1/a")), "another one can be made in its place"
