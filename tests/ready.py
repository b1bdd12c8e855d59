"""The process that has amfs imported and forks for each command of the tests: ``python ready.py DOOR LISTENER``.

Both are numbers of sockets of ``commands.py``. The process of new nodes, which a command starts as ``python -P -m amfs.node.main``, is
forked here as well (``forked_nodes.py``).

A new Python imports the same modules for each of some thousand short commands, which is most of their cost. A fork must inherit just
what a new Python has: no thread, no open file, no handler of a signal, nothing made but modules. The differences that are left: the
seed of hashes is that of this process, the command line in /proc is ours, and the end is ``os._exit`` after all that Python does at its
end but the removal of modules. Must not know: the tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import io
import os
import pkgutil
import resource
import runpy
import select
import signal
import socket
import sys
import tempfile
import types
from importlib import import_module
from typing import NamedTuple

import forked_nodes
from forked_nodes import PASSED, Request, received

import amfs

#: Modules that need a library which not every environment has, that make something when imported, or that no short command uses.
LEFT_OUT = (
    "amfs.__main__", "amfs.bench", "amfs.client.fsspec", "amfs.fs.fusepy_adapter", "amfs.live.metrics", "amfs.live.web", "amfs.magic",
    "amfs.node.main", "amfs.plugs", "amfs.provision.guests", "amfs.provision.mpi", "amfs.remote.objects",
)  # fmt: skip

STREAMS = 3


class Forked(NamedTuple):
    """In the new process: the command that it was asked for."""

    descriptors: list[int]
    line: socket.socket


def import_all() -> None:
    for module in pkgutil.walk_packages(amfs.__path__, "amfs."):
        if not module.name.startswith(LEFT_OUT):
            import_module(module.name)
    assert len(os.listdir("/proc/self/task")) == 1, "a module has started a thread when it was imported"
    assert tempfile.tempdir is None, "a module has asked for the directory of temporary files, which each command must ask for itself"


def serve(door: socket.socket, listener: socket.socket) -> Forked | None:
    """Fork for each request. Returns in each of the new processes; None here when nobody can ask any more."""
    asked: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor of a process: its number, and the line to who asked
    poll = select.poll()
    poll.register(door, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor in asked:
                poll.unregister(descriptor)
                pid, line = asked.pop(descriptor)
                _, status = os.waitpid(pid, 0)
                os.close(descriptor)
                with line, contextlib.suppress(BrokenPipeError):
                    line.send(status.to_bytes(4, "little"))
                continue
            if descriptor == listener.fileno():
                line, _ = listener.accept()
                _, descriptors, _, _ = socket.recv_fds(line, 1, PASSED)
            else:
                word, descriptors, _, _ = socket.recv_fds(door, 1, STREAMS + 1)
                if not word:
                    return None
                line = socket.socket(fileno=descriptors.pop())
            pid = os.fork()
            if not pid:
                door.close()
                listener.close()
                for other, (_, their_line) in asked.items():
                    os.close(other)
                    their_line.close()
                return Forked(descriptors, line)
            for one in descriptors:
                os.close(one)
            process = os.pidfd_open(pid)
            asked[process] = pid, line
            poll.register(process, select.POLLIN)
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(line, [b"p"], [process])


def become(forked: Forked) -> str:
    """Make this process what a new one would be; the module that it runs."""
    request = received(forked.line)
    _take(forked.descriptors, request)
    if request.limits is not None:
        for number, limit in enumerate(request.limits):
            resource.setrlimit(number, limit)
    if request.umask is not None:
        os.umask(request.umask)
    signal.signal(signal.SIGINT, signal.default_int_handler if request.interruptible else signal.SIG_IGN)
    if request.detached:
        os.setsid()
    os.environb.clear()
    for name, value in request.environment:
        os.environb[name] = value
    os.chdir(request.directory)
    sys.argv[1:] = map(os.fsdecode, request.arguments)
    if request.safe_path:
        del sys.path[0]
    else:
        sys.path[0] = os.fsdecode(request.directory)
    for stream, standard, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        setattr(sys, standard, _stream(stream, standard, mode))
        setattr(sys, f"__{standard}__", getattr(sys, standard))
    sys.modules["__main__"] = types.ModuleType("__main__")
    return request.module


def _take(descriptors: list[int], request: Request) -> None:
    """Give descriptors the numbers that they have where they come from; the first are the standard streams."""
    wanted = [*range(STREAMS), *request.passed]
    free = max(*wanted, *descriptors) + 1
    moved = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, free) for one in descriptors]
    for one in descriptors:
        if one not in wanted:
            os.close(one)
    for one, number in zip(moved, wanted, strict=True):
        os.dup2(one, number)  # inheritable, unlike the others
        os.close(one)


def _stream(number: int, name: str, mode: str) -> io.TextIOWrapper:
    """A standard stream as Python makes it."""
    as_here: io.TextIOWrapper = getattr(sys, f"__{name}__")
    raw = io.FileIO(number, mode, closefd=False)
    raw.name = f"<{name}>"
    at_once = as_here.write_through
    buffer = io.BufferedReader(raw) if mode == "r" else raw if at_once else io.BufferedWriter(raw)
    by_line = as_here.line_buffering or (not at_once and os.isatty(number))
    text = io.TextIOWrapper(buffer, as_here.encoding, as_here.errors, "\n", by_line, at_once)
    text.mode = mode  # type: ignore[misc]  # as Python does
    return text


def at_the_end(status: object) -> int:
    """What Python does at its end; the status of the process."""
    import atexit
    import threading

    number = status if isinstance(status, int) else 0 if status is None else 1
    if not isinstance(status, int) and status is not None:
        print(status, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception as error:
            if stream is sys.stdout:
                sys.stderr.write(f"Exception ignored in: {stream!r}\n{type(error).__name__}: {error}\n")
                number = 120
    return number & 0xFF


def main() -> None:
    with socket.socket(fileno=int(sys.argv.pop())) as listener, socket.socket(fileno=int(sys.argv.pop())) as door:
        forked_nodes.fork_from(listener.getsockname())
        import_all()
        gc.collect()
        gc.freeze()  # imported modules stay in pages that all share
        try:
            forked = serve(door, listener)
        except KeyboardInterrupt:  # at a terminal all hear it
            forked = None
    if forked is None:
        return
    module = become(forked)
    try:
        runpy._run_module_as_main(module)  # type: ignore[attr-defined]  # as python -m does
    except SystemExit as end:
        os._exit(at_the_end(end.code))
    # any other exception ends it as it ends any Python


if __name__ == "__main__":
    main()
