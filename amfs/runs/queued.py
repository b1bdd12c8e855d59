"""The queue of a session from a Python program: ``Cluster.queue`` and ``Cluster.execute``.

Owns nothing: the tasks are the session's (``queue_client``). Must not know: how tasks run.
"""

from __future__ import annotations

from amfs.display.choice import make_progress
from amfs.display.summary import Summary
from amfs.runs import queue_messages as q
from amfs.runs.queue_client import Queue


def execute(session: str | None, *, progress: bool | None = None) -> Summary | None:
    """Run what is queued, and wait for its end: its summary (``exit_code`` as that of ``amfs execute``), or None if nothing was queued. An
    interrupt ends the tasks. ``progress``: show how it goes (default: in notebooks). Raises SessionError, AmfsError."""
    from amfs.display.front_end import in_notebook

    queue = Queue(session)
    show = make_progress(quiet=not (in_notebook() if progress is None else progress))

    def tell(event: q.Event) -> None:
        if isinstance(event, q.Began):
            show.start(event.total, event.nodes, event.slots)
        elif isinstance(event, q.Standing):
            show.update(event.snapshot)
        elif isinstance(event, q.TaskFailed):
            show.task_failed(event.task, event.detail, event.stderr)
        elif isinstance(event, q.TaskOutput):
            show.task_output(event.task, event.stdout, event.stderr)

    try:
        over = queue.execute(tell)
    except KeyboardInterrupt:
        queue.cancel()
        raise
    if over is None:
        return None
    over.summary.exit_code = over.code
    return over.summary
