"""The queue of a session from a Python program: ``Cluster.queue`` and ``Cluster.execute``.

Owns nothing: the tasks are the session's (``queueing.client``). Must not know: how tasks run.
"""

from __future__ import annotations

from functools import partial

from amfs.display.choice import make_progress
from amfs.display.progress import Progress
from amfs.display.summary import Summary
from amfs.queueing import messages as q
from amfs.queueing.client import Queue


def execute(session: str | None, *, progress: bool | None = None) -> Summary | None:
    """Run what is queued, and wait for its end: its summary (``exit_code`` as that of ``amfs execute``), or None if nothing was queued. An
    interrupt ends the tasks. ``progress``: show how it goes (default: in notebooks). Raises SessionError, AmfsError."""
    from amfs.display.front_end import in_notebook

    queue = Queue(session)
    progress_bar = make_progress(quiet=not (in_notebook() if progress is None else progress))
    try:
        over = queue.execute(partial(show, progress_bar))
    except KeyboardInterrupt:
        queue.cancel()
        raise
    if over is None:
        return None
    over.summary.exit_code = over.code
    return over.summary


def show(progress: Progress, event: q.Event) -> None:
    """Show one event of an execute."""
    if isinstance(event, q.Began):
        progress.start(event.total, event.nodes, event.slots)
    elif isinstance(event, q.Standing):
        progress.update(event.snapshot)
    elif isinstance(event, q.Said):
        (progress.fault if event.fault else progress.message)(event.text)
    elif isinstance(event, q.TaskFailed):
        progress.task_failed(event.task, event.detail, event.stderr)
    elif isinstance(event, q.TaskOutput):
        progress.task_output(event.task, event.stdout, event.stderr)
