"""``amfs find``, ``amfs locate``, ``amfs du`` and ``amfs df``: searches in the tree, places and sizes of files."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Sequence
from typing import Any

import click

from amfs.cli.fs_common import (
    CONTEXT,
    Work,
    aligned,
    bytes_field,
    fields_of,
    human,
    line,
    name_text,
    output_option,
    print_json,
    session_option,
    write,
)
from amfs.errors import UsageError
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import Attr

_TYPES = {
    "f": stat.S_IFREG, "d": stat.S_IFDIR, "l": stat.S_IFLNK, "p": stat.S_IFIFO, "s": stat.S_IFSOCK, "b": stat.S_IFBLK, "c": stat.S_IFCHR,
}  # fmt: skip
_SIZE = re.compile(r"([+-]?)(\d+)([bcwkMGT]?)\Z")
_UNITS = {"": 512, "b": 512, "c": 1, "w": 2, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

Test = Callable[[bytes, Attr], bool]


@click.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-name", "--name", "names", multiple=True, metavar="PATTERN", help="The last name fits a pattern; several: one of them.")
@click.option("-iname", "--iname", "inames", multiple=True, metavar="PATTERN", help="The same, capitals or not.")
@click.option("-path", "--path", "wholes", multiple=True, metavar="PATTERN", help="The whole path fits, slashes as any other character.")
@click.option("-type", "--type", "type_", metavar="LETTERS", default="", help="One of these: f file, d directory, l link, p, s, b, c.")
@click.option("-size", "--size", "sizes", multiple=True, metavar="[+-]N[ckMGT]", help="More, less or exactly N units; c: bytes.")
@click.option("-newer", "--newer", "newer", metavar="PATH", default="", help="Modified later than PATH was.")
@click.option("-unfinished", "--unfinished", is_flag=True, help="Still being written.")
@click.option("-mindepth", "--mindepth", type=click.IntRange(min=0), default=0, metavar="N", help="Not what is above depth N.")
@click.option("-maxdepth", "--maxdepth", type=click.IntRange(min=0), default=None, metavar="N", help="Nothing deeper than N.")
@click.option("-print0", "--print0", is_flag=True, help="End each path with a zero byte, for xargs -0.")
@output_option
@session_option
def find(
    paths: tuple[str, ...], names: tuple[str, ...], inames: tuple[str, ...], wholes: tuple[str, ...], type_: str, sizes: tuple[str, ...],
    newer: str, unfinished: bool, mindepth: int, maxdepth: int | None, print0: bool, form: str, session: str | None,
) -> int:  # fmt: skip
    """Print what lies at and below PATH (the root without it) and passes all the tests, as find(1) does."""
    tests: list[Test] = [_named(names, False), _named(inames, True), _typed(type_), *(_sized(size) for size in sizes)]
    if wholes:
        match = _matcher(wholes, False)
        tests.append(lambda path, attr: match(path))
    if unfinished:
        tests.append(lambda path, attr: stat.S_ISREG(attr.mode) and not attr.finished)
    with Work("find", session) as work:
        tops = work.paths(paths or ("amfs:/",))
        if newer:
            since = work.files.info(os.fsdecode(work.path(newer))).mtime
            tests.append(lambda path, attr: attr.mtime > since)
        facts: list[dict[str, Any]] = []

        def show(path: bytes, attr: Attr, depth: int) -> None:
            if depth >= mindepth and all(test(path, attr) for test in tests):
                if form == "json":
                    facts.append(fields_of(path, attr))
                elif print0:
                    write(path + b"\0")
                else:
                    line(name_text(path))

        for top in tops:
            _search(work, top, maxdepth, show)
        if form == "json":
            print_json(facts)
        return work.status


def _search(work: Work, top: bytes, maxdepth: int | None, show: Callable[[bytes, Attr, int], None]) -> None:
    try:
        attr = work.files.info(top, follow=False)
    except OSError as error:
        work.report_error(error, top)
        return
    show(top, attr, 0)
    if not stat.S_ISDIR(attr.mode) or maxdepth == 0:
        return
    above = 0 if top == b"/" else top.count(b"/")
    for path, entries in work.files.walk(top, work.report_error):
        depth = (0 if path == b"/" else path.count(b"/")) - above + 1
        entries.sort(key=lambda entry: entry.name)
        for entry in entries:
            show(entry.path, entry.attr, depth)
        if maxdepth is not None and depth >= maxdepth:
            entries.clear()


def _matcher(patterns: Sequence[str], fold: bool) -> Callable[[bytes], bool]:
    flags = re.IGNORECASE if fold else 0
    matches = [re.compile(fnmatch.translate(pattern), flags).match for pattern in patterns]
    return lambda name: any(match(os.fsdecode(name)) for match in matches)


def _named(patterns: Sequence[str], fold: bool) -> Test:
    if not patterns:
        return lambda path, attr: True
    match = _matcher(patterns, fold)
    return lambda path, attr: match(path.rpartition(b"/")[2] or b"/")


def _typed(letters: str) -> Test:
    wanted = set()
    for letter in letters.replace(",", ""):
        if letter not in _TYPES:
            raise UsageError(f"find: -type {letters}: a type is one of {' '.join(_TYPES)}")
        wanted.add(_TYPES[letter])
    return lambda path, attr: not wanted or stat.S_IFMT(attr.mode) in wanted


def _sized(text: str) -> Test:
    match = _SIZE.match(text)
    if not match:
        raise UsageError(f"find: -size {text}: write for example +10M, -4k or 100c")
    sign, count, unit = match[1], int(match[2]), _UNITS[match[3]]

    def test(path: bytes, attr: Attr) -> bool:
        units = -(-attr.size // unit)
        return bool(units > count if sign == "+" else units < count if sign == "-" else units == count)

    return test


# ── locate ─────────────────────────────────────────────────────────────────────────────────────────


@click.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-r", "-R", "--recursive", is_flag=True, help="All files below directories.")
@click.option("-h", "--human-readable", "human_", is_flag=True, help="Sizes such as 1.5K and 23M.")
@click.option("--extents", is_flag=True, help="Each part of a file on a line of its own.")
@output_option
@session_option
def locate(paths: tuple[str, ...], recursive: bool, human_: bool, extents: bool, form: str, session: str | None) -> int:
    """Say on which nodes the bytes of files are.

    A whole file may be on several nodes, all of it on each; of a striped one every node has a part.
    """
    from amfs.client.connection import Call
    from amfs.client.files import Extent

    with Work("locate", session) as work:
        chosen: list[tuple[bytes, Attr]] = []
        given = work.paths(paths)
        for path, attr in zip(given, work.files.info_many(given), strict=True):
            if isinstance(attr, OSError):
                work.report_error(attr, path)
            elif not stat.S_ISDIR(attr.mode):
                chosen.append((path, attr))
            elif recursive:
                for _, entries in work.files.walk(path, work.report_error):
                    chosen += sorted((entry.path, entry.attr) for entry in entries if entry.is_file())
            else:
                work.report_error("Is a directory; for the files below it: -r", path)
        answers = work.files.call_many(Call(q.Locate(path), (path,)) for path, _ in chosen)
        size = human if human_ else str
        facts, rows = [], []
        for (path, attr), answer in zip(chosen, answers, strict=True):
            if isinstance(answer, OSError):
                work.report_error(answer, path)
                continue
            parts = [Extent(offset, length, tuple(nodes)) for offset, length, nodes in answer]
            held = held_by(parts)
            layout = "striped" if attr.layout else "whole"
            if form == "json":
                facts.append({
                    **bytes_field("path", path), "size": attr.size, "layout": layout, "stripe": attr.stripe,
                    "nodes": [{"node": node, "bytes": count} for node, count in sorted(held.items())],
                    "extents": [{"offset": part.offset, "length": part.length, "nodes": list(part.nodes)} for part in parts],
                })  # fmt: skip
            elif extents:
                name = os.fsdecode(name_text(path))
                rows += [(name, str(part.offset), size(part.length), "node " + ",".join(map(str, part.nodes))) for part in parts]
            else:
                where = " ".join(f"{node}:{size(count)}" for node, count in sorted(held.items())) or "nowhere"
                rows.append((os.fsdecode(name_text(path)), size(attr.size), layout, where))
        if form == "json":
            print_json(facts)
        for text in aligned(rows, left=(0, 3) if extents else (0, 2, 3)):
            line(text)
        return work.status


def held_by(parts: Sequence[Any]) -> dict[int, int]:
    """Bytes by node."""
    held: dict[int, int] = {}
    for part in parts:
        for node in part.nodes:
            held[node] = held.get(node, 0) + part.length
    return held


# ── du and df ──────────────────────────────────────────────────────────────────────────────────────


@click.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-s", "--summarize", is_flag=True, help="Only the total of each PATH.")
@click.option("-h", "--human-readable", "human_", is_flag=True, help="Sizes such as 1.5K and 23M.")
@click.option("-b", "--bytes", "bytes_", is_flag=True, help="Bytes (default: units of 1024, rounded up).")
@click.option("-c", "--total", "grand", is_flag=True, help="A grand total at the end.")
@click.option("-d", "--max-depth", "depth", type=click.IntRange(min=0), default=None, metavar="N", help="Only directories up to depth N.")
@output_option
@session_option
def du(
    paths: tuple[str, ...], summarize: bool, human_: bool, bytes_: bool, grand: bool, depth: int | None, form: str, session: str | None
) -> int:
    """Say how many bytes the files in directories have (copies on several nodes count once)."""
    if summarize and depth:
        raise UsageError("du: -s and --max-depth exclude each other")
    most = 0 if summarize else depth

    def size(count: int) -> str:
        return human(count) if human_ else str(count if bytes_ else -(-count // 1024))

    with Work("du", session) as work:
        facts = []
        total = [0, 0]
        for top in work.paths(paths or ("amfs:/",)):
            try:
                answers = work.files.du(top)
            except OSError as error:
                work.report_error(error, top)
                continue
            above = 0 if top == b"/" else top.count(b"/")
            for path, count, files in sorted(answers, key=lambda answer: (_after(answer[0]), answer[0])):
                if path == top:
                    total = [total[0] + count, total[1] + files]
                if most is not None and (0 if path == b"/" else path.count(b"/")) - above > most:
                    continue
                if form == "json":
                    facts.append({**bytes_field("path", path), "bytes": count, "files": files})
                else:
                    line(os.fsencode(size(count)) + b"\t" + name_text(path))
        if form == "json":
            print_json({"paths": facts, "bytes": total[0], "files": total[1]} if grand else facts)
        elif grand:
            line(f"{size(total[0])}\ttotal")
        return work.status


def _after(path: bytes) -> list[bytes]:
    """A directory comes after what is in it, as du has it: its end sorts after every name."""
    return [*(part for part in path.split(b"/") if part), b"\xff" * 256]


@click.command(context_settings=CONTEXT)
@click.option("-h", "--human-readable", "human_", is_flag=True, help="Sizes such as 1.5K and 23M.")
@output_option
@session_option
def df(human_: bool, form: str, session: str | None) -> int:
    """Say how full the nodes are. The sizes are in units of 1024 bytes."""
    with Work("df", session) as work:
        usage = work.files.df()
        if form == "json":
            print_json([{**each._asdict(), "available": max(0, each.capacity - each.used)} for each in usage])
            return 0

        def size(count: int) -> str:
            return human(count) if human_ else str(-(-count // 1024))

        rows = [("node", "size" if human_ else "1K-blocks", "used", "available", "use%", "files")]
        entries = [(str(each.node), each.capacity, each.used, each.files) for each in usage]
        if len(usage) > 1:
            total = (sum(each.capacity for each in usage), sum(each.used for each in usage), sum(each.files for each in usage))
            entries.append(("total", *total))
        for name, capacity, used, files in entries:
            share = f"{-(-100 * used // capacity)}%" if capacity else "-"
            free = size(max(0, capacity - used)) if capacity else "-"
            rows.append((name, size(capacity) if capacity else "-", size(used), free, share, str(files)))
        for text in aligned(rows):
            line(text)
        return work.status
