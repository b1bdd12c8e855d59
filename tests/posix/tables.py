"""Tables of cases: sequences of system calls as text, made in two trees, with results and trees compared.

A case is a name and lines, one call each, as ``Tree`` of syscalls.py knows them (``do_mkdir`` is ``mkdir``):

    mkdir d 0755            numbers with a leading zero are octal
    open f d/x RDWR|CREAT   names of flags without their prefix
    write f '<a*4096>'      <text*count> stands for a long text
    rmdir d => !ENOTEMPTY   what must come of it, on tmpfs too; without, the two trees must only agree
    @1 stat d/x             through the second mount; without, through the first, or in turns
    p1 flock g EX|NB        in another process, forked when it is first named, with what is open then
    p1& flock g EX          started there and not waited for
    p1 wait                 what came of it
    tmpfile f . # or EOPNOTSUPP     the tree that is tested may refuse this one, and the rest of the case is left out
    read f 9 # or =abc      or give this
    sleep 1 # any           the result is not compared

At the end of every case the two trees are compared as treestate.py tells them.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

OPENS = {"open", "opendir", "dup", "tmpfile"}
CLOSES = {"close", "closedir"}


@dataclass
class Case:
    name: str
    lines: list[str]
    #: False: through one mount even where there are two. Between nodes an open file is coherent only from close to open.
    in_turns: bool = True


@dataclass
class Step:
    text: str
    process: int
    view: int
    op: list[Any]
    detached: bool = False
    #: Errors that the tested tree may give instead.
    allowed: list[str] = field(default_factory=list)
    compared: bool = True
    #: The right result whatever tmpfs says, as it would be written in a table; empty when only agreement counts.
    wanted: str = ""


#: Group → the function that makes its cases.
GROUPS: dict[str, Callable[[], Iterator[Case]]] = {}


def group(make: Callable[[], Iterator[Case]]) -> Callable[[], Iterator[Case]]:
    """Register a generator of cases; its name is the name of the group."""
    name = make.__name__
    assert name not in GROUPS, f"two groups are called {name}"
    GROUPS[name] = make
    return make


def case(name: str, text: str, *, in_turns: bool = True) -> Case:
    return Case(name, [line.strip() for line in text.strip().splitlines() if line.strip()], in_turns)


def value(word: str) -> Any:
    if re.fullmatch(r"-?(0|[1-9]\d*)", word):
        return int(word)
    if re.fullmatch(r"0[0-7]+", word):
        return int(word, 8)
    return re.sub(r"<([^<>*]+)\*(\d+)>", lambda match: match[1] * int(match[2]), word)


def step(line: str) -> Step:
    text, _, note = line.partition(" # ")
    text, _, wanted = text.partition(" => ")
    words = shlex.split(text)
    process, view, detached = 0, -1, False
    while match := re.fullmatch(r"(@|p)(\d)(&?)", words[0]):
        if match[1] == "@":
            view = int(match[2])
        else:
            process, detached = int(match[2]), bool(match[3])
        words.pop(0)
    allowed = [name[1:] if name[0] == "=" else "!" + name for name in note.removeprefix("or ").split()] if note.startswith("or ") else []
    return Step(line, process, view, [words[0], *map(value, words[1:])], detached, allowed, note != "any", wanted.strip())


def plan(one: Case, views: int) -> list[Step]:
    """The steps of a case; in turns over the views where it may be, which is while nothing is open."""
    steps = [step(line) for line in one.lines]
    turns = itertools.cycle(range(views if one.in_turns else 1))
    opened = 0
    current = 0
    for each in steps:
        if opened <= 0 and each.view < 0:
            current = next(turns)
        if each.view < 0:
            each.view = current
        opened += (each.op[0] in OPENS) - (each.op[0] in CLOSES)
    return steps


def as_job(roots: list[str], steps: list[Step]) -> dict[str, Any]:
    """The message for the executor."""
    return {"roots": roots, "steps": [[each.process, each.view, each.detached, each.op] for each in steps]}
