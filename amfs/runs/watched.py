"""A run lets itself be looked at: a socket in the user's private directory, which answers questions with aggregates and pages of tasks.

Owns that socket and its thread, which sleeps while nobody asks. A question costs the run's loop one turn of counting stages, never tasks.
It decides nothing about the run. Must not know: who looks, what becomes of the answers, rates.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from amfs._native import xxh64
from amfs.display.summary import json_safe
from amfs.errors import AmfsError
from amfs.host.processes import host_id, start_time
from amfs.net import records
from amfs.runs.tally import stage_of, told
from amfs.vocabulary import live

if TYPE_CHECKING:
    from amfs.runs.driver import RunDriver

log = logging.getLogger("amfs.runs")

FOLDER = ".runs"  # in ``records.base_dir()``; no session can have that name
END = ".end"  # of a run that somebody watched: how it stood when it ended
ASK_BYTES_MAX = 1 << 16
PATIENCE_S = 2.0
COUNTED_AT_ONCE = 20_000  # tasks whose stages are counted for one question
WATCHED_S = 5.0  # a watcher that has asked so lately wants to know the end

_numbers = itertools.count(1)


def here() -> str:
    """Names this host and its set of processes in the names of sockets: others may see the same directory."""
    return f"{xxh64(host_id()) & 0xFFFFFFFF:08x}"


def sweep(*, also_mine: bool = False) -> None:
    """Remove what watched processes of this host left that died; ``also_mine``: this process ends at once, and closes no run any more."""
    folder = records.base_path() / FOLDER
    for path in folder.glob(f"{here()}-*"):
        number = path.name.removeprefix(f"{here()}-").partition(".")[0]
        if not number.isdecimal():
            continue  # it is none of ours
        pid = int(number)
        if (also_mine and pid == os.getpid()) or (path.suffix != END and not start_time(pid)):
            with contextlib.suppress(OSError):
                path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


class Watched:
    """The socket of one run, from now to ``close``. A run that cannot have one goes on without: ``path`` is None."""

    def __init__(self, driver: RunDriver) -> None:
        self.driver = driver
        self.id = f"{os.getpid()}.{next(_numbers)}"
        self.path: Path | None = None
        self._asked_at = -WATCHED_S
        self._stages: Counter[str] = Counter()
        self._counted = 0
        try:
            self._listen()
        except (OSError, AmfsError) as error:
            log.warning("this run cannot be watched: %s", error)
            return
        self._thread = threading.Thread(target=self._serve, name="amfs watched", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        folder = records.base_dir() / FOLDER
        name = f"{here()}-{self.id}.sock"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            for last in (False, False, True):  # the run that ends beside us removes the folder
                try:
                    folder.mkdir(mode=0o700, exist_ok=True)
                    fresh = folder / f"{name}-"  # nobody is to find it before it listens
                    with contextlib.suppress(FileNotFoundError):
                        fresh.unlink()
                    self._socket.bind(str(fresh))
                    self._socket.listen(16)
                    fresh.rename(folder / name)
                    break
                except FileNotFoundError:
                    if last:
                        raise
        except OSError:
            self._socket.close()
            raise
        self.path = folder / name

    def close(self) -> None:
        """Nobody can ask any more. Those that watched find how it ended. Repeatable."""
        path, self.path = self.path, None
        if path is None:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the thread
        self._thread.join(2 * PATIENCE_S)
        with contextlib.suppress(OSError):
            if time.monotonic() - self._asked_at < WATCHED_S:
                run = self.totals()
                run.over = "ended" if self.driver.over is not None and not self.driver.over.reason else "stopped"
                temporary = path.with_suffix(END + "-")
                temporary.write_bytes(_encode(msgspec.structs.replace(self._failed(0, live.PAGE), run=run)))
                temporary.rename(path.with_suffix(END))
            else:
                sweep()

    def _serve(self) -> None:
        with self._socket:
            while True:
                try:
                    connection, _ = self._socket.accept()
                except OSError:  # shut down
                    return
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(PATIENCE_S)
                    connection.sendall(_encode(self._answer(connection)))

    def _answer(self, connection: socket.socket) -> live.Told:
        data = b""
        while not data.endswith(b"\n") and len(data) < ASK_BYTES_MAX:
            if not (more := connection.recv(ASK_BYTES_MAX)):
                break
            data += more
        try:
            ask = msgspec.json.decode(data, type=live.Ask)
        except msgspec.MsgspecError as error:
            return live.Told(error=f"not a question: {error}")
        self._asked_at = time.monotonic()
        if ask.what == "totals":
            self._count_stages()
        box: list[live.Told] = []
        done = threading.Event()

        def collect() -> None:
            with contextlib.suppress(Exception):  # a watcher must not end the run
                box.append(self.told(ask))
            done.set()

        self.driver.context.loop.post(collect)
        end = time.monotonic() + PATIENCE_S
        while not done.wait(0.1):
            if self.path is None or time.monotonic() > end:  # it ends, or is in the midst of something long
                return live.Told(error="the run is busy")
        return box[0] if box else live.Told(error="the run could not answer")

    def _count_stages(self) -> None:
        """Count further tasks by their stage; in our own thread, with a bound."""
        tasks = self.driver.tasks
        if not self.driver.open_ended:
            further = tasks[self._counted : self._counted + COUNTED_AT_ONCE]
            self._stages.update([stage_of(task) for task in further])
            self._counted += len(further)

    # ── in the loop's thread ───────────────────────────────────────────────────────────────────────

    def told(self, ask: live.Ask) -> live.Told:
        """The answer."""
        count = max(0, min(ask.count, live.PAGE_MAX))
        if ask.what == "totals":
            return live.Told(self.totals(), nodes=self._own_node())
        if ask.what == "tasks":
            total, tasks = self._own_tasks(count)
            return live.Told(at_work=tasks, at_work_total=total)
        if ask.what == "failed":
            return self._failed(ask.start, count)
        if ask.what == "names":
            return live.Told(names=[self._name(number) for number in ask.numbers[: live.PAGE_MAX]])
        if ask.what == "explain":
            return live.Told(lines=[line for number in ask.numbers[:1] for line in self._explain(number)])
        return live.Told(error=f"no such question: {ask.what}")

    def totals(self) -> live.Run:
        driver = self.driver
        tally, submitter = driver.tally, driver.submitter
        grows = driver.open_ended and not submitter.closing.begun
        shot = driver.snapshot(grows)
        counted = self._counted == len(driver.tasks)
        stages = {
            label: live.Stage(
                label, self._stages[label] if counted else 0, counts.ended[0], counts.ended[1], counts.ended[2], counts.busy_us * 1e-6,
                counts.fetched, counts.to_shared,
            )
            for label, counts in tally.stages.items()
        }  # fmt: skip
        if counted:
            stages.update((label, live.Stage(label, tasks)) for label, tasks in self._stages.items() if label not in stages)
        return live.Run(
            id=self.id, number=driver.context.run, place=self._place(), pid=os.getpid(), source=driver.options.source or "session",
            directory=driver.plan.base, began=tally.started, total=-1 if shot.total is None else shot.total, finished=shot.finished,
            failed=shot.failed, running=shot.running, waiting=shot.waiting, moved=shot.bytes_moved,
            failures=len(tally.failures) + tally.failures_omitted, reruns=tally.reruns, lost_nodes=len(tally.lost_nodes),
            stages=list(stages.values()),
        )  # fmt: skip

    def _place(self) -> str:
        context = self.driver.context
        return self.id if context.core is not None else context.attachment.session.name

    def _own_node(self) -> list[live.Node]:
        core = self.driver.context.core
        if core is None:
            return []
        node = msgspec.convert({"place": self.id, **core.status()}, live.Node)
        node.waiting = int(str(core.status()["parked"]))
        node.host = os.uname().nodename
        return [node]

    def _own_tasks(self, count: int) -> tuple[int, list[live.AtWork]]:
        context = self.driver.context
        if context.core is None or context.node_io is None:
            return 0, []
        total, tasks = context.node_io.at_work(context.core.at_work(), count)
        found = []
        for run, number, start, slot, pid, memory in tasks:
            name, label = self._name(number)
            found.append(live.AtWork(self.id, 0, slot, pid, start * 1e-6, memory, number, run, self.id, name, label))
        return total, found

    def _name(self, number: int) -> tuple[str, str]:
        tasks = self.driver.tasks
        if not 0 <= number < len(tasks):
            return "part of a reduction", ""
        task = tasks[number]
        return task.id, stage_of(task) if task.label or task.argv else ""

    def _failed(self, start: int, count: int) -> live.Told:
        """The newest first."""
        tally, source = self.driver.tally, self.driver.options.source
        start = max(0, start)
        page = tally.failures[::-1][start : start + count]
        failed = []
        for number, result in page:
            task = self.driver.tasks[number]
            where = f"{source}:{task.line}" if source and task.line else ""
            failed.append(live.Failed(self.id, task.id, told(result), result.stderr.decode("utf-8", "replace"), where, result.node))
        return live.Told(failed=failed, failed_total=len(tally.failures) + tally.failures_omitted)

    def _explain(self, number: int) -> list[str]:
        core, run = self.driver.context.core, self.driver.context.run
        node_io = self.driver.context.node_io
        if core is None or node_io is None:
            return []
        for _, at, start, slot, pid, _ in node_io.at_work(core.at_work(), live.PAGE_MAX)[1]:
            if at == number:
                return [running_in_words(0, start * 1e-6, slot, pid)]
        return core.worker.explain(run, number) or core.dispatcher.explain(run, number)


def running_in_words(node: int, since: float, slot: int, pid: int) -> str:
    """That a task runs, for people."""
    from amfs.display.progress import time_text

    clock = time.strftime("%H:%M:%S", time.localtime(since))
    return f"node {node}: runs since {clock}, for {time_text(max(0.0, time.time() - since))}, in slot {slot} as process {pid}"


def _encode(answer: live.Told) -> bytes:
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:  # a name that is not UTF-8
        return msgspec.json.encode(json_safe(msgspec.to_builtins(answer)))


