"""Does a process still listen? Real sockets."""

from __future__ import annotations

import select
import socket
import time
from pathlib import Path

import pytest

from amfs.net.probes import Probes


def refused(probes: Probes, endpoint: str) -> bool:
    """Asked as a node asks: again and again. No answer within a second: no."""
    end = time.monotonic() + 1.0
    while not (found := probes.is_refused(endpoint)) and time.monotonic() < end and probes._tried:
        time.sleep(0.01)
    return found


def test_a_port_is_refused_once_its_process_has_ended() -> None:
    probes = Probes()
    listener = socket.create_server(("127.0.0.1", 0))
    endpoint = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    assert not refused(probes, endpoint)
    listener.close()
    assert refused(probes, endpoint)


def test_a_socket_of_a_killed_process_is_refused_and_one_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    probes = Probes()
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert not refused(probes, f"ipc://{path}")
    assert refused(probes, f"ipc://{path}"), "its file is left"
    path.unlink()
    assert not refused(probes, f"ipc://{path}"), "somebody may have removed it while the node lives"


def test_nobody_is_waited_for_when_many_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a cut would stop the poll loop for as many waits as it has cut off nodes."""
    waited: list[int] = []

    class Poll:
        def register(self, one: socket.socket, events: int) -> None: ...

        def poll(self, milliseconds: int) -> list[object]:
            waited.append(milliseconds)
            return []

    monkeypatch.setattr(select, "poll", Poll)
    monkeypatch.setattr("amfs.net.probes._begin", lambda endpoint: (socket.socket(), 0))
    probes = Probes()
    for _ in range(2):
        for host in range(100):
            assert not probes.is_refused(f"tcp://{host}:1")
    probes.close()
    assert (len(waited), sum(waited)) == (200, 16), "milliseconds"


def test_names_and_silent_hosts_say_nothing() -> None:
    probes = Probes()
    assert not refused(probes, "tcp://localhost:1"), "looking up a name may take long"
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        others = []
        endpoint = f"tcp://127.0.0.1:{full.getsockname()[1]}"
        while not probes._tried:  # more than it accepts are let wait by the kernel, as by a host that does not answer
            others.append(socket.socket())
            others[-1].setblocking(False)
            others[-1].connect_ex(full.getsockname())
            assert not probes.is_refused(endpoint)
        assert not probes.is_refused(endpoint)
        for other in others:
            other.close()
    probes.close()
    assert not probes._tried
