"""Montage whose images come from a storage at URLs and whose mosaic goes there, on four nodes: the same bytes as on this machine alone.

    python at_urls.py [s3] [hdfs] [https] [--grid 3] [--size 120] [--nodes 4] [--tools auto|montagepy|debian]

Starts each storage on this machine (S3 by moto; an HDFS, which Maven fetches; nginx with a certificate of its own), fills it, and ends it
again. A web server only gives: there the mosaic stays on this machine. Exit status 1 if a mosaic differs.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import make_sky
import toolkit
import write_workflow

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from amfs.bench.process import Failed
from benchmarks import servers

MOSAICS = ("mosaic.fits", "mosaic_area.fits")
KINDS = {"s3": servers.moto, "hdfs": servers.hdfs, "https": servers.https}


def amfs(*words: str, cwd: Path, more: Mapping[str, str]) -> None:
    """Raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", "amfs", *words], cwd=cwd, env={**os.environ, **more}, check=True)


def at_urls(kind: str, sky: Path, lines: list[str], nodes: int, install: bool) -> bool:
    """Run the tasks over this storage; is the mosaic that of ``sky``?"""
    with tempfile.TemporaryDirectory(prefix=f"montage-{kind}-") as scratch, KINDS[kind](Path(scratch), install) as storage:
        work = Path(scratch, "run")
        work.mkdir()
        top, more = storage.spot.where, environment(storage.spot.options, Path(scratch))
        session = f"montage-{kind}-{os.getpid()}"
        more["AMFS_SESSION"] = session
        shutil.copy(sky / "region.hdr", work)
        amfs("up", "--nodes", str(nodes), "--slots", "1", "--name", session, cwd=work, more=more)
        try:
            if kind == "https":
                shutil.copytree(sky / "raw", Path(scratch, "web", "raw"))
            else:
                amfs("load", f"{sky}/raw", "amfs:/raw", cwd=work, more=more)
                amfs("dump", "amfs:/raw", f"{top}/raw", cwd=work, more=more)
            places = [f"#amfs path raw/{path.name} {top}/raw/{path.name}" for path in sorted((sky / "raw").glob("*.fits"))]
            placed = lines if kind == "https" else [at_url(line, f"{top}/out") for line in lines]
            (work / "montage.tasks").write_text("\n".join([*places, *placed]) + "\n")
            begun = time.perf_counter()
            amfs("run", "-q", "montage.tasks", cwd=work, more=more)
            taken = time.perf_counter() - begun
            if kind != "https":
                for name in MOSAICS:
                    with (work / name).open("wb") as file:
                        command = [sys.executable, "-m", "amfs", "cat", f"{top}/out/{name}"]
                        subprocess.run(command, env={**os.environ, **more}, stdout=file, check=True)
            different = [name for name in MOSAICS if (work / name).read_bytes() != (sky / name).read_bytes()]
        finally:
            amfs("down", session, cwd=work, more=more)
    answer = f"{', '.join(different)} DIFFER" if different else "the same bytes"
    print(f"{kind}: {len(lines)} tasks on {nodes} nodes in {taken:.1f} s; {answer}", flush=True)
    return not different


def at_url(line: str, top: str) -> str:
    """A task, with the mosaic at a URL: an output has that for its name. The program is told the file's path, which has one slash: to
    Montage's library a name with two is a server's."""
    words = shlex.split(line)
    begin = words.index("-a")
    path = top.replace("://", ":/")
    return shlex.join(f"{top if at < begin else path}/{word}" if word in MOSAICS else word for at, word in enumerate(words))


def environment(options: Mapping[str, str], place: Path) -> dict[str, str]:
    """How amfs reaches the storage."""
    settings = place / "storage.toml"
    settings.write_text("".join(f'["{start}"]\n' + "".join(f'{name} = "{value}"\n' for name, value in options.items())
                                for start in ("s3://", "https://") if options))  # fmt: skip
    settings.chmod(0o600)
    return {"AMFS_STORAGE": str(settings)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Montage over storages at URLs, compared with a run on this machine")
    parser.add_argument("kinds", nargs="*", metavar="s3|hdfs|https", help="which storages (default: all)")
    parser.add_argument("--grid", type=int, default=3, help="images per side (default 3)")
    parser.add_argument("--size", type=int, default=120, help="pixels per side of an image (default 120)")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--tools", choices=toolkit.CHOICES, default="auto")
    parser.add_argument("--no-install", action="store_true", help="leave out a storage that is not installed, rather than fetch it")
    options = parser.parse_args()
    if unknown := [kind for kind in options.kinds if kind not in KINDS]:
        parser.error(f"{unknown[0]} is none of {', '.join(KINDS)}")
    try:
        tools = toolkit.find(options.tools)
        with tempfile.TemporaryDirectory(prefix="montage-sky-") as place:
            sky = Path(place)
            names = make_sky.make_sky(sky, grid=options.grid, size=options.size)
            raw = sorted(f"raw/{path.name}" for path in (sky / "raw").glob("*.fits"))
            lines = write_workflow.task_list(tools, raw, write_workflow.planned_overlaps(tools, sky))
            (sky / "montage.tasks").write_text("\n".join(lines) + "\n")
            amfs("run", "-q", "--local", "montage.tasks", cwd=sky, more={})
            print(f"{len(names)} images; mosaic on this machine made", flush=True)
            same = True
            for kind in options.kinds or KINDS:
                try:
                    same = at_urls(kind, sky, lines, options.nodes, not options.no_install) and same
                except Failed as error:
                    if not options.no_install:
                        raise
                    print(f"{kind}: left out: {error}")
            return 0 if same else 1
    except (toolkit.NoMontage, Failed, OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"at_urls.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
