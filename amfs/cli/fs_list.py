"""``amfs ls``, ``amfs stat`` and ``amfs tree``: listings of files."""

from __future__ import annotations

import os
import shutil
import stat as modes
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from amfs.cli.fs_common import (
    CONTEXT,
    KINDS,
    Work,
    aligned,
    bytes_field,
    date_text,
    encoded,
    fields_of,
    group_name,
    human,
    line,
    name_text,
    output_option,
    print_json,
    session_option,
    user_name,
    write,
)
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import LOST

if TYPE_CHECKING:
    from amfs.client.tree import Entry
    from amfs.vocabulary.attr import Attr

_LOST_TEXT = "content lost with a node that died"
TROUBLE = 2  # exit status of ls for an argument that is not there, as with the ls of coreutils


class Shown(NamedTuple):
    """One line of a listing. ``name`` is what is printed, ``path`` what it is."""

    name: bytes
    path: bytes
    attr: Attr


class Style(NamedTuple):
    """How ``ls`` lists."""

    long: bool
    all: bool
    almost_all: bool
    human: bool
    time: str
    by_time: bool
    by_size: bool
    reverse: bool
    one: bool


@click.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-l", "long", is_flag=True, help="Mode, links, owner, group, size, time, name.")
@click.option("-a", "--all", "all_", is_flag=True, help="Names that begin with a dot, too, and . and ..")
@click.option("-A", "--almost-all", is_flag=True, help="The same without . and ..")
@click.option("-R", "--recursive", is_flag=True, help="Directories below, too.")
@click.option("-d", "--directory", is_flag=True, help="The directories themselves, not what is in them.")
@click.option("-h", "--human-readable", "human_", is_flag=True, help="Sizes such as 1.5K and 23M.")
@click.option("-t", "by_time", is_flag=True, help="Newest first.")
@click.option("-S", "by_size", is_flag=True, help="Largest first.")
@click.option("-r", "--reverse", is_flag=True, help="The other way round.")
@click.option("-1", "one", is_flag=True, help="One name a line (so anyway when the output is no terminal).")
@click.option("--time", "time_", type=click.Choice(["atime", "mtime", "ctime"]), default="mtime", help="The time to show and sort by.")
@output_option
@session_option
def ls(
    paths: tuple[str, ...], long: bool, all_: bool, almost_all: bool, recursive: bool, directory: bool, human_: bool, by_time: bool,
    by_size: bool, reverse: bool, one: bool, time_: str, form: str, session: str | None,
) -> int:  # fmt: skip
    """List what is in directories (the root without PATH).

    Patterns are expanded: amfs ls 'amfs:/images/*.fits'. In the long form a ~ behind the mode marks a file that is still being written, a !
    one whose content was lost with a node that died. Of a URL all objects are listed that it names; -l adds sizes and times.
    Exit status: 0; 1 if something could not be listed; 2 if a PATH is not there.
    """
    style = Style(long, all_, almost_all or all_, human_, time_, by_time, by_size, reverse, one)
    with Work("ls", session) as work:
        if any("://" in path for path in paths):
            from amfs.cli import fs_urls

            if fs_urls.any_urls(paths):
                return fs_urls.ls(work, paths, long, form)
        chosen = work.paths(paths or ("amfs:/",))
        found: list[tuple[bytes, Attr]] = []
        for path, attr in zip(chosen, work.files.info_many(chosen, follow=not long), strict=True):
            if isinstance(attr, OSError):
                attr = work.files.info_many([path], follow=False)[0]  # a link that leads nowhere is there all the same
            if isinstance(attr, OSError):
                work.report_error(attr, path, status=TROUBLE)
            else:
                found.append((path, attr))
        alone = [Shown(path, path, attr) for path, attr in found if directory or not modes.S_ISDIR(attr.mode)]
        opened = [path for path, attr in found if not directory and modes.S_ISDIR(attr.mode)]
        alone = _sorted(alone, style)
        if form == "json":
            _ls_json(work, alone, opened, recursive, style)
            return work.status
        if alone:
            _list(work, alone, style)
        first = not alone
        for top in sorted(opened):
            for path, entries in _directories(work, top, recursive, style):
                if not first:
                    line("")
                first = False
                if recursive or len(found) > 1 or work.status:
                    line(name_text(path) + b":")
                rows = [Shown(entry.name, entry.path, entry.attr) for entry in entries]
                if style.all:
                    rows = [*_dots(work, path), *rows]
                if long:
                    line(f"total {sum(-(-row.attr.blocks // 2) for row in rows)}")
                _list(work, rows, style)
        return work.status


def _directories(work: Work, top: bytes, recursive: bool, style: Style) -> Any:
    """(path, entries in the order in which they are shown), all below ``top`` if ``recursive``."""

    def tell(error: OSError) -> None:
        work.report_error(error, status=TROUBLE if os.fsencode(error.filename or "") == top else 1)

    for path, entries in work.files.walk(top, tell):
        if not style.almost_all:
            entries[:] = [entry for entry in entries if not entry.name.startswith(b".")]
        entries[:] = _sorted(entries, style)
        yield path, entries
        if not recursive:
            return


def _sorted(rows: Sequence[Any], style: Style) -> list[Any]:
    order: Callable[[Any], Any] = lambda row: row.name  # noqa: E731
    if style.by_time:
        order = lambda row: (-getattr(row.attr, style.time), row.name)  # noqa: E731
    elif style.by_size:
        order = lambda row: (-row.attr.size, row.name)  # noqa: E731
    return sorted(rows, key=order, reverse=style.reverse)


def _dots(work: Work, path: bytes) -> list[Shown]:
    above = path.rpartition(b"/")[0] or b"/"
    found = zip((b".", b".."), (path, above), work.files.info_many([path, above]), strict=True)
    return [Shown(name, at, attr) for name, at, attr in found if not isinstance(attr, OSError)]


def _list(work: Work, rows: Sequence[Shown], style: Style) -> None:
    if style.long:
        for row in _long(work, rows, style):
            line(row)
        return
    names = [name_text(row.name) for row in rows]
    if style.one or not sys.stdout.isatty():
        for name in names:
            line(name)
    else:
        for text in columns([name.decode("utf-8", "replace") for name in names], shutil.get_terminal_size().columns):
            line(text)


def _long(work: Work, rows: Sequence[Shown], style: Style) -> list[bytes]:
    user, group = cache(user_name), cache(group_name)
    targets = _targets(work, [row.path for row in rows if modes.S_ISLNK(row.attr.mode)])
    cells = []
    copied = any(row.attr.copies > 1 and modes.S_ISREG(row.attr.mode) for row in rows)
    for row in rows:
        attr = row.attr
        copies = (f"x{attr.copies}" if attr.copies > 1 and modes.S_ISREG(attr.mode) else "",) if copied else ()
        mark = "" if not modes.S_ISREG(attr.mode) else "!" if attr.finished == LOST else "" if attr.finished else "~"
        cells.append((
            modes.filemode(attr.mode) + mark, *copies, str(attr.nlink), user(attr.uid), group(attr.gid),
            human(attr.size) if style.human else str(attr.size), date_text(getattr(attr, style.time)),
        ))  # fmt: skip
    heads = aligned(cells, left=(0, 1, 3, 4) if copied else (0, 2, 3))
    lines = []
    for head, row in zip(heads, rows, strict=True):
        target = targets.get(row.path)
        lines.append(os.fsencode(head) + b" " + name_text(row.name) + (b" -> " + name_text(target) if target is not None else b""))
    return lines


def _targets(work: Work, links: Sequence[bytes]) -> dict[bytes, bytes]:
    from amfs.client.connection import Call

    answers = work.files.call_many(Call(q.ReadlinkPath(path), (path,)) for path in links)
    return {path: answer for path, answer in zip(links, answers, strict=True) if not isinstance(answer, OSError)}


def columns(names: Sequence[str], width: int) -> list[str]:
    """Names in as few lines as fit, down the columns, two spaces between."""
    if not names:
        return []
    for height in range(1, len(names) + 1):
        groups = [names[start : start + height] for start in range(0, len(names), height)]
        widths = [max(map(len, group)) + 2 for group in groups]
        if sum(widths) - 2 <= width or height == len(names):
            break
    return [
        "".join(group[row].ljust(size) for group, size in zip(groups, widths, strict=True) if row < len(group)).rstrip()
        for row in range(height)
    ]


def _ls_json(work: Work, alone: Sequence[Shown], opened: Sequence[bytes], recursive: bool, style: Style) -> None:
    facts = [fields_of(row.path, row.attr) for row in alone]
    links = [row.path for row in alone if modes.S_ISLNK(row.attr.mode)]
    for top in sorted(opened):
        for _, entries in _directories(work, top, recursive, style):
            facts += [fields_of(entry.path, entry.attr) for entry in entries]
            links += [entry.path for entry in entries if entry.is_symlink()]
    targets = {os.fsdecode(path): target for path, target in _targets(work, links).items()}
    for fact in facts:
        if fact.get("path") in targets:
            fact.update(bytes_field("target", targets[fact["path"]]))
    print_json(facts)


# ── stat ───────────────────────────────────────────────────────────────────────────────────────────


@click.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-L", "--dereference", is_flag=True, help="The target of a symbolic link.")
@click.option("-c", "--format", "pattern", default="", metavar="FORMAT", help="As stat(1) has it: %n %s %F %a %A %h %i %u %U %g %G …")
@output_option
@session_option
def stat(paths: tuple[str, ...], dereference: bool, pattern: str, form: str, session: str | None) -> int:
    """Say all that is known of files: what stat(1) says, and the layout, whether it is finished, and on which nodes the bytes are."""
    with Work("stat", session) as work:
        chosen = work.paths(paths)
        facts = []
        for path, attr in zip(chosen, work.files.info_many(chosen, follow=dereference), strict=True):
            if isinstance(attr, OSError):
                work.report_error(attr, path)
                continue
            if pattern:
                line(formatted(pattern, path, attr))
                continue
            more = whereabouts(work, path, attr)
            if form == "json":
                facts.append({**fields_of(path, attr), **more})
            else:
                for text in _stat_lines(path, attr, more):
                    line(text)
        if form == "json":
            print_json(facts)
        return work.status


def whereabouts(work: Work, path: bytes, attr: Attr) -> dict[str, Any]:
    """Where the bytes are, and the rule of a directory."""
    if modes.S_ISLNK(attr.mode):
        return bytes_field("target", work.files.readlink(path))
    if modes.S_ISDIR(attr.mode):
        rule = work.files.get_layout(path)
        return {"rule": {"layout": rule[0], "stripe": rule[1]} if rule else None, "copies": attr.copies}
    if not modes.S_ISREG(attr.mode):
        return {}
    try:
        nodes = sorted({node for extent in work.files.locate(path) for node in extent.nodes})
    except OSError as error:
        work.report_error(error, path)
        nodes = []
    return {"nodes": nodes, "rank": attr.rank, "writer": attr.writer}


def _stat_lines(path: bytes, attr: Attr, more: dict[str, Any]) -> list[str]:
    kind = KINDS.get(modes.S_IFMT(attr.mode), "unknown")
    name = os.fsdecode(name_text(path)) + (f" -> {more['target']}" if "target" in more else "")
    owner = f"Uid: {attr.uid}/{user_name(attr.uid)}   Gid: {attr.gid}/{group_name(attr.gid)}"
    lines = [
        f"  File: {name}",
        f"  Size: {attr.size:<12} Blocks: {attr.blocks:<10} {kind}",
        f" Inode: {attr.ino:<12} Links: {attr.nlink}",
        f"Access: ({modes.S_IMODE(attr.mode):04o}/{modes.filemode(attr.mode)})  {owner}",
        *(f"{label}: {_moment(value)}" for label, value in (("Access", attr.atime), ("Modify", attr.mtime), ("Change", attr.ctime))),
    ]
    if "nodes" in more:
        layout = f"striped, {human(attr.stripe)} each" if attr.layout else "whole"
        writing = f"being written on node {attr.writer}" if attr.writer >= 0 else "not finished"
        state = _LOST_TEXT if attr.finished == LOST else "finished" if attr.finished else writing
        pinned = f", pinned to node {attr.rank}" if attr.rank >= 0 else ""
        asked = f"; {attr.copies} copies asked for" if attr.copies > 1 else ""
        lines.append(f"Layout: {layout}, {state}; on {nodes_text(more['nodes'])}{pinned}{asked}")
    elif more.get("rule"):
        rule = more["rule"]
        lines.append(f"Layout: new files are {rule['layout']}" + (f", {human(rule['stripe'])} each" if rule["stripe"] else ""))
    if more.get("copies", 1) > 1:
        lines.append(f"Copies: new files are kept on {more['copies']} nodes")
    return lines


def nodes_text(nodes: Sequence[int]) -> str:
    if not nodes:
        return "no node"
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"


def _moment(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    at = time.localtime(seconds)
    return time.strftime("%Y-%m-%d %H:%M:%S", at) + f".{rest:09} " + time.strftime("%z", at)


def formatted(pattern: str, path: bytes, attr: Attr) -> bytes:
    """``pattern`` with what stands behind each ``%``, as ``stat -c`` does it. An unknown one becomes ``?``."""
    values: dict[str, Callable[[], str | bytes]] = {
        "n": lambda: path, "s": lambda: str(attr.size), "F": lambda: KINDS.get(modes.S_IFMT(attr.mode), "unknown"),
        "a": lambda: f"{modes.S_IMODE(attr.mode):o}", "A": lambda: modes.filemode(attr.mode), "f": lambda: f"{attr.mode:x}",
        "h": lambda: str(attr.nlink), "i": lambda: str(attr.ino), "u": lambda: str(attr.uid), "U": lambda: user_name(attr.uid),
        "g": lambda: str(attr.gid), "G": lambda: group_name(attr.gid), "b": lambda: str(attr.blocks), "B": lambda: "512",
        "X": lambda: str(attr.atime // 10**9), "Y": lambda: str(attr.mtime // 10**9), "Z": lambda: str(attr.ctime // 10**9),
        "x": lambda: _moment(attr.atime), "y": lambda: _moment(attr.mtime), "z": lambda: _moment(attr.ctime), "%": lambda: "%",
    }  # fmt: skip
    first, *rest = pattern.split("%")
    out = os.fsencode(first)
    position = 0
    while position < len(rest):
        part = rest[position]
        if not part:  # "%%"
            out += b"%" + os.fsencode(rest[position + 1] if position + 1 < len(rest) else "")
            position += 2
            continue
        value = values.get(part[0], lambda: "?")()
        out += (value if isinstance(value, bytes) else os.fsencode(value)) + os.fsencode(part[1:])
        position += 1
    return out


# ── tree ───────────────────────────────────────────────────────────────────────────────────────────


@click.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-L", "--level", type=click.IntRange(min=1), default=None, metavar="N", help="Not deeper than N directories.")
@click.option("-a", "--all", "all_", is_flag=True, help="Names that begin with a dot, too.")
@click.option("-d", "directories", is_flag=True, help="Directories only.")
@click.option("-s", "sizes", is_flag=True, help="Sizes in bytes.")
@click.option("-h", "human_", is_flag=True, help="Sizes such as 1.5K and 23M.")
@output_option
@session_option
def tree(
    paths: tuple[str, ...], level: int | None, all_: bool, directories: bool, sizes: bool, human_: bool, form: str, session: str | None
) -> int:
    """Draw directories and what is below them."""
    with Work("tree", session) as work:
        drawn: list[tuple[bytes, int]] = []
        counts = [0, 0]
        for top in work.paths(paths or ("amfs:/",)):
            attr = work.files.info_many([top])[0]
            if isinstance(attr, OSError):
                work.report_error(attr, top)
                continue
            children = _read_tree(work, top, level, all_, directories) if modes.S_ISDIR(attr.mode) else {}
            if form == "json":
                drawn.append(_as_json(children, top, attr))
                continue
            line(name_text(top))
            _draw(children, top, counts, (human if human_ else str) if sizes or human_ else None)
        if form == "json":
            _print_trees(drawn)
        else:
            words = f"{counts[0]} director{'y' if counts[0] == 1 else 'ies'}"
            line(f"\n{words}" if directories else f"\n{words}, {counts[1]} file{'' if counts[1] == 1 else 's'}")
        return work.status


def _read_tree(work: Work, top: bytes, level: int | None, hidden: bool, directories: bool) -> dict[bytes, list[Entry]]:
    """Entries by directory, sorted."""
    children: dict[bytes, list[Entry]] = {}
    depth = top.count(b"/") if top != b"/" else 0
    for path, entries in work.files.walk(top, work.report_error):
        shown = [entry for entry in entries if (hidden or not entry.name.startswith(b".")) and (not directories or entry.is_dir())]
        children[path] = sorted(shown, key=lambda entry: entry.name)
        below = (path.count(b"/") if path != b"/" else 0) - depth + 1
        entries[:] = [] if level is not None and below >= level else shown
    return children


def _draw(children: dict[bytes, list[Entry]], top: bytes, counts: list[int], size: Callable[[int], str] | None) -> None:
    stack = [(top, 0, "")]  # directory, how many of its entries are drawn, indentation
    while stack:
        path, number, indent = stack.pop()
        entries = children.get(path, [])
        if number == len(entries):
            continue
        entry, last = entries[number], number == len(entries) - 1
        stack.append((path, number + 1, indent))
        counts[0 if entry.is_dir() else 1] += 1
        measure = f"[{size(entry.attr.size):>{11 if size is str else 4}}]  " if size is not None else ""
        line(encoded(f"{indent}{'└── ' if last else '├── '}{measure}") + name_text(entry.name))
        if entry.is_dir():
            stack.append((entry.path, 0, indent + ("    " if last else "│   ")))


#: How deep JSON may be nested to be set out on indented lines: beyond, the indentation would be most of it.
INDENTED_MAX = 100


def _as_json(children: dict[bytes, list[Entry]], path: bytes, attr: Attr) -> tuple[bytes, int]:
    """The entry at ``path`` with the entries below it, as JSON; their depth. A tree may be deeper than Python's stack."""
    import msgspec

    pieces: list[bytes] = []
    deepest = 0
    todo: list[tuple[bytes, Attr | None]] = [(path, attr)]  # next last; without attributes: text that ends a directory
    depth = 0
    while todo:
        path, attr_or_end = todo.pop()
        if attr_or_end is None:
            pieces.append(path)
            depth -= 1
            continue
        pieces += [b"" if not pieces or pieces[-1].endswith(b"[") else b",", msgspec.json.encode(fields_of(path, attr_or_end))]
        if depth and not modes.S_ISDIR(attr_or_end.mode):
            continue
        pieces[-1] = pieces[-1][:-1] + b',"contents":['
        depth += 1
        deepest = max(deepest, depth)
        todo.append((b"]}", None))
        todo += [(entry.path, entry.attr) for entry in reversed(children.get(path, []))]
    return b"".join(pieces), deepest


def _print_trees(trees: list[tuple[bytes, int]]) -> None:
    import msgspec

    text = b"[" + b",".join([tree for tree, _ in trees]) + b"]"
    write((msgspec.json.format(text) if all(depth < INDENTED_MAX for _, depth in trees) else text) + b"\n")
