"""From a URL to the storage that it is in, and the objects that it names.

Owns which library serves which URL, and patterns. One storage is opened once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from amfs.errors import UsageError
from amfs.remote import objects, systems
from amfs.remote.place import Found, Kind, Remote, RemoteError
from amfs.remote.settings import Settings

if TYPE_CHECKING:
    from amfs.remote.uploads import UnfinishedFiles, Uploads

_BUCKET = re.compile(r"[A-Za-z0-9._:@-]+")
_HOST = re.compile(r"[^\s\\]+")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(name: str) -> bool:
    """Of a storage outside; ``amfs://`` names a session."""
    return _URL.match(name) is not None and not name.startswith("amfs://")


class Place(NamedTuple):
    remote: Remote
    key: str


class Matched(NamedTuple):
    """An object that a URL names, and what its file is called below the place where it is put."""

    found: Found
    name: str


class Storages:
    """Opens storages, by the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: dict[tuple[str, str], objects.Objects | systems.System] = {}

    def close(self) -> None:
        for remote in self._open.values():
            remote.close()

    def packed(self) -> bytes:
        """The settings, for nodes. Raises UsageError."""
        return self._settings.pack()

    def uploads(self, url: str) -> Uploads | UnfinishedFiles:
        """The unfinished ones where ``url`` is. Raises RemoteError, UsageError, SystemSetupError."""
        from amfs.remote.uploads import UnfinishedFiles, Uploads

        if urlsplit(url, allow_fragments=False).scheme in objects.SCHEMES:
            return Uploads(url, self._settings.of(url))
        remote = self.place(url).remote
        assert isinstance(remote, systems.System)
        return UnfinishedFiles(remote)

    def place(self, url: str) -> Place:
        """Raises UsageError, SystemSetupError."""
        try:
            parts = urlsplit(url, allow_fragments=False)
        except ValueError as error:
            raise UsageError(f"{url}: {error}") from None
        if not parts.netloc and parts.scheme not in ("file", "memory", "hdfs"):
            raise UsageError(f"{url}: names no bucket and no host")
        web = parts.scheme in ("http", "https")
        if parts.scheme in objects.SCHEMES and not (_HOST if web else _BUCKET).fullmatch(parts.netloc):
            raise UsageError(f"{url}: no {'host' if web else 'bucket'} has such a name")  # the library panics
        by_obstore = parts.scheme in objects.SCHEMES and not (web and (parts.query or url.endswith("/")))
        key = ("objects" if by_obstore else "system", f"{parts.scheme}://{parts.netloc}")
        remote = self._open.get(key)
        if remote is None:
            kind = objects.Objects if by_obstore else systems.System
            remote = self._open[key] = kind(url, self._settings.of(url))
        return Place(remote, remote.key(url))

    def matching(self, url: str) -> list[Matched]:
        """The objects that ``url`` names: one, those below it, or those that match its pattern. Sorted; names end in a slash where the
        object is an empty directory. Raises RemoteError."""
        remote, key = self.place(url)
        web = url.startswith(("http:", "https:"))
        if not key.endswith("/") and key:
            try:
                found = remote.stat(key)
                return [Matched(found, systems.name_of(key.rpartition("/")[2], web and isinstance(remote, systems.System)))]
            except RemoteError as error:
                if error.kind is not Kind.MISSING or (web and isinstance(remote, objects.Objects)):
                    raise
        magic = re.search(r"[*?[]", key)
        if magic and not web:
            top = key[: key.rfind("/", 0, magic.start()) + 1]
            try:
                fits = re.compile(_regex(key))
            except re.error as error:
                raise UsageError(f"{url}: is no pattern: {error}") from None
            chosen = [(one, one.key[len(top) :]) for one in remote.list(top) if fits.fullmatch(one.key)]
            matched = [Matched(one, name.rpartition("/")[2]) for one, name in chosen]
        else:
            top = key.rstrip("/") + "/" if key.strip("/") else key
            matched = [Matched(one, systems.name_of(one.key[len(top) :], web)) for one in remote.list(top) if one.key.startswith(top)]
        if not matched:
            raise RemoteError(Kind.MISSING, url, "nothing matches" if magic else "")
        return sorted(matched, key=lambda one: one.found.key)


def _regex(pattern: str) -> str:
    """As in a shell: ``*`` and ``?`` stay within a name, ``**`` does not."""
    text = ""
    for part in re.split(r"(\*\*|\*|\?|\[!?[^]]+\])", pattern):
        if part == "**":
            text += ".*"
        elif part == "*":
            text += "[^/]*"
        elif part == "?":
            text += "[^/]"
        elif part.startswith("[") and part.endswith("]") and len(part) > 2:
            text += "[" + ("^" + part[2:-1] if part[1] == "!" else part[1:-1]).replace("\\", "\\\\") + "]"
        else:
            text += re.escape(part)
    return text
