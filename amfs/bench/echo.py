"""Messages between two processes over the real transport. ``python -m amfs.bench.echo DIRECTORY`` is the process that answers.

The other process asks and waits, again and again. One small message takes half of a round trip.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import msgspec

from amfs.bench.process import Failed, Partner
from amfs.net.keys import Keys
from amfs.net.sockets import make_keys
from amfs.net.transport import Transport, random_client_id
from amfs.vocabulary import messages as m

_HANG_SECONDS = 30.0
_ANSWERER = 0


def answer(directory: str, kind: str, keys: Keys) -> None:
    """Say where we listen, then answer every heartbeat until standard input ends."""
    listen = f"ipc://{directory}/echo.ipc" if kind == "ipc" else "tcp://127.0.0.1:0"
    transport = Transport(_ANSWERER, keys, [listen])
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    print(transport.endpoints[0], flush=True)
    while not over.is_set():
        transport.poll(0.05)
        now = time.monotonic()
        for received in transport.receive(now):
            transport.queue(received[0], received[-1])
        transport.flush(now)
        transport.on_timer(now)
    transport.close()


def round_trip_seconds(directory: Path, kind: str, times: int) -> list[float]:
    """Seconds of each of ``times`` questions and answers over "ipc" or "tcp". Raises Failed."""
    keys = make_keys()
    secrets = msgspec.json.encode(keys).decode()
    command = [sys.executable, "-m", "amfs.bench.echo", str(directory), kind]
    with Partner("the process that answers", command) as other:
        transport = Transport(random_client_id(), keys)
        try:
            other.say(secrets)
            transport.connect(_ANSWERER, [other.hear()], transport.host)
            return [_ask(transport, number) for number in range(times)]
        finally:
            transport.close()


def _ask(transport: Transport, number: int) -> float:
    started = now = time.monotonic()
    transport.queue(_ANSWERER, m.Heartbeat(number))
    transport.flush(now)
    while now - started < _HANG_SECONDS:
        transport.poll(1.0)
        now = time.monotonic()
        for received in transport.receive(now):
            if received[-1] == m.Heartbeat(number):
                return now - started
        transport.on_timer(now)
    raise Failed(f"a message was not answered within {_HANG_SECONDS:.0f} s")


if __name__ == "__main__":
    answer(sys.argv[1], sys.argv[2], msgspec.json.decode(sys.stdin.readline(), type=Keys))
    os._exit(0)  # not waiting for the thread that reads
