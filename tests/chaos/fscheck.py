"""The file system by the logs of ``fsload.py``, compared with the real one. Must not know amfs but by its mounts and commands."""

from __future__ import annotations

import errno
import hashlib
import json
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

ANY = "any"  # a call on it was under way: nobody knows its result
ABSENT = "absent"
EVERYWHERE = -1  # in place of the nodes that hold a striped file

Facts = dict[str, "set[str]"]


class Expected:
    """The contents that each name may have, and the nodes whose loss may have taken the content along."""

    def __init__(self) -> None:
        self.may: dict[str, set[str]] = {}
        self.holders: dict[str, set[int]] = {}
        self.acknowledged = 0
        self.wrong: list[tuple[int, str]] = []  # answers to a program while it ran, and through which node
        self.unread = 0

    def take(self, log: Path) -> None:
        """Follow one program's log to its end."""
        pending: dict | None = None
        for line in log.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # the program was killed while it wrote
            fact = json.loads(line)
            state = fact["state"]
            if state == "begin":
                pending = fact
            elif state == "ok":
                pending = None
                self.acknowledged += 1
                self._done(fact)
            elif state == "error":
                pending = None
                self._unknown(fact)
            elif state == "wrong":
                self.wrong.append((fact["at"], f"{log.stem} at node {fact['at']}: {fact['names'][0]}: {fact['what']}"))
            elif state == "unread":
                self.unread += 1
        if pending is not None:
            self._unknown(pending)

    def _done(self, fact: dict) -> None:
        op, names = fact["op"], fact["names"]
        if op == "write":
            self.may[names[0]] = {fact["digest"]}
            # A file that was made in the striped directory stays striped under any name.
            striped = names[0].startswith("/striped/") if names[0] not in self.holders else EVERYWHERE in self.holders[names[0]]
            self.holders[names[0]] = {EVERYWHERE} if striped else {fact["at"]}
        elif op == "unlink":
            self.may[names[0]] = {ABSENT}
            self.holders.pop(names[0], None)
        elif op == "rename":
            self.may[names[1]] = self.may[names[0]]
            self.holders[names[1]] = self.holders.pop(names[0], set())
            self.may[names[0]] = {ABSENT}
        elif op == "link":
            self.may[names[1]] = self.may[names[0]]
            self.holders[names[1]] = self.holders.get(names[0], set())

    def _unknown(self, fact: dict) -> None:
        op, names = fact["op"], fact["names"]
        before = {name: self.may.get(name, {ABSENT}) for name in names}
        if op == "write":
            self.may[names[0]] = before[names[0]] | {ANY}
            new = {EVERYWHERE} if names[0].startswith("/striped/") else {fact["at"]}
            self.holders[names[0]] = self.holders.get(names[0], set()) | new
        elif op == "unlink":
            self.may[names[0]] = before[names[0]] | {ABSENT}
        elif op in ("rename", "link"):
            self.may[names[1]] = before[names[1]] | before[names[0]]
            self.holders[names[1]] = self.holders.get(names[1], set()) | self.holders.get(names[0], set())
            if op == "rename":
                self.may[names[0]] = before[names[0]] | {ABSENT}


def look(read: Callable[[str], bytes], name: str) -> str:
    """The digest of what is there; ABSENT; or the name of the error."""
    try:
        return hashlib.sha256(read(name)).hexdigest()[:32]
    except OSError as error:
        if error.errno == errno.ENOENT:
            return ABSENT
        return errno.errorcode.get(error.errno or 0, str(error))


def copies(replicas: int, holders: set[int]) -> int:
    return min(replicas, 2) if EVERYWHERE in holders else replicas


def check(
    expected: Expected, reads: dict[str, Callable[[str], bytes]], listing: tuple[set[str], set[str]], lost: set[int], replicas: int
) -> tuple[list[str], int]:
    """The faults, and how many files were lost by name. ``reads``: ways to read, by their names; ``listing``: paths that ``amfs ls``
    shows, and those of them that it marks as lost; ``lost``: nodes that are members no more; ``replicas``: the nodes that had each
    file when it was closed (stripes lie twice at most)."""
    # A node that is cut off, or was stopped, answers from what it knew until it ends: docs/promises.md.
    wrong, gone = [what for node, what in expected.wrong if node not in lost], 0
    listed, named = listing
    for name, may in sorted(expected.may.items()):
        seen = {way: look(read, name) for way, read in reads.items()}
        for way, found in seen.items():
            if found in may or (ANY in may and found != "EIO"):
                continue
            if found == "EIO":
                if len(lost) >= 2 and (name in named or name not in listed):
                    continue  # the owner of its record or its name, and that one's backup, may have gone together
                if name not in named:
                    wrong.append(f"{name} is EIO by {way}, and amfs ls -l does not mark it as lost")
                elif not lost:
                    wrong.append(f"{name} is EIO by {way}, and no node was lost")
                elif len(lost) < copies(replicas, expected.holders.get(name, set())) and ANY not in may:
                    wrong.append(f"{name} is EIO by {way}, had {replicas} copies, and lost were {sorted(lost)} alone")
                elif not expected.holders.get(name, set()) & {*lost, EVERYWHERE}:
                    wrong.append(f"{name} is EIO by {way}; node {expected.holders.get(name)} held it, lost were {sorted(lost)}")
                continue
            wrong.append(f"{name} is {found} by {way}; it may be {sorted(may)}, held by {sorted(expected.holders.get(name, set()))}")
        gone += "EIO" in seen.values()
        if len(set(seen.values())) > 1:
            wrong.append(f"{name} is not the same by all ways: {seen}")
    return wrong, gone


def listing(amfs: Callable[..., subprocess.CompletedProcess[str]], directories: Iterable[str]) -> tuple[set[str], set[str]]:
    """The paths that ``amfs ls -l`` shows, and those of them that it marks as lost."""
    found, lost = set(), set()
    for directory in directories:
        for line in amfs("ls", "-l", f"amfs:{directory}").stdout.splitlines():
            words = line.split()
            if len(words) > 2 and words[0][0] in "-d":
                found.add(path := f"{directory}/{words[-1]}")
                if words[0].endswith("!"):
                    lost.add(path)
    return found, lost
