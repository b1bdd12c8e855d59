"""Sessions that end with the process that started them: by its order, at its exit, when it forgets them, and when it is killed.

Owns the *keeper*, a small process beside the session that sees the end of a pipe when the owner is no more, and then ends the session.
Must not know: what the owner does with the session.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amfs.net.records import SessionRecord

END_S = 5.0  # before nodes are killed
_DONE = b"d"  # on the pipe: the owner has ended the session itself


class OwnedSession:
    """``record`` is of a session of local processes that this process has just started; from now on it goes when this process goes.

    ``end`` ends it now. A child that this process forks owns nothing of it.
    """

    def __init__(self, record: SessionRecord) -> None:
        from amfs.provision.daemon import node_environment

        self.record = record
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", "amfs.provision.owned", record.name],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
            env=node_environment(),
        )  # fmt: skip
        assert self._keeper.stdin is not None
        _pipes.add(self._keeper.stdin.fileno())
        self._finalizer = weakref.finalize(self, _end, record, self._keeper, os.getpid())

    @property
    def alive(self) -> bool:
        """Has nobody ended it here?"""
        return self._finalizer.alive

    def end(self) -> None:
        """End the session and remove what is left of it. Repeatable."""
        self._finalizer()


_pipes: set[int] = set()  # our ends of the pipes to keepers


def _forget_pipes() -> None:
    """In a forked child: or the keepers would wait for the child, too. The numbers stay taken, since file objects will close them."""
    if _pipes:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in _pipes:
            os.dup2(null, descriptor, inheritable=False)
        os.close(null)
        _pipes.clear()


os.register_at_fork(after_in_child=_forget_pipes)


def _end(record: SessionRecord, keeper: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        keeper.returncode = 0  # not our child: nothing to wait for
        return
    from amfs.provision.local import LocalProcesses

    assert keeper.stdin is not None
    try:
        LocalProcesses().end(record, END_S)
        with contextlib.suppress(OSError):
            os.write(keeper.stdin.fileno(), _DONE)
    finally:  # if we were interrupted, the keeper does it
        _pipes.discard(keeper.stdin.fileno())
        keeper.stdin.close()
    keeper.wait()


def main() -> None:
    """The keeper: waits for the end of the pipe."""
    if os.read(0, 1) != _DONE:
        from amfs.client import discovery
        from amfs.errors import SessionError
        from amfs.provision.local import LocalProcesses

        with contextlib.suppress(SessionError):  # it is gone already
            LocalProcesses().end(discovery.find(sys.argv[1]), END_S)


if __name__ == "__main__":
    main()
