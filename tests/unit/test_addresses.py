"""Addresses that users write after --tcp, advertised ones, used ones."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from amfs.errors import UsageError
from amfs.net.addresses import advertised, listen_endpoint, pick
from amfs.net.guard import Handshakes, Refusals, answer_zap


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("10.0.0.1", "tcp://10.0.0.1:0"),
        ("10.0.0.1:5555", "tcp://10.0.0.1:5555"),
        ("tcp://host:*", "tcp://host:0"),
        ("0.0.0.0", "tcp://0.0.0.0:0"),
        ("::1", "tcp://[::1]:0"),
        ("[::1]", "tcp://[::1]:0"),
        ("[::1]:77", "tcp://[::1]:77"),
    ],
)
def test_listen(text: str, endpoint: str) -> None:
    assert listen_endpoint(text) == endpoint


@pytest.mark.parametrize("text", ["", ":5", "host:", "host:x", "host:70000", "host:-1"])
def test_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address to listen on"):
        listen_endpoint(text)


def test_all_interfaces_are_not_advertised() -> None:
    assert advertised("tcp://10.1.2.3:7") == "tcp://10.1.2.3:7"
    shown = advertised("tcp://0.0.0.0:7")
    assert shown.endswith(":7") and "0.0.0.0" not in shown


def test_ipc_is_for_the_same_host(tmp_path: Path) -> None:
    here, tcp = f"ipc://{tmp_path}/x.ipc", "tcp://h:1"
    assert pick([here, tcp], "me", "me") == here
    assert pick([here, tcp], "other", "me") == tcp
    assert pick([here], "other", "me") is None
    assert pick([here, tcp], "", "me") == here  # not known, but its directory is here
    assert pick(["ipc:///no/where/x.ipc", tcp], "", "me") == tcp


def test_refusals_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    with caplog.at_level(logging.WARNING):
        said = [refusals.add(key, f"no {key}") for key in "aabab"]
    assert said == [True, False, True, False, False]
    assert (refusals.count, list(refusals.recent)) == (5, ["no a", "no b"])
    for number in range(3000):
        refusals.add(str(number), "x")
    assert len(refusals._said) <= 1000


def test_zap_lets_in_the_one_key() -> None:
    key = bytes(range(32))
    request = [b"1.0", b"id", b"amfs", b"10.0.0.9", b"", b"CURVE", key]
    assert answer_zap(request, key) == ([b"1.0", b"id", b"200", b"OK", b"session", b""], "")
    for wrong in ([*request[:6], bytes(32)], [*request[:5], b"NULL"], [*request[:5], b"PLAIN", b"u", b"p"], request[:3], []):
        reply, who = answer_zap(wrong, key)
        assert reply[2] == b"400" and who
        assert len(reply) == 6


def test_who_never_shook_hands() -> None:
    node_io = Handshakes()
    node_io.accepted(5)
    assert node_io.disconnected(5)
    node_io.accepted(6)
    node_io.ended()
    assert not node_io.disconnected(6)
    node_io.accepted(7)
    node_io.accepted(8)
    node_io.ended()  # of one of them: the first to go gets the benefit of the doubt
    assert [node_io.disconnected(7), node_io.disconnected(8)] == [False, True]
    assert not node_io.disconnected(9)
