"""Keys, names and paths. Pure.

A key is ``scope + name``; the scope of run 7 is ``"7/"``. A name is relative to the user's directory, or absolute.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

ABSOLUTE = "%abs"  # directory of the store in which absolute names live; "%" keeps it apart from what people write


_NO_PATH = re.compile(r"""[\s'"=;|&<>(),]+""")  # ends a path in a word of a command line, which may be a line for a shell
NAMESPACE = "amfs:/"  # names that begin so are paths of the session's file system


def in_namespace(name: str, start: int = 0) -> bool:
    """Is it the name of a file of the session's file system? ``start``: where the name begins in a key."""
    return name.startswith(NAMESPACE, start)


def namespace_path(name: str) -> bytes:
    """The path in the file system of such a name."""
    return name[len(NAMESPACE) - 1 :].encode(errors="surrogateescape")


_URL = re.compile(r"(?!amfs:|file:)([a-z][a-z0-9+.-]+):/+(?=[^/])")


def url_of(name: str) -> str:
    """The URL that a name stands for, which programs find in their directory as they wrote it (``s3:/bucket/key``); "": it is no URL."""
    if ":/" not in name:
        return ""
    found = _URL.match(name)
    return f"{found[1]}://{name[found.end() :]}" if found is not None else ""


def destination_at_url(name: str, places: Mapping[str, str]) -> str:
    """The URL to which an output goes; "": to none. ``places``: of names that people gave one."""
    return url_of(name) or (place if "://" in (place := places.get(name, "")) else "")


def is_brought(name: str, places: Mapping[str, str]) -> bool:
    """Is it an input that no program can read where it lies, so that every node brings it into its store? ``places``: of a catalog."""
    return in_namespace(name) or destination_at_url(name, places) != ""


def scope_of(run: int) -> str:
    """The scope of a run's keys."""
    return f"{run}/"


def scope_in(key: str) -> str:
    """The scope of a key."""
    return key[: key.index("/") + 1]


def store_path(root: str, scope: str, key: str) -> str:
    """Where the store below ``root`` keeps ``key``."""
    if key.startswith("/", len(scope)):
        return f"{root}/{scope}{ABSOLUTE}{key[len(scope):]}"
    return f"{root}/{key}"


def stored_as(key: str) -> str:
    """Where every store keeps ``key``, relative to its root."""
    return store_path("", scope_in(key), key)[1:]


def key_of(stored: str) -> str:
    """The key of what a store keeps as ``stored``."""
    scope, _, rest = stored.partition("/")
    return f"{scope}/{rest[len(ABSOLUTE) :] if rest.startswith(ABSOLUTE + '/') else rest}"


def shared_path(base: str, name: str, hashed: int = 0) -> str:
    """Where ``name`` lies, or is to lie, on shared storage.

    With ``hashed`` directories > 0 (AME §3.3: a pre-created hashed output directory spares the metadata server) a final output
    goes to ``<dir>/<xx>/<file>``, xx being the hash of the name in hexadecimal.
    """
    if name.startswith("/") or in_namespace(name):
        return name
    if url := url_of(name):
        return url
    if not hashed:
        return f"{base}/{name}"
    from xxhash import xxh64_intdigest

    head, tail = posixpath.split(name)
    number = xxh64_intdigest(name.encode("utf-8", "surrogateescape")) % hashed
    return posixpath.join(base, head, f"{number:0{len(f'{hashed - 1:x}')}x}", tail)


def sandbox_name(name: str, base: str) -> str:
    """The name of an absolute ``name`` as seen from the sandbox's working directory (for names written with "..")."""
    return posixpath.relpath(name, base) if name.startswith("/") else name


class NamedFiles:
    """The paths in the session's file system that a command line may mean which is executed in ``directory`` there, with those above."""

    def __init__(self, words: Iterable[str], directory: str) -> None:
        self._paths: set[str] = set()
        self._elsewhere: list[str] = []  # absolute: perhaps below a mount of the file system
        for token in {token for word in words for token in _NO_PATH.split(word) if token}:
            if token.startswith("/"):
                self._elsewhere.append(posixpath.normpath(token))
            path = posixpath.normpath(posixpath.join(directory, token))
            while len(path) > 1 and path not in self._paths:
                self._paths.add(path)
                path = posixpath.dirname(path)

    def has(self, path: str) -> bool:
        """Whether the command line may mean this path."""
        return path in self._paths or any(name.endswith(path) for name in self._elsewhere)
