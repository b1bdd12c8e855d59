"""``amfs cat``, ``amfs put``, ``amfs get`` and ``amfs cp``: bytes into the file system, out of it and within it."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from amfs.cli.completion import local_files
from amfs.cli.fs_common import CONTEXT, Work, layout_options, line, output_option, print_json, session_option, stripe_of, write
from amfs.client.paths import below, join
from amfs.errors import UsageError
from amfs.vocabulary import fs_requests as q

if TYPE_CHECKING:
    from amfs.cli.fs_progress import Transfer
    from amfs.client.transfer import Layout
    from amfs.vocabulary.attr import Attr

PIECE = 1 << 20


@click.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@session_option
def cat(paths: tuple[str, ...], session: str | None) -> int:
    """Write files to standard output, one after the other. PATH may be a URL."""
    with Work("cat", session) as work:
        if any("://" in path for path in paths):
            from amfs.cli import fs_urls

            if fs_urls.any_urls(paths):
                return fs_urls.cat(work, paths)
        for path in work.paths(paths):
            try:
                for piece in _pieces(work, path):
                    write(piece)
            except BrokenPipeError:
                raise
            except OSError as error:
                if not error.filename:
                    raise  # standard output's, not the file's
                work.report_error(error, path)
        return work.status


def _pieces(work: Work, path: bytes) -> Iterator[memoryview]:
    from amfs.client.transfer import open_exported

    files = work.files
    if files.connection.same_host:
        parts = files.locate(path)
        if len(parts) == 1 and files.gateway in parts[0].nodes:  # it lies there whole: no need to have it sent
            opened = open_exported(files.connection.call(q.Export(path), about=(path,)))
            if opened is not None:
                with os.fdopen(opened[0], "rb", buffering=0) as local:
                    while piece := local.read(PIECE):
                        yield memoryview(piece)
                return
    with files.open(path, "rb", buffering=0) as file:
        buffer = bytearray(4 * PIECE)
        while count := file.readinto(buffer):  # type: ignore[attr-defined]
            yield memoryview(buffer)[:count]


# ── what put, get and cp share ─────────────────────────────────────────────────────────────────────


class CopyOptions(NamedTuple):
    """The options of a copy."""

    recursive: bool = False
    preserve: bool = False
    keep: bool = False  # files that are there already
    verbose: bool = False
    progress: bool | None = None
    form: str = "text"
    layout: str | None = None
    stripe: int = 0
    rank: int | None = None

    def place(self) -> Layout:
        from amfs.client.files import layout_of

        return layout_of(self.layout, self.stripe, self.rank)


def copy_options(command: Any) -> Any:
    """The options that put, get and cp have in common."""
    for option in (
        click.option("--progress/--no-progress", default=None, help="Show how far it is (default: on a terminal)."),
        click.option("-v", "--verbose", is_flag=True, help="Say what is done."),
        click.option("-n", "--no-clobber", "keep", is_flag=True, help="Leave files that are there already alone."),
        click.option("-p", "--preserve", is_flag=True, help="Keep mode, times and, as root, the owner."),
        click.option("-r", "-R", "--recursive", is_flag=True, help="Directories with all that is in them."),
    ):
        command = option(command)
    return command


def _finish(work: Work, options: CopyOptions, transfer: Transfer) -> int:
    if options.form == "json":
        print_json({"files": transfer.files, "bytes": transfer.done, "seconds": round(transfer.seconds, 6), "ok": not work.status})
    return work.status


def _check_stripes(stripe: str, layout: str | None) -> int:
    size = stripe_of(stripe)
    if size and layout == "whole":
        raise UsageError("--stripe belongs to --layout striped")
    return size


# ── put ────────────────────────────────────────────────────────────────────────────────────────────


@click.command(context_settings=CONTEXT)
@click.argument("names", nargs=-1, required=True, shell_complete=local_files, metavar="LOCAL... PATH")
@copy_options
@layout_options
@click.option("--rank", type=click.IntRange(min=0), default=None, metavar="N", help="Keep the files on node N.")
@output_option
@session_option
def put(
    names: tuple[str, ...], recursive: bool, preserve: bool, keep: bool, verbose: bool, progress: bool | None, layout: str | None,
    stripe: str, rank: int | None, form: str, session: str | None,
) -> int:  # fmt: skip
    """Copy local files into the file system: to PATH, or into PATH if that is a directory. LOCAL may be - for standard input, or a URL.

    \b
      amfs put -r images amfs:/
      make-data | amfs put - amfs:/data.bin
    """
    options = CopyOptions(recursive, preserve, keep, verbose, progress, form, layout, _check_stripes(stripe, layout), rank)
    with Work("put", session) as work:
        if rank is not None:
            work.meanings[errno.ENXIO] = f"the session has no node {rank}"
        if any("://" in name for name in names[:-1]):
            from amfs.cli import fs_urls

            if fs_urls.any_urls(names[:-1]):
                to = work.path(names[-1]) + (b"/" if names[-1].endswith("/") else b"")
                return fs_urls.copy(work, lambda: fs_urls.load(work.files, list(names[:-1]), to))
        return _put(work, _several(names, "put"), names[-1], options)


def _several(names: Sequence[str], command: str) -> Sequence[str]:
    if len(names) < 2:
        raise UsageError(f"{command}: missing destination after '{names[0]}'")
    return names[:-1]


def _is_directory(attr: Attr | OSError) -> bool:
    return not isinstance(attr, OSError) and stat.S_ISDIR(attr.mode)


class _Plan:
    """Everything to copy: directories first, then symbolic links and files. Sizes are added up for the progress."""

    def __init__(self) -> None:
        self.directories: list[tuple[Any, Any, Any]] = []  # from, to, attributes
        self.links: list[tuple[Any, Any]] = []  # target, to
        self.files: list[tuple[Any, Any, Any]] = []  # from, to, attributes
        self.bytes = 0


def _put(work: Work, sources: Sequence[str], target: str, options: CopyOptions) -> int:
    from amfs.cli.fs_progress import Transfer
    from amfs.client.tree import lookup

    to = work.path(target)
    try:
        there = lookup(work.files.connection, to, True)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        there = None  # the name may have been lost with nodes: if so, it is replaced, and else the error comes again
    into = there is not None and stat.S_ISDIR(there.mode)
    if (len(sources) > 1 or (target.endswith("/") and not os.path.isdir(sources[0]))) and not into:
        raise UsageError(f"put: {target}: not a directory")
    plan = _Plan()
    streams = []
    for source in sources:
        if source == "-":
            if into:
                raise UsageError(f"put: {target} is a directory: standard input has no name to get in it")
            streams.append(to)
            continue
        _plan_put(work, plan, source, join(to, os.fsencode(os.path.basename(os.path.abspath(source)))) if into else to, options)
    with Transfer(plan.bytes, options.progress) as transfer:
        for path in streams:
            _put_stream(work, path, options, transfer)
        _put_planned(work, plan, options, transfer)
    return _finish(work, options, transfer)


def _plan_put(work: Work, plan: _Plan, source: str, to: bytes, options: CopyOptions) -> None:
    """Look at one argument and all that is below it. A symbolic link that is an argument is followed, one below a directory copied."""
    try:
        facts = os.stat(source)
    except OSError as error:
        work.report_error(error)
        return
    if not stat.S_ISDIR(facts.st_mode):
        _plan_local(work, plan, source, to, facts)
        return
    if not options.recursive:
        work.report_error("is a directory; to copy it with all that is in it: -r", source)
        return
    plan.directories.append((source, to, facts))
    stack = [(source, to)]
    while stack:
        above, into = stack.pop()
        try:
            with os.scandir(above) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            work.report_error(error)
            continue
        for entry in entries:
            path = join(into, os.fsencode(entry.name))
            try:
                facts = entry.stat(follow_symlinks=False)
                if entry.is_symlink():
                    plan.links.append((os.readlink(entry.path), path))
                elif entry.is_dir(follow_symlinks=False):
                    plan.directories.append((entry.path, path, facts))
                    stack.append((entry.path, path))
                else:
                    _plan_local(work, plan, entry.path, path, facts)
            except OSError as error:
                work.report_error(error)


def _plan_local(work: Work, plan: _Plan, source: str, to: bytes, facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        work.report_error("not a regular file; left out", source)
        return
    plan.files.append((source, to, facts))
    plan.bytes += facts.st_size


def _put_planned(work: Work, plan: _Plan, options: CopyOptions, transfer: Transfer) -> None:
    from amfs.client.connection import Call
    from amfs.client.transfer import BATCH, Source, put_many
    from amfs.host.umask import umask

    files, mask = work.files, umask()
    by_depth: dict[int, list[tuple[str, bytes, os.stat_result]]] = {}
    for local, path, facts in plan.directories:
        by_depth.setdefault(path.count(b"/"), []).append((local, path, facts))
    for depth in sorted(by_depth):
        wanted = [(path, stat.S_IMODE(facts.st_mode) & ~mask | 0o700) for _, path, facts in by_depth[depth]]
        calls = [Call(q.MkdirPath(path, mode, False), (path,)) for path, mode in wanted]
        answers = files.call_many(calls)
        for (_, path, _), answer in zip(by_depth[depth], answers, strict=True):
            if isinstance(answer, OSError) and not (isinstance(answer, FileExistsError) and files.isdir(path)):
                work.report_error(answer, path)
    links = files.call_many(Call(q.SymlinkPath(os.fsencode(target), path), (path,)) for target, path in plan.links)
    for (target, path), answer in zip(plan.links, links, strict=True):
        if isinstance(answer, FileExistsError) and not options.keep:
            try:
                files.unlink(path)
                files.symlink(target, path)
            except OSError as error:
                work.report_error(error, path)
        elif isinstance(answer, OSError) and not isinstance(answer, FileExistsError):
            work.report_error(answer, path)
    for start in range(0, len(plan.files), BATCH):
        chosen = plan.files[start : start + BATCH]
        sources = [
            Source(local, path, stat.S_IMODE(at.st_mode) & ~mask & 0o777, at.st_size, at.st_mtime_ns) for local, path, at in chosen
        ]
        results = put_many(files.connection, sources, options.place(), exclusive=options.keep, progress=transfer.add)
        for (local, path, facts), result in zip(chosen, results, strict=True):
            if isinstance(result, OSError):
                if not (options.keep and isinstance(result, FileExistsError)):
                    work.report_error(result, os.fsencode(result.filename or path))
                continue
            transfer.files += 1
            if options.preserve:
                _preserve(work, path, facts)
            if options.verbose:
                line(os.fsencode(local) + b" -> " + path)
    if options.preserve:
        for _, path, facts in reversed(plan.directories):
            _preserve(work, path, facts)


def _preserve(work: Work, path: bytes, facts: os.stat_result) -> None:
    try:
        if os.geteuid() == 0:
            work.files.chown(path, facts.st_uid, facts.st_gid)
        work.files.chmod(path, stat.S_IMODE(facts.st_mode))
        work.files.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    except OSError as error:
        work.report_error(error, path)


def _put_stream(work: Work, path: bytes, options: CopyOptions, transfer: Transfer) -> None:
    """Standard input to a file."""
    try:
        with work.files.open(
            path, "xb" if options.keep else "wb", buffering=0, layout=options.layout, stripe=options.stripe, rank=options.rank
        ) as file:
            raw = getattr(sys.stdin, "buffer", None)
            while piece := (raw.read(PIECE) if raw is not None else os.read(0, PIECE)):
                file.write(piece)
                transfer.add(len(piece))
        transfer.files += 1
    except FileExistsError as error:
        if not options.keep:
            work.report_error(error, path)
    except OSError as error:
        work.report_error(error, path)


# ── get ────────────────────────────────────────────────────────────────────────────────────────────


@click.command(context_settings=CONTEXT)
@click.argument("names", nargs=-1, required=True, shell_complete=local_files, metavar="PATH... [LOCAL]")
@copy_options
@output_option
@session_option
def get(
    names: tuple[str, ...], recursive: bool, preserve: bool, keep: bool, verbose: bool, progress: bool | None, form: str,
    session: str | None,
) -> int:  # fmt: skip
    """Copy files out of the file system: to LOCAL, or into LOCAL if that is a directory (default: here). LOCAL may be - for standard
    output, or a URL.

    \b
      amfs get 'amfs:/results/*.csv' results/
      amfs get amfs:/data.tar - | tar t
    """
    options = CopyOptions(recursive, preserve, keep, verbose, progress, form)
    with Work("get", session) as work:
        if len(names) > 1 and "://" in names[-1]:
            from amfs.cli import fs_urls

            if fs_urls.any_urls(names[-1:]):
                return fs_urls.copy(work, lambda: fs_urls.dump(work.files, work.paths(names[:-1]), names[-1]))
        sources, target = (names[:-1], names[-1]) if len(names) > 1 else (names, ".")
        return _get(work, sources, target, options)


def _get(work: Work, sources: Sequence[str], target: str, options: CopyOptions) -> int:
    from amfs.cli.fs_progress import Transfer

    chosen = work.paths(sources)
    into = os.path.isdir(target)
    found = work.files.info_many(chosen)
    if target != "-" and (len(chosen) > 1 or (target.endswith("/") and not _is_directory(found[0]))) and not into:
        raise UsageError(f"get: {target}: not a directory")
    plan = _Plan()
    for path, attr in zip(chosen, found, strict=True):
        if isinstance(attr, OSError):
            work.report_error(attr, path)
        elif target == "-" and not stat.S_ISREG(attr.mode):
            work.report_error("is no regular file: it cannot go to standard output", path)
        else:
            local = os.path.join(target, os.fsdecode(path.rpartition(b"/")[2])) if into else target
            _plan_inside(work, plan, path, local, attr, options)
    with Transfer(plan.bytes, options.progress) as transfer:
        if target == "-":
            for path, _, _ in plan.files:
                _get_stream(work, path, transfer)
            return work.status
        _get_planned(work, plan, options, transfer)
    return _finish(work, options, transfer)


def _plan_inside(work: Work, plan: _Plan, path: bytes, to: Any, attr: Attr, options: CopyOptions) -> None:
    """Look at one path of the file system and all that is below it. ``to`` is local (str) or inside, too (bytes)."""
    if not stat.S_ISDIR(attr.mode):
        if stat.S_ISREG(attr.mode):
            plan.files.append((path, to, attr))
            plan.bytes += attr.size
        else:
            work.report_error("not a regular file; left out", path)
        return
    if not options.recursive:
        work.report_error("is a directory; to copy it with all that is in it: -r", path)
        return
    plan.directories.append((path, to, attr))
    for above, entries in work.files.walk(path, work.report_error):
        entries.sort(key=lambda entry: entry.name)
        part = above[len(path) :].strip(b"/")
        for entry in entries:
            name = join(b"/" + part, entry.name)[1:] if part else entry.name
            place = join(to, name) if isinstance(to, bytes) else os.path.join(to, os.fsdecode(name))
            if entry.is_dir():
                plan.directories.append((entry.path, place, entry.attr))
            elif entry.is_symlink():
                try:
                    plan.links.append((work.files.readlink(entry.path), place))
                except OSError as error:
                    work.report_error(error, entry.path)
            elif entry.is_file():
                plan.files.append((entry.path, place, entry.attr))
                plan.bytes += entry.attr.size
            else:
                work.report_error("not a regular file; left out", entry.path)


def _get_planned(work: Work, plan: _Plan, options: CopyOptions, transfer: Transfer) -> None:
    from amfs.client.transfer import BATCH, get_many

    for _, local, attr in plan.directories:
        try:
            os.makedirs(local, stat.S_IMODE(attr.mode) & 0o777 | 0o700, exist_ok=True)
        except OSError as error:
            work.report_error(error)
    for target, local in plan.links:
        try:
            if os.path.lexists(local) and not options.keep:
                os.unlink(local)
            if not os.path.lexists(local):
                os.symlink(target, local)
        except OSError as error:
            work.report_error(error, local)
    for start in range(0, len(plan.files), BATCH):
        chosen = plan.files[start : start + BATCH]
        pairs = [(path, local) for path, local, _ in chosen]
        results = get_many(work.files.connection, pairs, exclusive=options.keep, progress=transfer.add)
        for (path, local, attr), result in zip(chosen, results, strict=True):
            if isinstance(result, OSError):
                if not (options.keep and isinstance(result, FileExistsError)):
                    work.report_error(result, os.fsencode(result.filename or path))
                continue
            transfer.files += 1
            _settle(work, local, attr, options)
            if options.verbose:
                line(path + b" -> " + os.fsencode(local))
    if options.preserve:
        for _, local, attr in reversed(plan.directories):
            _settle(work, local, attr, options)


def _settle(work: Work, local: str, attr: Attr, options: CopyOptions) -> None:
    """Give a local copy the mode of its original (execution is worth keeping in any case) and, with -p, its times and owner."""
    try:
        if options.preserve:
            if os.geteuid() == 0:
                os.chown(local, attr.uid, attr.gid)
            os.chmod(local, stat.S_IMODE(attr.mode))
            os.utime(local, ns=(attr.atime, attr.mtime))
        elif attr.mode & 0o111:
            here = stat.S_IMODE(os.stat(local).st_mode)
            os.chmod(local, here | (here & 0o444) >> 2 & attr.mode)
    except OSError as error:
        work.report_error(error, local)


def _get_stream(work: Work, path: bytes, transfer: Transfer) -> None:
    from amfs.client.verifying import check_read
    from amfs.host.digests import Digest

    try:
        taken, before = Digest(), work.files.info(path)
        for piece in _pieces(work, path):
            write(piece)
            taken.add(piece)
            transfer.add(len(piece))
        check_read(work.files.connection, path, before, (taken.size, taken.value()))
    except BrokenPipeError:
        raise
    except OSError as error:
        if not error.filename:
            raise
        work.report_error(error, path)


# ── cp ─────────────────────────────────────────────────────────────────────────────────────────────


@click.command(context_settings=CONTEXT)
@click.argument("names", nargs=-1, required=True, shell_complete=local_files, metavar="SOURCE... TARGET")
@copy_options
@layout_options
@output_option
@session_option
def cp(
    names: tuple[str, ...], recursive: bool, preserve: bool, keep: bool, verbose: bool, progress: bool | None, layout: str | None,
    stripe: str, form: str, session: str | None,
) -> int:  # fmt: skip
    """Copy files: names that begin with amfs: are in the file system, all others are local."""
    options = CopyOptions(recursive, preserve, keep, verbose, progress, form, layout, _check_stripes(stripe, layout))
    with Work("cp", session) as work:
        sources, target = _several(names, "cp"), names[-1]
        inside = {work.is_inside(source) for source in sources}
        if len(inside) > 1:
            raise UsageError("cp: the sources must all be local, or all in amfs")
        if work.is_inside(target):
            return _copy_within(work, sources, target, options) if inside == {True} else _put(work, sources, target, options)
        if inside == {False}:
            raise UsageError("cp: neither side is in amfs: paths there begin with amfs:/")
        if layout or stripe:
            raise UsageError("cp: --layout and --stripe are for files in amfs")
        return _get(work, sources, target, options)


def _copy_within(work: Work, sources: Sequence[str], target: str, options: CopyOptions) -> int:
    from amfs.cli.fs_progress import Transfer
    from amfs.client.tree import lookup

    to = work.path(target)
    chosen, files = work.paths(sources), work.files
    there = lookup(files.connection, to, True)
    into = there is not None and stat.S_ISDIR(there.mode)
    found = files.info_many(chosen)
    if (len(chosen) > 1 or (target.endswith("/") and not _is_directory(found[0]))) and not into:
        raise UsageError(f"cp: {target}: not a directory")
    plan = _Plan()
    for path, attr in zip(chosen, found, strict=True):
        if isinstance(attr, OSError):
            work.report_error(attr, path)
            continue
        place = join(to, path.rpartition(b"/")[2]) if into else to
        if stat.S_ISDIR(attr.mode) and below(place, path):
            work.report_error(f"cannot be copied into itself ({os.fsdecode(place)})", path)
            continue
        _plan_inside(work, plan, path, place, attr, options)
    with Transfer(plan.bytes, options.progress) as transfer:
        for _, place, attr in plan.directories:
            try:
                files.makedirs(place, stat.S_IMODE(attr.mode) | 0o700, exist_ok=True)
            except OSError as error:
                work.report_error(error, place)
        for link, place in plan.links:
            try:
                if not (options.keep and files.lexists(place)):
                    if files.lexists(place):
                        files.unlink(place)
                    files.symlink(link, place)
            except OSError as error:
                work.report_error(error, place)
        for path, place, _ in plan.files:
            try:
                if options.keep and files.lexists(place):
                    continue
                files.copy_file(path, place, layout=options.layout, stripe=options.stripe, progress=transfer.add)
                transfer.files += 1
                if options.verbose:
                    line(path + b" -> " + place)
            except OSError as error:
                work.report_error(error)
        if options.preserve:
            from amfs.client.files import stat_result

            for _, place, attr in [*plan.files, *reversed(plan.directories)]:
                _preserve(work, place, stat_result(attr))
    return _finish(work, options, transfer)
