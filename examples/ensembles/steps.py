"""Parts of an ensemble: steps, each a program with the files that it reads and writes. Written as a task list of amfs.

The same steps are run in another way by ``python -m benchmarks staging``, which has each task copy its own files.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PYTHON = sys.executable


class Step(NamedTuple):
    """``program`` with ``arguments``; ``label``: its kind, in reports. Names of files are relative to where the ensemble is."""

    id: str
    label: str
    program: str
    arguments: list[str]
    inputs: list[str]
    outputs: list[str]


def line(step: Step) -> str:
    """As in docs/reference/task-lists.md."""
    words = [step.id, "-b", step.program, "-label", step.label]
    words += ["-i", *step.inputs] if step.inputs else []
    words += ["-o", *step.outputs] if step.outputs else []
    return shlex.join([*words, "-a", *step.arguments])


def write(path: Path, steps: Iterable[Step]) -> int:
    """The task list; how many tasks it has."""
    lines = [line(step) for step in steps]
    path.write_text("".join(f"{text}\n" for text in lines))
    return len(lines)


def program(name: str, package: str) -> str:
    """The path of a program that must be installed. Raises SystemExit."""
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed (Debian and Ubuntu: apt-get install {package})")
    return found
