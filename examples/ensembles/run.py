"""Run an ensemble of the cloud storage paper with amfs, and check its answers.

    python run.py energyplus|lmps|blast [--size N | --full] [--out DIR] [-- OPTIONS OF amfs run]

Without options of ``amfs run`` it runs on this machine, without a session.

Exit status 1 if a task fails or an answer is wrong.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import steps as s

NAMES = ("energyplus", "lmps", "blast")


def main(arguments: list[str]) -> int:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    ours, theirs = arguments[:end], arguments[end + 1 :]
    parser = argparse.ArgumentParser(description="run an ensemble of the cloud storage paper with amfs, and check its answers")
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--size", type=int, metavar="N", help="cases, hours or fragments (default: some; as in the paper: 210, 8760, 300)")
    parser.add_argument("--full", action="store_true", help="as many as in the paper")
    parser.add_argument("--out", type=Path, metavar="DIR", help="a new directory for everything made (default: one that is removed)")
    options = parser.parse_args(ours)
    kind = importlib.import_module(options.name)
    size = options.size or (kind.FULL if options.full else kind.QUICK)
    if options.out is None:
        with tempfile.TemporaryDirectory(prefix=f"amfs-{options.name}-") as place:
            return ensemble(kind, Path(place), size, theirs)
    try:
        options.out.mkdir(parents=True)
    except FileExistsError:
        parser.error(f"{options.out} is there already; name a new directory")
    return ensemble(kind, options.out, size, theirs)


def ensemble(kind: object, work: Path, size: int, options: list[str]) -> int:
    """``kind``: the module of an ensemble."""
    steps = kind.prepare(work, size)  # type: ignore[attr-defined]
    count = s.write(work / "tasks.txt", steps)
    print(f"{size} {kind.UNIT}: {count} tasks", flush=True)  # type: ignore[attr-defined]
    begun = time.perf_counter()
    with (work / "said.txt").open("w+") as said:  # the programs' output goes there, too
        command = [s.PYTHON, "-m", "amfs", "run", "tasks.txt", "-q", *(options or ["--local"])]
        ended = subprocess.run(command, cwd=work, stdout=said, stderr=subprocess.STDOUT, check=False).returncode
        if ended:
            said.seek(0)
            print(*said.readlines()[-20:], f"amfs run ended with status {ended}", sep="", file=sys.stderr)
            return 1
    print(f"run in {time.perf_counter() - begun:.1f} s")
    try:
        print(kind.check(work, steps))  # type: ignore[attr-defined]
    except ValueError as error:
        print(f"wrong: {error}", file=sys.stderr)
        return 1
    for line in kind.results(work, steps):  # type: ignore[attr-defined]
        print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
