"""How a task waits for another one of which it reads nothing: for a *token*, a file without bytes that nobody stores or fetches. Pure.

The name of a token is ``./N`` for task number N: no file of a workflow can be called so, because its name would be written without the
dot. The submitter publishes a token when the task has ended well, as a file on shared storage, and poisons it when the task has failed;
to everybody else it is an input like any other, so whatever holds for files that wait, fail, or lose their shard holds for order, too.
"""

from __future__ import annotations

MARK = "./"


def token(tid: int) -> str:
    return f"{MARK}{tid}"


def is_token(name: str) -> bool:
    """``name`` is without its scope."""
    return name[:2] == MARK


def task_of(name: str) -> int:
    """The number of the task that a token stands for."""
    return int(name[2:])
