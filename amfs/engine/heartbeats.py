"""The heartbeats of a submitter, which keep its run alive. Pure.

The submitter (``submitter.py``) sends a heartbeat to these nodes every ``SubmitterLimits.heartbeat_s``, from the first view to the end
of the run. The manager ends the runs of a submitter that it has not heard for ``MemberLimits.client_dead_s`` (``membership.py``).
Owns the choice of the nodes. Must not know: tasks, files.
"""

from __future__ import annotations

from collections.abc import Collection

#: The submitter's timer.
HEARTBEAT = "heartbeat"


def receivers(manager: int, dispatchers: Collection[int], members: Collection[int], down: Collection[int]) -> list[int]:
    """The nodes that are told that the submitter lives.

    The manager judges it, and the dispatchers speak to it. Once a node has fallen silent (``down``), all members are told: a message that
    stays without acknowledgement shows which others cannot be reached any more.
    """
    return sorted({manager, *dispatchers, *(members if down else ())})
