"""The end of a process's sockets waits for nobody."""

from __future__ import annotations

import pytest
import zmq

from amfs.net.guard import Refusals
from amfs.net.sockets import Sockets


@pytest.mark.parametrize("known", [True, False], ids=["the context knows it", "nobody knows it"])
def test_a_socket_that_was_being_made_does_not_keep_its_process(known: bool) -> None:
    """A signal ended its making: ``close`` cannot close it by name, and the context of ZeroMQ waits for it."""
    sockets = Sockets(None, Refusals(), lambda frame, router, identity: None)
    context = sockets._context
    left = context.socket(zmq.DEALER) if known else zmq.Socket(context, zmq.DEALER)
    sockets.close(())
    assert left.closed is known
    left.close()
