"""The modes of ``benchmarks envelope`` without a directory: every way in which a program can reach files of amfs, in sessions of its own.

Owns the list of modes and how each comes about. Each has a session to itself, so that no mode has to tell another's mount what it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from amfs.bench.dispatch import Result
from amfs.errors import AmfsError
from benchmarks.envelope import Place
from benchmarks.mounts import Session, store_has_huge_pages
from benchmarks.remote import NODES, Remote, failed_rows, run_remote


class Mode(NamedTuple):
    """``options`` of amfs mount."""

    key: str
    title: str
    options: tuple[str, ...]


NATIVE = (
    Mode("amfs", "amfs", ("--fuse", "native")),
    Mode("copy", "amfs, no passthrough", ("--fuse", "native", "--no-passthrough")),
    Mode("open", "amfs, cached opens", ("--fuse", "native", "--cache", "open")),
)
FUSEPY = Mode("fusepy", "amfs, fusepy", ("--fuse", "fusepy"))
STAGED = "staged"
REMOTE = "remote"
KEYS = (*(mode.key for mode in NATIVE), FUSEPY.key, STAGED, REMOTE)


def make_places(
    stack: ExitStack, keys: Sequence[str], nodes: Sequence[int], say: Callable[[str], None] = lambda text: None
) -> list[Place]:
    """The places of the modes named, which live until ``stack`` ends. A mode that cannot be had is a place that says why.

    On one node all modes; with more nodes, each mounted and the clients dealt to the mounts, only the first.
    """
    places = []

    def attempt(place: Place, make: Callable[[], Place]) -> None:
        say(f"starting {place.title}")
        try:
            places.append(make())
        except AmfsError as error:
            places.append(place._replace(broken=str(error)))
            say(f"{place.title} failed: {error}")

    for mode in (*NATIVE, FUSEPY):
        for count in nodes if mode is NATIVE[0] else [1]:
            if mode.key not in keys or (count == 1 and 1 not in nodes):
                continue
            title = mode.title if count == 1 else f"{mode.title}, {count} nodes"
            empty = Place(f"{mode.key}@{count}", title, (), nodes=count)
            attempt(empty, lambda mode=mode, empty=empty: _mounted(stack, mode, empty))  # type: ignore[misc]
    if STAGED in keys:
        empty = Place(STAGED, "staged task", (".",), "staged", nodes=1)
        attempt(empty, lambda: _staged(stack, empty))
    return places


def _mounted(stack: ExitStack, mode: Mode, empty: Place) -> Place:
    session = stack.enter_context(Session(empty.nodes))
    mounts = [session.mount(node, *mode.options) for node in range(empty.nodes)]
    directories = tuple(map(str, mounts))
    if mode is FUSEPY:
        return empty._replace(directories=directories)
    features = session.features[mounts[0]]
    asked = "\n  open: not asked" not in features  # finished files that are opened from caches are read from them, too
    passthrough = asked and "\n  passthrough:" in features  # not everybody may
    return empty._replace(directories=directories, judged_as="passthrough" if passthrough else "copy")


def _staged(stack: ExitStack, empty: Place) -> Place:
    session = stack.enter_context(Session(1))
    judged_as = "staged-huge" if store_has_huge_pages(session) else "staged"
    return empty._replace(command=session.run_as_task, judged_as=judged_as)


def measure_remote(repeat: int, mib: int, say: Callable[[str], None] = lambda text: None) -> list[Result]:
    """The rows of ``remote``, in a session of their own."""
    say(f"starting {NODES} nodes")
    try:
        with Session(NODES) as session:
            return run_remote(Remote(session), repeat, mib, say)
    except AmfsError as error:
        say(f"from another node failed: {error}")
        return failed_rows(str(error))
