"""Shared storage as a run sees it: paths of this machine, and objects at URLs.

Owns the questions of a run about both. ``look`` and ``identities`` ask about many objects at the same time; listings tell of those that lie
together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from amfs.errors import UsageError
from amfs.host.shared_storage import Copier, Facts, LocalPaths
from amfs.remote import settings
from amfs.remote.place import Found, Kind, RemoteError

if TYPE_CHECKING:
    from amfs.remote.opening import Place, Storages
    from amfs.remote.place import Remote
    from amfs.remote.trees import Tree

_TOGETHER = 32
_LIST_FROM = 8  # objects that lie together: from there on they are looked for in a listing
_LISTED_FOR_EACH = 125  # objects of a listing for each that is looked for, at most: eight cost one request, which tells 1000


class Outside:
    """A ``SharedStorage``. The settings are read when the first URL is met."""

    def __init__(self) -> None:
        self._local = LocalPaths()
        self._opened: Storages | None = None

    @property
    def _storages(self) -> Storages:
        if self._opened is None:
            from amfs.remote.opening import Storages  # few runs meet a URL

            self._opened = Storages(settings.load())
        return self._opened

    def _look(self, url: str) -> Found | Tree:
        from amfs.remote.trees import look

        return look(self._storages.place(url))

    def _look_at_all(self, urls: Iterable[str]) -> dict[str, Found | Tree | OSError]:
        from amfs.remote.transfers import Transfers

        wanted = list(dict.fromkeys(urls))
        places = {url: self._storages.place(url) for url in wanted}  # opens each storage once, before there are threads
        transfers = Transfers(min([_TOGETHER, *(place.remote.at_once for place in places.values())]))
        found: dict[str, Found | Tree | OSError] = {}
        for _, listed in transfers.run(_lying_together(places), lambda keys: keys.list()):
            if not isinstance(listed, OSError):  # else each is asked for: there are people who may read objects, and not list them
                found.update(listed)
        found.update(transfers.run([url for url in wanted if url not in found], self._look))
        return found

    # ── of many ──

    def look(self, urls: Iterable[str]) -> tuple[dict[str, Found | Tree], dict[str, str]]:
        """Those that exist, and those of which no storage can tell it, with the reason in words, or "": it is that of another."""
        there: dict[str, Found | Tree] = {}
        unusable: dict[str, str] = {}
        wanted: list[str] = []
        for url in dict.fromkeys(urls):
            try:
                self._storages.place(url)
                wanted.append(url)
            except UsageError as error:
                unusable[url] = str(error).removeprefix(f"{url}: ")
        for url, found in self._look_at_all(wanted).items():
            if not isinstance(found, OSError):
                there[url] = found
            elif not isinstance(found, RemoteError) or found.kind is not Kind.MISSING:
                at = str(found.filename or url)
                own = f"{url}/".startswith(at) or at not in wanted  # else it was not asked for, as that other one could not be reached
                unusable[url] = ("" if f"{url}/".startswith(at) else f"{at}: ") + str(found.strerror) if own else ""
        return there, unusable

    def is_conditional(self, url: str, found: Found | Tree) -> bool:
        """Can it be read as it was found, without another look before?"""
        objects = [found] if isinstance(found, Found) else found.files.values()
        return self._storages.place(url).remote.conditional and all(one.identity.startswith('"') for one in objects)

    def identities(self, urls: Iterable[str]) -> dict[str, str]:
        """Of the content of each that exists; of a directory: of all that is below it."""
        found = self._look_at_all(urls)
        return {url: f"{one.size} {one.identity}" for url, one in found.items() if not isinstance(one, OSError)}

    def size_of_made(self, url: str, listing: int) -> int:
        """Of the directory with that listing (``trees.listing_of``) which amfs has put there; -1 if it is not there any more."""
        from amfs.remote.trees import made

        try:
            return made(self._storages.place(url), listing).size
        except OSError:
            return -1

    # ── as SharedStorage ──

    def stat(self, path: str) -> Facts:
        if "://" not in path:
            return self._local.stat(path)
        found = self._look(path)
        return Facts(found.size, 0o644, False, found.mtime) if isinstance(found, Found) else Facts(found.size, 0o755, True, 0)

    def list(self, directory: str) -> dict[str, bool]:
        return self._local.list(directory)

    def read(self, path: str) -> bytes:
        if "://" not in path:
            return self._local.read(path)
        remote, key = self._storages.place(path)
        return b"".join(remote.read(remote.stat(key)))

    def unwritable(self, directory: str) -> str:
        if "://" not in directory:
            return self._local.unwritable(directory)
        if directory.startswith(("http:", "https:")):
            return "amfs writes to no web server"
        try:
            remote, key = self._storages.place(directory + "/")
            next(iter(remote.list(key)), None)
        except RemoteError as error:
            return "" if error.kind is Kind.MISSING else f"{error.filename}: {error.strerror}"
        except UsageError as error:
            return str(error)
        return ""

    def fetch(self, copier: Copier, serial: int, path: str, into: str) -> None:
        self._local.fetch(copier, serial, path, into)

    def store(self, copier: Copier, serial: int, source: str, path: str, rights: int) -> None:
        self._local.store(copier, serial, source, path, rights)


class _Keys:
    """Objects of one storage that lie together."""

    def __init__(self, remote: Remote, top: str, urls: dict[str, str]) -> None:
        self._remote = remote
        self._top = top
        self._urls = urls  # by key

    def list(self) -> dict[str, Found]:
        """Those that are found in a listing of no more than a certain length, by URL. Raises RemoteError."""
        found: dict[str, Found] = {}
        for one in islice(self._remote.list(self._top), _LISTED_FOR_EACH * len(self._urls)):
            # An empty one may be the mark of a directory.
            if one.size and one.identity.startswith('"') and one.key in self._urls:
                found[self._urls[one.key]] = one
                if len(found) == len(self._urls):
                    break
        return found


def _lying_together(places: Mapping[str, Place]) -> Iterator[_Keys]:
    """Of enough objects below one directory one group; of those that are left in a bucket, if these are enough, another."""
    by_remote: defaultdict[int, dict[str, Place]] = defaultdict(dict)
    for url, place in places.items():
        if place.remote.lists_identities and place.key and not place.key.endswith("/"):
            by_remote[id(place.remote)][url] = place
    for some in by_remote.values():
        remote = next(iter(some.values())).remote
        directories: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for url, place in some.items():
            directories[place.key.rpartition("/")[0]][place.key] = url
        left: dict[str, str] = {}
        for directory, urls in directories.items():
            if len(urls) >= _LIST_FROM:
                yield _Keys(remote, f"{directory}/" if directory else "", urls)
            else:
                left.update(urls)
        if len(left) >= _LIST_FROM:
            first, last = min(left), max(left)  # and a common beginning of both begins all
            same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
            yield _Keys(remote, first[: first.rfind("/", 0, same) + 1], left)
