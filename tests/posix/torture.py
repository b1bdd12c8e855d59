"""Random calls by the million on a mount and on tmpfs, which must agree. On a difference the sequence is printed, made as short as it gets.

    python tests/posix/torture.py --ops 1000000 --seed 7 [--nodes 2]     starts its own session and mounts
    python tests/posix/torture.py --mount-options '--cache open'         another kind of mount
    AMFS_POSIX_DIR=DIR python tests/posix/torture.py --ops 100000        on a directory given by hand
    python tests/posix/torture.py --replay FILE                          what an earlier run wrote

Exit code 1 when the trees differ.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

import mounting
from twins import Difference, Turn, Twins, as_lines, random_op

#: After so many calls the trees begin anew, so that a sequence that shows a difference stays short enough to be made shorter.
ROUND = 2000
CHECK_EVERY = 100
#: Calls made up with one look at what there is.
LOOK_EVERY = 8


def explore(oracle: Path, mounts: list[Path], rng: random.Random, count: int) -> tuple[list[Turn], str]:
    """Make random calls until they are done or the trees differ: the calls, and in what they do ("": they agree)."""
    turns: list[Turn] = []
    twins = Twins(oracle, mounts)
    differ = ""
    try:
        while len(turns) < count:
            if len(turns) % LOOK_EVERY == 0:
                hints = twins.hints()
            turns.append((rng.randrange(len(mounts)), random_op(rng, hints)))
            twins.run(turns[-1])
            if len(turns) % CHECK_EVERY == 0:
                twins.check(len(turns) // CHECK_EVERY)
        for view in range(len(mounts)):
            twins.check(view)
    except Difference as difference:
        differ = str(difference)
    finally:
        left = twins.close()
    return turns, differ or left


def first_difference(oracle: Path, mounts: list[Path], turns: list[Turn], every: int = 0) -> tuple[int, str] | None:
    """How many calls it took and what differed; the trees are compared as a whole at the end and, if asked, every so many calls."""
    found: tuple[int, str] | None = None
    done = 0
    twins = Twins(oracle, mounts)
    try:
        for done, turn in enumerate(turns, 1):
            twins.run(turn)
            if every and done % every == 0:
                twins.check(done // every)
        for view in range(len(mounts)):
            twins.check(view)
    except Difference as difference:
        found = done, str(difference)
    finally:
        left = twins.close()
    return found or ((done, left) if left else None)


def shortest(oracle: Path, mounts: list[Path], turns: list[Turn], limit_s: float = 120.0) -> tuple[list[Turn], str]:
    """Leave out halves, quarters, … single calls, as long as a difference is left. Whatever it is: it need not stay the same one."""
    end = time.monotonic() + limit_s
    found = first_difference(oracle, mounts, turns)
    if found is None:  # it took the looks in between
        found = first_difference(oracle, mounts, turns, CHECK_EVERY)
        return turns, found[1] if found else "does not come again: a matter of timing"
    turns, told = turns[: found[0]], found[1]
    size = len(turns) // 2
    while size:
        at = 0
        while at < len(turns) and time.monotonic() < end:
            shorter = turns[:at] + turns[at + size :]
            if shorter and (found := first_difference(oracle, mounts, shorter)):
                turns, told = shorter[: found[0]], found[1]
            else:
                at += size
        size //= 2
    return turns, told


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Random calls on a mount and on tmpfs, which must agree.")
    parser.add_argument("--ops", type=int, default=100_000, help="how many calls [100,000]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many seconds, whatever was done until then")
    mounting.add_options(parser)
    parser.add_argument("--replay", type=Path, metavar="FILE", help="a sequence that an earlier run wrote")
    parser.add_argument("--write", type=Path, metavar="FILE", help="where to write the sequence of a difference")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append a line that says what was run, and what came of it")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args(arguments)
    if options.ops < 1 or options.nodes < 1:
        parser.error("--ops and --nodes are at least 1")
    mounting.take_options(options)
    options.write, options.log = (path and path.absolute() for path in (options.write, options.log))  # the trees change where we stand
    try:
        with mounting.on_tmpfs() as oracle, mounting.mounted(options.nodes) as mounts:
            if options.replay:
                turns = [(view, op) for view, op in json.loads(options.replay.read_text(encoding="utf-8"))]
                differ = first_difference(oracle, mounts, turns, CHECK_EVERY)
                return report(oracle, mounts, turns, options.write, "replayed") if differ else 0
            return torture(oracle, mounts, options)
    except mounting.NotHere as missing:
        print(missing, file=sys.stderr)
        return 2


def torture(oracle: Path, mounts: list[Path], options: argparse.Namespace) -> int:
    done, began = 0, time.monotonic()
    while done < options.ops and time.monotonic() - began < options.seconds:
        seed = f"{options.seed}.{done}"
        turns, differ = explore(oracle, mounts, random.Random(seed), min(ROUND, options.ops - done))
        if differ:
            note(options, done, began, f"a difference after calls from {done:,} on")
            print(f"\nafter {done + len(turns):,} calls: {differ}", flush=True)
            return report(oracle, mounts, turns, options.write, f"seed {options.seed}, calls from {done:,} on")
        done += len(turns)
        if not options.quiet:
            print(f"\r{done:,} calls agree, {done / (time.monotonic() - began):,.0f} a second ", end="", file=sys.stderr, flush=True)
    if not options.quiet:
        print(file=sys.stderr)
    note(options, done, began, "no difference")
    print(f"{done:,} calls agree with tmpfs ({mounting.kind(options.nodes)}, seed {options.seed})")
    return 0


def note(options: argparse.Namespace, done: int, began: float, words: str) -> None:
    if options.log:
        took = time.monotonic() - began
        line = f"torture: {mounting.kind(options.nodes)}: seed {options.seed}, {done:,} calls in {took:.0f} s: {words}\n"
        with options.log.open("a", encoding="utf-8") as log:
            log.write(line)


def report(oracle: Path, mounts: list[Path], turns: list[Turn], write: Path | None, which: str) -> int:
    short, told = shortest(oracle, mounts, turns)
    print(f"\nthe trees differ ({which}); {len(turns)} calls shortened to {len(short)}:\n{as_lines(short)}\n  {told}")
    if write:
        write.write_text(json.dumps(short), encoding="utf-8")
        print(f"written to {write}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
