"""Files of runs that only a node has which is to leave: other nodes take them, so that nothing is made again for want of them. Pure.

Owns which node was asked to take which file. A file that another node has taken is a spare copy here from then on, as if it had been
fetched from there. A file that stays here when the time of the drain is over is made again if a task needs it, as after a death.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from amfs.engine.file_table import FileTable
from amfs.engine.worker_records import File, Run
from amfs.engine.worker_state import WorkerState
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Kept, MembersChanged, MoveAway
from amfs.vocabulary.states import FileEvent, FileState

_AT_ONCE = 64 << 20  # bytes that a node is asked to take before it has answered, but for one file that is larger
_NAMES = 2048  # files, likewise


class HandingOver:
    """Of one node's worker."""

    def __init__(self, state: WorkerState, files: FileTable) -> None:
        self.state = state
        self.outbox = state.outbox
        self.files = files
        self._takers: Sequence[int] = ()
        self._draining: Set[int] = frozenset()
        self._asked: dict[str, int] = {}  # file -> node that was asked to take it
        self._refused: dict[str, set[int]] = {}  # file -> nodes that cannot store it

    def on_members_changed(self, event: MembersChanged) -> None:
        """A node that has left, or drains itself, is not counted on any more."""
        self._draining = event.draining
        staying = event.slots.keys() - event.draining - {self.state.node}
        self._takers = sorted(node for node in staying if event.slots[node] > 0)
        self._asked = {name: node for name, node in self._asked.items() if node in self._takers}

    # ── on the node that leaves ────────────────────────────────────────────────────────────────────

    def on_move_away(self, event: MoveAway) -> None:
        """Ask others to take what nobody has been asked for yet."""
        asked: dict[tuple[int, int], list[m.FileAt]] = {}
        load = dict.fromkeys(self._takers, 0)
        names = dict.fromkeys(self._takers, 0)
        for _, file in self._only_here():
            if (node := self._asked.get(file.name, -1)) >= 0:
                load[node] += file.size
                names[node] += 1
        for run, file in self._only_here():
            if file.name in self._asked:
                continue
            able = [node for node in self._takers if node not in self._refused.get(file.name, ()) and names[node] < _NAMES]
            node = min(able, key=lambda one: (load[one], one), default=-1)
            if node < 0 or (load[node] and load[node] + file.size > _AT_ONCE):
                continue  # the drain asks again soon
            self._asked[file.name] = node
            load[node] += file.size
            names[node] += 1
            asked.setdefault((node, run.id), []).append(m.FileAt(file.name, file.size, (self.state.node,)))
        for (node, number), files in asked.items():
            self.outbox.send(node, m.TakeFiles(number, tuple(files)))

    def kept(self) -> list[Kept]:
        """Files that no other node has yet."""
        why = "a task makes it again if another needs it"
        return [Kept(f"{file.name[len(run.info.scope):]} of a run", file.size, why) for run, file in self._only_here()]

    def _only_here(self) -> list[tuple[Run, File]]:
        if not self._takers:
            return []
        return [
            (run, file) for run in self.state.runs.values() if not run.closing
            for file in run.files.values()
            if file.state == FileState.LOCAL and not (file.spare or file.shared or file.fixed or file.dropped)
        ]  # fmt: skip

    def on_taken(self, peer: int, message: m.FilesTaken) -> None:
        run = self.state.runs.get(message.run)
        if run is None:
            return
        for name in message.names:
            file = run.files.get(name)
            if self._asked.get(name) == peer:
                del self._asked[name]
            if message.refused:
                self._refused.setdefault(name, set()).add(peer)
            elif file is not None and file.state == FileState.LOCAL and peer in self.state.alive:
                file.holders = (peer,)  # if that dies, this copy is the only one again
                file.spare = True

    # ── on the node that takes them ────────────────────────────────────────────────────────────────

    def on_take(self, peer: int, message: m.TakeFiles) -> None:
        run = self.state.run_for(message.run, peer, message)
        if run is None or run.closing:
            return
        if self.state.node in self._draining:
            self.outbox.send(peer, m.FilesTaken(run.id, tuple(at.name for at in message.files), refused=True))
            return
        there = []
        for at in message.files:
            file = run.files.get(at.name)
            if file is not None and file.state == FileState.INVALID:
                self.files.on_located(peer, m.Located(run.id, (at,)))
                file = run.files.get(at.name)
            if file is None:
                file = run.files[at.name] = File(at.name)
                file.size, file.holders = at.size, at.holders
                self.state.move_file(file, FileEvent.LOCATED)
            if file.state == FileState.REMOTE:
                file.leaver = peer
                self.files.fetch(run, file)
            else:
                file.spare = False
                there.append(at.name)
        if there:
            self.outbox.send(peer, m.FilesTaken(run.id, tuple(there)))
