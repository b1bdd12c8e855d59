"""Bits that flip in the copies of files that simulated nodes keep, and digests, which show it, as ``csrc/common/digests.c`` does.

A copy that is hit belongs to a finished file, so its node has a digest of it: it is damaged until its bytes are written anew, or go.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from amfs._native import Meta
from amfs.vocabulary.attr import Attr


class Node(Protocol):
    """The needed part of a simulated node."""

    number: int
    meta: Meta
    parts: dict[int, bytearray]  # by inode

    def is_written(self, ino: int) -> bool: ...


class _Damage(NamedTuple):
    part: bytearray
    content: bytes  # since the bit has flipped


class BitFlips:
    """Hits copies, and knows which are damaged."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self._nodes = nodes
        self._rng = random.Random()
        self._likely = 0.0
        self._damaged: dict[tuple[int, int], _Damage] = {}  # by node and inode
        self.hits: Counter[int] = Counter()  # of each inode, in all its copies
        self.only_copies: set[int] = set()  # inodes that were hit where there was no other good copy, or the last one went later
        self._seen: dict[bytes, set[int]] = {}  # damaged content -> nodes whose programs may read it: nobody compares it there

    def begin(self, seed: object, likely: float) -> None:
        """``likely``: that a bit flips somewhere when a handle is opened or closed. 0: no more of it."""
        self._rng.seed(f"flips {seed}")
        self._likely = likely

    def maybe(self) -> None:
        if not self._likely or self._rng.random() >= self._likely:
            return
        copies = [(node, ino) for node in self._nodes.values() for ino in node.parts if self._may_be_hit(node, ino)]
        if copies:
            self.hit(*self._rng.choice(copies))

    def hit(self, node: Node, ino: int) -> None:
        """A bit flips in this copy, of a finished file."""
        part = node.parts[ino]
        if not any(self._is_good(other, ino) for other in self._nodes.values() if other is not node):
            self.only_copies.add(ino)
        part[self._rng.randrange(len(part))] ^= 1 << self._rng.randrange(8)
        self._damaged[node.number, ino] = _Damage(part, bytes(part))
        self.hits[ino] += 1
        self._seen.setdefault(bytes(part), set()).add(node.number)

    def leave(self, gone: Node) -> None:
        """A node goes, and its good copies with it."""
        for ino in gone.parts:
            others = [node for node in self._nodes.values() if node is not gone and ino in node.parts]
            if self._is_good(gone, ino) and others and not any(self._is_good(node, ino) for node in others):
                self.only_copies.add(ino)

    def _is_good(self, node: Node, ino: int) -> bool:
        return ino in node.parts and not self.is_damaged(node, ino)

    def _may_be_hit(self, node: Node, ino: int) -> bool:
        return bool(node.parts[ino]) and not node.is_written(ino) and not self.is_damaged(node, ino) and self._is_finished(ino)

    def _is_finished(self, ino: int) -> bool:
        for node in self._nodes.values():
            try:
                return Attr(*node.meta.getattr(ino, -1)).finished == 1
            except OSError:
                continue  # another node has the record
        return False

    def is_damaged(self, node: Node, ino: int) -> bool:
        """Is this copy not what was written?"""
        damage = self._damaged.get((node.number, ino))
        if damage is None or node.is_written(ino):
            return False
        if node.parts.get(ino) is not damage.part or bytes(damage.part) != damage.content:
            del self._damaged[node.number, ino]
            return False
        return True

    def read_through(self, content: bytes, reader: int) -> None:
        """A program of ``reader`` reads this through the node that has it: nobody compares that."""
        if content in self._seen:
            self._seen[content].add(reader)

    def may_be_read(self, content: bytes, reader: int) -> bool:
        """Is it damaged content of a copy on the reader's own node, which nobody compares?"""
        return reader in self._seen.get(content, ())
