"""How a run is driven, for ``amfs run``, the Python interface and the queue: it is opened, turned until it is over, and closed.

Must not know: the command line, signals, how things are shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from amfs.display.summary import Snapshot
from amfs.errors import Fault, UsageError
from amfs.host.signals import postponed
from amfs.node.loop import now
from amfs.runs.context import RunContext, RunOptions
from amfs.runs.driver import RunDriver
from amfs.runs.watched import Watched
from amfs.vocabulary.paths import in_namespace
from amfs.workflow.workflow import Task, complete

if TYPE_CHECKING:
    from amfs.host.shared_storage import SharedStorage
    from amfs.runs.expansion import Expander
    from amfs.runs.journal import Past
    from amfs.vocabulary.messages import Result
    from amfs.workflow.checks import Plan, StreamChecker


class Shown(Protocol):
    """Is told how a run goes. ``interval``: seconds between the updates that it wants."""

    interval: float

    def update(self, snapshot: Snapshot) -> None: ...
    def message(self, text: str) -> None: ...


@contextlib.contextmanager
def open_run(
    options: RunOptions,
    tasks: list[Task],
    plan: Plan,
    *,
    past: Past | None = None,
    open_ended: bool = False,
    on_ended: Callable[[Task, Result], None] | None = None,
    on_skip: Callable[[int, bool], None] | None = None,
    expander: Expander | None = None,
    message: Callable[[str], None] = lambda text: None,
) -> Iterator[RunDriver]:
    """A run that has not begun (``begin``). Afterwards its nodes have forgotten it, and nothing is left of an embedded node."""
    context = driver = watched = None
    try:
        with postponed():  # one that ended this in the middle would leave a store, and processes
            context = RunContext(options, adopt=past.header.store if past is not None and past.header.base == plan.base else "")
        for text in context.remarks:
            message(text)
        if options.stage_shared:
            _refuse_directories(plan, context.shared)
        driver = RunDriver(
            context, tasks, plan, options, open_ended=open_ended, past=past, on_ended=on_ended, on_skip=on_skip, expander=expander
        )
        watched = Watched(driver)
        yield driver
    except BaseException:
        if driver is not None and driver.over is None and driver.submitter.view is not None:
            with contextlib.suppress(Exception):  # the first one is told
                driver.stop_now("interrupted")
        raise
    finally:
        if watched is not None:
            watched.close()
        if driver is not None:
            driver.finish()
        if context is not None:
            context.close()


def drive(driver: RunDriver, shown: Shown, *, grows: Callable[[], bool] = lambda: False, check: Callable[[], None] = lambda: None) -> None:
    """Until the run is over. ``grows``: may tasks still be added? ``check`` is called in each turn, and may raise."""
    told, last = 0, now()
    while driver.over is None:
        driver.turn(min(1.0, shown.interval))
        news = driver.tally.news
        for text in news[told:]:
            shown.message(text)
        told = len(news)
        if (time_now := now()) - last >= shown.interval:
            last = time_now
            shown.update(driver.snapshot(grows()))
        check()


def add_checked(
    driver: RunDriver, checker: StreamChecker, tasks: Iterable[Task], accept: Callable[[Task], None] = lambda task: None
) -> list[Fault]:
    """Add tasks to a list that grows. Returns the faults of those that were not added; ``accept`` is called for each that is, before."""
    faults: list[Fault] = []
    accepted: list[Task] = []
    for task in tasks:
        task = complete(task)
        if found := checker.add(task):
            faults += found
        else:
            accept(task)
            accepted.append(task)
    if accepted and not driver.submitter.ending:
        driver.add(accepted)
    return faults


def _refuse_directories(plan: Plan, shared: SharedStorage) -> None:
    """Only files are copied into memory. Raises UsageError, before a task runs, if an input is a directory."""
    for name, path in plan.shared.items():
        if in_namespace(name):
            continue
        try:
            directory = seen.directory if (seen := plan.versions.get(name)) is not None else shared.stat(path).directory
        except OSError:
            continue  # the task that reads it says why
        if directory:
            raise UsageError(f"input {name!r} is a directory, and --shared-inputs stage copies files only: name its files, or use in-place")
