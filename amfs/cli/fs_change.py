"""``amfs rm``, ``amfs mv`` and ``amfs mkdir``: changing the tree."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

import click

from amfs.cli.fs_common import CONTEXT, Work, layout_options, line, session_option, stripe_of
from amfs.client.paths import below, join
from amfs.errors import UsageError
from amfs.vocabulary import fs_requests as q


@click.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("-r", "-R", "--recursive", is_flag=True, help="Directories with all that is in them.")
@click.option("-f", "--force", is_flag=True, help="A missing name is no error.")
@click.option("-d", "--dir", "directories", is_flag=True, help="Empty directories, too.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is removed.")
@session_option
def rm(paths: tuple[str, ...], recursive: bool, force: bool, directories: bool, verbose: bool, session: str | None) -> int:
    """Remove files. Patterns are expanded: amfs rm 'amfs:/tmp/*'. The root itself is never removed."""
    from amfs.client.connection import Call
    from amfs.client.tree import remove_tree

    if not paths and not force:
        raise UsageError("rm: what shall be removed?")
    with Work("rm", session) as work:
        chosen = work.paths(paths)
        plain: list[bytes] = []
        trees: list[bytes] = []
        for path, attr in zip(chosen, work.files.info_many(chosen, follow=False) if chosen else [], strict=True):
            if isinstance(attr, OSError):
                if not (force and attr.errno in (errno.ENOENT, errno.ENOTDIR)):
                    work.report_error(attr, path)
            elif path == b"/":
                work.report_error("it is dangerous to remove the root; name what is in it, such as 'amfs:/*'", path)
            elif not stat.S_ISDIR(attr.mode):
                plain.append(path)
            elif recursive:
                trees.append(path)
            elif directories:
                try:
                    work.files.rmdir(path)
                    if verbose:
                        line(b"removed directory " + path)
                except OSError as error:
                    work.report_error(error, path)
            else:
                work.report_error("Is a directory", path)
        answers = work.files.call_many(Call(q.UnlinkPath(path), (path,)) for path in plain)
        for path, answer in zip(plain, answers, strict=True):
            if isinstance(answer, OSError):
                if not (force and isinstance(answer, FileNotFoundError)):
                    work.report_error(answer, path)
            elif verbose:
                line(b"removed " + path)

        def removed(path: bytes, directory: bool) -> None:
            line((b"removed directory " if directory else b"removed ") + path)

        for path in trees:
            remove_tree(work.files.connection, path, work.report_error, removed if verbose else None)
        return work.status


@click.command(context_settings=CONTEXT)
@click.argument("names", nargs=-1, required=True, metavar="SOURCE... TARGET")
@click.option("-n", "--no-clobber", "keep", is_flag=True, help="Do not replace what is there.")
@click.option("-f", "--force", is_flag=True, help="Replace what is there (so anyway).")
@click.option("-T", "--no-target-directory", "as_is", is_flag=True, help="TARGET is the new name itself, even if it is a directory.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is moved.")
@session_option
def mv(names: tuple[str, ...], keep: bool, force: bool, as_is: bool, verbose: bool, session: str | None) -> int:
    """Rename SOURCE to TARGET, or move it into TARGET if that is a directory. No byte is copied."""
    if len(names) < 2:
        raise UsageError(f"mv: missing destination after '{names[0]}'")
    with Work("mv", session) as work:
        to = work.path(names[-1])
        chosen = work.paths(names[:-1])
        into = not as_is and work.files.isdir(to)
        if not into and (len(chosen) > 1 or (names[-1].endswith("/") and not work.files.isdir(chosen[0]))):
            raise UsageError(f"mv: {names[-1]}: not a directory")
        for path in chosen:
            place = join(to, path.rpartition(b"/")[2]) if into else to
            if path == place:
                work.report_error(f"and {os.fsdecode(place)} are the same file", path)
                continue
            if below(place, path):
                work.report_error(f"cannot be moved below itself ({os.fsdecode(place)})", path)
                continue
            try:
                work.files.rename(path, place, replace=not keep)
                if verbose:
                    line(b"renamed " + path + b" -> " + place)
            except FileExistsError as error:
                if not keep:
                    work.report_error(error, place)
            except OSError as error:
                missing = error.errno == errno.ENOENT and work.files.lexists(path)
                work.report_error(error, place if missing or error.errno in (errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR) else path)
        return work.status


@click.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-p", "--parents", is_flag=True, help="Make what is missing above, too; no error if it is there.")
@click.option("-m", "--mode", default="777", metavar="MODE", help="Permissions in octal, as they are (default: 777 less the umask).")
@click.option("-v", "--verbose", is_flag=True, help="Say what is made.")
@layout_options
@session_option
def mkdir(
    paths: tuple[str, ...], parents: bool, mode: str, verbose: bool, layout: str | None, stripe: str, session: str | None
) -> int:
    """Make directories. --layout and --stripe say what new files in them, and below, shall be like."""
    permissions = _mode(mode)
    size = stripe_of(stripe)
    if size and layout == "whole":
        raise UsageError("--stripe belongs to --layout striped")
    with Work("mkdir", session) as work:
        for path in _plain(work, paths):
            try:
                if parents:
                    work.files.makedirs(path, exist_ok=True)
                else:
                    work.files.mkdir(path)
                if mode != "777":
                    work.files.chmod(path, permissions)
                if layout or size:
                    work.files.set_layout(path, layout or "striped", size)
                if verbose:
                    line(b"made " + path)
            except OSError as error:
                work.report_error(error, path)
        return work.status


def _plain(work: Work, texts: Sequence[str]) -> list[bytes]:
    return [work.path(text) for text in texts]


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise UsageError(f"--mode {text}: write it in octal, such as 750")
    return mode
