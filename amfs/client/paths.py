"""Paths in the session's file system as people write them. Pure.

``amfs:/a/b`` and ``amfs:///a/b`` lie in the session that is meant anyway, ``amfs://lab/a/b`` in the session ``lab``.
"""

from __future__ import annotations

import os
import posixpath
from typing import NamedTuple

SCHEME = "amfs:"


class Place(NamedTuple):
    """``session`` None: the one that is meant anyway. ``directory``: written with a slash at its end."""

    session: str | None
    path: bytes
    directory: bool = False


def clean(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> bytes:
    """``path`` as it travels: absolute (there is no current directory, so a relative one starts at the root), without empty parts, "." and
    "..". The latter are taken as written, before any symbolic link is followed. Raises ValueError for a NUL."""
    raw = os.fsencode(os.fspath(path))
    if raw.startswith(b"amfs:"):
        place = parse(os.fsdecode(raw))
        assert place is not None
        return place.path
    if b"\0" in raw:
        raise ValueError("embedded null byte")
    # normpath keeps two slashes at the front, which mean nothing here
    return posixpath.normpath(b"/" + raw.lstrip(b"/"))


def parse(text: str) -> Place | None:
    """The place that a path names which begins with ``amfs:``; None if it does not begin so."""
    if not text.startswith(SCHEME):
        return None
    rest = text[len(SCHEME) :]
    session = None
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        session, rest = host or None, slash + tail
    return Place(session, clean(os.fsencode("/" + rest.lstrip("/"))), not rest or rest.endswith("/"))


def join(directory: bytes, name: bytes) -> bytes:
    """The path of ``name`` in ``directory``, both clean."""
    return directory + name if directory == b"/" else directory + b"/" + name


def below(path: bytes, directory: bytes) -> bool:
    """Whether ``path`` is ``directory`` or lies below it, both clean."""
    return path == directory or path.startswith(directory if directory == b"/" else directory + b"/")
