"""What lies below a key, as a directory: its files and empty directories, and one identity for all of them.

Owns the names that such a directory has here, and those that it cannot have. Must not know: sessions, runs, where it is put.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from amfs._native import xxh64
from amfs.remote.place import Found, Kind, Remote, RemoteError
from amfs.remote.systems import System, name_of

if TYPE_CHECKING:
    from amfs.remote.opening import Place

TOGETHER = 16  # transfers of one directory


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


def fetch(place: Place, listed: Tree, into: str, fetched: Callable[[Found, str], None]) -> None:
    """Bring all of it into the empty directory ``into``, many objects at a time, each tried again as others are; ``fetched`` brings one.
    Raises OSError with the first fault: nothing else is begun then."""
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
    if tree(place).identity != listed.identity:
        raise RemoteError(Kind.CHANGED, place.remote.url(place.key))
