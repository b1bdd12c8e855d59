"""A file system of fsspec over the tools of Chirp: ``chirp://HOST[:PORT]/path``.

Owns how the tools are called, what their output means, and how long they are waited for. Knows no session and no settings; chirp_server is
reached by the tools alone. Each call starts a process of its own, so any number of threads may call.
"""

from __future__ import annotations

import calendar
import errno
import fcntl
import io
import os
import re
import select
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Any, cast
from urllib.parse import quote, urlsplit

import fsspec

from amfs.remote.place import SILENT_S

PORT = 9094
NEEDED = "chirp:// needs the Chirp tools: Debian package coop-computing-tools"
_CONNECT_S = 10.0
_PROBE_S = 1.0  # of silence, after which the server is tried: a tool whose connection ends tries until its time is over
_SLOWEST = 1 << 20  # bytes a second: a file that is sent, of which nothing is told before its end, gets as much time
_DAY_S = 86400  # chirp_get's own limit is for the whole file; whether bytes come is seen here
_ASKED_AT_ONCE = 200  # files whose facts one process asks for
_PATH_MAX, _RENAME_MAX = 900, 960  # bytes of encoded paths: a request is a line of at most 1024
_RIGHTS_AFTER_S = 0.1, 0.9  # pauses in which another caller's new directory gets its rights
_PIPE = 1 << 20
_F_SETPIPE_SZ = 1031
_OURS = re.compile(r"[ -~]*")  # bytes above these come to the server as others, and control characters end the request
_LINE = re.compile(rb"([d-])[rwx-]{9} +\d+ +-?\d+ +-?\d+ +(\d+) [A-Z][a-z]{2} \d\d (?:\d\d:\d\d| \d{4,}) (.+)")
_FACT = re.compile(r"(mode|size|mtime|ctime): +(.+)")
_TIME = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d+) (\d\d):(\d\d):(\d\d) (\d{4,})")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NUMBERS = {os.strerror(number): number for number in errno.errorcode}


class ChirpFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """``auth``: the only way to authenticate (unix, hostname, address, ticket …). ``tickets``: files with tickets, with commas between."""

    protocol = "chirp"
    root_marker = "/"

    def __init__(self, host: str, port: int = PORT, auth: str = "", tickets: str = "") -> None:
        """Raises ImportError if there are no tools."""
        super().__init__()
        for tool in ("chirp", "chirp_get"):
            if shutil.which(tool) is None:
                raise ImportError(NEEDED)
        self._address = host, port
        self._host = f"{host}:{port}"
        self._options = [*(["-a", auth] if auth else []), *(["-i", tickets] if tickets else [])]
        # Times are told in the time zone of the tool, errors in its language.
        self._environment = {**os.environ, "TZ": "UTC0", "LC_ALL": "C", "TERM": "dumb", "INPUTRC": os.devnull}

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        parts = urlsplit(path, allow_fragments=False)
        return {"host": parts.hostname or "", "port": parts.port or PORT}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(path)
        if text.startswith("chirp://"):
            text = "/" + text.removeprefix("chirp://").partition("/")[2]
        return "/" + text.strip("/") if text.endswith("/") or not text.startswith("/") else text

    # ── looking ──

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        told = self._chirp("stat", path)
        return next(_facts(told, [path]))

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            lines = self._chirp("ls", "-la", path)
        except NotADirectoryError:
            return [self.info(path)] if detail else [path]
        entries: dict[str, dict[str, Any]] = {}
        for line in lines.split(b"\n")[:-1]:
            fits = _LINE.fullmatch(line)
            if fits is None:
                raise OSError(f"its listing has a line that is none: {os.fsdecode(line)!a}")
            if fits[3] not in (b".", b".."):
                name = os.path.join(path, os.fsdecode(fits[3]))
                entries[name] = {"name": name, "type": "directory" if fits[1] == b"d" else "file", "size": int(fits[2]), "mtime": 0}
        if detail:
            # The listing has the time without seconds, and of a symbolic link its own size. A file with a name that cannot be asked for
            # stays in it: a copy of it fails and says why. A link to a directory stays a file: a walk that follows it may not end.
            asked = [name for name, facts in entries.items() if facts["type"] == "file" and _ours(name)]
            for facts in self._many(asked):
                entries[facts["name"]].update(size=facts["size"], mtime=facts["mtime"])
        return list(entries.values()) if detail else list(entries)

    def _many(self, paths: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Facts of those files that are there, by one process for many."""
        at = 0
        while at < len(paths):
            some = paths[at : at + _ASKED_AT_ONCE]
            commands = "".join(f"stat {_quoted(path)}\n" for path in some).encode()
            self.reach()
            done = self._run(self._tool("chirp", self._host), SILENT_S + len(some), commands)
            count = 0
            for facts in _facts(done.stdout, some):
                count += 1
                yield facts
            at += count
            if count < len(some):  # the tool ends at the first fault
                error = _fault(done.stderr)
                if not isinstance(error, FileNotFoundError):
                    raise error
                at += 1

    def isdir(self, path: str) -> bool:
        """A server that cannot be reached is a fault, unlike in the method of fsspec."""
        try:
            return bool(self.info(path)["type"] == "directory")
        except (FileNotFoundError, NotADirectoryError):
            return False

    # ── changing ──

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        self._chirp("mkdir", *(["-p"] if create_parents else []), self._strip_protocol(path))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if not exist_ok and self.exists(path):
            raise FileExistsError("File exists")
        self._chirp("mkdir", "-p", path)

    def rmdir(self, path: str) -> None:
        self._chirp("rmdir", self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        if self.isdir(path):
            raise IsADirectoryError("Is a directory")  # the tool would remove all that is in it
        self._chirp("rm", self._strip_protocol(path))

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in path if isinstance(path, list) else [path]:
            if recursive and self.isdir(one):
                self._chirp("rm", self._strip_protocol(one))
            else:
                self.rm_file(one)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """The file ``path2`` is replaced in one step."""
        old, new = self._strip_protocol(path1), self._strip_protocol(path2)
        if len(quote(old)) + len(quote(new)) > _RENAME_MAX:
            raise OSError(os.strerror(errno.ENAMETOOLONG))
        self._chirp("mv", old, new)

    def put_file(self, lpath: str, rpath: str, **options: Any) -> None:
        with open(lpath, "rb") as file:
            self.put_whole(file, self._strip_protocol(rpath))

    def put_whole(self, file: IO[bytes], path: str) -> None:
        """All of a local file, which is seen when it is whole."""
        size = os.fstat(file.fileno()).st_size
        above, _, name = path.rpartition("/")
        place = f"{above}/.amfs-{os.urandom(6).hex()}-{name[:100]}"
        for one in (place, path):
            _check(one)
        try:
            came = self._put_below(file, above, place, size)
            if came is None:
                raise FileNotFoundError("No such file or directory")
            if came != size:
                raise ConnectionError(f"{came} of {size} bytes came there")
            self.mv(place, path)
        except BaseException as error:
            if not isinstance(error, FileNotFoundError):
                with suppress(OSError):  # mostly the same fault again; `amfs scrub --remote` finds the file by its name
                    self._chirp("rm", place)
            raise

    def _put_below(self, file: IO[bytes], above: str, place: str, size: int) -> int | None:
        """Like ``_put``, in a directory that is made if it is missing."""
        pauses = iter(_RIGHTS_AFTER_S)
        while True:
            try:
                came = self._put(file, place, size)
                if came is None:
                    self.makedirs(above, exist_ok=True)
                    came = self._put(file, place, size)
                return came
            except PermissionError:  # the server makes a directory whose list of rights is empty, and fills the list then
                pause = next(pauses, None)
                if pause is None:
                    raise
                time.sleep(pause)

    def _put(self, file: IO[bytes], place: str, size: int) -> int | None:
        """Returns how many bytes the file there has; None if there is no such directory."""
        # One process for both. It opens the file anew by this name, as a regular one: the faults of a pipe it does not tell.
        commands = f"put /dev/fd/{file.fileno()} {_quoted(place)}\nstat {_quoted(place)}\n"
        limit = SILENT_S + size / _SLOWEST
        self.reach()
        done = self._run(self._tool("chirp", self._host, limit=limit), limit, commands.encode(), (file.fileno(),))
        for facts in _facts(done.stdout, [place]):
            return int(facts["size"])
        error = _fault(done.stderr)
        if isinstance(error, FileNotFoundError):
            return None
        raise error

    # ── content ──

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True, **options: Any) -> IO[bytes]:
        """``size``: how large the file is, where the caller knows."""
        if mode == "wb":
            return cast(IO[bytes], _Writing(self, path, autocommit))
        if mode != "rb":
            raise NotImplementedError(mode)
        _check(path)
        size = options.get("size")
        if size is None:
            size = self.info(path)["size"]
        self.reach()
        process = subprocess.Popen(
            self._tool("chirp_get", self._host, path, "-", limit=_DAY_S),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._environment,
        )  # fmt: skip
        return io.BufferedReader(_Reading(process, size, self.reach), _PIPE)

    # ── the tools ──

    def _tool(self, name: str, *arguments: str, limit: float = SILENT_S) -> list[str]:
        return [name, *self._options, "-t", str(int(limit)), *arguments]

    def _chirp(self, command: str, *arguments: str) -> bytes:
        """The output of one command. Raises OSError."""
        for path in arguments:
            _check(path)
        self.reach()
        done = self._run(self._tool("chirp", self._host, command, *arguments), SILENT_S)
        if done.returncode:
            raise _fault(done.stderr or done.stdout)
        return done.stdout

    def _run(self, words: list[str], limit: float, told: bytes = b"", pass_fds: Sequence[int] = ()) -> subprocess.CompletedProcess[bytes]:
        """A tool to its end, with what is told to it."""
        piped = subprocess.PIPE
        with subprocess.Popen(words, stdin=piped, stdout=piped, stderr=piped, env=self._environment, pass_fds=pass_fds) as process:
            end = time.monotonic() + limit + _CONNECT_S
            given: bytes | None = told
            try:
                while True:
                    try:
                        out, err = process.communicate(given, _PROBE_S)
                        return subprocess.CompletedProcess(words, process.returncode, out, err)
                    except subprocess.TimeoutExpired:
                        given = None  # it has that
                        if time.monotonic() > end:
                            raise TimeoutError(f"no answer within {limit:.0f} s") from None
                    self.reach()
            except BaseException:
                process.kill()
                raise

    def reach(self) -> None:
        """Is it there? Raises ConnectionError."""
        try:
            socket.create_connection(self._address, _CONNECT_S).close()
        except OSError as error:
            raise ConnectionError(error.strerror or str(error)) from None


class _Reading(io.RawIOBase):
    """The output of chirp_get, as it comes."""

    def __init__(self, process: subprocess.Popen[bytes], size: int, reach: Callable[[], None]) -> None:
        super().__init__()
        assert process.stdout is not None
        self._process = process
        self._descriptor = process.stdout.fileno()
        self._left = size
        self._reach = reach
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        _widen(self._descriptor)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        end = time.monotonic() + SILENT_S
        while not self._poll.poll(_PROBE_S * 1000):
            self._reach()
            if time.monotonic() > end:
                raise TimeoutError(f"no byte for {SILENT_S:.0f} s")
        count = os.readv(self._descriptor, [buffer])
        self._left -= count
        if self._left < 0:  # when its connection ends, the tool makes a new one and writes all once more
            raise ConnectionError("its connection ended in the middle of the file")
        if count == 0 and self._process.wait(SILENT_S):
            assert self._process.stderr is not None
            raise _fault(self._process.stderr.read())
        return count

    def close(self) -> None:
        if not self.closed:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
        super().close()


class _Writing(io.RawIOBase):
    """A file without a name on this machine, until ``commit`` brings it to the server: the tool tells the size before the content."""

    def __init__(self, system: ChirpFileSystem, path: str, autocommit: bool) -> None:
        super().__init__()
        _check(path)
        self._system, self._path = system, path
        self._file = tempfile.TemporaryFile(prefix="amfs-chirp-")  # noqa: SIM115  until commit or discard
        self._autocommit = autocommit

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._autocommit:
                self.commit()

    def commit(self) -> None:
        self._forget()
        with self._file:
            self._file.flush()
            self._system.put_whole(self._file, self._path)

    def discard(self) -> None:
        self._autocommit = False
        self._forget()
        self._file.close()

    def _forget(self) -> None:
        """fsspec keeps each file that is not committed by itself, for a transaction that nobody ends."""
        with suppress(ValueError):
            self._system.transaction.files.remove(self)


def _widen(descriptor: int) -> None:
    with suppress(OSError):  # an ordinary user has only so many
        fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE)


def _ours(path: str) -> bool:
    return _OURS.fullmatch(path) is not None and len(quote(path)) <= _PATH_MAX


def _check(path: str) -> None:
    if _OURS.fullmatch(path) is None:
        raise OSError("Chirp has no names with control characters or letters that are not ASCII")
    if len(quote(path)) > _PATH_MAX:
        raise OSError(os.strerror(errno.ENAMETOOLONG))


def _quoted(path: str) -> str:
    """As a word of a command that the tool reads from its input."""
    return re.sub(r"""([\s\\'";])""", r"\\\1", path)


def _facts(told: bytes, paths: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The answers to ``stat`` of these paths, in their order."""
    remaining = iter(paths)
    facts: dict[str, str] = {}
    for line in told.decode("ascii", "replace").splitlines():
        fits = _FACT.fullmatch(line)
        if fits is None:
            continue
        facts[fits[1]] = fits[2]
        if fits[1] == "ctime":  # the last line of each
            kind = "directory" if stat.S_ISDIR(int(facts["mode"])) else "file"
            yield {"name": next(remaining), "type": kind, "size": int(facts["size"]), "mtime": _seconds(facts["mtime"])}
            facts = {}


def _seconds(text: str) -> int:
    fits = _TIME.fullmatch(text)
    if fits is None:
        raise OSError(f"its time is none: {text!a}")
    return calendar.timegm((int(fits[6]), _MONTHS.index(fits[1]) + 1, int(fits[2]), int(fits[3]), int(fits[4]), int(fits[5])))


def _fault(told: bytes) -> OSError:
    """The error that a tool means: its last line ends with the words of an errno."""
    line = (told.decode("utf-8", "replace").strip() or "its tool says nothing").splitlines()[-1]
    words = line.rpartition(": ")[2]
    kind = type(OSError(_NUMBERS[words], words)) if words in _NUMBERS else OSError
    return kind() if kind is PermissionError else kind(words)
