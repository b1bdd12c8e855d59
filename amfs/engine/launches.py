"""Tasks on their way to the launcher: each becomes a record that says what it reads, makes and needs. Pure.

It does not know which task is to start: ``worker`` and ``room`` decide that.
"""

from __future__ import annotations

from collections.abc import Sequence

from amfs.engine.worker_records import TaskEntry
from amfs.engine.worker_state import WorkerState
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Launch
from amfs.vocabulary.paths import destination_at_url, is_brought, sandbox_name, shared_path, store_path
from amfs.vocabulary.records import BLIND, DIRECTORIES, MAY_BE_TREE, STAGED, pack_record
from amfs.vocabulary.states import FileState, Place, TaskEvent
from amfs.workflow.tokens import is_token

_DEFAULTS = m.Options()
READ_IN_PLACE = (Place.SPILLED, Place.RETURNING)


class Launches:
    """The tasks that one node's worker gives to its launcher."""

    def __init__(self, state: WorkerState) -> None:
        self.state = state
        self.memory = state.memory
        self.store = state.store
        self.inflight = state.inflight

    def launch(self, entries: Sequence[TaskEntry]) -> None:
        """Give them to the launcher."""
        state = self.state
        records: list[bytes] = []
        blind = False
        for entry in entries:
            state.serial += 1
            record = self._record(state.serial, entry)
            state.move(entry, TaskEvent.LAUNCHED)
            entry.serial = state.serial
            self.inflight[state.serial] = entry
            entry.run.in_launcher += 1
            records.append(record)
            blind = blind or (entry.spec.options is not None and bool(entry.spec.options.blind))
        if records:
            state.outbox.act(Launch(records, blind))

    def _record(self, serial: int, entry: TaskEntry) -> bytes:
        spec = entry.spec
        run = entry.run
        info = run.info
        if spec.options is None and not (spec.inputs or spec.outputs or spec.shared):
            return pack_record(serial, spec.body, flags=run.flags | STAGED, context=run.id, capture=info.capture_bytes)
        scope = info.scope
        cut = len(scope)
        options = spec.options or _DEFAULTS
        root = self.store
        inputs: list[tuple[str, str]] = []
        given = entry.given = []
        stamps: list[tuple[int, int]] = []
        outputs: list[tuple[str, str]] = []
        if options.unstaged:
            outputs = [(name[cut:], "") for name in spec.outputs]
        else:
            deep = options.depth > 0
            for name in spec.inputs or ():
                file = run.files[name]
                short = name[cut:]
                if file.state == FileState.SHARED:
                    if is_token(short):
                        continue
                    if short[0] != "/" or deep:
                        given.append(name)
                        inputs.append(("@" + shared_path(info.base, short, info.hashed_outputs), sandbox_name(short, info.base)))
                        stamps.append((0, 1) if short in options.filled else (0, 0))
                else:
                    source = f"@@{self.memory.copy_path(file)}" if file.place in READ_IN_PLACE else store_path(root, scope, name)
                    given.append(name)
                    inputs.append((source, sandbox_name(short, info.base) if deep else short))
                    stamps.append((file.size, file.mtime_ns))
            for name in spec.shared:
                short = name[cut:]
                if is_brought(short, run.paths) or (info.stage_shared and not (short[0] == "/" and not deep)):
                    staged = run.files.get(name)
                    spilled = staged is not None and staged.place in READ_IN_PLACE
                    source = f"@@{self.memory.copy_path(staged)}" if staged is not None and spilled else store_path(root, scope, name)
                    inputs.append((source, sandbox_name(short, info.base)))
                elif short[0] != "/" or deep:
                    path = run.paths.get(short) or shared_path(info.base, short)
                    inputs.append(("@" + path, sandbox_name(short, info.base)))
                else:
                    inputs.append(("@" + short, short))  # read where it is, and compared like the others
                given.append(name)
                stamps.append((0, 1) if short in options.filled else (0, 0))  # a time that is known: none is taken, and it is not compared
            for name in spec.outputs:
                short = name[cut:]
                if short[0] == "/" and not deep:
                    outputs.append((short, ""))
                else:
                    tree = not options.reduce and destination_at_url(short, run.paths)
                    path = store_path(root, scope, name)
                    outputs.append((sandbox_name(short, info.base) if deep else short, MAY_BE_TREE + path if tree else path))
        flags = run.flags
        if options.blind:
            flags |= BLIND
        elif not options.unstaged:
            flags |= STAGED if options.depth or options.reduce or info.hashed_outputs else STAGED | DIRECTORIES
        return pack_record(
            serial,
            spec.body,
            flags=flags,
            context=run.id,
            cores=options.cores,
            memory=options.memory,
            time_limit_ms=options.time_limit_ms,
            depth=options.depth,
            capture=info.capture_bytes,
            inputs=inputs,
            stamps=stamps,
            outputs=outputs,
        )
