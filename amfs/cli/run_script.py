"""``amfs run`` of a script: the same run as of a list that grows, and the evaluation of the script adds to it."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from amfs.cli.run_driver import Driver
from amfs.errors import AmfsError, UsageError, WorkflowError
from amfs.vocabulary.states import Outcome

if TYPE_CHECKING:
    from amfs.display.progress import Progress
    from amfs.runs.context import RunOptions
    from amfs.runs.driver import RunDriver
    from amfs.scripts.command_run import CommandRun
    from amfs.scripts.script import Script

class ScriptDriver(Driver):
    """One ``amfs run`` of a script."""

    unfolds = True

    def __init__(
        self, file: str, options: RunOptions, progress: Progress, format: str, arguments: tuple[str, ...], given: Mapping[str, Any],
        stream: Any = None,
    ) -> None:  # fmt: skip
        from amfs.scripts.program import read_program
        from amfs.translate.swift import program_of, source_of

        super().__init__(file, options, progress, format, None, given)
        self.arguments = arguments
        self.script: Script | None = None
        self.command_run: CommandRun | None = None
        self.error: AmfsError | None = None
        language = "auto" if format == "swift" else format
        if stream is not None or file == "-":
            text = (stream or sys.stdin.buffer).read()
            self.program = program_of(source_of("standard input" if file == "-" else file, text), language)
        else:
            self.program = read_program(file, language)
        if self.program.usage and not {"-h", "--help"}.isdisjoint(arguments):
            click.echo(self.program.usage, nl=False)
            raise click.exceptions.Exit(0)
        self._configure()
        gc.freeze()  # the program stays: no collection need look at it
        seen = set()
        for at, words in self.program.remarks:
            if words not in seen:
                seen.add(words)
                if given["strict"]:
                    raise UsageError(f"{at}: {words}")
                progress.message(f"{at}: {words}")

    def _configure(self) -> None:
        """Apply files of Swift/K and variables of Swift/T. Options of the command line come before them."""
        from amfs.translate.swift_config import Settings, turbine_ignored, turbine_retries, unread

        settings = Settings()
        for name in self.given["config"]:
            settings.read(name, os.environ)
        if self.program.language == "swift-t":
            if settings.retries is None:
                settings.retries = turbine_retries(os.environ)
            settings.remarks.append(turbine_ignored(os.environ))
        elif not self.given["config"] and self.file != "-":
            settings.remarks.append(unread(self.file))
        settings.apply(self.program)
        context = click.get_current_context(silent=True)
        said = context is not None and context.get_parameter_source("retries") is ParameterSource.COMMANDLINE
        if settings.retries is not None and not said:
            self.options.retries = settings.retries
        self.options.fail_fast = self.options.fail_fast or bool(settings.fail_fast)
        for remark in filter(None, settings.remarks):
            self.progress.message(remark)

    def _read_along(self, driver: RunDriver, checker: Any) -> None:
        """Evaluate the script in a thread of its own."""
        from amfs.scripts.command_run import CommandRun
        from amfs.scripts.program import unknown_programs
        from amfs.scripts.script import Script
        from amfs.scripts.world import World

        loop = driver.context.loop
        run = self.command_run = CommandRun(driver, checker)
        slots = sum(driver.submitter.members.values())
        world = World(
            run, self.options.base, self.arguments, slots=slots, environment=self.options.env, session=self.options.session,
            show=self._show_in(loop),
        )  # fmt: skip
        script = self.script = Script(self.program, run, world)

        def missing(name: str) -> str:
            return str(checker.place.find_program(name, here=True)[1])

        def follow() -> None:
            error: AmfsError | None = None
            try:
                faults = unknown_programs(self.program, missing)
                error = WorkflowError(faults) if faults else script.run()
            except AmfsError as broken:
                error = broken
            except BaseException as broken:
                error = AmfsError(f"the evaluation of the script has failed: {broken!r}")
            finally:
                world.close()
            loop.post(lambda: self._script_over(driver, checker, error))

        threading.Thread(target=follow, name="amfs script", daemon=True).start()

    def _show_in(self, loop: Any) -> Callable[[str, bool], None]:
        """The script's output comes out between that of tasks, in whole pieces."""

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
        assert self.script is not None and self.command_run is not None
        if skipped:
            self.script.ended(self.command_run.driver.tasks[tid].id, True)

    def _ended(self, task: Any, result: Any) -> None:
        super()._ended(task, result)
        if self.script is None or self.command_run is None:
            return
        self.script.ended(task.id, result.outcome == Outcome.OK)
        if result.outcome == Outcome.OK:
            self.command_run.ended_well(result.tid)

    def _finish(self, driver: RunDriver) -> int:
        assert self.script is not None and self.command_run is not None
        self.command_run.over.set()
        self.script.stop()
        code = super()._finish(driver)
        return 1 if self.error is not None and not self.signal else code
