"""The errors amfs raises on purpose, and the exit codes of its commands.

::

    AmfsError                  exit 1
    ├── UsageError             exit 2   bad command line, bad option value
    ├── WorkflowError          exit 2   faults in a workflow, all of them at once
    ├── SessionError           exit 4   no such session, wrong keys, session gone
    ├── SystemSetupError       exit 5   something this machine lacks; the message says what to do
    └── ProtocolError          exit 70  a peer (or we) broke the protocol
        └── InvalidTransition  exit 70  a machine was told something its table does not list

Exit codes of ``amfs run``: 0 all tasks finished; 1 some failed; 2 the input is faulty, nothing ran; 3 stopped before the end (a node or
the session was lost, --fail-fast); 4 and 5 as above; 130 interrupted by Ctrl-C; 143 terminated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AmfsError(Exception):
    """Base of all: ``str(error)`` is one clear message for the person at the prompt."""

    exit_code = 1


class UsageError(AmfsError):
    exit_code = 2


class Fault(NamedTuple):
    """One thing wrong with a workflow. ``line`` 0: not tied to a line."""

    source: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{place}: {self.message}"


class WorkflowError(AmfsError):
    """Faults found in a workflow before anything ran; ``str`` gives one line each."""

    exit_code = 2

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(faults)
        self.faults = list(faults)

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self.faults)


class SessionError(AmfsError):
    exit_code = 4


class SystemSetupError(AmfsError):
    exit_code = 5


class ProtocolError(AmfsError):
    exit_code = 70


class InvalidTransition(ProtocolError):
    """``story``: the last events of the thing concerned, oldest first."""

    def __init__(self, machine: str, key: object, state: object, event: object, story: Sequence[object] = ()) -> None:
        tail = "".join(f"\n  {line}" for line in story)
        super().__init__(f"{machine} {key}: no move from {state} on {event}{tail}")
        self.state = state
        self.event = event
