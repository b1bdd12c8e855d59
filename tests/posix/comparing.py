"""Cases run in both trees, and what they made of them compared."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from pathlib import Path
from typing import Any

import mounting
import tables
import treestate
from executor import Executor

#: More differing cases of one group are counted, not told.
LARGE = 30  # cases
TOLD_MAX = 8


class Pair:
    """The tree that is tested, seen through one or more mounts, and the tmpfs; each with a process that makes the calls."""

    numbers = itertools.count()

    def __init__(self, oracle: Path, mounts: list[Path]) -> None:
        self.oracle, self.mounts = oracle, mounts
        self.executors = [Executor(), Executor()]

    def stop(self) -> None:
        for executor in self.executors:
            executor.stop()

    def fresh(self) -> tuple[list[str], list[str]]:
        """A new directory in both trees: its path as (the oracle, for each view) and (the mounts)."""
        name = f"case{next(self.numbers)}"
        for top in (self.oracle, self.mounts[0]):
            (top / name).mkdir()
            # Whatever a group and mode the top has, the case begins in the same.
            os.chown(top / name, 0, 0)
            os.chmod(top / name, 0o755)
        return [str(self.oracle / name)] * len(self.mounts), [str(mount / name) for mount in self.mounts]

    def remove(self, roots: tuple[list[str], list[str]]) -> None:
        for each in roots:
            shutil.rmtree(each[0])

    def run(self, case: tables.Case) -> list[str]:
        """Lines that tell how the trees differ; none is good. The removal of what a case made is part of it."""
        steps = tables.plan(case, len(self.mounts))
        last = tables.Step("(the tree afterwards)", 0, len(self.mounts) - 1 if case.in_turns else 0, ["state"])
        roots = self.fresh()
        wanted, got = self.results(roots, [*steps, last])
        assert len(wanted) == len(steps) + 1, f"{case.name}: tmpfs did not get through it, the case itself is wrong: {wanted}"
        lines = compare([*steps, last], wanted, got)
        try:
            self.remove(roots)
        except OSError as error:
            lines.append(f"what the case made cannot be removed: {error}")
            shutil.rmtree(roots[0][0], ignore_errors=True)
        return lines

    def results(self, roots: tuple[list[str], list[str]], steps: list[tables.Step]) -> tuple[list[Any], list[Any]]:
        """The answers of both trees. Raises TimeoutError when one hangs; the next case gets new processes."""
        try:
            for executor, each in zip(self.executors, roots, strict=True):
                executor.send(tables.as_job(each, steps))
            wanted, got = (executor.receive() for executor in self.executors)
        except (OSError, EOFError):
            self.stop()
            self.executors = [Executor(), Executor()]
            raise
        return wanted, got

    def run_group(self, name: str, every: int = 1) -> None:
        """Raises AssertionError that tells the cases of a group in which the trees differ. ``every``: of a large group only each so
        manieth case."""
        failed: list[str] = []
        total = 0
        cases = list(tables.GROUPS[name]())
        for case in cases[:: every if len(cases) > LARGE else 1]:
            total += 1
            if any(mounting.WITHOUT.intersection(re.split(r"[ |]", line)) for line in case.lines):
                continue
            if lines := self.run(case):
                failed.append("\n    ".join([f"{case.name}:", *lines]))
        assert total, f"{name} has no cases"
        more = f"\n  and {len(failed) - TOLD_MAX} more" if len(failed) > TOLD_MAX else ""
        assert not failed, f"{len(failed)} of {total} cases of {name} differ from tmpfs\n  " + "\n  ".join(failed[:TOLD_MAX]) + more


def compare(steps: list[tables.Step], wanted: list[Any], got: list[Any]) -> list[str]:
    """One line for each call whose result differs, and for each file; calls before a difference are told with it."""
    lines: list[str] = []
    for number, (step, good, found) in enumerate(zip(steps, wanted, got, strict=False)):
        if step.allowed and found in step.allowed:
            return lines
        if step.wanted and as_word(good) != step.wanted:
            lines.append(f"{step.text}: tmpfs gave {good!r}: the case itself is wrong")
        if good == found or not step.compared:
            continue
        if not lines and number:
            lines.append("after " + "; ".join(each.text for each in steps[:number]))
        if step.op[0] == "state" and isinstance(good, dict) and isinstance(found, dict):
            lines.append(f"{step.text} differs")
            lines += ["  " + line for line in treestate.differences(good, found)]
        else:
            lines.append(f"{step.text} (mount {step.view}) gave {found!r}, should give {good!r}")
    if len(wanted) != len(got):
        lines.append(f"{len(got)} of {len(steps)} results, should be {len(wanted)}: {got[-1]!r}")
    return lines


def as_word(result: Any) -> str:
    """A result as the right-hand side of ``=>`` in a table."""
    return result if isinstance(result, str) else "ok" if result is None else str(result)
