"""amfs: many-task workflows with the files between the tasks in memory.

The public names, loaded when first used (PEP 562), so that ``amfs --help`` and a script that only catches ``AmfsError`` stay cheap::

    import amfs

    result = amfs.run("tasks.txt")

See docs/architecture.md for the inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.2.0"
#: The name to install this package by. (The distribution called amfs is another project's, with the same import name.)
DISTRIBUTION = "amfs-hpc"

if TYPE_CHECKING:
    from amfs.client.files import files
    from amfs.cluster import Cluster
    from amfs.errors import (
        AmfsError,
        Fault,
        ProtocolError,
        SessionError,
        SystemSetupError,
        UsageError,
        WorkflowError,
    )
    from amfs.runs.api import RunResult, Session, TaskFailed, graph, run
    from amfs.workflow.workflow import DeclaredState, Task, Workflow

__all__ = [
    "AmfsError",
    "Cluster",
    "DeclaredState",
    "Fault",
    "ProtocolError",
    "RunResult",
    "Session",
    "SessionError",
    "SystemSetupError",
    "Task",
    "TaskFailed",
    "UsageError",
    "Workflow",
    "WorkflowError",
    "files",
    "graph",
    "run",
]

_HOME = {
    **dict.fromkeys(("run", "graph", "Session", "TaskFailed", "RunResult"), "amfs.runs.api"),
    "Cluster": "amfs.cluster",
    "files": "amfs.client.files",
    **dict.fromkeys(("Task", "Workflow", "DeclaredState"), "amfs.workflow.workflow"),
    **dict.fromkeys(
        ("AmfsError", "Fault", "ProtocolError", "SessionError", "SystemSetupError", "UsageError", "WorkflowError"), "amfs.errors"
    ),
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'amfs' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: object) -> None:
    """``%load_ext amfs``: the magic ``%%amfs`` (see ``magic``)."""
    from importlib import import_module

    import_module("amfs.magic").load(shell)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
