"""Parts that all commands over the file system share: paths and patterns, the session, messages, sizes and dates, JSON."""

from __future__ import annotations

import base64
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from amfs.cli.completion import session_names
from amfs.client.paths import SCHEME, Place, clean, parse
from amfs.errors import UsageError
from amfs.vocabulary.attr import LOST

if TYPE_CHECKING:
    from amfs.client.files import Files
    from amfs.vocabulary.attr import Attr

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["--help"]}  # -h means sizes for people here


def session_option(command: F) -> F:
    """Add --session."""
    text = "Session to use (default: $AMFS_SESSION, else the newest); a path may name it, too: amfs://NAME/…"
    return click.option("--session", metavar="NAME", default=None, shell_complete=session_names, help=text)(command)


def output_option(command: F) -> F:
    """Add --output text|json."""
    text = "What to print (default: text)."
    return click.option("--output", "form", type=click.Choice(["text", "json"]), default="text", help=text)(command)


def layout_options(command: F) -> F:
    """Add --layout and --stripe."""
    for option in (
        click.option("--stripe", metavar="SIZE", default="", help="Bytes in one stripe, such as 1M (default 512K); implies striped."),
        click.option("--layout", type=click.Choice(["whole", "striped"]), default=None, help="All on one node, or in stripes over all."),
    ):
        command = option(command)
    return command


def stripe_of(text: str) -> int:
    """The bytes that --stripe says; 0 if it was not given."""
    if not text:
        return 0
    from amfs.cli.session_options import size_of

    size = size_of(text)
    if size < 4096 or size > 1 << 30 or size & (size - 1):
        raise UsageError(f"--stripe {text}: a stripe is a power of two between 4K and 1G")
    return size


class Work:
    """One command at work: the session (connected when first needed) and how it went. A context manager.

    Failures are told on stderr at once, ``amfs: NAME: PATH: reason``, and the rest goes on; ``status`` is the exit status.
    """

    def __init__(self, name: str, session: str | None) -> None:
        self.name = name
        self.status = 0
        self.meanings: dict[int, str] = {}  # the meaning of an error number here, where it differs from the system's words
        self._session = session
        self._files: Files | None = None

    def __enter__(self) -> Work:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._files is not None:
            self._files.close()
        if isinstance(error, OSError) and error.filename is not None:  # else it is about standard output
            self.report_error(error)
            raise click.exceptions.Exit(self.status)

    @property
    def files(self) -> Files:
        if self._files is None:
            from amfs.client.files import Files

            self._files = Files(self._session)
        return self._files

    # ── paths ──────────────────────────────────────────────────────────────────────────────────────

    def is_inside(self, text: str) -> bool:
        """Does this name something in amfs by its form, rather than a local file?"""
        return text.startswith("amfs:")

    def path(self, text: str) -> bytes:
        """The path that an argument names. Raises UsageError."""
        place = parse(text) or _below_a_mount(text)
        if place is None and text.startswith("/"):
            place = parse("amfs:" + text)
        if place is None and "://" in text:
            raise UsageError(
                f"{self.name}: {text}: is a URL, where a path of the file system (amfs:/) is meant; amfs put and load copy from URLs, "
                "amfs get and dump to URLs"
            )
        if place is None:
            raise UsageError(f"{self.name}: {text}: paths in the file system begin with amfs:/ (or /)")
        if place.session is not None:
            if self._session is not None and self._session != place.session:
                raise UsageError(f"{self.name}: {text}: all paths of one command must be in one session ({self._session})")
            self._session = place.session
        return place.path

    def paths(self, texts: Sequence[str]) -> list[bytes]:
        """The paths that arguments name, patterns expanded; one that matches nothing stays as it is, for the command to complain about."""
        from amfs.client.tree import has_magic

        plain = [self.path(text) for text in texts]
        found: list[bytes] = []
        for path in plain:
            found += (self.files.glob(path) or [path]) if has_magic(path) else [path]
        return found

    # ── messages ───────────────────────────────────────────────────────────────────────────────────

    def report_error(self, problem: OSError | str, path: bytes | str = b"", *, status: int = 1) -> None:
        """Tell what went wrong with what; the exit status will be ``status`` at least."""
        from amfs.display.progress import printable

        if isinstance(problem, OSError):
            path = path or problem.filename or b""
            text = self.meanings.get(problem.errno or 0) or problem.strerror or str(problem)
        else:
            text = problem
        name = printable(os.fsencode(path).replace(b"\n", b"\\n"))  # one line for each error
        self.status = max(self.status, status)
        flush()
        click.echo(f"amfs: {self.name}: {name}: {text}" if name else f"amfs: {self.name}: {text}", err=True)


def _below_a_mount(text: str) -> Place | None:
    """The place in the file system of a local name below a mount of amfs, as all names are for a user inside one. None: it is not."""
    from amfs.host import fusemounts

    if text.startswith(SCHEME):
        return None
    path = os.path.abspath(text)  # by its text: a mount that hangs is not touched
    try:
        mounts = fusemounts.mounted()
    except OSError:
        return None
    over = [mount for mount in mounts if path == mount.path or path.startswith(mount.path.rstrip("/") + "/")]
    if not over:
        return None
    mount = max(over, key=lambda one: len(one.path))
    return Place(mount.session or None, clean(os.fsencode(path[len(mount.path) :] or "/")), text.endswith("/"))


# ── output ─────────────────────────────────────────────────────────────────────────────────────────


def write(data: bytes | memoryview) -> None:
    """To standard output, as it is."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(bytes(data).decode("utf-8", "replace"))
        return
    rest = memoryview(data)
    while rest:  # with PYTHONUNBUFFERED it is the bare descriptor, which may take a part only
        rest = rest[buffer.write(rest) :]


def encoded(text: str) -> bytes:
    """Text for standard output; in UTF-8 where the locale does not know its signs."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def line(data: bytes | str) -> None:
    write((data if isinstance(data, bytes) else encoded(data)) + b"\n")


def flush() -> None:
    sys.stdout.flush()


def name_text(name: bytes) -> bytes:
    """A name as it is shown: on a terminal nothing in it can do harm there."""
    if not sys.stdout.isatty():
        return name
    text = name.decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "?" for char in text).encode()


def print_json(value: Any) -> None:
    import msgspec

    write(msgspec.json.format(msgspec.json.encode(value)) + b"\n")


def bytes_field(name: str, value: bytes) -> dict[str, str]:
    """``{name: text}``, or ``{name_base64: …}`` for bytes that are not UTF-8, so that nothing is lost."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symbolic link", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device", stat.S_IFBLK: "block device",
}  # fmt: skip


def fields_of(path: bytes, attr: Attr) -> dict[str, Any]:
    """All facts of a path, for JSON. Times in seconds."""
    fields: dict[str, Any] = {
        **bytes_field("path", path), "type": KINDS.get(stat.S_IFMT(attr.mode), "unknown"), "size": attr.size, "inode": attr.ino,
        "mode": f"{stat.S_IMODE(attr.mode):04o}", "links": attr.nlink, "uid": attr.uid, "gid": attr.gid,
        "atime": attr.atime / 1e9, "mtime": attr.mtime / 1e9, "ctime": attr.ctime / 1e9,
    }  # fmt: skip
    if stat.S_ISREG(attr.mode):
        fields |= {"layout": "striped" if attr.layout else "whole", "stripe": attr.stripe}
        fields |= {"copies": attr.copies, "finished": attr.finished == 1, "lost": attr.finished == LOST}
    return fields


def human(count: int) -> str:
    """A size as ``ls -h`` shows it: ``999``, ``1.5K``, ``23M``; rounded up."""
    if count < 1024:
        return str(count)
    step = 1  # integers, so that nothing is rounded twice
    while -(-count // 1024**step) >= 1024 and step < 6:
        step += 1
    tenths, whole = (-(-count * each // 1024**step) for each in (10, 1))
    unit = " KMGTPE"[step]
    return f"{tenths // 10}.{tenths % 10}{unit}" if tenths < 100 else f"{whole}{unit}"


def date_text(nanoseconds: int) -> str:
    """A time as ``ls -l`` shows it: with the hour when it is less than half a year old, else with the year."""
    seconds = nanoseconds / 1e9
    form = "%b %e %H:%M" if -3600 < time.time() - seconds < 182 * 86400 else "%b %e  %Y"
    return time.strftime(form, time.localtime(seconds))


def user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def aligned(rows: Iterable[Sequence[str]], left: Iterable[int] = ()) -> list[str]:
    """Rows as columns, set to the right but for those in ``left``; the last one has no padding."""
    rows = list(rows)
    if not rows:
        return []
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    chosen = set(left)
    lines = []
    for row in rows:
        cells = [cell.ljust(widths[at]) if at in chosen else cell.rjust(widths[at]) for at, cell in enumerate(row)]
        lines.append(" ".join(cells).rstrip())
    return lines
