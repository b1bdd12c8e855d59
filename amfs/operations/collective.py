"""Collective file movement from a client: multicast, gather, allgather, scatter (AMFS Shell §3.3).

Carries out what ``engine.movement`` decides, through one node of the session; the nodes move the bytes between themselves.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from amfs.client.connection import Call, GatewayLost
from amfs.client.files import Files, StrPath
from amfs.client.paths import clean
from amfs.client.selected import CLOSING_S, PAUSE_S, files_at
from amfs.engine.collectives import ALGORITHMS, GATHER, KINDS, MST, MULTICAST
from amfs.engine.movement import FINAL, Bring, Brought, Effect, Ended, Event, Held, Look, Looked, Movement, Spare, Spared
from amfs.errors import UsageError
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import STRIPED

_LOOK_FILES = 64  # in one question
_WORDS = {**FINAL, errno.EIO: "its content was lost with a node"}


class Moved(NamedTuple):
    """How it went. ``failed``: path -> why it is not where it should be. ``striped``: files that were left as they are, in stripes over
    all nodes. ``bytes`` went between nodes, in ``transfers`` copies of files and ``rounds`` rounds; ``remark``: on nodes that died."""

    failed: dict[bytes, str]
    files: int
    striped: int
    bytes: int
    transfers: int
    rounds: int
    seconds: float
    remark: str

    @property
    def ok(self) -> bool:
        return not self.failed


def move(
    files: Files, kind: str, paths: Iterable[StrPath], *, root: int | None = None, algorithm: str = MST, nodes: Iterable[int] | None = None
) -> Moved:
    """Carry out one collective on the files at and below ``paths``.

    ``kind``: multicast (every node gets all), gather (node ``root`` gets all), allgather (gather, then multicast) or scatter (each file
    to one node, in turn). ``root`` None: for a gather the node that serves this client, else the one that has most. ``nodes``: those
    that take part (default: all). Raises UsageError, OSError, SessionError; faults of single files are in the result.
    """
    if kind not in KINDS or algorithm not in ALGORITHMS:
        raise UsageError(f"there is no collective {kind} with the algorithm {algorithm}")
    if root is not None and kind == MULTICAST:
        raise UsageError("a multicast has no root: files come from where they are")
    began = time.monotonic()
    chosen: dict[int, bytes] = {}
    striped = 0
    for path in paths:
        for each in files_at(files.connection, clean(path)):
            if each.attr.layout == STRIPED:
                striped += 1
            else:
                chosen.setdefault(each.attr.ino, each.path)
    inodes = list(chosen)
    start = files.gateway if kind == GATHER and root is None else -1 if root is None else root
    movement = Movement(kind, range(len(inodes)), root=start, algorithm=algorithm, within=nodes)
    _drive(files, movement, inodes)
    failed = {chosen[inodes[number]]: why for number, why in sorted(movement.failed.items())}
    seconds = time.monotonic() - began
    return Moved(failed, len(inodes), striped, movement.bytes, movement.transfers, movement.rounds, seconds, movement.remark())


def _drive(files: Files, movement: Movement, inodes: list[int]) -> None:
    """Carry out effects until it has ended. Those that come together go to the nodes together."""
    effects = movement.start()
    while effects and not isinstance(effects[0], Ended):
        events = _looked(files, effects[0], inodes) if isinstance(effects[0], Look) else _ordered(files, effects, inodes)
        effects = [effect for event in events for effect in movement.handle(event)]
    assert effects, f"it stands still: {movement.phase.value}"


def _looked(files: Files, look: Look, inodes: list[int]) -> list[Event]:
    if look.pause_s:
        time.sleep(look.pause_s)
    live: frozenset[int] = frozenset()
    found: dict[int, Any] = {}
    asked = look.files
    end = time.monotonic() + CLOSING_S
    while True:
        portions = [asked[start : start + _LOOK_FILES] for start in range(0, len(asked), _LOOK_FILES)] or [()]
        calls = [Call(q.Where(tuple(inodes[file] for file in portion)), (files.session,)) for portion in portions]
        answers = files.call_many(calls)
        for portion, answer in zip(portions, answers, strict=True):
            if isinstance(answer, OSError):
                raise answer
            live = frozenset(answer[0])
            found.update(zip(portion, answer[1], strict=True))
        asked = tuple(file for file in asked if found[file] == errno.EBUSY)
        if not asked or time.monotonic() >= end:
            return [Looked(live, {file: _held(facts) for file, facts in found.items()})]
        time.sleep(PAUSE_S)


def _held(facts: Any) -> Held:
    if isinstance(facts, int):
        return Held(0, frozenset(), _WORDS.get(facts, os.strerror(facts)))
    size, striped, holders = facts
    return Held(size, frozenset(holders), "was laid in stripes meanwhile" if striped else "")


def _ordered(files: Files, effects: list[Effect], inodes: list[int]) -> list[Event]:
    calls: list[Call[Any]] = []
    for effect in effects:
        if isinstance(effect, Bring):
            calls.append(Call(q.Bring(effect.target, effect.source, tuple(inodes[file] for file in effect.files))))
        else:
            assert isinstance(effect, Spare)
            calls.append(Call(q.Spare(effect.node, tuple(inodes[file] for file in effect.files))))
    events: list[Event] = []
    for effect, answer in zip(effects, files.connection.call_many(calls, window=len(calls)), strict=True):
        if isinstance(effect, Spare):
            events.append(Spared(effect.serial))
        elif isinstance(answer, OSError):
            lost = isinstance(answer, GatewayLost)
            events.append(Brought(effect.serial, (), errno.EHOSTDOWN if lost else answer.errno or errno.EIO))  # type: ignore[union-attr]
        else:
            events.append(Brought(effect.serial, answer))  # type: ignore[union-attr]
    return events
