"""The C extension: XXH64, the launcher thread and the data mover. Contracts; the C headers repeat them for C readers."""

from collections.abc import Sequence

def xxh64(data: bytes | str, seed: int = 0) -> int:
    """XXH64 of the bytes (str: its UTF-8), bit-identical to xxhash.xxh64_intdigest."""

def partitions(names: Sequence[str], count: int) -> list[int]:
    """xxh64(name) % count for each name."""

class Launcher:
    """Starts processes from packed records (amfs/engine/records.py) on a thread of its own, without the GIL.

    First come, first run, while the running tasks' cores fit in ``slots`` and their memory in ``memory`` (a task larger than the whole
    runs alone). Each task is a process group of its own and dies with this process.
    """

    fd: int  # eventfd, readable while completions wait

    def __init__(self, slots: int, *, memory: int = 0, sandbox_dir: str, log_dir: str) -> None:
        """``memory`` bytes, 0: not accounted. Sandboxes are made in ``sandbox_dir`` (must be on the store's file system)."""
    def set_context(self, context: int, base: str, env: Sequence[str]) -> None:
        """Base directory and whole environment ("K=V") shared by the records that name this context. Replaces."""
    def drop_context(self, context: int) -> None: ...
    def submit(self, records: Sequence[bytes]) -> None:
        """Queue records (copied). Raises ValueError naming the fault if one is malformed; then none is queued."""
    def completions(
        self,
    ) -> list[tuple[int, int, int, int, int, int, int, int, tuple[tuple[int, int], ...], bytes, bytes, str]]:
        """What ended since the last call, oldest first:

        (serial, outcome, code, slot, start_us, end_us, cpu_us, maxrss_kib, ((size, mtime_ns) per output), stdout, stderr, detail)

        ``outcome`` is engine.states.Outcome: 0 OK, 1 EXIT (code = status), 2 SIGNAL (code = number), 3 TIME_LIMIT, 4 MISSING_OUTPUT
        (detail names them), 5 INPUT_CHANGED (detail names them), 6 SETUP (code = errno, detail says what failed), 7 CANCELLED (never
        started, or killed by kill()). Times are microseconds since the epoch. ``maxrss_kib`` 0: less than this process had, which the
        kernel counts in, so not known. stdout, stderr: captured tails (stdout empty for a successful task unless WANT_OUTPUT: then its
        first ``capture`` bytes, and if there were more, the whole is in ``log_dir`` and ``detail`` names the file).
        """
    def kill(self, serials: Sequence[int]) -> None:
        """Withdraw those not started, SIGTERM then (after 1 s) SIGKILL the process groups of the others."""
    def withdraw(self, count: int) -> list[int]:
        """Take up to ``count`` records back from the tail of the queue, at once; returns their serials (no completion follows)."""
    def queued(self) -> int: ...
    def running(self) -> int: ...
    def cpu_us(self) -> int:
        """CPU time of the launcher thread so far."""
    def stop(self) -> None:
        """Kill everything (SIGKILL), remove sandboxes, join the thread. Repeatable."""

class Mover:
    """Copies files on threads of its own, without the GIL: store <-> shared storage, and between nodes over TCP.

    The data port answers only to one-time tickets. All jobs end in a completion; partial files never appear under their name.
    """

    fd: int  # eventfd, readable while completions wait
    port: int  # data port, 0 if not listening

    def __init__(self, threads: int = 2, *, listen: str = "") -> None:
        """``listen``: address to serve on ("127.0.0.1", "0.0.0.0"), port chosen by the system; "": do not serve."""
    def copy(self, serial: int, source: str, destination: str, mode: int, *, directories: bool = True) -> None:
        """Copy a regular file: written beside the destination under a temporary name, given ``mode``, renamed. Missing parent
        directories are made when ``directories``."""
    def offer(self, path: str) -> bytes:
        """A new 16-byte random ticket, good for one fetch of ``path`` by anyone who shows it within 60 s."""
    def fetch(self, serial: int, host: str, port: int, ticket: bytes, size: int, destination: str, mode: int) -> None:
        """Get a file of ``size`` bytes from another mover's data port into ``destination`` (temporary name, rename)."""
    def completions(self) -> list[tuple[int, str, int]]:
        """(serial, error ("" = fine), bytes moved), oldest first."""
    def counters(self) -> dict[str, int]:
        """bytes_copied, bytes_fetched, bytes_served, cpu_us."""
    def stop(self) -> None:
        """End the threads, closing sockets; unfinished jobs complete with error "stopped". Repeatable."""

class Io:
    """The data of the file system: parts of files in this node's store and on other nodes (csrc/fsio.h). Any thread may call.

    A part is the whole content of a file (index -1) or one stripe. Errors are OSError. Kinds of open files: 0 whole content here, 1 through
    another node that has it open for writing, 2 stripes at their owners.
    """

    fd: int  # eventfd, readable while take() has something
    root_fd: int

    def __init__(self, node: int, root: str | bytes, listen: str, threads: int = 2, limit: int = 0) -> None:
        """``root`` must exist; ``listen``: numeric address, "": other nodes cannot reach the parts; ``limit``: bytes, 0: none."""
    def set_table(self, owners: Sequence[int]) -> None: ...
    def part_path(self, ino: int, index: int) -> str:
        """Relative to the root."""
    def part_stat(self, ino: int, index: int) -> tuple[int, int, int, int, int]:
        """(size, blocks, atime, mtime, ctime)"""
    def part_delete(self, ino: int) -> None:
        """Every part of it that is here."""
    def usage(self) -> tuple[int, int, int]:
        """(used, limit, parts)"""
    def open(
        self, ino: int, kind: int, node: int = -1, stripe: int = 0, size: int = 0, writing: bool = False, create: bool = False
    ) -> IoHandle: ...
    def open_count(self, ino: int) -> tuple[int, int]:
        """(readers, writers) through this node, other nodes' included."""
    def list_parts(self) -> list[tuple[int, int, int, int]]:
        """(ino, index, size, blocks)"""
    def take(self) -> list[tuple[int, int, int, int, int]]:
        """(kind, serial, ino, size, error) of what happened since, oldest first."""
    def stop(self) -> None: ...

class IoHandle:
    """An open file's data, made by Io.open. One closed while a call is under way raises EBUSY."""

    def read(self, count: int, offset: int) -> bytes: ...
    def readinto(self, buffer: bytearray | memoryview, offset: int) -> int: ...
    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """All of it; offset 2**64-1: at the end."""
    def truncate(self, size: int) -> None: ...
    def fallocate(self, mode: int, offset: int, length: int) -> None: ...
    def seek(self, offset: int, whence: int) -> int: ...
    def flush(self) -> None: ...
    def stat(self) -> tuple[int, int, int, int, int]:
        """(size, blocks, atime, mtime, ctime)"""
    def close(self) -> None:
        """Flushes and raises what that meets. Repeatable."""
