"""``amfs run`` of a script: the same run as of a list that grows, and the evaluation of the script adds to it."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from amfs.cli.run_driver import Driver
from amfs.engine.states import Outcome
from amfs.engine.workflow import Task, complete
from amfs.errors import AmfsError, UsageError, WorkflowError

if TYPE_CHECKING:
    from amfs.display.progress import Progress
    from amfs.runs.context import RunOptions
    from amfs.runs.driver import RunDriver
    from amfs.scripts.script import Script

T = TypeVar("T")

_DONE = Task("done", ("true",))


def _remains(task: Task) -> Task:
    """What is kept of a task that has ended, as scripts may have millions: what happens to its files at the end of the run."""
    if not task.outputs:
        return _DONE
    return Task(task.id, _DONE.argv, outputs=task.outputs, keep=task.keep, scratch=task.scratch, label=task.label, line=task.line)


class LoopRun:
    """The run of the command, for the thread of the script: what it wants is done in the thread of the loop."""

    def __init__(self, driver: RunDriver, checker: Any) -> None:
        self.driver = driver
        self.checker = checker
        self.over = threading.Event()

    def in_loop(self, call: Callable[[], T]) -> T:
        """``call()`` in the loop's thread. Raises AmfsError when the run is over."""
        box: list[Any] = []
        done = threading.Event()

        def work() -> None:
            try:
                box.append((call(), None))
            except BaseException as error:
                box.append((None, error))
            done.set()

        self.driver.context.loop.post(work)
        while not done.wait(0.2):
            if self.over.is_set():
                raise AmfsError("the run is over")
        value, error = box[0]
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def add(self, tasks: list[Task]) -> None:
        self.in_loop(lambda: self._add(tasks))

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

    def makes(self, name: str) -> bool:
        return name in self.driver.plan.writers

    def read(self, name: str) -> bytes:
        from amfs.runs.reading import reader

        again = self.in_loop(lambda: self.driver.want(name))
        if again:
            self._wait_for(name)
        return self.in_loop(lambda: reader(self.driver, name))()

    def _wait_for(self, name: str) -> None:
        """Until the task that an earlier run had done, and whose file is gone, has made it again."""
        from amfs.engine.states import FINISHED

        writer = self.driver.plan.writers[name]
        while self.in_loop(lambda: self.driver.submitter.state[writer]) != FINISHED and not self.over.wait(0.05):
            pass

    def nodes(self) -> list[str]:
        from amfs.runs.reading import hosts

        return self.in_loop(lambda: hosts(self.driver))

    def locate(self, name: str) -> list[int]:
        from amfs.runs.reading import holders

        return self.in_loop(lambda: holders(self.driver, name))()


class ScriptDriver(Driver):
    """One ``amfs run`` of a script."""

    unfolds = True

    def __init__(
        self, file: str, options: RunOptions, progress: Progress, format: str, arguments: tuple[str, ...], given: Mapping[str, Any]
    ) -> None:
        from amfs.scripts.program import read_program
        from amfs.translate.swift import program_of, source_of

        super().__init__(file, options, progress, format, None, given)
        self.arguments = arguments
        self.script: Script | None = None
        self.loop_run: LoopRun | None = None
        self.error: AmfsError | None = None
        language = "auto" if format == "swift" else format
        if file == "-":
            self.program = program_of(source_of("standard input", sys.stdin.buffer.read()), language)
        else:
            self.program = read_program(file, language)
        gc.freeze()  # the program stays: no collection need look at it
        seen = set()
        for at, words in self.program.remarks:
            if words not in seen:
                seen.add(words)
                if given["strict"]:
                    raise UsageError(f"{at}: {words}")
                progress.message(f"{at}: {words}")

    def _read_along(self, driver: RunDriver, checker: Any) -> None:
        """Evaluate the script in a thread of its own."""
        from amfs.scripts.script import Script
        from amfs.scripts.world import World

        loop = driver.context.loop
        run = self.loop_run = LoopRun(driver, checker)
        slots = sum(driver.submitter.members.values())
        world = World(run, self.options.base, self.arguments, slots=slots, environment=self.options.env, show=self._show_in(loop))
        script = self.script = Script(self.program, run, world)

        def follow() -> None:
            error: AmfsError | None = None
            try:
                error = script.run()
            except AmfsError as broken:
                error = broken
            except BaseException as broken:
                error = AmfsError(f"the evaluation of the script has failed: {broken!r}")
            finally:
                world.close()
            loop.post(lambda: self._script_over(driver, checker, error))

        threading.Thread(target=follow, name="amfs script", daemon=True).start()

    def _show_in(self, loop: Any) -> Callable[[str, bool], None]:
        """What the script prints comes out between the output of tasks, in whole pieces."""

        def show(text: str, error: bool) -> None:
            data = text.encode("utf-8", "surrogateescape")
            loop.post(lambda: self.progress.task_output("script", b"" if error else data, data if error else b""))

        return show

    def _script_over(self, driver: RunDriver, checker: Any, error: AmfsError | None) -> None:
        if error is not None and driver.over is None and not self.signal:
            self.error = error
            for one in error.faults if isinstance(error, WorkflowError) else [error]:
                self.progress.fault(str(one))
            driver.stop("the script has failed")
            return
        if not driver.submitter.ending:
            self._end_of_list(driver, checker)

    def _skipped(self, tid: int, skipped: bool) -> None:
        assert self.script is not None and self.loop_run is not None
        if skipped:
            self.script.ended(self.loop_run.driver.tasks[tid].id, True)

    def _ended(self, task: Any, result: Any) -> None:
        super()._ended(task, result)
        if self.script is None or self.loop_run is None:
            return
        self.script.ended(task.id, result.outcome == Outcome.OK)
        driver = self.loop_run.driver
        if result.outcome == Outcome.OK and driver.context.store is not None and driver.resumed_list is None:
            driver.tasks[result.tid] = _remains(task)  # on this machine nothing is lost, so it never runs again

    def _finish(self, driver: RunDriver) -> int:
        assert self.script is not None and self.loop_run is not None
        self.loop_run.over.set()
        self.script.stop()
        code = super()._finish(driver)
        return 1 if self.error is not None and not self.signal else code
