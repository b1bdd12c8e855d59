"""The run of ``amfs run SCRIPT``: its tasks are checked and added in the thread of the driver. Must not know: how scripts are evaluated."""

from __future__ import annotations

import threading

from amfs.engine.checks import StreamChecker
from amfs.engine.states import FINISHED
from amfs.engine.workflow import Task, complete
from amfs.errors import AmfsError, WorkflowError
from amfs.runs.driver import RunDriver
from amfs.runs.live import LiveRun


class CommandRun:
    """The run that ``amfs run`` drives, for the thread of the script (``world.Run``).

    ``over`` is set by the command when the run ends; what waits then stops.
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
        faults = []
        accepted = []
        for task in tasks:
            task = complete(task)
            if found := self.checker.add(task):
                faults += found
            else:
                accepted.append(task)
        if not self.driver.submitter.ending:
            self.driver.add(accepted)
        if faults:
            raise WorkflowError(faults)

    def read(self, name: str) -> bytes:
        if self.live.in_loop(lambda: self.driver.want(name)):
            self._wait_for(name)
        return self.live.content(name)

    def _wait_for(self, name: str) -> None:
        """Until the task that an earlier run had done, and whose file is gone, has made it again."""
        writer = self.driver.plan.writers[name]
        while self.live.in_loop(lambda: self.driver.submitter.state[writer]) != FINISHED and not self.over.wait(0.05):
            pass
