"""A node server: one process that serves everything of one node until it is told to stop.

``serve`` composes core, I/O and transport and runs the loop. ``provision.daemon`` and the commands start the process (detached, under MPI,
in the foreground).
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import time
from urllib.parse import urlsplit

from amfs._native import Meta, raise_files_limit
from amfs.display.progress import size_text
from amfs.fs.vfs.machine import FileSystem
from amfs.host.processes import host_id, job_end, usable_cpus
from amfs.host.signals import postponed
from amfs.net.addresses import loopback
from amfs.net.records import NodeConfig
from amfs.net.transport import Transport
from amfs.node.core import NodeCore
from amfs.node.file_backend import FileBackend
from amfs.node.file_neighbours import Address
from amfs.node.loop import Loop
from amfs.node.mounts import Mounts
from amfs.node.node_io import NodeIO
from amfs.node.presence import Presence
from amfs.node.spill_directory import memory_limits
from amfs.node.store import Store
from amfs.node.watchdog import Watchdog, threads_overdue
from amfs.provision.daemon import enter, report_ready
from amfs.vocabulary.events import DrainOrdered, Leaving
from amfs.vocabulary.messages import Member

log = logging.getLogger("amfs.node")


def serve(config: NodeConfig, ready_fd: int | None) -> int:
    """Run one node; returns the exit status. Raises AmfsError if it cannot start."""
    slots = max(0, config.slots or usable_cpus())
    host = config.host or host_id()
    presence = Presence(config)
    try:
        return _serve(config, ready_fd, slots, host, presence)
    finally:
        presence.close()


def _serve(config: NodeConfig, ready_fd: int | None, slots: int, host: str, presence: Presence) -> int:
    transport = Transport(config.node, config.keys, config.listen, host=host)
    node_io: NodeIO | None = None
    store: Store | None = None
    watchdog: Watchdog | None = None
    was_ended = False
    try:
        if config.manager != config.node:
            transport.connect(config.manager, config.managers)
        members: dict[int, Member] = {}
        here = loopback()

        def member_of(node: int) -> Address:
            """Where a node's data server is: at its TCP address if it has one, else on this host."""
            view = core.membership.view
            member = next((member for member in view.members if member.node == node), None) if view is not None else None
            if member is None:
                raise OSError(errno.EHOSTDOWN, f"node {node} is no member")
            addresses = [urlsplit(e).hostname for e in member.endpoints if e.startswith("tcp://")]
            return Address(next(iter(addresses), None) or here, member.data_port, member.incarnation)

        def on_view(view: object) -> None:
            current = {member.node: member for member in view.members}  # type: ignore[attr-defined]
            for gone in set(members) - set(current):
                transport.close_peer(gone)
            members.clear()
            members.update(current)
            mounts.set_alone(len(members) == 1)

        with postponed():  # one that ended this in the middle would leave threads that write into a store while it is removed
            store = Store(config.session, config.node, config.store_dir, huge=not config.store_dir)
            meta = Meta(config.node)
            limits = memory_limits(
                store, limit=config.store_limit, high_water=config.high_water, spill=config.spill, spill_limit=config.spill_limit,
                sharing=config.sharing,
            )  # fmt: skip
            files = FileBackend(
                config.node, meta, store.inside, listen=config.data_address, limit=limits.limit if limits.firm else 0, key=config.keys.data,
                incarnation=transport.incarnation, store=store.root, member_of=member_of,
            )  # fmt: skip
            files.store_path = store.path_of
            mounts = files.mounts = Mounts(config.node, meta, files.io, config.run_dir, config.session)
            node_io = NodeIO(store, max(1, slots), memory_for_tasks=config.memory, files=files, mounts=mounts, limits=limits)
            # After the launcher has seen what tasks get. A node may have connections to thousands of others.
            raise_files_limit()
            files.spill_to(limits, node_io.spilled.make)
            me = Member(
                config.node, transport.incarnation, transport.endpoints, slots, host, files.io.port, capacity=limits.limit,
                measured=not config.store_limit, ends=job_end(),
            )  # fmt: skip
            fs = FileSystem(config.node, meta, (os.geteuid(), os.getegid()), config.replicas)
            core = NodeCore(
                me, store.root, manager_hint=config.manager, unit_size=config.unit_size, expected=config.expected, fs=fs,
                memory_limits=limits, wall_offset=time.time() - time.monotonic(),
            )  # fmt: skip
            loop = Loop(core, node_io, transport)
            loop.on_view = on_view

        def stop(number: int, frame: object) -> None:
            loop.post(lambda: loop.tell_node(DrainOrdered(signal.Signals(number).name, config.drain_s)))

        def again() -> None:
            transport.listen_again()
            mounts.listen_again()

        presence.endpoints, presence.again = transport.endpoints, again

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        loop.start()
        watchdog = Watchdog((threads_overdue, mounts.overdue, files.overdue, loop.overdue))
        report_ready(ready_fd, config.node, transport.endpoints)
        log.info("serving %d slots, store %s, data port %d", slots, store.path, files.io.port)
        log.info("limit of what is kept in memory: %s (%s)", size_text(limits.limit) if limits.limit else "none", limits.why_limit)
        if store.remark:
            log.warning("%s", store.remark)
        while not loop.stopping:
            loop.turn()
            presence.look()
            if presence.abandoned:
                loop.tell_node(Leaving("what started this session has ended before it was complete"))
        log.info("stopping: %s", loop.stopping)
        presence.ending()
        was_ended = loop.was_ended
        if was_ended:
            presence.over()
        transport.drain(1.0)
        return 0
    finally:
        if watchdog is not None:
            watchdog.stop()
        if node_io is not None:
            if node_io.mounts is not None:
                node_io.mounts.keep_dead = not was_ended
            node_io.close()
        if store is not None:
            store.close()
        transport.close()


if __name__ == "__main__":
    status = enter(serve)
    logging.shutdown()
    os._exit(status)  # without waiting for threads: one may hang in a kernel that waits for a mount of its own
