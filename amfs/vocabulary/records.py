"""The packed task record that the C launcher takes. Pure; ``csrc/launcher/record.h`` is the C side of this contract.

A record is little-endian, without padding beyond what is listed::

    header (80 bytes)
      u32 length         whole record, header included
      u32 flags          STAGED | KEEP_FAILED | WANT_OUTPUT | DIRECTORIES | BLIND
      u64 serial         chosen by the caller, unique while the task is in the launcher
      u32 context        environment and base directory, see Launcher.set_context
      u32 cores          taken from the launcher's slots while it runs
      u64 memory         bytes taken from the launcher's memory while it runs
      u32 time_limit_ms  0: none
      u32 depth          directories between the sandbox's top and the working directory
      u32 argc, envc, inputs, outputs
      u32 capture        bytes of stdout and of stderr kept (the tail)
      u32 body_length
      u64 reserved[2]    zero
    input stamps         inputs x (u64 size, u64 mtime_ns); mtime 0: unknown, taken when linked
    body (NUL-terminated strings, made once by the submitter)
      program  cwd  stdin  stdout  stderr  argv[argc]  env[envc]
    files (NUL-terminated strings, added by the worker)
      inputs x (source path, name in the sandbox)   source starting with "@": symbolic link to the rest (read in place); "@@": in the
                                                     spill directory
      outputs x (name in the sandbox, destination path)   empty destination: only has to exist

``program`` is an absolute path, or contains a slash and is relative to the working directory. ``env`` entries are ``K=V``, or ``K`` to
unset. Empty stdin, stdout, stderr: /dev/null, captured, captured. ``cwd`` is relative to the sandbox's working directory (staged)
or to the context's base (unstaged); of a blind task it is an absolute path in the session's file system.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

STAGED = 1
KEEP_FAILED = 2
WANT_OUTPUT = 4
DIRECTORIES = 8  # outputs that turn out to be directories are copied to the run's directory, where they are read
BLIND = 16  # runs in the session's file system, in the directory ``cwd`` there, which is absolute

MAY_BE_TREE = "+"  # before the destination of an output that goes to a URL, where the store may keep a directory
#: Time of modification of an output that is such a directory.
IS_DIRECTORY = (1 << 64) - 1


def listing_of(mtime_ns: int) -> int:
    """The number for names and sizes (``Published``) that takes the place of a time where an output is a directory which the store has
    whole. 0: it is a time."""
    return mtime_ns if mtime_ns >> 62 == 2 else 0


HEADER = struct.Struct("<IIQIIQIIIIIIII16x")
STAMP = struct.Struct("<QQ")
_COUNTS = struct.Struct("<II")


def pack_body(
    program: str,
    argv: Sequence[str],
    *,
    env: Sequence[str] = (),
    cwd: str = "",
    stdin: str = "",
    stdout: str = "",
    stderr: str = "",
) -> bytes:
    """Pack the command part: argc and envc (u32 each), then the strings. Raises ValueError if a string holds a NUL."""
    text = "\0".join((program, cwd, stdin, stdout, stderr, *argv, *env, ""))
    if text.count("\0") != 5 + len(argv) + len(env):
        raise ValueError("a command, argument, environment value or file name contains a NUL character")
    return _COUNTS.pack(len(argv), len(env)) + text.encode("utf-8", "surrogateescape")


def pack_record(
    serial: int,
    body: bytes,
    *,
    flags: int = STAGED,
    context: int = 0,
    cores: int = 1,
    memory: int = 0,
    time_limit_ms: int = 0,
    depth: int = 0,
    capture: int = 65536,
    inputs: Sequence[tuple[str, str]] = (),
    stamps: Sequence[tuple[int, int]] = (),
    outputs: Sequence[tuple[str, str]] = (),
) -> bytes:
    """One record for Launcher.submit. ``inputs`` are (source, name), ``outputs`` (name, destination)."""
    argc, envc = _COUNTS.unpack_from(body)
    if inputs or outputs:
        files = ("\0".join([part for pair in (*inputs, *outputs) for part in pair]) + "\0").encode(
            "utf-8", "surrogateescape"
        )
    else:
        files = b""
    marks = b"".join([STAMP.pack(*stamp) for stamp in stamps]) if stamps else bytes(16 * len(inputs))
    strings = len(body) - 8
    length = HEADER.size + len(marks) + strings + len(files)
    header = HEADER.pack(
        length, flags, serial, context, cores, memory, time_limit_ms, depth,
        argc, envc, len(inputs), len(outputs), capture, strings,
    )  # fmt: skip
    return b"".join((header, marks, memoryview(body)[8:], files))


def unpack_body(body: bytes) -> tuple[str, list[str], dict[str, object]]:
    """The inverse of pack_body: program, argv, and its keyword arguments."""
    argc, envc = _COUNTS.unpack_from(body)
    words = body[8:].decode("utf-8", "surrogateescape").split("\0")
    program, cwd, stdin, stdout, stderr = words[:5]
    argv = words[5 : 5 + argc]
    env = words[5 + argc : 5 + argc + envc]
    return program, argv, {"env": env, "cwd": cwd, "stdin": stdin, "stdout": stdout, "stderr": stderr}


class Record(NamedTuple):
    """A task record taken apart again, for simulators and tests."""

    serial: int
    flags: int
    context: int
    cores: int
    memory: int
    time_limit_ms: int
    depth: int
    capture: int
    body: bytes
    stamps: tuple[tuple[int, int], ...]
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]


def unpack_record(record: bytes) -> Record:
    """The inverse of pack_record. Raises ValueError if the lengths do not add up."""
    (
        length, flags, serial, context, cores, memory, time_limit_ms, depth, argc, envc, inputs, outputs, capture, strings,
    ) = HEADER.unpack_from(record)  # fmt: skip
    begin = HEADER.size + STAMP.size * inputs
    if length != len(record) or begin + strings > length:
        raise ValueError(f"a record of {len(record)} bytes that says {length}")
    stamps = tuple(STAMP.iter_unpack(record[HEADER.size : begin]))
    names = record[begin + strings :].decode("utf-8", "surrogateescape").split("\0")[:-1]
    if len(names) != 2 * (inputs + outputs):
        raise ValueError(f"a record with {len(names)} names for {inputs} inputs and {outputs} outputs")
    pairs = tuple(zip(names[::2], names[1::2], strict=True))
    body = _COUNTS.pack(argc, envc) + record[begin : begin + strings]
    return Record(
        serial, flags, context, cores, memory, time_limit_ms, depth, capture, body, stamps, pairs[:inputs], pairs[inputs:],
    )  # fmt: skip
