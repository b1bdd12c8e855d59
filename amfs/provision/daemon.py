"""How a node process begins: its configuration comes on a pipe, it detaches, and says on another pipe whether it listens.

Owns both ends of that start: ``launch`` in the process that starts nodes, ``enter`` in the node. Must not know: the work of a node.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from amfs.errors import AmfsError, SessionError, hint, understood
from amfs.host.processes import is_running, start_time
from amfs.net.records import NodeConfig, Ready, load

NODE_MODULE = "amfs.node.main"

#: A detached server is no MPI process, and neither are its tasks.
_MPI_PREFIXES = ("PMI_", "PMIX_", "OMPI_", "MPI_", "MPIR_", "HYDRA_", "HYDI_", "PRTE_", "PALS_", "MV2_", "MPIEXEC_", "GFORTRAN_UNBUFFERED")


class Started:
    """A node process on its way: its number and the pipe on which it will say that it listens."""

    def __init__(self, node: int, ready_fd: int, log_file: str, first: subprocess.Popen[bytes]) -> None:
        self.node = node
        self.ready_fd = ready_fd
        self.log_file = log_file
        self.first = first  # forks the node and ends
        self.heard = b""
        self.ready: Ready | None = None


# ── the starting side ──────────────────────────────────────────────────────────────────────────────


def node_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a node process: ours without MPI's variables, and able to import this amfs from any directory."""
    env = {k: v for k, v in (os.environ if environ is None else environ).items() if not k.startswith(_MPI_PREFIXES)}
    home = Path(__file__).resolve().parent.parent.parent
    if home.name not in ("site-packages", "dist-packages"):
        rest = [os.path.abspath(part) for part in env.get("PYTHONPATH", "").split(os.pathsep) if part]
        env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(home), *rest]))
    return env


class _Order(msgspec.Struct):
    """To the process that starts nodes: be this node, with these descriptors."""

    config: NodeConfig
    ready_fd: int
    log_fd: int


def launch(configs: Sequence[NodeConfig]) -> list[Started]:
    """Start detached node processes: a session of their own, no parent, standard streams to their logs, no other open file of ours.

    One process imports what nodes need, forks each of them and ends: a quarter of a second of CPU once instead of for each.
    """
    orders: list[_Order] = []
    ready_fds: list[int] = []
    try:
        for config in configs:
            log = os.open(config.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            ready, tell = os.pipe2(os.O_CLOEXEC)
            orders.append(_Order(config, tell, log))
            ready_fds.append(ready)
        passed = [descriptor for order in orders for descriptor in (order.ready_fd, order.log_fd)]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", NODE_MODULE], stdin=subprocess.PIPE, stdout=orders[0].log_fd, stderr=orders[0].log_fd,
            pass_fds=passed, start_new_session=True, cwd="/", env=node_environment(),
        )  # fmt: skip
    except BaseException:
        for descriptor in ready_fds:
            os.close(descriptor)
        raise
    finally:
        for order in orders:
            os.close(order.ready_fd)
            os.close(order.log_fd)
    assert process.stdin is not None
    try:
        process.stdin.write(msgspec.json.encode(orders))
        process.stdin.close()
    except BrokenPipeError:
        process.stdin = None  # it ended at once; the ready pipes say so
    return [Started(config.node, ready, config.log_file, process) for config, ready in zip(configs, ready_fds, strict=True)]


def await_ready(started: Iterable[Started], timeout_s: float) -> list[Ready]:
    """Wait until each listens. Raises SessionError, naming the first that does not and the end of its log, when one fails or time is up."""
    waiting = {one.ready_fd: one for one in started}
    order = list(waiting.values())
    end = time.monotonic() + timeout_s
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    try:
        while waiting:
            left = end - time.monotonic()
            if left <= 0:
                nodes = ", ".join(str(one.node) for one in waiting.values())
                raise SessionError(f"node {nodes} did not start within {timeout_s:g} s{tail(next(iter(waiting.values())).log_file)}")
            for descriptor, _ in poll.poll(left * 1000):
                one = waiting[descriptor]
                data = os.read(descriptor, 65536)
                one.heard += data
                if data and not one.heard.endswith(b"\n"):
                    continue
                one.ready = _parse(one)
                poll.unregister(descriptor)
                del waiting[descriptor]
                if one.ready.error:
                    raise SessionError(f"node {one.node} did not start: {one.ready.error}")
    finally:
        for one in order:
            os.close(one.ready_fd)  # a node that listens too late sees that nobody waits for it, and ends
            if one.ready is None:
                one.first.kill()
            one.first.wait()
    return [one.ready for one in order if one.ready is not None]


def _parse(one: Started) -> Ready:
    try:
        return msgspec.json.decode(one.heard, type=Ready)
    except msgspec.MsgspecError:
        end = tail(one.log_file)
        return Ready(one.node, error="it ended at once" + hint(end) + end)


def tail(log_file: str, lines: int = 5) -> str:
    """The end of a log, each line on one of its own; "" if there is none."""
    try:
        text = Path(log_file).read_text(errors="replace").strip().splitlines()[-lines:]
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in text)


def stop(processes: Iterable[tuple[int, int]], patience_s: float = 2.0) -> None:
    """End processes, given as (pid, start time): SIGTERM, then SIGKILL after ``patience_s``. Reused pids are left alone."""
    left = [(pid, started) for pid, started in processes if is_running(pid, started)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid, started in left:
            _signal(pid, started, number)
        left = await_end(left, patience_s)
        if not left:
            return


def await_end(processes: Iterable[tuple[int, int]], timeout_s: float) -> list[tuple[int, int]]:
    """Wait until these processes are gone, at most ``timeout_s``; returns those that are not."""
    end = time.monotonic() + timeout_s
    left = list(processes)
    while left := [(pid, started) for pid, started in left if is_running(pid, started)]:
        if time.monotonic() >= end:
            break
        time.sleep(0.01)
    return left


def _signal(pid: int, started: int, number: signal.Signals) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if is_running(pid, started):  # with the pidfd in hand the pid cannot change its owner under us
            signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return
    finally:
        os.close(descriptor)


# ── the node's side ────────────────────────────────────────────────────────────────────────────────


def log_to(log_file: str) -> int:
    """From now on what this process says goes to ``log_file``. Returns a descriptor of what was its standard output.

    So the node needs nobody to read what it says, as when a connection breaks.
    """
    ready = os.dup(1)
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return ready


@contextlib.contextmanager
def while_awaited(descriptor: int = 1) -> Iterator[None]:
    """Within this, the process ends when nobody reads from ``descriptor``, a pipe, any more: the process that started it has given up."""
    done = threading.Event()
    poll = select.poll()
    poll.register(descriptor, 0)  # that the other end is closed is always told

    def watch() -> None:
        while not done.is_set():
            if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(100)):
                os._exit(70)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def report_ready(ready_fd: int | None, node: int, endpoints: tuple[str, ...]) -> None:
    """Called by the node once it listens: tells the process that started it, and closes the pipe.

    Raises SessionError if that has gone: it gave up waiting, and then this node belongs to nothing.
    """
    try:
        _tell(ready_fd, Ready(node, endpoints, os.getpid(), start_time(os.getpid())))
    except OSError:
        raise SessionError("whoever started this node has given up waiting for it") from None


def _tell(ready_fd: int | None, ready: Ready) -> None:
    if ready_fd is not None:
        os.write(ready_fd, msgspec.json.encode(ready) + b"\n")
        os.close(ready_fd)


def _tell_failure(ready_fd: int | None, node: int, text: str) -> None:
    with contextlib.suppress(OSError):  # it listened before it failed, or nobody waits
        _tell(ready_fd, Ready(node, error=text))


def enter(serve: Callable[[NodeConfig, int | None], int]) -> int:
    """The main function of detached node processes (``python -m amfs.node.main``): forks them; returns in each, its exit status."""
    orders = msgspec.json.decode(sys.stdin.buffer.read(), type=list[_Order])
    for order in orders:
        os.set_inheritable(order.ready_fd, False)
        os.set_inheritable(order.log_fd, False)
    gc.freeze()  # imported modules stay in pages that the nodes share
    for order in orders:
        try:
            child = os.fork()
        except OSError as error:
            _tell_failure(order.ready_fd, order.config.node, str(understood(error)))
            continue
        if not child:
            break
    else:
        os._exit(0)  # so that a node is nobody's child, and no leader of its session either
    os.dup2(order.log_fd, 1)
    os.dup2(order.log_fd, 2)
    for other in orders:
        os.close(other.log_fd)
        if other is not order:
            with contextlib.suppress(OSError):  # of one that could not be forked
                os.close(other.ready_fd)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    status = run(serve, order.config, order.ready_fd)
    if order.config.guest and not status:
        _forget(order.config)
    return status


def _forget(config: NodeConfig) -> None:
    """Nobody on this host ends the session, so its last node here takes along what it has here."""
    from amfs.client import discovery  # few nodes need it

    with contextlib.suppress(SessionError):
        discovery.forget(load(Path(config.run_dir) / "session.json"), config.node, guest=True)


def end_cleanly_on_sigterm() -> None:
    """Until the node drains at SIGTERM: this process ends, after it has removed what it has made. (SIGINT does that by itself.)"""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)


def run(serve: Callable[[NodeConfig, int | None], int], config: NodeConfig, ready_fd: int | None) -> int:
    """Serve in this process; whatever ends it is logged, and told on the ready pipe if it had not listened yet."""
    end_cleanly_on_sigterm()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format=f"%(asctime)s node {config.node} %(levelname)s %(name)s: %(message)s"
    )
    try:
        return serve(config, ready_fd)
    except AmfsError as error:
        logging.getLogger("amfs.net").error("%s", error)
        _tell_failure(ready_fd, config.node, str(error))
        return error.exit_code
    except Exception as error:
        logging.getLogger("amfs.net").exception("the node ends")
        known = understood(error)
        _tell_failure(ready_fd, config.node, str(known) if isinstance(known, AmfsError) else f"{type(error).__name__}: {error}")
        return 70
