"""The course of one run: its state, and that of each node in it. Pure; a part of the submitter.

Owns one record a node: its state in the run, and whether it answers. Must not know: tasks, files, messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amfs.vocabulary.states import RUN_NEXT, RUN_NODE_NEXT, RunEvent, RunNodeEvent, RunNodeState, RunState, illegal


class RunNode:
    """``down``: it does not answer us, whatever the manager says of it."""

    __slots__ = ("down", "state")

    def __init__(self) -> None:
        self.state = RunNodeState.NEW
        self.down = False


def too_many(failures: int) -> str:
    """Why a run ends in which so many tasks have failed as it may at most."""
    if failures == 1:
        return "a task failed, and --fail-fast was asked for"
    return f"{failures} tasks failed, and with so many --halt ends the run"


class Course:
    """``members`` maps the nodes of the latest view to their slots; a new mapping with each view. ``reason``: why the run ends early."""

    def __init__(self, run: int, waits: bool) -> None:
        """``waits``: an earlier run may use the same journal."""
        self.run = run
        self.state = RunState.WAITING if waits else RunState.GOING
        self.reason = ""
        self.epoch = 0  # of the latest view
        self.began = 0  # the epoch in which the run began
        self.whole = 0  # the latest until which no node was lost since
        self.members: Mapping[int, int] = {}
        self._records: dict[int, RunNode] = {}
        self._counts = [0] * len(RunNodeState)

    def move(self, event: RunEvent, reason: str = "") -> None:
        after = RUN_NEXT[self.state][event]
        if after is None:
            raise illegal("run", self.run, self.state, event)
        self.state, self.reason = after, reason

    @property
    def ending(self) -> bool:
        """The run ends, or is over."""
        return self.state >= RunState.ENDING

    def node(self, node: int) -> RunNode:
        record = self._records.get(node)
        if record is None:
            record = self._records[node] = RunNode()
            self._counts[record.state] += 1
        return record

    def follow(self, epoch: int, members: Mapping[int, int], in_order: Iterable[int] = ()) -> bool:
        """There is a new view. Says whether nodes are lost, or may be: they may have come and gone in views that were missed. Nothing of
        the run is lost with those that have left ``in_order`` since the view before."""
        before, self.epoch = self.epoch, epoch
        lost = not {*in_order}.issuperset(self.set_members(members)) or (before > 0 and epoch != before + 1)
        if not before:
            self.began = self.whole = epoch
        elif lost:  # a rival may count fewer epochs, and its nodes have lost others while the run went on
            self.whole = min(self.whole, epoch - 1)
        elif self.whole == before:
            self.whole = epoch
        return lost

    def set_members(self, members: Mapping[int, int]) -> list[int]:
        """There is a new view. Returns the nodes that are lost."""
        dead = [node for node in self.members if node not in members]
        self.members = members
        for node in dead:
            self.move_node(node, RunNodeEvent.LEFT)
        for node in members:
            if self.node(node).state == RunNodeState.LOST:  # the other side of a cut network has won
                self.move_node(node, RunNodeEvent.RETURNED)
        return dead

    def move_node(self, node: int, event: RunNodeEvent) -> None:
        record = self.node(node)
        after = RUN_NODE_NEXT[record.state][event]
        if after is None:
            raise illegal("node of a run", node, record.state, event)
        self._counts[record.state] -= 1
        self._counts[after] += 1
        record.state = after

    def nodes(self, state: RunNodeState) -> list[int]:
        """The nodes in this state."""
        if not self._counts[state]:  # asked after every event
            return []
        return sorted(node for node, record in self._records.items() if record.state == state)

    @property
    def down(self) -> list[int]:
        return [node for node, record in self._records.items() if record.down]

    @property
    def lost(self) -> set[int]:
        return set(self.nodes(RunNodeState.LOST))

    def check_invariants(self) -> None:
        states = [record.state for record in self._records.values()]
        assert self._counts == [states.count(state) for state in RunNodeState]
        for node, record in self._records.items():
            in_view = record.state not in (RunNodeState.NEW, RunNodeState.LOST)
            assert node in self.members or not in_view, f"node {node} is {record.state.name}, and no member"
