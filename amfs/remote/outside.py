"""Shared storage as a run sees it: paths of this machine, and objects at URLs.

Owns the questions of a run about both. ``missing`` and ``identities`` ask about many objects at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from amfs.errors import UsageError
from amfs.host.shared_storage import Copier, Facts, LocalPaths
from amfs.remote import settings
from amfs.remote.place import Found, Kind, RemoteError

if TYPE_CHECKING:
    from amfs.remote.opening import Storages
    from amfs.remote.trees import Tree

_TOGETHER = 32


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
        for url in wanted:
            self._storages.place(url)  # opens each storage once, before there are threads
        together = min([_TOGETHER, *(self._storages.place(url).remote.at_once for url in wanted)])
        return dict(Transfers(together).run(wanted, self._look))

    # ── of many ──

    def missing(self, urls: Iterable[str]) -> set[str]:
        """Those that do not exist. Raises UsageError if a storage cannot tell."""
        gone: set[str] = set()
        for url, found in self._look_at_all(urls).items():
            if isinstance(found, RemoteError) and found.kind is Kind.MISSING:
                gone.add(url)
            elif isinstance(found, OSError):
                raise UsageError(f"{found.filename or url}: {found.strerror}")
        return gone

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
        return ""

    def fetch(self, copier: Copier, serial: int, path: str, into: str) -> None:
        self._local.fetch(copier, serial, path, into)

    def store(self, copier: Copier, serial: int, source: str, path: str, rights: int) -> None:
        self._local.store(copier, serial, source, path, rights)
