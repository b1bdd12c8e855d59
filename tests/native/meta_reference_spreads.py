"""The reference of the metadata shard: changes of directories that go to all nodes, and what the manager asks the shard of a name."""

from __future__ import annotations

import errno
import stat
import struct
from contextlib import suppress

from meta_reference_names import Names
from meta_reference_state import Refused, refuse_if

from amfs.vocabulary.attr import META_BUSY, META_NOT_MINE, Attr

HEAD = struct.Struct("<BBHiQQIIIiq")
ADD, DROP, FREEZE, THAW = 1, 2, 3, 4


class Spreads(Names):
    """Of one shard."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.manager = -1
        self.refused = 0
        self.last: tuple[int, int, list[int]] = (-1, 0, [])

    def set_manager(self, manager: int) -> None:
        if manager != self.manager:
            self.refused = 0
        self.manager = manager

    def refuse(self, manager: int, number: int) -> None:
        if manager == self.manager:
            self.refused = max(self.refused, number)

    def is_heard(self, manager: int, number: int) -> bool:
        return manager == self.manager and number > self.refused

    def reserve_for(self, manager: int, number: int, dir: int, name: bytes) -> int:
        refuse_if(not self.is_heard(manager, number), META_BUSY)
        ino = self.new_number(self.name_partition(dir, name))
        try:
            self.insert(dir, name, 0, ino, stat.S_IFDIR, False)
        except Refused as error:
            raise Refused(META_BUSY if error.number == errno.ENOENT else error.number) from None
        return ino

    def strike_for(self, manager: int, number: int, dir: int, name: bytes, ino: int) -> None:
        refuse_if(len(name) > 255, errno.ENAMETOOLONG)
        refuse_if(not self.mine(self.name_partition(dir, name)), META_NOT_MINE)
        entry = self.entries.get((dir, name))
        refuse_if(not self.is_heard(manager, number) or (dir, name) in self.locks, META_BUSY)
        refuse_if(entry is None or (entry.ino, entry.type) != (ino, stat.S_IFDIR), META_BUSY)
        del self.entries[dir, name]

    def spread(self, manager: int, number: int, changes: bytes, directly: bool = False) -> list[int]:
        parts = []
        while changes:
            refuse_if(len(changes) < HEAD.size, errno.EINVAL)
            head = HEAD.unpack_from(changes)
            end = HEAD.size + head[2]
            refuse_if(len(changes) < end or head[0] not in (ADD, DROP, FREEZE, THAW), errno.EINVAL)
            parts.append((head, changes[HEAD.size : end]))
            changes = changes[end:]
        refuse_if(directly and (manager != self.manager or (manager == self.last[0] and number < self.last[1])), META_BUSY)
        if self.last[:2] != (manager, number) or len(self.last[2]) != len(parts):
            self.last = manager, number, [self._make(*part) for part in parts]
        return self.last[2]

    def _make(self, head: tuple[int, ...], name: bytes) -> int:
        kind, keep_entry, _, asker, ino, dir, mode, uid, gid, rank, now = head
        try:
            if kind == ADD:
                self.dir_add(ino, dir, name, Attr(mode=mode, uid=uid, gid=gid, rank=rank, atime=now, mtime=now, ctime=now))
                if self.mine(self.ino_partition(ino)):
                    self.watch(self.dirs[ino].watchers, asker)
                with suppress(Refused):
                    self.insert(dir, name, 0, ino, stat.S_IFDIR, False)
            elif kind == DROP:
                self.dir_remove(ino)
                with suppress(Refused):
                    if not keep_entry:
                        self.remove(dir, name, 0, ino)
            else:
                self.dir_freeze(ino, kind == FREEZE)
                return sum(1 for of, _ in self.entries if of == ino)
            return int(self._is_touched(dir, now, asker))
        except Refused as error:
            return -error.number

    def _is_touched(self, ino: int, now: int, asker: int) -> bool:
        try:
            self.dir_touch_for(ino, now, asker)
        except Refused:
            return False
        return True

    def dir_touch_for(self, ino: int, now: int, asker: int) -> None:
        refuse_if(not self.mine(self.ino_partition(ino)), META_NOT_MINE)
        refuse_if(ino not in self.dirs or bool(self.dirs[ino].watchers - {self.node, asker}), META_BUSY)
        dir = self.dirs[ino]
        watchers, touched = set(dir.watchers), dir.touched
        self.dir_touch(ino, now)
        dir.watchers, dir.touched = watchers, touched
