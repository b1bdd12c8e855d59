"""A process for test_transport: a node that answers each Heartbeat(n) with Heartbeat(n + 1), and Content with itself.

Usage: transport_peer.py OWN-ID ENDPOINT KEYS-FILE. Prints its endpoints, then serves until its standard input is closed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from amfs.net.keys import Keys
from amfs.net.transport import Transport
from amfs.vocabulary.messages import Content, Heartbeat


def main() -> None:
    own_id, endpoint, keys = int(sys.argv[1]), sys.argv[2], msgspec.json.decode(Path(sys.argv[3]).read_bytes(), type=Keys)
    transport = Transport(own_id, keys, [endpoint])
    transport.watch(0)
    print(" ".join(transport.endpoints), flush=True)
    while True:
        due = transport.next_timer()
        if transport.poll(60.0 if due is None else due - time.monotonic()):
            break
        now = time.monotonic()
        for peer, message in transport.receive(now):
            if isinstance(message, Heartbeat):
                transport.queue(peer, Heartbeat(message.epoch + 1))
            elif isinstance(message, Content):
                transport.queue(peer, message)
        transport.flush(now)
        transport.on_timer(now)
    transport.close()


if __name__ == "__main__":
    main()
