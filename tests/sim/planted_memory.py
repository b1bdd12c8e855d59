"""Faults planted into a worker whose memory is full, like those of ``planted``."""

from __future__ import annotations

import pytest

from amfs.engine.file_table import FileTable
from amfs.engine.memory import Content, Memory
from amfs.engine.room import Room
from amfs.engine.worker_records import File, Run
from amfs.engine.worker_state import WorkerState
from amfs.vocabulary.events import BringBack
from amfs.vocabulary.states import Place


def what_tasks_have_leaves_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Room, "_in_use", lambda self: set())


def a_task_starts_before_its_inputs_are_back(patch: pytest.MonkeyPatch) -> None:
    """It is given the place in the store where they will be."""

    def bring_back(self: Room, run: Run, file: File) -> None:
        file.job = self.state.job("back", run, file.name, None)
        self.outbox.act(BringBack(file.job, file.name, file.copy))
        file.place = Place.BOTH
        self.memory.away -= file.size
        self.memory.used += file.size
        self.memory.files[file.name] = file

    patch.setattr(Room, "_bring_back", bring_back)


def what_cannot_be_read_back_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileTable, "give_up", lambda self, run, file: None)


def copies_stay_on_the_disk(patch: pytest.MonkeyPatch) -> None:
    real = WorkerState.removed

    def removed(self: WorkerState, file: File) -> None:
        keep = list(self.outbox._drop)
        real(self, file)
        self.outbox._drop = keep

    patch.setattr(WorkerState, "removed", removed)


def a_full_disk_is_not_tried_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Room, "on_timer", lambda self, key: None)


def nobody_makes_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Memory, "over", lambda self, wanted=0.0, reserved=0: 0.0)


def a_single_copy_counts_as_one_of_several(patch: pytest.MonkeyPatch) -> None:
    """Files that only this node has are given up like those of others."""
    real = Memory.may_go

    def may_go(self: Memory, file: Content) -> bool:
        file.spare = True
        return real(self, file)

    patch.setattr(Memory, "may_go", may_go)
