#!/usr/bin/env python3
"""Write docs/states.md from the tables of amfs/vocabulary/states.py.

``tools/make_state_diagrams.py`` writes; ``--check`` only says whether the page is what the tables say (exit 1 if not). A unit test
does the latter.
"""

from __future__ import annotations

import argparse
import sys
from enum import IntEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from amfs.vocabulary.states import TABLES  # noqa: E402  (the path has to be set first)

PAGE = ROOT / "docs" / "states.md"

HEAD = """\
# States

Generated from the tables in `amfs/vocabulary/states.py` by `tools/make_state_diagrams.py`; a test fails when this page is stale. A move
that is not listed here is an error (`InvalidTransition`), raised with the last events of the thing concerned.
"""


def section(title: str, table: dict[tuple[IntEnum, IntEnum], IntEnum]) -> str:
    """One machine: the meaning of its states, the diagram, the table."""
    states = type(next(iter(table))[0])
    lines = [f"## {title}", ""]
    own_words = states.__doc__ if states.__doc__ and states.__doc__ != IntEnum.__doc__ else ""
    if own_words and not own_words.startswith("An enumeration"):
        lines += [" ".join(own_words.split()), ""]
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), after in table.items():
        arrows.setdefault((state.name, after.name), []).append(event.name)
    leaving = {state for (state, after) in arrows if state != after}
    lines += ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(states)).name}"]
    lines += [f"    {state} --> {after}: {', '.join(events)}" for (state, after), events in arrows.items()]
    reached = {after for (_, after) in arrows}
    lines += [f"    {state.name} --> [*]" for state in states if state.name in reached and state.name not in leaving]
    lines += ["```", "", "| from | on | to |", "| --- | --- | --- |"]
    lines += [f"| {state.name} | {event.name} | {after.name} |" for (state, event), after in table.items()]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole of docs/states.md."""
    return "\n".join([HEAD, *(section(title, dict(table)) for title, table in TABLES.items())])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is stale")
    if parser.parse_args().check:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
            return 0
        print(f"{PAGE.relative_to(ROOT)} is stale: run tools/make_state_diagrams.py", file=sys.stderr)
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
