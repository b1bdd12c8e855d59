"""Files: whether they are there, their names, their content."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import text_t
from amfs.swift.library_t.registry import T
from amfs.swift.names import directory_of, is_url, last_part, split_extension
from amfs.swift.requests import Clock, Execute, Executed, FileValue, Glob, Random, ReadFile, Remove, Request, Stat, Status, WriteFile

#: Floats in a blob of zeros.
FLOATS_MAX = 1 << 27


@T.asking("(file o) input(string name)", "(file o) input_file(string name)", "(file o) unsafe_uncached_input_file(string name)")
def input_file(name: str, o: FileValue) -> Generator[Request, Any, FileValue]:
    if is_url(name):
        raise Failure(f"{name!r} is a URL, and files are local: take url u = input_url({name!r}), which an app fetches by itself")
    if (yield Stat(name)) is None:
        raise Failure(f"input file {name!r} does not exist")
    return FileValue(name)


@T.asking("(file o) directory(string name)")
def directory(name: str, o: FileValue) -> Generator[Request, Any, FileValue]:
    found = yield Stat(name)
    if found is None or found.kind != "directory":
        raise Failure(f"the directory {name!r} does not exist" if found is None else f"{name!r} is no directory")
    return FileValue(name)


@T.function("(url o) input_url(string name)")
def input_url(name: str, o: FileValue) -> FileValue:
    return FileValue(name)


@T.asking("(file o[]) glob(string pattern)")
def glob(pattern: str) -> Generator[Request, Any, dict[int, FileValue]]:
    return {index: FileValue(name) for index, name in enumerate((yield Glob(pattern)))}


@T.naming("(string o) filename(file f)", "(string o) filename(url f)", "(string o) urlname(url f)")
def filename(f: FileValue) -> str:
    return f.name


def _name_functions() -> None:
    parts: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("dirname", directory_of),
        ("basename", last_part),
        ("rootname", lambda name: split_extension(name)[0]),
        ("extension", lambda name: split_extension(name)[1]),
    )
    for name, function in parts:
        T.function(f"(string o) {name}_string(string s)", f"(string o) {name}(string s)")(function)
        T.naming(f"(string o) {name}(file f)")(lambda f, function=function: function(f.name))


_name_functions()


# ── content ────────────────────────────────────────────────────────────────────────────────────────


def _content(f: FileValue) -> Generator[Request, Any, str]:
    data: bytes = yield ReadFile(f.name)
    return data.decode(errors="surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


@T.asking("(string o) read(file f)", "(string o) file_read(file f)")
def read(f: FileValue) -> Generator[Request, Any, str]:
    return (yield from _content(f))


@T.asking("(file o) write(string s)", "(file o) file_write(string s)")
def write(s: str, o: FileValue) -> Generator[Request, Any, FileValue]:
    yield WriteFile(o.name, _encoded(s))
    return o


@T.asking(
    "(file o) write_array_string(string A[], int chunk=0)", "(file o) write_lines(string A[], int chunk=0)",
    "(file o) write_array_string_ordered(string A[], int chunk=0)",
)
def write_lines(lines: dict[int, str], chunk: int, o: FileValue) -> Generator[Request, Any, FileValue]:
    yield WriteFile(o.name, _encoded("".join(f"{line}\n" for line in lines.values())))
    return o


@T.asking('(string o[]) file_lines(file f, string comment="#")')
def file_lines(f: FileValue, comment: str) -> Generator[Request, Any, dict[int, str]]:
    """Without blank lines, comments and the blanks around lines."""
    text = yield from _content(f)
    lines = ((line.split(comment, 1)[0] if comment else line).strip() for line in text.split("\n"))
    return dict(enumerate(line for line in lines if line))


@T.asking('(string o[]) file_chunks(file f, string delimiter="----", string comment="#")')
def file_chunks(f: FileValue, delimiter: str, comment: str) -> Generator[Request, Any, dict[int, str]]:
    """The texts between lines that are the delimiter, without comments and blank lines."""
    text = yield from _content(f)
    comment = comment.strip()
    chunks: list[list[str]] = [[]]
    for line in text.split("\n"):
        line = line.split(comment, 1)[0] if comment else line
        if line == delimiter:
            chunks.append([])
        elif line:
            chunks[-1].append(line)
    found = ("\n".join(lines).strip() for lines in chunks)
    return dict(enumerate(chunk for chunk in found if chunk))


@T.asking("(blob o) blob_read(file f)")
def blob_read(f: FileValue) -> Generator[Request, Any, bytes]:
    return bytes((yield ReadFile(f.name)))


@T.asking("(file o) blob_write(blob b)", "(file o) write(blob b)")
def blob_write(b: bytes, o: FileValue) -> Generator[Request, Any, FileValue]:
    yield WriteFile(o.name, b)
    return o


@T.function("(blob o) blob_from_floats(float A[])", "(blob o) floats2blob(float A[])")
def blob_from_floats(items: dict[int, float]) -> bytes:
    return struct.pack(f"={len(items)}d", *items.values())


@T.function("(float o[]) floats_from_blob(blob b)", "(float o[]) blob2floats(blob b)")
def floats_from_blob(b: bytes) -> dict[int, float]:
    if len(b) % 8:
        raise Failure(f"floats_from_blob: {len(b)} bytes are not a whole number of floats")
    return dict(enumerate(struct.unpack(f"={len(b) // 8}d", b)))


@T.function("(blob o) blob_null()")
def blob_null() -> bytes:
    return b""


@T.function("(blob o) blob_zeroes_float(int n)")
def blob_zeroes_float(n: int) -> bytes:
    if not 0 <= n <= FLOATS_MAX:
        raise Failure(f"blob_zeroes_float({n}): the number is from 0 to {FLOATS_MAX}")
    return bytes(8 * n)


@T.function("(blob o) blob_from_ints(int A[])", "(blob o) ints2blob(int A[])")
def blob_from_ints(items: dict[int, int]) -> bytes:
    return struct.pack(f"={len(items)}q", *items.values())


# ── what is there ──────────────────────────────────────────────────────────────────────────────────


def _status(name: str) -> Generator[Request, Any, Status]:
    status: Status | None = yield Stat(name)
    if status is None:
        raise Failure(f"no such file: {name}")
    return status


@T.asking("(boolean o) file_exists(string name)", "(boolean o) exists(string name)")
def file_exists(name: str) -> Generator[Request, Any, bool]:
    return (yield Stat(name)) is not None


@T.asking("(int o) file_size(file f)")
def file_size(f: FileValue) -> Generator[Request, Any, int]:
    return (yield from _status(f.name)).size


@T.asking("(int o) file_mtime(string name)", "(int o) mtime(string name)")
def file_mtime(name: str) -> Generator[Request, Any, int]:
    return int((yield from _status(name)).modified)


@T.asking("(string o) file_type(string name)", "(string o) file_type_string(string name)")
def file_type(name: str) -> Generator[Request, Any, str]:
    return (yield from _status(name)).kind


@T.asking("(string o) file_type(file f)")
def type_of_file(f: FileValue) -> Generator[Request, Any, str]:
    return (yield from _status(f.name)).kind


@T.asking("(string o) realpath_string(string name)")
def realpath(name: str) -> Generator[Request, Any, str]:
    """From the root, without links."""
    done: Executed = yield Execute(("realpath", "-m", "--", name))
    if done.status:
        raise Failure(f"realpath {name!r}: {done.stderr.decode(errors='replace').strip()[-200:]}")
    return done.stdout.decode(errors="surrogateescape").removesuffix("\n")


@T.asking("(file o) realpath(file f)")
def realpath_of_file(f: FileValue, o: FileValue) -> Generator[Request, Any, FileValue]:
    """A file that is in memory only has no other name."""
    name = yield from realpath(f.name)
    return f if (yield Stat(name)) is None else FileValue(name)


@T.asking("(void v) file_delete(string name)", "(void v) delete_file(string name)")
def file_delete(name: str) -> Generator[Request, Any, None]:
    yield Remove(name)


@T.asking('(string o) mktemp_string(string prefix="swift-")', '(string o) mktemp(string prefix="swift-")')
def mktemp(prefix: str) -> Generator[Request, Any, str]:
    """A name that nothing has yet, in TMPDIR's place ``_swift/tmp``."""
    while True:
        chance = yield Random()
        now = yield Clock()
        name = f"_swift/tmp/{prefix}{int(now * 1e6) % 10**10:010d}{int(chance * 10**8):08d}"
        if (yield Stat(name)) is None:
            return name


@T.asking("(file o) writeln(int|float|string|boolean x)")
def writeln(x: Any, o: FileValue) -> Generator[Request, Any, FileValue]:
    yield WriteFile(o.name, _encoded(text_t(x) + "\n"))
    return o
