"""Nodes within a cluster of others that is there: one long task on each host of a Dask cluster, one actor on each node of a Ray cluster.

The session file, which holds keys, goes with the task: it is as safe as that cluster's own connections. Owns the connection to that
cluster. Must not know: the order of the steps (``joining``); how the node is kept there (``tether``).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import msgspec

from amfs.errors import SessionError, SystemSetupError, UsageError
from amfs.net.records import Ready, SessionRecord
from amfs.provision.joining import Place, Way
from amfs.provision.local import START_S

NAMES = ("dask", "ray")
_CONNECT_S = 5.0
_CLOSING = ("closing_gracefully", "closing", "closed", "failed")  # states of a worker of Dask
_END_S = 5.0  # for tasks whose nodes were told to end


def way(name: str, address: str) -> Way:
    """Nodes in the cluster of this kind. Raises UsageError, SystemSetupError if its library is missing, SessionError if it is not there."""
    if name == "dask" and not address:
        raise UsageError("--on dask needs --at ADDRESS of the scheduler, such as tcp://host:8786")
    return DaskTasks(address) if name == "dask" else RayActors(address)


def _library(name: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise SystemSetupError(f"--on {name} needs its library ({error}): pip install 'amfs-hpc[{name}]'") from None


def _in_a_line(error: BaseException) -> str:
    """The last line of an error, which is of another host; that of a node which says in a record why it did not start."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    try:
        return msgspec.json.decode(lines[-1], type=Ready).error or lines[-1]
    except msgspec.MsgspecError:
        return lines[-1].removeprefix("amfs: ")


# ── Dask ──


class DaskTasks:
    """A task on one worker of each host. It takes one of that worker's threads."""

    def __init__(self, address: str) -> None:
        self._dask, self.name, self.patience_s = _library("dask", "distributed"), "dask", START_S
        self._futures: dict[int, Any] = {}
        self._workers: dict[str, str] = {}  # the one of each host
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # failures are raised, too
        try:
            self._client = self._dask.Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise SessionError(f"no Dask scheduler answers at {address}: {_in_a_line(error)}") from None

    @property
    def begun(self) -> int:
        return len(self._futures)

    def places(self, most: int | None) -> Sequence[Place]:
        threads: dict[str, int] = {}
        for worker, count in sorted(self._client.nthreads().items()):
            host = urlsplit(worker).hostname or worker
            self._workers.setdefault(host, worker)
            threads[host] = threads.get(host, 0) + count
        return [Place(host, count) for host, count in threads.items()][:most]

    def begin(self, number: int, place: Place, session: SessionRecord, words: Sequence[str]) -> None:
        self._futures[number] = self._client.submit(
            _dask_task, msgspec.json.encode(session), tuple(words), key=f"amfs-{session.name}-{number}-{session.created}",
            workers=[self._workers[place.name]], allow_other_workers=False, pure=False,
        )  # fmt: skip

    def ended(self) -> Mapping[int, str]:
        done = {number: future for number, future in self._futures.items() if future.done()}
        return {number: _why_done(future) for number, future in done.items()}

    def leave(self) -> None:
        self._dask.fire_and_forget(list(self._futures.values()))
        self._client.close()  # which sends that before it returns
        self._futures.clear()

    def stop(self) -> None:
        """Nodes that have begun cannot be stopped from here; they end with the session."""

    def cancel(self) -> None:
        end = time.monotonic() + _END_S
        while (left := [future for future in self._futures.values() if not future.done()]) and time.monotonic() < end:
            time.sleep(0.02)
        if left:
            self._client.cancel(left, force=True)
        if self._client.status != "closed":
            self._client.close()


def _why_done(future: Any) -> str:
    if future.status == "error":
        return _in_a_line(future.exception())
    return "its task was cancelled" if future.cancelled() else "its node has ended"


def _dask_task(payload: bytes, words: Sequence[str]) -> None:
    """On a worker."""
    from distributed import get_worker

    from amfs.provision.tether import run_node

    worker = get_worker()
    run_node(payload, words, closing=lambda: worker.status.name in _CLOSING)


# ── Ray ──


class RayActors:
    """A detached actor on each node of Ray's. It takes one CPU of it."""

    def __init__(self, address: str) -> None:
        self._ray, self.name, self.patience_s = _library("ray", "ray"), "ray", START_S
        self._actors: dict[int, tuple[Any, Any]] = {}
        self._ids: dict[str, str] = {}
        there = urlsplit(address if "://" in address else f"ray://{address}")
        try:
            if there.hostname and there.port:  # Ray itself asks for minutes, and says so at length
                socket.create_connection((there.hostname, there.port), _CONNECT_S).close()
            self._ray.init(address=address or "auto", namespace="amfs", log_to_driver=False, logging_level=logging.CRITICAL)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise SessionError(f"no Ray cluster answers{f' at {address}' if address else ''}: {_in_a_line(error)}") from None

    @property
    def begun(self) -> int:
        return len(self._actors)

    def places(self, most: int | None) -> Sequence[Place]:
        found = []
        for node in self._ray.nodes():
            cpus = int(node["Resources"].get("CPU", 0))
            if node["Alive"] and cpus:
                name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                self._ids[name] = node["NodeID"]
                found.append(Place(name, cpus))
        return found[:most]

    def begin(self, number: int, place: Place, session: SessionRecord, words: Sequence[str]) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(self._ids[place.name], soft=False)
        kind = self._ray.remote(_RayActor).options(
            name=f"{session.name}-{number}-{session.created}", lifetime="detached", num_cpus=1, max_restarts=0, scheduling_strategy=there
        )
        actor = kind.remote()
        self._actors[number] = actor, actor.run.remote(msgspec.json.encode(session), tuple(words))

    def ended(self) -> Mapping[int, str]:
        found = {}
        for number, (_, result) in self._actors.items():
            if self._ray.wait([result], timeout=0)[0]:
                try:
                    self._ray.get(result)
                    found[number] = "its node has ended"
                except Exception as error:  # of any kind: it is what another process raised
                    found[number] = _in_a_line(error)
        return found

    def leave(self) -> None:
        """Detached actors go on."""

    def stop(self) -> None:
        """Nodes that have begun cannot be stopped from here; they end with the session."""

    def cancel(self) -> None:
        if self._actors:
            self._ray.wait([result for _, result in self._actors.values()], num_returns=len(self._actors), timeout=_END_S)
        for actor, _ in self._actors.values():
            self._ray.kill(actor)
        self._ray.shutdown()


class _RayActor:
    """On a node of Ray's. It ends when its node has, also when nobody asks for the result."""

    def run(self, payload: bytes, words: Sequence[str]) -> None:
        from amfs.provision.tether import run_node

        try:
            run_node(payload, words)
        finally:
            last = threading.Timer(_END_S, os._exit, (0,))  # the asker has the result by then
            last.daemon = True
            last.start()
