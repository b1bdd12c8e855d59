"""The C programs that benchmarks run and are compared with: finds their sources, compiles them once into the user's cache.

Knows nothing of the measurements. The programs are not installed: they are compiled with this machine's C compiler, as a user would.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from amfs.errors import SystemSetupError
from amfs.host import folders

#: Programs, each with the ways to compile ``NAME.c``: the first that works is taken.
Programs: TypeAlias = Mapping[str, tuple[tuple[str, ...], ...]]

PROGRAMS: Programs = {
    "noop": (
        ("-static", "-nostdlib", "-nostartfiles", "-fno-stack-protector", "-fno-asynchronous-unwind-tables"),
        ("-static", "-DNOOP_LIBC"),
        ("-DNOOP_LIBC",),
    ),
    "produce": ((),),
    "consume": ((),),
    "vforkloop": ((),),
    "tcploop": ((),),
}


def cache_dir() -> Path:
    """Where amfs keeps what it can make again, below ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    return folders.cache()


def sources_dir() -> Path:
    """Where the C sources are: ``benchmarks/`` of a source tree, else the copy in the package. Raises SystemSetupError."""
    package = Path(__file__).resolve().parent
    from amfs import bench

    for place in (package.parent.parent / "benchmarks", *(Path(entry) / "sources" for entry in bench.__path__)):
        if (place / "vforkloop.c").is_file():
            return place
    raise SystemSetupError("the C sources of the benchmark programs are not part of this installation; run it from a source tree")


def compiler() -> str:
    """The C compiler: ``$CC``, cc, gcc or clang. Raises SystemSetupError."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and (found := shutil.which(name)):
            return found
    raise SystemSetupError("no C compiler found (cc, gcc, clang or $CC): the programs to compare with are compiled when measured")


def build(programs: Programs = PROGRAMS) -> dict[str, Path]:
    """Path of each of ``programs``, compiled if it is not there yet. Raises SystemSetupError with the compiler's words."""
    sources, command = sources_dir(), compiler()
    digest = hashlib.sha256(f"{command} {platform.machine()} {programs}".encode())
    for name in programs:
        digest.update((sources / f"{name}.c").read_bytes())
    place = cache_dir() / "bench" / digest.hexdigest()[:16]
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, ways in programs.items():
            if not os.access(place / name, os.X_OK):
                _compile(command, sources / f"{name}.c", place / name, ways)
    except OSError as error:
        raise SystemSetupError(f"cannot compile the benchmark programs in {place}: {error.strerror}") from None
    return {name: place / name for name in programs}


def _compile(command: str, source: Path, target: Path, ways: tuple[tuple[str, ...], ...]) -> None:
    said = ""
    for flags in ways:
        fd, temporary = tempfile.mkstemp(prefix=".part-", dir=target.parent)
        os.close(fd)
        try:
            result = subprocess.run(
                [command, "-O2", *flags, "-o", temporary, str(source)], capture_output=True, text=True, check=False
            )
            if result.returncode == 0:
                os.rename(temporary, target)  # whole or not at all, also when two compile at once
                return
            said = result.stderr.strip()
        finally:
            Path(temporary).unlink(missing_ok=True)
    raise SystemSetupError(f"{command} cannot compile {source.name}: {said}")
