"""Arrays of files that an app returns: which files these are, is what the mapper finds when the task has ended.

The task packs what it has made (``WRAP``), the archive is a file between tasks, and the files of it that the mapper wants are written out.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from fnmatch import translate
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.mapping import Mapped, Path
from amfs.swift.requests import Glob, ReadFile, WriteFile
from amfs.swift.values import Namer

#: Runs a command, and packs all files in its directory.
WRAP = 'archive=$1; shift; "$@" || exit; find . -type f ! -path "./$archive" -print0 | tar --format=ustar -cf "$archive" --null -T -'

_BLOCK = 512


def members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of a ustar archive."""
    at = 0
    while at + _BLOCK <= len(archive):
        header = archive[at : at + _BLOCK]
        name = header[:100].rstrip(b"\0")
        if not name:
            return
        prefix = header[345:500].rstrip(b"\0")
        size = int(header[124:136].rstrip(b"\0 ") or b"0", 8)
        full = (prefix + b"/" + name if prefix else name).decode(errors="surrogateescape")
        at += _BLOCK
        if header[156:157] in (b"0", b"\0"):
            yield full.removeprefix("./"), archive[at : at + size]
        at += -(-size // _BLOCK) * _BLOCK


def matching(pattern: str, names: list[str]) -> list[str]:
    """The names that fit; ``**`` crosses directories."""
    steps = []
    for step in pattern.removeprefix("./").split("/"):
        steps.append(r"(?:[^/]+/)*" if step == "**" else translate(step).replace(".*", "[^/]*").removesuffix(r"\Z") + "/")
    whole = re.compile("".join(steps).removesuffix("/"))
    return [name for name in names if whole.fullmatch(name)]


def unpacked(namer: Namer, archive: str) -> Generator[Any, Any, list[tuple[Path, str]]]:
    """Write out what the mapper finds among the files of an archive. Returns which part is which file."""
    assert namer.again is not None
    found = dict(members((yield ReadFile(archive))))
    names = sorted(found)
    mapper = namer.again()
    answer: Any = None
    try:
        while True:
            request = mapper.send(answer)
            answer = matching(request.pattern, names) if isinstance(request, Glob) else (yield request)
    except StopIteration as stop:
        mapped: Mapped = stop.value
    existing = mapped.existing or []
    for _, name in existing:
        if name.removeprefix("./") not in found:
            raise Failure(f"the app has not made {name}, which the mapper of {namer.label} names")
        yield WriteFile(name, found[name.removeprefix("./")])
    return existing
