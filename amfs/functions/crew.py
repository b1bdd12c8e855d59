"""The workers of an executor, from the first call to the last: one thread that serves their connections.

Owns the connections, the run whose tasks the workers are, and the calls that have not ended. Which worker gets which call ``engine.calls``
decides. When the run ends early (the session is gone), all calls fail. Must not know: how functions are pickled.
"""

from __future__ import annotations

import linecache
import os
import pickle
import re
import select
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent import futures
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amfs.engine import calls as c
from amfs.errors import AmfsError, ProtocolError
from amfs.host.processes import host_id
from amfs.net import call_stream as w
from amfs.provision.daemon import node_environment
from amfs.runs.api import Session
from amfs.runs.tally import told
from amfs.workflow.workflow import Task

if TYPE_CHECKING:
    from amfs.client.files import Files
    from amfs.functions.pickles import Pickled
    from amfs.runs.api import Handle

_LOOK_S = 0.5  # how often it is looked whether the run still goes on
_STRANGERS_MAX = 64  # connections whose handshake has not ended
_RECEIVE = 1 << 20


class WorkerLost(futures.BrokenExecutor):
    """The worker died while it executed this call. Calls that it had not begun are executed by others."""

_FRAME = re.compile(r'  File "(.+)", line (\d+)(?:, in (.+))?')


class CallInterrupted(AmfsError):
    """The call was ended from here before it had a result."""


class RemoteTraceback(Exception):
    """The traceback of a function that raised, as text: the cause of the exception that ``Future.result`` raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Call:
    """One call, or one chunk of them."""

    __slots__ = ("begun", "function", "future", "in_file", "kind", "payload")

    def __init__(self, future: futures.Future[Any], function: Pickled, kind: int, payload: bytes, in_file: bool) -> None:
        self.future = future
        self.function = function
        self.kind = kind
        self.payload = payload
        self.in_file = in_file
        self.begun: bool | None = None  # False: it was cancelled before, and its future has been told

    def begin(self) -> bool:
        """Is it to be executed? It may be sent again, after a worker has given it back."""
        if self.begun is None:
            self.begun = self.future.set_running_or_notify_cancel()
        return self.begun


class _Link:
    """The connection to a worker."""

    def __init__(self, worker: int, stream: w.CallStream) -> None:
        self.worker = worker
        self.stream = stream
        self.out = bytearray()
        self.known: dict[int, None] = {}  # functions, as the worker has them
        self.function = 0  # which one it takes the next call to mean
        self.waits = False  # for room to send


class Crew:
    """Up to ``slots`` workers in ``session``. ``directory``: of the session's file system, for large values; removed at the end."""

    def __init__(self, files: Files, session: str, slots: int, limits: c.CallLimits, name: str) -> None:
        self.files = files
        self.name = name
        self.directory = f"/.amfs/calls/{name}"
        self._machine = c.CallDispatch(slots, limits)
        self._calls: dict[int, Call] = {}
        self._last = 0
        self._made: deque[int] = deque()
        self._told: deque[c.CallEvent] = deque()
        self._joined: deque[tuple[int, w.CallStream]] = deque()
        self._links: dict[int, _Link] = {}  # by descriptor
        self._by_worker: dict[int, _Link] = {}
        self._strangers = threading.Semaphore(_STRANGERS_MAX)
        self._adding = threading.Lock()
        self._count = 0  # of files
        self._large = False  # values came in files
        self._function_files: dict[int, bytes] = {}
        self._draining = False
        self._why = ""  # it has ended
        self._record = files.connection.session
        self._key = w.key_of(self._record.keys.data, name)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._awake = True
        self._gate = threading.Lock()
        self._closed = False  # under the gate: descriptors are closed, and their numbers are those of others
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._listeners: dict[int, socket.socket] = {}
        self._session: Session | None = None
        try:
            self._addresses = ",".join(self._listen())
            self._session = Session(session=session)
            self._session.on_ended = self._on_ended
            self._readers = futures.ThreadPoolExecutor(2, "amfs values")
            self._thread = threading.Thread(target=self._serve, name="amfs functions", daemon=True)
            self._thread.start()
        except BaseException:
            self._dispose()
            raise

    # ── called from any thread ─────────────────────────────────────────────────────────────────────

    def add(self, future: futures.Future[Any], function: Pickled, kind: int, payload: bytes) -> None:
        """Have it executed. Raises BrokenExecutor when this crew has ended."""
        in_file = len(payload) > w.INLINE_MAX
        call = Call(future, function, kind, self.store(payload) if in_file else payload, in_file)
        with self._adding:
            if self._why:
                raise futures.BrokenExecutor(self._why)
            self._last += 1
            self._calls[self._last] = call
            self._made.append(self._last)
        self._rouse()

    def tell(self, event: c.CallEvent) -> None:
        self._told.append(event)
        self._rouse()

    def store(self, payload: bytes) -> bytes:
        """Keep it in a file of the session; returns the path."""
        with self._adding:
            self._count += 1
            number = self._count
        path = f"{self.directory}/a{number}"
        if number == 1:
            self.files.makedirs(self.directory, 0o700, exist_ok=True)
        try:
            self.files.write_bytes(path, payload)
        except FileNotFoundError:  # another thread is just making the directory
            self.files.makedirs(self.directory, 0o700, exist_ok=True)
            self.files.write_bytes(path, payload)
        return path.encode()

    def release(self) -> None:
        """Let workers that have nothing to do end now."""
        self.tell(c.IdleReleased())

    def drain(self) -> None:
        """End when no call is left."""
        self._draining = True
        self._rouse()

    def cancel_waiting(self) -> None:
        """Drop what was not sent to a worker."""
        for call in list(self._calls.values()):
            call.future.cancel()

    def end(self, why: str) -> None:
        """End now. Calls without a result fail with CallInterrupted. Repeatable."""
        self._why = self._why or why
        self._rouse()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def join(self) -> None:
        """Until it has ended."""
        self._thread.join()

    @property
    def pending(self) -> int:
        return len(self._calls)

    def _rouse(self) -> None:
        if not self._awake:
            with self._gate:
                if not self._closed:
                    self._awake = True
                    os.eventfd_write(self._wake, 1)

    # ── the thread ─────────────────────────────────────────────────────────────────────────────────

    def _serve(self) -> None:
        look = time.monotonic() + _LOOK_S
        try:
            while not self._why:
                self._take_told()
                now = time.monotonic()
                due = self._machine.next_timer()
                if due is not None and now >= due:
                    self._handle(c.TimePassed())
                    due = self._machine.next_timer()
                if now >= look:
                    look = now + _LOOK_S
                    self._look()
                self._awake = False
                if self._made or self._told or self._joined:
                    self._awake = True
                    continue
                if self._draining and not self._calls:
                    break
                wait = min(look, due if due is not None else look) - now
                ready = self._epoll.poll(max(0.0, wait))
                self._awake = True
                for descriptor, what in ready:
                    self._on_ready(descriptor, what)
        except BaseException as error:
            self._why = f"{type(error).__name__}: {error}"
        self._finish()

    def _take_told(self) -> None:
        while self._joined:
            worker, stream = self._joined.popleft()
            self._connected(_Link(worker, stream))
        if self._made:
            made = [self._made.popleft() for _ in range(len(self._made))]
            self._handle(c.CallsMade(made))
        while self._told:
            self._handle(self._told.popleft())

    def _look(self) -> None:
        assert self._session is not None
        if over := self._session.over:
            self._why = f"the session's nodes are gone, or ended this run: {over}"

    def _on_ready(self, descriptor: int, what: int) -> None:
        if descriptor == self._wake:
            with suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        elif listener := self._listeners.get(descriptor):
            self._welcome(listener)
        elif link := self._links.get(descriptor):
            if what & select.EPOLLOUT:
                self._send(link)
            if what & ~select.EPOLLOUT:
                self._receive(link)

    # ── connections ────────────────────────────────────────────────────────────────────────────────

    def _listen(self) -> list[str]:
        """A Unix socket for workers on this host; where nodes are elsewhere a TCP port too."""
        members = self.files.connection.members()
        path = str(self._record.directory / f"fn-{self.name}")
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._keep(local)
        local.bind(path)
        local.listen(128)
        addresses = [f"unix:{path}"]
        far = next((member for member in members if member.host != host_id()), None)
        endpoint = next((each for each in far.endpoints if each.startswith("tcp://")), "") if far is not None else ""
        if endpoint:
            host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
            with socket.create_connection((host.strip("[]"), int(port)), w.HANDSHAKE_S) as probe:
                own, family = probe.getsockname()[0], probe.family  # the address by which that node's host reaches us
            tcp = socket.socket(family, socket.SOCK_STREAM)
            self._keep(tcp)
            tcp.bind((own, 0))
            tcp.listen(128)
            addresses.append(f"tcp:{own}:{tcp.getsockname()[1]}")
        return addresses

    def _keep(self, listener: socket.socket) -> None:
        self._listeners[listener.fileno()] = listener
        self._epoll.register(listener.fileno(), select.EPOLLIN)

    def _welcome(self, listener: socket.socket) -> None:
        sock, _ = listener.accept()
        if not self._strangers.acquire(blocking=False):
            sock.close()
            return

        def greet() -> None:
            try:
                joined = w.accept(sock, self._key)
                with self._gate:
                    if self._closed:  # nobody takes it any more
                        raise ProtocolError("the executor has ended")
                    self._joined.append(joined)
                self._rouse()
            except (OSError, ProtocolError):
                sock.close()
            finally:
                self._strangers.release()

        try:
            threading.Thread(target=greet, name="amfs handshake", daemon=True).start()
        except BaseException:
            sock.close()
            raise

    def _connected(self, link: _Link) -> None:
        if (old := self._by_worker.get(link.worker)) is not None:
            self._lose(old)  # the task runs anew elsewhere
        descriptor = link.stream.sock.fileno()
        link.stream.sock.setblocking(False)
        self._links[descriptor] = self._by_worker[link.worker] = link
        self._epoll.register(descriptor, select.EPOLLIN)
        setup = {"directory": self.directory, "path": [os.path.abspath(place) for place in sys.path]}
        link.out += link.stream.pack(w.SETUP, 0, pickle.dumps(setup))
        self._send(link)
        self._handle(c.WorkerJoined(link.worker))

    def _lose(self, link: _Link) -> None:
        descriptor = link.stream.sock.fileno()
        if descriptor in self._links:
            self._epoll.unregister(descriptor)
            del self._links[descriptor]
            self._by_worker.pop(link.worker, None)
            link.stream.sock.close()
            self._handle(c.WorkerLost(link.worker))

    def _send(self, link: _Link) -> None:
        try:
            while link.out:
                del link.out[: link.stream.sock.send(link.out)]
        except BlockingIOError:
            pass
        except OSError:
            link.out.clear()  # its earlier words are still to be read; then we learn of the end
        if link.waits != bool(link.out):
            link.waits = bool(link.out)
            self._epoll.modify(link.stream.sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if link.waits else 0))

    def _receive(self, link: _Link) -> None:
        try:
            data = link.stream.sock.recv(_RECEIVE)
            frames = link.stream.feed(data)
        except BlockingIOError:
            return
        except (OSError, ProtocolError):
            data, frames = b"", []
        done: list[tuple[Call | None, w.Frame]] = []
        numbers: list[int] = []
        for frame in frames:
            if frame.kind & ~w.IN_FILE in (w.VALUE, w.ERROR):
                numbers.append(frame.call)
                done.append((self._calls.pop(frame.call, None), frame))
            elif frame.kind == w.RETURNED:
                self._handle(c.CallsDone(link.worker, numbers))
                numbers = []
                self._handle(c.CallsReturned(link.worker, struct.unpack(f"<{len(frame.payload) // 8}Q", frame.payload)))
            elif frame.kind == w.TEXT:
                print(frame.payload.decode(), end="", file=sys.stderr if frame.call == 2 else sys.stdout, flush=True)
        if numbers:
            self._handle(c.CallsDone(link.worker, numbers))
        for call, frame in done:
            if call is not None:
                self._resolve(call, frame)
        if not data:
            self._lose(link)

    # ── results ────────────────────────────────────────────────────────────────────────────────────

    def _resolve(self, call: Call, frame: w.Frame) -> None:
        if not frame.payload and not call.in_file:  # it had been cancelled
            return
        if frame.kind & w.IN_FILE or call.in_file:
            self._large = True
            self._readers.submit(self._settle, call, frame)  # reading and removing takes a while
        else:
            self._settle(call, frame)

    def _settle(self, call: Call, frame: w.Frame) -> None:
        try:
            payload = frame.payload
            if call.in_file:
                with suppress(OSError):
                    self.files.unlink(call.payload)
                if not payload:
                    return
            if frame.kind & w.IN_FILE:
                path, payload = payload, self.files.read_bytes(payload)
                with suppress(OSError):
                    self.files.unlink(path)
            if frame.kind & ~w.IN_FILE == w.VALUE:
                call.future.set_result(pickle.loads(payload))
            else:
                call.future.set_exception(_error_of(payload))
        except futures.InvalidStateError:
            pass  # it was interrupted meanwhile
        except BaseException as error:  # the value cannot be loaded here
            call.future.set_exception(error)

    def _fail(self, call: Call, error: BaseException) -> None:
        if call.begin():
            with suppress(futures.InvalidStateError):
                call.future.set_exception(error)

    # ── effects ────────────────────────────────────────────────────────────────────────────────────

    def _handle(self, event: c.CallEvent) -> None:
        for effect in self._machine.handle(event, time.monotonic()):
            if isinstance(effect, c.SendCalls):
                self._send_calls(self._by_worker[effect.worker], effect.calls)
            elif isinstance(effect, c.StartWorker):
                self._start(effect.worker)
            elif isinstance(effect, c.FailCall):
                call = self._calls.pop(effect.call)
                self._fail(call, WorkerLost(f"worker {effect.worker} died while it executed this call"))
            elif isinstance(effect, c.GiveUp):
                self._why = f"workers cannot be started: {effect.why}"
            elif (link := self._by_worker.get(effect.worker)) is not None:
                link.out += link.stream.pack(w.GIVE_BACK if isinstance(effect, c.AskBack) else w.STOP)
                self._send(link)

    def _send_calls(self, link: _Link, numbers: Sequence[int]) -> None:
        pack = link.stream.pack
        for number in numbers:
            call = self._calls[number]
            if not call.begin():
                link.out += pack(w.CALL, number)  # cancelled: only to be answered
                continue
            if call.function.number != link.function:
                self._say_function(link, call.function)
            link.out += pack(call.kind | w.IN_FILE if call.in_file else call.kind, number, call.payload)
        self._send(link)

    def _say_function(self, link: _Link, function: Pickled) -> None:
        kind, payload = w.FUNCTION, b""
        if function.number not in link.known:
            if len(link.known) >= w.FUNCTIONS_KNOWN:
                del link.known[next(iter(link.known))]
            link.known[function.number] = None
            payload = function.data
            if len(payload) > w.INLINE_MAX:
                if function.number not in self._function_files:
                    self._function_files[function.number] = self.store(payload)
                kind, payload = kind | w.IN_FILE, self._function_files[function.number]
        link.function = function.number
        link.out += link.stream.pack(kind, function.number, payload)

    def _start(self, worker: int) -> None:
        assert self._session is not None
        env = [f"AMFS_SESSION={self._record.name}"]
        if path := node_environment().get("PYTHONPATH"):
            env.append(f"PYTHONPATH={path}")
        if "OMP_NUM_THREADS" not in os.environ:
            env.append("OMP_NUM_THREADS=1")  # there is a worker for each slot
        argv = (sys.executable, "-P", "-m", "amfs.functions.worker", self._addresses, self.name, self._record.name, str(worker))
        self._session.submit_tasks([Task(str(worker), argv, env=tuple(env), label="python", staged=False)])

    def _on_ended(self, handle: Handle) -> None:
        """In the thread of the run's loop."""
        result = handle.result
        assert result is not None
        why = "\n  ".join([told(result), *result.stderr.decode("utf-8", "replace").strip().splitlines()[-5:]])
        self.tell(c.WorkerEnded(int(handle.id), why))

    # ── the end ────────────────────────────────────────────────────────────────────────────────────

    def _finish(self) -> None:
        with self._adding:
            self._why = self._why or "the executor was shut down"
            calls, self._calls = list(self._calls.values()), {}
        error: type[Exception] = futures.BrokenExecutor if self._machine.given_up else CallInterrupted
        try:
            for call in calls:
                self._fail(call, error(self._why))
            for link in self._links.values():
                with suppress(OSError):
                    link.stream.sock.setblocking(True)
                    link.stream.sock.settimeout(1.0)
                    link.stream.sock.sendall(bytes(link.out) + link.stream.pack(w.STOP))
            self._readers.shutdown()
        finally:
            self._dispose()

    def _dispose(self) -> None:
        try:
            if self._session is not None:
                self._session.stop("the executor has ended")
        finally:
            self._close()
        if self._count or self._large:
            with suppress(OSError, AmfsError):
                self.files.rmtree(self.directory, lambda error: None)

    def _close(self) -> None:
        with self._gate:  # after this nobody comes, and nobody is roused
            self._closed = True
        for _, stream in self._joined:
            stream.sock.close()
        for link in self._links.values():
            link.stream.sock.close()
        for listener in self._listeners.values():
            listener.close()
        with suppress(OSError):
            os.unlink(self._record.directory / f"fn-{self.name}")
        self._epoll.close()
        os.close(self._wake)


def _error_of(payload: bytes) -> BaseException:
    """The exception of a worker, with the traceback from there as its cause."""
    (length,) = struct.unpack_from("<I", payload)
    text = payload[4 : 4 + length].decode()
    try:
        error: BaseException = pickle.loads(payload[4 + length :])
    except Exception as why:
        error = RuntimeError(f"an exception that cannot be loaded here ({why})")
    error.__cause__ = RemoteTraceback(with_source(text))
    return error


def with_source(text: str) -> str:
    """A traceback with the source lines that only this process has: those of cells and of what was typed."""
    lines = text.splitlines()
    for at in range(len(lines) - 1, -1, -1):
        found = _FRAME.fullmatch(lines[at])
        if found is None or "".join(lines[at + 1 : at + 2]).startswith("    "):
            continue
        if source := linecache.getline(_file_of(found[1], found[3] or "", int(found[2])), int(found[2])).strip():
            lines.insert(at + 1, f"    {source}")
    return "\n".join(lines) + "\n"


def _file_of(name: str, function: str, line: int) -> str:
    """Where the source is. Functions that this program defines travel without it: they are found by their names."""
    code = getattr(getattr(sys.modules["__main__"], function, None), "__code__", None)
    if name.startswith("<") and code is not None and line in {at for _, _, at in code.co_lines()}:
        return str(code.co_filename)
    return name
