"""Objects below a key, as a directory: files and empty directories, and one identity for all of them. Directories are put there, too.

Owns the names that such a directory has here, those that it cannot have, and the record of what amfs has put there. Must not know:
sessions, runs, where a directory is put or comes from.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from amfs._native import xxh64
from amfs.host.trees import files_below
from amfs.remote.place import Found, Kind, Remote, RemoteError
from amfs.remote.systems import System, name_of

if TYPE_CHECKING:
    from amfs.remote.opening import Place

TOGETHER = 16  # transfers of one directory
OURS = ".amfs-"  # names that begin so are no part of a directory
RECORD = OURS + "directory"  # beside the files of a directory that amfs has put there: which these are


class Record(msgspec.Struct):
    """Of the last publication that was brought to its end. ``files``: name -> size, identity."""

    files: dict[str, tuple[int, str]]


class Tree(NamedTuple):
    """``files``: their names below the directory, which are safe to make; ``directories``: those that are empty."""

    files: dict[str, Found]
    directories: list[str]
    size: int  # bytes
    identity: str  # of the names, sizes and identities of the files


def look(place: Place) -> Found | Tree:
    """The object, or the directory. Raises RemoteError: MISSING if it is neither."""
    remote, key = place
    if key and not key.endswith("/"):
        try:
            return remote.stat(key)
        except RemoteError as error:
            if error.kind is not Kind.MISSING or key.startswith(("http:", "https:")) or remote.url("").startswith(("http:", "https:")):
                raise  # a web server tells of directories only what a page with their names has
    return tree(place)


def tree(place: Place) -> Tree:
    """Raises RemoteError: MISSING if nothing is there, OTHER if it has names that files cannot have."""
    remote, key = place
    web = isinstance(remote, System) and key.startswith(("http:", "https:"))
    top = key.rstrip("/") + "/" if key.strip("/") else key
    files: dict[str, Found] = {}
    directories: list[str] = []
    for found in remote.list(top):
        if found.key == top.rstrip("/") and not found.size:
            directories.append("")  # it is there, though nothing may be in it
        if not found.key.startswith(top):
            continue
        name = name_of(found.key[len(top) :], web)
        parts = name.rstrip("/").split("/")
        if parts[-1].startswith(OURS):
            continue
        if name and any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise RemoteError(Kind.OTHER, remote.url(found.key), "no file can have this name")
        if not name or found.directory or name.endswith("/"):
            directories.append(name.rstrip("/"))
        else:
            files[name] = found
    if not files and not directories:
        raise RemoteError(Kind.MISSING, remote.url(key))
    above = {name[:end] for name in files for end, letter in enumerate(name) if letter == "/"}
    for name in sorted(above & files.keys()):
        if not _is_marker(remote, files.pop(name)):
            raise RemoteError(Kind.OTHER, remote.url(top + name), "it is an object, and others lie below it as in a directory")
    return _tree(files, directories)


def _tree(files: dict[str, Found], directories: list[str]) -> Tree:
    lines = [f"{name}\0{files[name].size}\0{files[name].identity}" for name in sorted(files)]
    lines += [f"{name}/" for name in sorted(directories)]
    identity = f"{xxh64(chr(10).join(lines).encode(errors='surrogateescape')):016x}"
    return Tree(files, directories, sum(one.size for one in files.values()), identity)


def _is_marker(remote: Remote, found: Found) -> bool:
    """Is it a key that ends with a slash, as consoles make for a directory? obstore tells keys without the slash, and finds none such."""
    if found.size:
        return False
    try:
        remote.stat(found.key)
    except RemoteError as error:
        if error.kind is Kind.MISSING:
            return True
        raise
    return False


def fetch(place: Place, listed: Tree, into: str, fetched: Callable[[Found, str], None], again: Callable[[Place], Tree] | None) -> None:
    """Bring all of it into the empty directory ``into``, many objects at a time, each tried again as others are; ``fetched`` brings one.
    ``again`` lists as ``listed`` was; None: ``listed`` is what is wanted, and each object comes as it has it or not at all. Raises OSError
    with the first fault: nothing else is begun then."""
    from amfs.remote.transfers import Transfers

    for name in {*listed.directories, *(name.rpartition("/")[0] for name in listed.files)}:
        os.makedirs(f"{into}/{name}", exist_ok=True)

    def one(name: str) -> None:
        found = listed.files[name]
        if not found.size and _is_marker(place.remote, found):
            os.makedirs(f"{into}/{name}", exist_ok=True)
        else:
            fetched(found, f"{into}/{name}")

    for name, error in Transfers(min(TOGETHER, place.remote.at_once)).run(listed.files, one):
        if error is not None:
            raise OSError(error.errno, f"{name}: {error.strerror or error}")  # not again as a whole: it was tried often enough
    if again is not None and again(place).identity != listed.identity:
        raise RemoteError(Kind.CHANGED, place.remote.url(place.key))


# ── directories that amfs puts there ───────────────────────────────────────────────────────────────


def listing_of(sizes: Iterable[tuple[str, int]]) -> int:
    """Stands for the names and sizes of the files of a directory, in any order: as csrc/common/tree.c and csrc/launcher/record.h do it."""
    names = sum(xxh64(f"{name}\0{size}".encode(errors="surrogateescape")) for name, size in sizes)
    return 1 << 63 | names & (1 << 62) - 1


def made(place: Place, listing: int) -> Tree:
    """The directory that amfs has put there last, without what others have put beside its files. Raises RemoteError if it is not
    there as that any more, or is not the one of ``listing``."""
    remote, top = place.remote, place.key.rstrip("/") + "/"
    record = _read_record(place.remote, top)
    there = _below(place)
    files = {name: there[name] for name, kept in record.items() if name in there and _is_as(there[name], kept)}
    if len(files) != len(record) or listing_of((name, found.size) for name, found in files.items()) != listing:
        raise RemoteError(Kind.OTHER, remote.url(place.key), "what is there is not what the task has made")
    return _tree(files, [])


def publish(place: Place, source: str, stored: Callable[[str, str], Found]) -> int:
    """Put all files below ``source`` there, many at a time, and then the record of them. ``stored`` puts one, a path, to a key. Objects
    of an earlier publication that this one lacks and nobody has changed since are deleted. Returns the bytes. Raises OSError with the first
    fault: nothing else is begun then."""
    from amfs.remote.transfers import Transfers

    remote, top = place.remote, place.key.rstrip("/") + "/"
    _refuse_object(place)
    names = [f"{directory}/{name}"[len(source) + 1 :] for directory, name in files_below(source)]
    for name in names:
        if not _is_text(name):
            raise RemoteError(Kind.OTHER, remote.url(top), f"the name {os.fsencode(name)!r} is no UTF-8")
    before = _read_record(remote, top)
    now: dict[str, tuple[int, str]] = {}
    transfers = Transfers(min(TOGETHER, remote.at_once))
    for name, result in transfers.run(names, lambda name: stored(f"{source}/{name}", top + name)):
        if isinstance(result, OSError):
            raise OSError(result.errno or errno.EIO, f"{name}: {result.strerror or result}")
        now[name] = result.size, result.identity
    old = [name for name in before if name not in now]
    there = _below(place) if old else {}
    ours = [there[name].key for name in old if name in there and before[name][1] and _is_as(there[name], before[name])]
    for key, gone in transfers.run(ours, remote.delete):
        if isinstance(gone, RemoteError) and gone.kind is not Kind.MISSING:
            raise OSError(gone.errno, f"{key[len(top) :]}, of an earlier run, cannot be removed: {gone.strerror}")
    content = msgspec.json.encode(Record(now))
    for _, last in transfers.run((RECORD,), lambda name: remote.write(top + name, [content], len(content))):
        if isinstance(last, OSError):
            raise OSError(last.errno or errno.EIO, f"{RECORD}: {last.strerror or last}")
    return sum(size for size, _ in now.values())


def _refuse_object(place: Place) -> None:
    remote, key = place.remote, place.key.rstrip("/")
    try:
        remote.stat(key)
    except RemoteError as error:
        if error.kind is Kind.MISSING:
            return
        raise
    raise RemoteError(Kind.OTHER, remote.url(key), "it is an object, and a directory is to be put there")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _below(place: Place) -> Mapping[str, Found]:
    """The files of the directory, of whomever; none if there is nothing."""
    remote, top = place.remote, place.key.rstrip("/") + "/"
    try:
        return {one.key[len(top) :]: one for one in remote.list(top) if one.key.startswith(top) and not one.directory}
    except RemoteError as error:
        if error.kind is Kind.MISSING:
            return {}
        raise


def _read_record(remote: Remote, top: str) -> dict[str, tuple[int, str]]:
    """Empty if there is none that can be understood: then nothing is known to be ours."""
    try:
        return msgspec.json.decode(b"".join(remote.read(remote.stat(top + RECORD))), type=Record).files
    except RemoteError as error:
        if error.kind is Kind.MISSING:
            return {}
        raise
    except msgspec.DecodeError:
        return {}


def _is_as(found: Found, kept: tuple[int, str]) -> bool:
    return found.size == kept[0] and (not kept[1] or found.identity == kept[1])
