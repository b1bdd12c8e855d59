"""One node per MPI rank. The only module that imports mpi4py.

MPI carries only keys and addresses: each rank starts a detached node that knows nothing of MPI, and ends. So the MPI launcher does not end
the nodes when a rank or a host is lost; their own heartbeats tell which of them live.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from amfs.client import discovery
from amfs.client.control import Client
from amfs.errors import AmfsError, SessionError, SystemSetupError
from amfs.host import orphans, processes
from amfs.net import records
from amfs.net.records import NodeEntry, Ready, SessionRecord
from amfs.net.sockets import make_keys
from amfs.provision import daemon
from amfs.provision import local as bootstrap

T = TypeVar("T")


def start(name: str | None, options: bootstrap.NodeOptions) -> tuple[int, SessionRecord]:
    """Called by every rank: start one node each. Returns our rank and the session; raises the same SessionError on all ranks."""
    comm = _world()
    rank, size = comm.Get_rank(), comm.Get_size()
    host = processes.host_id()
    hosts: list[str] = comm.allgather(host)
    leader = hosts.index(host) == rank  # one rank per host keeps the directory there
    if len(set(hosts)) > 1 and not options.tcp:
        options = msgspec.structs.replace(options, tcp="0.0.0.0")
    local_rank = hosts[:rank].count(host)
    started: list[daemon.Started] = []
    directory: Path | None = None
    patience = bootstrap.START_S + bootstrap.START_PER_NODE_S * size
    try:
        chosen, keys = _from_first(comm, lambda: (_claim(name), make_keys()))
        if rank == 0:
            directory = records.base_dir() / chosen
        _everywhere(comm, lambda: discovery.claim(chosen) if leader and rank else None)
        directory = records.base_dir() / chosen

        def begin(managers: tuple[str, ...] = ()) -> Ready:
            config = bootstrap.node_config(chosen, records.base_dir() / chosen, keys, rank, options, port_step=local_rank)
            if managers:
                config = msgspec.structs.replace(config, managers=managers)
            started.append(daemon.launch(config))
            return daemon.await_ready(started[-1:], patience)[0]

        manager = _from_first(comm, begin)
        ready = _everywhere(comm, lambda: manager if rank == 0 else begin(_usable(manager.endpoints, hosts[0] == host)))
        nodes = tuple(NodeEntry(one.node, one.endpoints, at, one.pid, one.started) for one, at in comm.allgather((ready, host)))
        session = SessionRecord(name=chosen, keys=keys, created=time.time(), host=host, nodes=nodes, unit_size=options.unit_size)
        _from_first(comm, lambda: _complete(session, patience))
        _everywhere(comm, lambda: records.save(session) if leader else None)
    except BaseException:
        daemon.stop([(one.ready.pid, one.ready.started) for one in started if one.ready is not None])
        if directory is not None and leader:
            records.remove_directory(directory)
        raise
    return rank, session


def _world() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as error:  # the wheel raises RuntimeError when it finds no MPI library
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SystemSetupError(
            f"started by an MPI launcher, but mpi4py cannot be used ({text}): pip install 'amfs[mpi]', or load your site's mpi4py"
        ) from None
    return MPI.COMM_WORLD


def _claim(name: str | None) -> str:
    orphans.sweep()
    return discovery.claim(name)[0]


def _usable(endpoints: tuple[str, ...], same_host: bool) -> tuple[str, ...]:
    return endpoints if same_host else tuple(endpoint for endpoint in endpoints if not endpoint.startswith("ipc://"))


def _complete(session: SessionRecord, patience_s: float) -> None:
    with Client(session) as client:
        client.view(patience_s, until=lambda view: len(view.members) >= len(session.nodes))


def _from_first(comm: Any, make: Callable[[], T]) -> T:
    """What rank 0 makes, on all ranks; its failure fails all."""
    value: T | None = None
    failure = ""
    if comm.Get_rank() == 0:
        value, failure = _attempt(make)
    value, failure = comm.bcast((value, failure))
    if failure:
        raise SessionError(failure)
    return cast(T, value)


def _everywhere(comm: Any, make: Callable[[], T]) -> T:
    """What each rank makes for itself; the failure of one fails all, so that none waits for ever for another."""
    value, failure = _attempt(make)
    failures = [f"rank {rank}: {text}" for rank, text in enumerate(comm.allgather(failure)) if text]
    if failures:
        raise SessionError("\n".join(failures[:5]))
    return cast(T, value)


def _attempt(make: Callable[[], T]) -> tuple[T | None, str]:
    try:
        return make(), ""
    except AmfsError as error:
        return None, str(error)
    except Exception as error:  # an unknown fault must not leave the other ranks waiting, either
        return None, f"{type(error).__name__}: {error}"


