"""Nodes that are processes of this machine: whole sessions, a node that joins, the orderly end.

Owns the order of the steps, and the cleaning up when one of them fails. Every wait is bounded. Must not know: MPI (``provision.mpi``).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import msgspec

from amfs.client import discovery
from amfs.client.control import Client
from amfs.errors import SessionError, UsageError
from amfs.host import orphans, processes
from amfs.host.signals import postponed
from amfs.net import records
from amfs.net.addresses import listen_endpoint, loopback, reachable, split
from amfs.net.keys import Keys
from amfs.net.records import NodeConfig, NodeEntry, Ready, SessionRecord
from amfs.net.sockets import make_keys
from amfs.provision import daemon
from amfs.provision.provisioner import NodeOptions
from amfs.vocabulary.messages import Member, Shutdown

START_S = 30.0  # for nodes to listen and to find each other, plus a little for each
START_PER_NODE_S = 1.0
_ENDING = 6  # a node that has begun to end is given so many times as long: on a busy machine it may take a while to remove its store
_AT_ONCE = 64  # nodes of one starting process: each needs three descriptors there


def node_config(
    session: str, directory: Path, keys: Keys, node: int, options: NodeOptions, *, port_step: int = 0, sharing: int = 1
) -> NodeConfig:
    """The configuration of a local node whose manager is node 0. ``port_step`` is added to a given TCP port; ``sharing``:
    so many nodes are started on this host."""
    listen = [f"ipc://{directory}/node-{node}.ipc"]
    data_address = loopback()
    if options.tcp:
        host, port = split(listen_endpoint(options.tcp))
        listen.append(f"tcp://{host}:{int(port) + port_step if port != '0' else 0}")
        data_address = host.strip("[]")
    return NodeConfig(
        session=session, run_dir=str(directory), keys=keys, node=node, listen=tuple(listen),
        managers=(f"ipc://{directory}/node-0.ipc",), slots=options.slots, memory=options.memory, store_dir=options.store_dir,
        drain_s=options.drain_s,
        store_limit=options.store_limit, high_water=options.high_water, spill=options.spill, spill_limit=options.spill_limit,
        replicas=options.replicas, data_address=data_address, unit_size=options.unit_size, sharing=sharing,
        expected=options.expected, log_file=str(directory / f"node-{node}.log"),
        host=processes.host_id(),
    )  # fmt: skip


def entries(readies: Sequence[Ready], host: str) -> tuple[NodeEntry, ...]:
    return tuple(NodeEntry(ready.node, ready.endpoints, host, ready.pid, ready.started) for ready in readies)


def sweep_mounts() -> None:
    """Unmount what dead sessions left mounted. A dead mount of a session that goes on stays: programs would write to the
    directory below."""
    from amfs.host import fusemounts

    for name in {mount.session for mount in fusemounts.mounted()}:
        session = next((one for one in records.list_all() if one.name == name), None)
        if session is not None and discovery.state_of(session, probe_s=0) is discovery.State.DEAD:
            fusemounts.sweep(name)


def prepare_join(session: SessionRecord, options: NodeOptions) -> NodeConfig:
    """Ask the manager of a running session for a number; the configuration of the node that may then join it from this host.

    Keeps a copy of the session file here, so that other commands find the session. Frees what killed nodes have left on this host: where
    nodes are jobs, no other command of amfs may ever come to it. Raises SessionError.
    """
    orphans.sweep()
    discovery.sweep_left(session.name)
    local = any(entry.host == processes.host_id() for entry in session.nodes)
    if not options.tcp and not local:
        options = msgspec.structs.replace(options, tcp="0.0.0.0")
    with Client(session) as client:
        view = client.view(10.0)
        manager = next(member for member in view.members if member.node == view.manager)
        if not local and not any(endpoint.startswith("tcp://") for endpoint in manager.endpoints):
            raise SessionError(f"session {session.name} listens on its own host only; 'amfs up --tcp ADDRESS' lets other hosts join")
        node = client.number(Member(-1, client.transport.incarnation, (), max(0, options.slots), processes.host_id()), view.manager)
    if made := not session.directory.exists():
        records.save(session)
    config = node_config(session.name, session.directory, session.keys, node, options)
    managers = reachable(manager.endpoints, manager.host, processes.host_id())
    guest = made or (records.load(session.path) if session.path.exists() else session).host != processes.host_id()
    return msgspec.structs.replace(config, manager=view.manager, managers=managers, unit_size=view.unit_size, guest=guest)


def from_stdin() -> SessionRecord:
    """The session file that comes on standard input, which is empty afterwards. Raises SessionError."""
    session = records.parse(sys.stdin.buffer.read(), "standard input")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return session


def join_here(session: SessionRecord, config: NodeConfig, ready_fd: int | None = None) -> int:
    """Be the node of ``prepare_join`` in this process until the session ends, or a signal; returns the exit status.

    ``ready_fd``: where to say, in one line, that the node listens, or why it cannot.
    """
    pid = os.getpid()
    records.add_node(session, NodeEntry(config.node, config.listen[:1], processes.host_id(), pid, processes.start_time(pid)))
    try:
        return daemon.run(import_module(daemon.NODE_MODULE).serve, config, ready_fd)
    finally:
        with contextlib.suppress(SessionError):
            discovery.forget(session, config.node, config.guest)


class LocalProcesses:
    """``nodes`` detached processes on this machine."""

    def __init__(self, nodes: int = 1) -> None:
        self.nodes = nodes
        self.speaks = True

    def start(self, name: str | None, options: NodeOptions) -> SessionRecord:
        if self.nodes < 1:
            raise UsageError("a session has at least one node: --nodes 1")
        options = msgspec.structs.replace(options, expected=max(options.expected, self.nodes))
        orphans.sweep()
        claim = discovery.claim(name)
        chosen, directory = claim.name, claim.path
        started: list[daemon.Started] = []
        try:
            keys = make_keys()
            configs = [
                node_config(chosen, directory, keys, node, options, port_step=node, sharing=self.nodes) for node in range(self.nodes)
            ]
            for first in range(0, self.nodes, _AT_ONCE):
                started += daemon.launch(configs[first : first + _AT_ONCE])
            patience = START_S + START_PER_NODE_S * self.nodes
            readies = daemon.await_ready(started, patience)
            session = SessionRecord(
                name=chosen, keys=keys, created=time.time(), host=processes.host_id(), nodes=entries(readies, processes.host_id()),
                unit_size=options.unit_size,
            )  # fmt: skip
            with Client(session) as client:
                client.view(patience, until=lambda view: len(view.members) >= self.nodes)
            records.save(session)
        except BaseException:
            with postponed():  # a second Ctrl-C would leave nodes
                daemon.stop([(one.ready.pid, one.ready.started) for one in started if one.ready is not None])
                records.remove_directory(directory)
            raise
        finally:
            claim.release()
        return session

    def add(self, session: SessionRecord, options: NodeOptions) -> Ready:
        return self.add_all(session, options, 1)[0]

    def add_all(self, session: SessionRecord, options: NodeOptions, count: int) -> list[Ready]:
        """Start so many nodes of a running session together, and wait until all are members. Raises AmfsError; then those that have become
        members stay, and no other is left running."""
        configs = [prepare_join(session, options) for _ in range(count)]
        patience, host = START_S + START_PER_NODE_S * (count - 1), processes.host_id()
        started: list[daemon.Started] = []
        wanted = {config.node for config in configs}
        try:
            for first in range(0, count, _AT_ONCE):
                started += daemon.launch(configs[first : first + _AT_ONCE])
            readies = daemon.await_ready(started, patience)
            with Client(session) as client:
                client.view(patience, until=lambda view: wanted <= {member.node for member in view.members})
        except BaseException:
            there: set[int] = set()
            with contextlib.suppress(SessionError), Client(session) as client:
                there = {member.node for member in client.view().members}
            listening = [one.ready for one in started if one.ready is not None and not one.ready.error]
            daemon.stop([(ready.pid, ready.started) for ready in listening if ready.node not in there])
            for entry in entries([ready for ready in listening if ready.node in there], host):
                records.add_node(session, entry)
            raise
        for entry in entries(readies, host):
            records.add_node(session, entry)
        return readies

    def end(self, session: SessionRecord, timeout_s: float = 10.0) -> list[str]:
        remarks: list[str] = []
        number = _number(session.directory)
        host = processes.host_id()
        mine = discovery.held(session)
        queue = _queue_server(session.directory)
        told = False
        try:
            with Client(session) as client:
                view = client.view(min(timeout_s, 3.0))
                others = [member.node for member in view.members if member.node != view.manager]
                # The manager passes it on; a few more are told if it is just going down.
                told = client.tell([view.manager], Shutdown(), 2.0) or client.tell(others[:3], Shutdown(), 2.0)
        except SessionError as error:
            if mine or any(not processes.same_machine(entry.host, host) for entry in session.nodes):
                remarks.append(str(error))
        begun = time.monotonic()
        for limit in (timeout_s, _ENDING * timeout_s):
            while discovery.held(session) and time.monotonic() < begun + limit:
                time.sleep(0.01)
            stubborn = [entry for entry in discovery.held(session) if limit > timeout_s or not discovery.is_ending(session, entry)]
            if seen := [(entry.pid, entry.started) for entry in stubborn if entry.host == host]:
                pids = ", ".join(str(pid) for pid, _ in seen)
                remarks.append(f"killed process{'es' if len(seen) > 1 else ''} {pids}: no end within {limit:g} s")
                daemon.stop(seen)
            if not [entry for entry in discovery.held(session) if discovery.is_ending(session, entry)]:
                break  # nobody is left, or nobody that could be waited for or killed
        daemon.await_end([(entry.pid, entry.started) for entry in mine if entry.host == host], timeout_s)  # its lock went a moment before
        daemon.stop(_queue_server(session.directory) or queue)
        # Another process that found the session dead may have begun to remove it, and have been ended before it was through. A directory
        # that was made under this name since is not ours.
        if number and _number(session.directory) == number and not (session.directory / records.STARTING).exists():
            if left := discovery.held(session):
                nodes = ", ".join(str(entry.node) for entry in left)
                remarks.append(f"node {nodes} runs in another PID namespace and does not end; {session.directory} is left as it is")
            elif told or discovery.state_of(session, probe_s=0) is discovery.State.DEAD:
                records.remove_directory(session.directory)
            else:
                remarks.append(discovery.unknown(session))
        if not session.directory.exists():  # else some of it may live
            from amfs.host import fusemounts

            fusemounts.sweep(session.name)  # mounts that killed nodes left
        return remarks


def _number(directory: Path) -> int:
    """Of its inode; 0: it is not there."""
    try:
        return os.stat(directory).st_ino
    except OSError:
        return 0


def _queue_server(directory: Path) -> list[tuple[int, int]]:
    """The process that serves the queue of a session on this host, if any."""
    try:
        pid, started = map(int, (directory / records.QUEUE_LOCK).read_text().split())
    except (OSError, ValueError):
        return []
    return [(pid, started)]
