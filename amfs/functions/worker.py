"""A worker of an executor: a process that runs as a task of the session and executes Python functions until it is told to stop.

``python -m amfs.functions.worker ADDRESS,… EXECUTOR SESSION NUMBER``. The main thread executes, the *reader* thread takes frames, so
that calls can be given back while a long one runs. Every result is sent at once: the finished calls of a dying worker are known. If the
connection ends, the process ends. Must not know: the dispatch of calls (``engine.calls``).
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import sys
import threading
import traceback
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from amfs.net import call_stream as w

if TYPE_CHECKING:
    from amfs.client.files import Files

TEXT_MAX = 32 << 10  # of a traceback
_ATOMS = frozenset({int, float, str, bytes, bool, type(None)})


def dumps(value: Any) -> bytes:
    """``value`` pickled so that another process can load it, also what is defined in the program itself."""
    if type(value) in _ATOMS:
        return pickle.dumps(value, 5)
    import cloudpickle  # knows of __main__

    return cloudpickle.dumps(value, 5)  # type: ignore[no-any-return]


class Function:
    """A function as it came: loaded by the first call that needs it."""

    __slots__ = ("_data", "_in_file", "_loaded")

    def __init__(self, data: bytes, in_file: bool) -> None:
        self._data = data
        self._in_file = in_file
        self._loaded: list[Any] = []

    def load(self, worker: Worker) -> Any:
        if not self._loaded:
            self._loaded.append(pickle.loads(worker.content(self._data) if self._in_file else self._data))
            self._data = b""
        return self._loaded[0]


class Item(NamedTuple):
    call: int
    kind: int
    function: Function
    payload: bytes


class Printed(io.TextIOBase):
    """Sends what functions print to the executor, line by line. ``number``: 1 or 2, as of the descriptors."""

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker = worker
        self._number = number
        self._line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._line += text
        if "\n" in text:
            whole, _, self._line = self._line.rpartition("\n")
            self._worker.send(w.TEXT, self._number, f"{whole}\n".encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        if self._line:
            text, self._line = self._line, ""
            self._worker.send(w.TEXT, self._number, text.encode("utf-8", "backslashreplace"))


class Worker:
    """One worker, connected."""

    def __init__(self, stream: w.CallStream, session: str, number: int) -> None:
        self.stream = stream
        self.session = session
        self.number = number
        self.items: deque[Item | None] = deque()  # None: no more come
        self._come: SimpleQueue[None] = SimpleQueue()
        self._sending = threading.Lock()
        self._functions: dict[int, Function] = {}
        self._function = Function(b"", False)
        self._directory = ""
        self._count = 0  # of files
        self._files: Files | None = None
        self.printed: list[Printed] = []

    # ── the reader ─────────────────────────────────────────────────────────────────────────────────

    def read(self) -> None:
        """Take frames until the connection ends; then the process ends, whatever it is doing: nobody wants it any more."""
        try:
            while data := self.stream.sock.recv(1 << 18):
                for frame in self.stream.feed(data):
                    self._take(frame)
                self._come.put(None)
        except Exception:
            traceback.print_exc(file=sys.__stderr__)
        if self._files is not None:  # an executor that was killed removes nothing
            with contextlib.suppress(Exception):
                self._files.rmtree(self._directory, lambda error: None)
        os._exit(1)

    def _take(self, frame: w.Frame) -> None:
        kind = frame.kind & ~w.IN_FILE
        if kind in (w.CALL, w.CHUNK):
            self.items.append(Item(frame.call, frame.kind, self._function, frame.payload))
        elif kind == w.FUNCTION:
            if frame.payload:
                if len(self._functions) >= w.FUNCTIONS_KNOWN:
                    del self._functions[next(iter(self._functions))]
                self._functions[frame.call] = Function(frame.payload, bool(frame.kind & w.IN_FILE))
            self._function = self._functions[frame.call]
        elif kind == w.GIVE_BACK:
            back: list[int] = []
            with contextlib.suppress(IndexError):
                while (item := self.items.pop()) is not None:
                    back.append(item.call)
            self.send(w.RETURNED, 0, struct.pack(f"<{len(back)}Q", *reversed(back)))
        elif kind == w.STOP:
            self.items.append(None)
        elif kind == w.SETUP:
            setup = pickle.loads(frame.payload)
            self._directory = setup["directory"]
            sys.path += [place for place in setup["path"] if place not in sys.path]

    # ── executing ──────────────────────────────────────────────────────────────────────────────────

    def execute(self) -> None:
        """Calls, one after the other, until there will be no more."""
        while True:
            try:
                item = self.items.popleft()
            except IndexError:
                self._come.get()
                continue
            if item is None:
                return
            kind, payload = self._outcome(item)
            for printed in self.printed:
                printed.flush()
            if len(payload) > w.INLINE_MAX:
                try:
                    kind, payload = kind | w.IN_FILE, self._put(payload)
                except Exception as error:
                    kind, payload = w.ERROR, packed_error(error)
            self.send(kind, item.call, payload)

    def _outcome(self, item: Item) -> tuple[int, bytes]:
        try:
            function = item.function.load(self)
            given = pickle.loads(self.content(item.payload) if item.kind & w.IN_FILE else item.payload)
            if item.kind & ~w.IN_FILE == w.CHUNK:
                return w.VALUE, dumps([function(*arguments) for arguments in given])
            arguments, named = given
            return w.VALUE, dumps(function(*arguments, **named))
        except BaseException as error:  # SystemExit, too: it is the caller's to know
            return w.ERROR, packed_error(error)

    def send(self, kind: int, call: int, payload: bytes) -> None:
        with self._sending:
            self.stream.sock.sendall(self.stream.pack(kind, call, payload))

    # ── files ──────────────────────────────────────────────────────────────────────────────────────

    def _connection(self) -> Files:
        if self._files is None:
            from amfs.client.files import Files  # only large values need it

            self._files = Files(self.session)
        return self._files

    def content(self, path: bytes) -> bytes:
        return self._connection().read_bytes(path)

    def _put(self, payload: bytes) -> bytes:
        self._count += 1
        path = f"{self._directory}/r{self.number}-{os.getpid()}-{self._count}".encode()
        files = self._connection()
        try:
            files.write_bytes(path, payload)
        except FileNotFoundError:
            files.makedirs(self._directory, 0o700, exist_ok=True)
            files.write_bytes(path, payload)
        return path


def packed_error(error: BaseException) -> bytes:
    """An exception for the other side: its traceback as text, and the exception itself if it can be pickled."""
    below = error.__traceback__.tb_next if error.__traceback__ is not None else None  # without our own frame
    text = "".join(traceback.format_exception(type(error), error, below)).encode("utf-8", "backslashreplace")[-TEXT_MAX:]
    try:
        data = dumps(error.with_traceback(None))
        pickle.loads(data)  # classes with arguments of their own often cannot be made again
    except Exception:
        data = dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return struct.pack("<I", len(text)) + text + data


def main() -> None:
    """Join, and work until the end."""
    address, executor, session, number = sys.argv[1:]
    from amfs.net.records import base_dir, load

    keys = load(base_dir() / session / "session.json").keys
    stream = w.join_any(address.split(","), w.key_of(keys.data, executor), int(number))
    worker = Worker(stream, session, int(number))
    worker.printed = [Printed(worker, 1), Printed(worker, 2)]
    sys.stdout, sys.stderr = worker.printed
    threading.Thread(target=worker.read, name="reader", daemon=True).start()
    worker.execute()


if __name__ == "__main__":
    from amfs.functions import worker  # functions that are pickled refer to this module, not to __main__

    worker.main()
