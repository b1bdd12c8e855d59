"""``python -m fuzz``: the simulator's fault hunt without the rest of amfs. Exit status 0: nothing found; 1: a seed failed."""

from __future__ import annotations

import argparse
import sys
import traceback

from fuzz.hunt import hunt
from fuzz.seeds import DRAWN, Finding, describe, run_seed


def seeds_of(text: str) -> range:
    """"7" is that seed, "0-1999" is a range. Raises ValueError."""
    first, dash, last = text.partition("-")
    if dash:
        return range(int(first), int(last) + 1)
    return range(int(first), int(first) + 1)


def command(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Hunt for faults with random simulated clusters.")
    parser.add_argument("--seeds", type=seeds_of, default=range(100), metavar="A-B", help="seeds to run, one or a range (default 0-99)")
    parser.add_argument("--quiet-mode", action="store_true", help="no faults and no timers: everything must still finish")
    parser.add_argument("--blind", dest="kind", action="store_const", const="blind", default="", help="with blind tasks")
    parser.add_argument("--session", dest="kind", action="store_const", const="session", help="with files of the session that tasks make")
    parser.add_argument("--verbose", action="store_true", help="print every event, and the traceback of a failure")
    parser.add_argument("--stop-at", type=int, default=1, metavar="N", help="give up after N failures (default 1)")
    given = parser.parse_args(argv)
    say = print
    if given.verbose:
        for seed in given.seeds:
            say(f"seed {seed}\n{describe(DRAWN[given.kind](seed, quiet=given.quiet_mode))}")
            try:
                say(str(run_seed(seed, quiet=given.quiet_mode, kind=given.kind, tell=say)))
            except Finding as finding:
                traceback.print_exception(finding.error)
                say(finding.report)
                return 1
        return 0
    return 1 if hunt(given.seeds, quiet=given.quiet_mode, kind=given.kind, say=say, stop_at=given.stop_at) else 0


if __name__ == "__main__":
    sys.exit(command())
