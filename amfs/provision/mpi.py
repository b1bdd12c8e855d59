"""One node per MPI rank. The only module that imports mpi4py.

MPI carries only keys and addresses: each rank starts a detached node that knows nothing of MPI, and ends. So the MPI launcher does not end
the nodes when a rank or a host is lost; their own heartbeats tell which of them live.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from amfs.client import discovery
from amfs.client.control import Client
from amfs.errors import AmfsError, SessionError, SystemSetupError, UsageError
from amfs.host import orphans, processes
from amfs.net import records
from amfs.net.addresses import reachable
from amfs.net.records import NodeEntry, Ready, SessionRecord
from amfs.net.sockets import make_keys
from amfs.provision import daemon, launchers
from amfs.provision.local import START_PER_NODE_S, START_S, LocalProcesses, node_config
from amfs.provision.provisioner import NodeOptions

T = TypeVar("T")

_OF_MPICH = ("MPICH", "Intel MPI", "MVAPICH", "MVAPICH2")


def under_mpi() -> bool:
    """Whether an MPI launcher started this process."""
    return any(mark in os.environ for mark in launchers.MPI_MARKS)


class MpiRanks:
    """One node for each rank of the MPI program that this process is a part of. ``start`` is called by every rank."""

    def __init__(self, nodes: int | None = None) -> None:
        self.nodes = nodes
        self.speaks = launchers.rank(os.environ) == 0

    def start(self, name: str | None, options: NodeOptions) -> SessionRecord:
        """Raises the same SessionError on all ranks."""
        if self.nodes is not None:
            raise UsageError("under an MPI launcher every rank is one node: give the number to the launcher (mpiexec -n), not with --nodes")
        rank, session = _start(name, options)
        self.speaks = rank == 0
        return session

    def add(self, session: SessionRecord, options: NodeOptions) -> Ready:
        raise UsageError("an MPI launcher starts all ranks at once; 'amfs node --join' on any host adds a node")

    def end(self, session: SessionRecord, timeout_s: float) -> list[str]:
        """The servers are ordinary processes that know nothing of MPI."""
        return LocalProcesses().end(session, timeout_s)


def _start(name: str | None, options: NodeOptions) -> tuple[int, SessionRecord]:
    """Start one node on each rank. Our rank, and the session."""
    comm = _world()
    rank, size = comm.Get_rank(), comm.Get_size()
    _refuse_strangers(size)
    host = processes.host_id()
    hosts: list[str] = comm.allgather(host)
    leader = hosts.index(host) == rank  # one rank per host keeps the directory there
    if len(set(hosts)) > 1 and not options.tcp:
        options = msgspec.structs.replace(options, tcp="0.0.0.0")
    options = msgspec.structs.replace(options, expected=max(options.expected, size))
    local_rank = hosts[:rank].count(host)
    started: list[daemon.Started] = []
    claims: list[discovery.Claim] = []
    directory: Path | None = None
    patience = START_S + START_PER_NODE_S * size
    try:
        chosen, keys = _from_first(comm, lambda: (_claim(name, claims), make_keys()))
        if rank == 0:
            directory = records.base_dir() / chosen
        _everywhere(comm, lambda: _claim(chosen, claims) if leader and rank else None)
        directory = records.base_dir() / chosen

        def begin(managers: tuple[str, ...] = ()) -> Ready:
            config = node_config(chosen, records.base_dir() / chosen, keys, rank, options, port_step=local_rank, sharing=hosts.count(host))
            config = msgspec.structs.replace(config, guest=host != hosts[0])
            if managers:
                config = msgspec.structs.replace(config, managers=managers)
            started.extend(daemon.launch([config]))
            return daemon.await_ready(started[-1:], patience)[0]

        manager = _from_first(comm, begin)
        ready = _everywhere(comm, lambda: manager if rank == 0 else begin(reachable(manager.endpoints, hosts[0], host)))
        nodes = tuple(NodeEntry(one.node, one.endpoints, at, one.pid, one.started) for one, at in comm.allgather((ready, host)))
        session = SessionRecord(name=chosen, keys=keys, created=time.time(), host=host, nodes=nodes, unit_size=options.unit_size)
        _from_first(comm, lambda: _complete(session, patience))
        _everywhere(comm, lambda: records.save(session) if leader else None)
    except BaseException:
        daemon.stop([(one.ready.pid, one.ready.started) for one in started if one.ready is not None])
        if directory is not None and leader:
            records.remove_directory(directory)
        raise
    finally:
        for claim in claims:
            claim.release()
    return rank, session


def _world() -> Any:
    try:
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as error:  # the wheel raises RuntimeError when it finds no MPI library
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SystemSetupError(
            f"started by an MPI launcher, but mpi4py cannot be used ({text}): pip install 'amfs-hpc[mpi]', or load your site's mpi4py"
        ) from None
    if not MPI.Is_initialized():
        if MPI.get_vendor()[0] in _OF_MPICH and "OMPI_COMM_WORLD_SIZE" in os.environ and "PMI_SIZE" not in os.environ:
            raise _stranger(os.environ["OMPI_COMM_WORLD_SIZE"])  # before MPI is started: that would abort
        MPI.Init_thread()
    return MPI.COMM_WORLD


def _refuse_strangers(size: int) -> None:
    """mpi4py sees one process only when the launcher is of another MPI than its own: each rank would be a session by itself."""
    by_mpi = any(name in os.environ for name in launchers.MPI_SIZES) or "PMIX_RANK" not in os.environ
    names = launchers.MPI_SIZES if by_mpi else (launchers.STEP_SIZE,)
    told = next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), 1)
    if size == 1 and told > 1:
        raise _stranger(told)


def _stranger(told: object) -> SystemSetupError:
    from mpi4py import MPI

    library = MPI.Get_library_version().strip("\0").split("\n")[0].strip()
    return SystemSetupError(
        f"the MPI launcher started {told} processes, but mpi4py does not see them: its MPI is another ({library}). "
        "Use the launcher of that MPI, or an mpi4py that was built for this one"
    )


def _claim(name: str | None, claims: list[discovery.Claim]) -> str:
    orphans.sweep()
    claims.append(discovery.claim(name))
    return claims[-1].name


def _complete(session: SessionRecord, patience_s: float) -> None:
    with Client(session) as client:
        client.view(patience_s, until=lambda view: len(view.members) >= len(session.nodes))


def _from_first(comm: Any, make: Callable[[], T]) -> T:
    """The value that rank 0 makes, on all ranks; its failure fails all."""
    value: T | None = None
    failure = ""
    if comm.Get_rank() == 0:
        value, failure = _attempt(make)
    value, failure = comm.bcast((value, failure))
    if failure:
        raise SessionError(failure)
    return cast(T, value)


def _everywhere(comm: Any, make: Callable[[], T]) -> T:
    """The value that each rank makes for itself; the failure of one fails all, so that none waits for ever for another."""
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


