"""The loop of one run and its connection to nodes: an embedded node in this process, or a session of node servers.

Owns the options of a run, the poll loop, the embedded node's store and its end. Must not know: tasks, journals, displays.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Literal

import msgspec

from amfs._native import xxh64
from amfs.engine.views import overtakes
from amfs.errors import SessionError, SystemSetupError
from amfs.host.processes import usable_cpus
from amfs.host.shared_storage import SharedStorage
from amfs.node.core import NodeCore
from amfs.node.loop import Loop, now
from amfs.remote.outside import Outside
from amfs.runs import leftovers
from amfs.runs.journal import aside
from amfs.vocabulary import messages as m


class RunOptions(msgspec.Struct, kw_only=True):
    """How a workflow is to be run. ``slots`` 0: one per usable CPU; ``memory`` bytes for tasks, 0: not accounted."""

    slots: int = 0
    memory: int = 0
    session: str | None = None  # name; "" the newest live one; None: embedded
    base: str = ""  # "": the current directory
    keep_all: bool = False
    keep_sandbox: bool = False
    hashed_outputs: int = 0
    stage_shared: bool = False
    data_aware: bool = True
    retries: int = 0
    fail_fast: int = 0  # end the run when so many tasks have failed (True: at the first); 0: never
    want_output: bool = False
    store: str = ""
    store_limit: int = 0  # bytes of memory for the files between tasks, 0: as many as there is room for
    high_water: float = 0.0  # of that limit, above which files are spilled; 0: the usual
    spill: str = ""  # directory on a disk; "": $TMPDIR or the like, "none": nothing is spilled
    spill_limit: int = 0  # bytes, 0: as many as there is room for
    journal: Path | None = None
    resume: bool | Literal["trust"] = False  # "trust": also where files that tasks read have changed since
    trace: str = ""
    source: str = ""
    env: dict[str, str] | None = None  # the environment of the tasks; None: ours


class RunContext:
    """The loop and the nodes behind it: an embedded node, or a session of node servers. A context manager."""

    def __init__(self, options: RunOptions, adopt: str = "") -> None:
        self.options = options
        self.shared: SharedStorage = Outside()
        self.view: m.View | None = None
        anew = None if options.resume else options.journal
        self.remarks = leftovers.in_words(leftovers.sweep(options.store, adopt, anew))  # for the person, when the run begins
        if options.session is None:
            self._embed(adopt)
        else:
            self._connect(options.session)
        self.loop.on_view = self._on_view
        self.loop.start()

    def _embed(self, adopt: str) -> None:
        from amfs.host import orphans
        from amfs.node.node_io import NodeIO
        from amfs.node.spill_directory import memory_limits
        from amfs.node.store import Store

        slots = self.options.slots or usable_cpus()
        self.client = m.CLIENT_ID_MIN
        place = os.path.abspath(self.options.store) if self.options.store else ""
        self.store: Store | None = Store(orphans.EMBEDDED, 0, place, adopt)
        if self.store.remark:
            self.remarks.append(self.store.remark)
        if self.options.journal is not None:
            if self.options.resume:
                self.store.take_back(aside(self.options.journal))
            else:
                shutil.rmtree(aside(self.options.journal), ignore_errors=True)
        options = self.options
        try:
            limits = memory_limits(
                self.store, limit=options.store_limit, high_water=options.high_water, spill=options.spill, spill_limit=options.spill_limit
            )
        except SystemSetupError:
            self.store.close()
            raise
        self.node_io: NodeIO | None = NodeIO(self.store, slots, memory_for_tasks=options.memory, shared=self.shared, limits=limits)
        core = NodeCore(m.Member(0, 1, (), slots), self.store.root, memory_limits=limits)
        self.core: NodeCore | None = core
        self.loop = Loop(core, self.node_io)
        self.run = 1

    def _connect(self, name: str) -> None:
        from amfs.client import discovery
        from amfs.client.attachment import Attachment

        found = discovery.find(name or None)
        self.store = None
        self.node_io = None
        self.core = None
        self.attachment = Attachment(found)
        self.client = self.attachment.id
        self.data_key = found.keys.data
        self.loop = Loop(None, None, self.attachment.transport)
        self.run = random.SystemRandom().randrange(1 << 20, 1 << 31)

    def _on_view(self, view: m.View) -> None:
        if self.view is None or overtakes(view, self.view):
            self.view = view

    @property
    def session_number(self) -> int:
        """A number that no other session has; 0 without a session."""
        return 0 if self.core is not None else xxh64(f"{self.attachment.session.name} {self.attachment.session.created}")

    def wait_for_view(self, longest_s: float = 15.0) -> m.View:
        """Until the session has said who is in it. Raises SessionError."""
        end = now() + longest_s
        if self.core is None:
            self.attachment.greet(node.node for node in self.attachment.session.nodes)
            self.attachment.transport.flush(now())
        while self.view is None:
            if now() > end:
                raise SessionError(f"session {self.attachment.session.name} does not answer; `amfs status` shows what is left of it")
            self.loop.turn(0.2)
        return self.view

    def close(self) -> None:
        """Leave nothing behind: processes, threads, files."""
        if self.node_io is not None:
            self.node_io.close()
        if self.node_io is not None:
            self.node_io.spilled.close()  # unless before: spilled files were set aside by now
        if self.store is not None:
            self.store.close()
        if self.core is None:
            self.attachment.leave([member.node for member in self.view.members] if self.view is not None else (), drain_s=1.0)
        self.loop.close()
