"""Load from, and dump to, anything that fsspec has a URL for: through this process, file by file. Needs the extra ``fsspec``."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

from amfs.client.connection import Call
from amfs.client.files import Files, StrPath
from amfs.client.paths import clean, join
from amfs.client.verifying import drop_damaged
from amfs.errors import SystemSetupError, UsageError
from amfs.host.digests import Digest
from amfs.operations.loading_common import CLIENT, Item, Progress, Transferred, Work, digest_at, digests, inside_items
from amfs.vocabulary import fs_requests as q

_PIECE = 1 << 20


def _file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it. Raises SystemSetupError, UsageError."""
    try:
        import fsspec
    except ImportError:
        raise SystemSetupError(f"{url}: URLs need the Python package fsspec") from None
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise SystemSetupError(f"{url}: {error}") from None
    except ValueError as error:
        raise UsageError(f"{url}: {error}") from None
    return system, str(path)


def load_urls(files: Files, sources: Sequence[str], target: StrPath, *, progress: Progress | None = None) -> Transferred:
    """As ``loading.load``."""
    if len(sources) != 1:
        raise UsageError("load: one URL at a time")
    system, top = _file_system(sources[0])
    work = Work(progress)
    found = sorted(system.glob(top) if any(sign in top for sign in "*?[") else system.find(top))
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), sources[0])
    to = clean(target)
    alone = len(found) == 1 and system.isfile(top)
    into = not alone or os.fsencode(os.fspath(target)).endswith(b"/") or files.isdir(to)
    for path in found:
        rest = path.rpartition("/")[2] if alone or not path.startswith(top.rstrip("/") + "/") else path[len(top.rstrip("/")) + 1 :]
        inside = join(to, os.fsencode(rest)) if into else to
        try:
            files.makedirs(inside.rpartition(b"/")[0] or b"/", exist_ok=True)
            _load_one(files, work, system, path, inside)
        except OSError as error:
            work.fail(path, error)
        except Exception as error:  # what the library of a URL raises is not known here
            work.fail(path, f"{type(error).__name__}: {error}")
    return work.result(CLIENT)


def _load_one(files: Files, work: Work, system: Any, path: str, inside: bytes) -> None:
    if files.isfile(inside) and files.info(inside).size == system.size(path):
        found = _read(system, path)
        if digest_at(files, inside) == (found.size, found.value()):
            work.done(found.size, True)
            return
    temporary = files.beside(inside)
    try:
        taken = Digest()
        with system.open(path, "rb") as source, files.open(temporary, "xb", buffering=0) as file:
            while data := source.read(_PIECE):
                taken.add(data)
                file.write(data)
        if digest_at(files, temporary) != (taken.size, taken.value()):
            raise OSError(errno.EILSEQ, "its digest differs")
        files.rename(temporary, inside)
    except BaseException:
        files.call_many([Call(q.UnlinkPath(temporary))])
        raise
    work.done(taken.size, False)


def _read(system: Any, path: str) -> Digest:
    found = Digest()
    with system.open(path, "rb") as file:
        while data := file.read(_PIECE):
            found.add(data)
    return found


def dump_urls(files: Files, sources: Sequence[bytes], url: str, *, progress: Progress | None = None) -> Transferred:
    """As ``loading.dump``. What is written gets its name when the URL's file system closes it; it is read back after that, and removed if
    it is not right."""
    system, top = _file_system(url)
    work = Work(progress)
    items = inside_items(files, sources, top + ("/" if url.endswith("/") and not top.endswith("/") else ""), {}, system.isdir(top))
    for item in items:
        try:
            try:
                _dump_one(files, work, system, item)
            except OSError as error:
                if error.errno != errno.EILSEQ:
                    raise
                drop_damaged(files.connection, item.ino)  # if it was a copy that is damaged, another one is read now
                _dump_one(files, work, system, item)
        except OSError as error:
            work.fail(item.inside, error)
        except Exception as error:  # what the library of a URL raises is not known here
            work.fail(item.inside, f"{type(error).__name__}: {error}")
    return work.result(CLIENT)


def _dump_one(files: Files, work: Work, system: Any, item: Item) -> None:
    [mine] = digests(files, [item.ino])
    if isinstance(mine, OSError):
        raise mine
    if system.isfile(item.outside) and system.size(item.outside) == mine[0]:
        found = _read(system, item.outside)
        if (found.size, found.value()) == mine:
            work.done(mine[0], True)
            return
    above, _, name = item.outside.rpartition("/")
    if above:
        system.makedirs(above, exist_ok=True)
    local = _is_local(system)  # elsewhere a file has its name when it is closed, and renaming copies it once more
    place = f"{above}/.amfs-{os.urandom(6).hex()}-{name[:100]}" if local else item.outside
    try:
        with files.open(item.inside, "rb", buffering=0) as source, system.open(place, "wb") as target:
            while data := source.read(_PIECE):
                target.write(data)
        found = _read(system, place)
        if (found.size, found.value()) != mine:
            raise OSError(errno.EILSEQ, "its digest differs")
        if local:
            system.mv(place, item.outside)
    except BaseException:
        if system.exists(place):
            system.rm_file(place)
        raise
    work.done(mine[0], False)


def _is_local(system: Any) -> bool:
    protocol = system.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else tuple(protocol))
