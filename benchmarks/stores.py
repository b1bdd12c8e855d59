"""The stores of the cloud storage study as places: the servers that this machine has, and a session of amfs in three ways.

Owns the list of them. One that cannot be had is told and left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from amfs.errors import AmfsError
from benchmarks.mounts import Session
from benchmarks.servers import SERVERS
from benchmarks.storage import Place
from benchmarks.storage_clients import Spot

AMFS = ("whole", "striped", "mounted")
NAMES = (*SERVERS, *(f"amfs-{way}" for way in AMFS))
DIRECTORY = "/bench"  # in the session, for files of the client


def start(
    stack: ExitStack, wanted: Sequence[str], nodes: int, work: Path, install: bool, say: Callable[[str], None]
) -> tuple[list[Place], dict[str, str], Session | None]:
    """Places of ``wanted`` (of NAMES), which end with ``stack``; why others cannot be had; the session, if one was started."""
    places: list[Place] = []
    missed: dict[str, str] = {}
    for name in (name for name in wanted if name in SERVERS):
        say(f"starting {name}")
        try:
            running = stack.enter_context(SERVERS[name](work, install))
            places.append(Place(running.title, (running.spot,)))
        except (AmfsError, OSError, ImportError) as error:
            missed[name] = str(error)
            say(f"{name}: {error}")
    ways = [way for way in AMFS if f"amfs-{way}" in wanted]
    session = None
    if ways:
        say(f"starting a session of {nodes} nodes")
        try:
            session = stack.enter_context(Session(nodes))
        except AmfsError as error:
            missed["amfs"] = str(error)
            return places, missed, None
        for way in ways:
            try:
                places.append(Place(f"amfs, {way}", tuple(spots(session, way))))
            except AmfsError as error:
                missed[f"amfs, {way}"] = str(error)
    return places, missed, session


def spots(session: Session, way: str) -> list[Spot]:
    """Where the clients of each node find the session's files. Raises Failed."""
    if way == "mounted":
        return [Spot("directory", str(session.mount(node) / "mounted")) for node in range(session.nodes)]
    each = [{"session": session.file, "node": str(node), "layout": way} for node in range(session.nodes)]
    return [Spot("amfs", f"{DIRECTORY}-{way}", options) for options in each]


def disk(where: str, kind: str) -> Place:
    """Another directory of the local disk: the cost of copying without a store."""
    return Place(f"local disk ({kind})" if kind else "local disk", (Spot("directory", where),))


def client_environment(session: Session | None) -> dict[str, str] | None:
    return None if session is None else {**os.environ, **session.env, "AMFS_SESSION": session.file}
