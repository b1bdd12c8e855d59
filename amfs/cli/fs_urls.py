"""``amfs ls``, ``cat``, ``put``, ``get`` and ``scrub`` with URLs. Owns what they print; ``remote`` and ``operations`` do the work."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from amfs.cli.fs_common import Work, print_json, write
from amfs.client.tree import has_magic
from amfs.errors import UsageError
from amfs.operations.loading import dump as dump
from amfs.operations.loading import load as load
from amfs.remote.opening import Matched, Storages, is_url
from amfs.remote.place import RemoteError
from amfs.remote.settings import load as load_settings
from amfs.remote.transfers import Transfers

if TYPE_CHECKING:
    from amfs.operations.loading_common import Transferred


def any_urls(names: Sequence[str]) -> bool:
    """Are these URLs? Raises UsageError if some are and some are not."""
    urls = [name for name in names if is_url(name)]
    if urls and len(urls) < len(names):
        raise UsageError(f"{urls[0]} is a URL, and other names are not: use a command for each")
    return bool(urls)


def copy(work: Work, act: Callable[[], Transferred]) -> int:
    """Of ``put`` and ``get``."""
    try:
        for name, why in act().failed.items():
            work.report_error(why, name)
    except OSError as error:
        work.report_error(error)
    return work.status


def cat(work: Work, urls: Sequence[str]) -> int:
    """Write objects to standard output."""
    storages = Storages(load_settings())
    for url in urls:
        try:
            matched, key = _matching(storages, url), storages.place(url).key
            if [one.found.key for one in matched] != [key] and not has_magic(key.encode(errors="surrogateescape")):
                work.report_error(IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), url))
                continue
            for one in matched:
                for piece in storages.place(url).remote.read(one.found):
                    write(piece)
        except RemoteError as error:
            work.report_error(error)
    return work.status


def ls(work: Work, urls: Sequence[str], long: bool, form: str) -> int:
    """All objects that the URLs name, each with its whole key."""
    storages = Storages(load_settings())
    shown: list[tuple[str, Matched]] = []
    for url in urls:
        try:
            shown += [(storages.place(url).remote.url(one.found.key), one) for one in _matching(storages, url)]
        except RemoteError as error:
            work.report_error(error, status=2)
    if form == "json":
        found = [(url, one.found) for url, one in shown]
        print_json([{"url": url, "size": one.size, "mtime_ns": one.mtime, "identity": one.identity} for url, one in found])
        return work.status
    width = max((len(str(one.found.size)) for _, one in shown), default=0)
    for url, one in shown:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.found.mtime / 1e9)) if one.found.mtime else "-" * 16
        print(f"{one.found.size:{width}} {when} {url}" if long else url)
    return work.status


def _matching(storages: Storages, url: str) -> list[Matched]:
    return Transfers(1).patiently(lambda: storages.matching(url))


def scrub(work: Work, url: str, older_s: float, storage: str | None, form: str) -> int:
    """Remove unfinished uploads, and unfinished files of storages where files are renamed when they are whole."""
    from amfs.remote.uploads import older

    storages = Storages(load_settings(storage))
    try:
        uploads = storages.uploads(url)
        found = uploads.list(storages.place(url).key)
        old = older(found, time.time(), older_s)
        for one in old:
            uploads.remove(one)
    except RemoteError as error:
        work.report_error(error, status=2)
        return work.status
    names = [uploads.url(one) for one in old]
    if form == "json":
        print_json({"removed": names, "left": len(found) - len(old)})
    elif form == "text":
        for name in names:
            print(name)
        left = f", {len(found) - len(old)} left that began later" if len(found) > len(old) else ""
        print(f"{len(old)} unfinished uploads removed{left}")
    return 0
