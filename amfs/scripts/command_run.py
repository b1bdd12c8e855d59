"""The run of ``amfs run SCRIPT``: its tasks are checked and added in the thread of the driver. Must not know: how scripts are evaluated."""

from __future__ import annotations

import threading

from amfs.errors import AmfsError, WorkflowError
from amfs.runs.drive import add_checked
from amfs.runs.driver import RunDriver
from amfs.runs.live import LiveRun
from amfs.vocabulary.states import FINISHED
from amfs.workflow.checks import StreamChecker
from amfs.workflow.workflow import Task

#: Stands for a task of which nothing need be known any more. Scripts may have millions of tasks.
_DONE = Task("done", ("true",))


class CommandRun:
    """The run that ``amfs run`` drives, for the thread of the script (``world.Run``).

    ``over`` is set by the command when the run ends; waits then stop.
    """

    def __init__(self, driver: RunDriver, checker: StreamChecker) -> None:
        self.driver = driver
        self.checker = checker
        self.over = threading.Event()
        self.live = LiveRun(driver, self._check)
        self.makes, self.nodes, self.locate = self.live.makes, self.live.nodes, self.live.locate

    def _check(self) -> None:
        if self.over.is_set():
            raise AmfsError("the run is over")

    def add(self, tasks: list[Task]) -> None:
        self.live.in_loop(lambda: self._add(tasks))

    def _add(self, tasks: list[Task]) -> None:
        if faults := add_checked(self.driver, self.checker, tasks):
            raise WorkflowError(faults)

    def forget(self, names: list[str]) -> None:
        self.driver.context.loop.post(lambda: self._forget(names))

    def _forget(self, names: list[str]) -> None:
        driver, plan = self.driver, self.driver.plan
        forgotten = driver.forget(names)
        if not self._ends_for_good:
            return
        for name in forgotten:
            tid = plan.writers.pop(name)
            plan.readers.pop(name, None)
            if not any(output in plan.writers for output in driver.tasks[tid].outputs):
                self._forget_task(tid)

    @property
    def _ends_for_good(self) -> bool:
        """No loss of files makes an ended task run again: the run is embedded, and no earlier run has left files."""
        return self.driver.context.store is not None and self.driver.resumed_list is None

    def ended_well(self, tid: int) -> None:
        """In the loop's thread. Keep what may still be needed: the fields for files."""
        task = self.driver.tasks[tid]
        if not task.outputs:
            self._forget_task(tid)
        elif self._ends_for_good:
            self.driver.tasks[tid] = Task(
                task.id, _DONE.argv, outputs=task.outputs, keep=task.keep, scratch=task.scratch, label=task.label, line=task.line
            )

    def _forget_task(self, tid: int) -> None:
        self.checker.forget(tid)
        self.driver.tasks[tid] = _DONE

    def read(self, name: str) -> bytes:
        if self.live.in_loop(lambda: self.driver.want(name)):
            self._wait_for(name)
        return self.live.content(name)

    def _wait_for(self, name: str) -> None:
        """Until the task that an earlier run had done, and whose file is gone, has made it again."""
        writer = self.driver.plan.writers[name]
        while self.live.in_loop(lambda: self.driver.submitter.state[writer]) != FINISHED and not self.over.wait(0.05):
            pass
