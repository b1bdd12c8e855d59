"""Nodes of a real session share the partitions by what their stores may hold; after a death the loads are brought back."""

from __future__ import annotations

import subprocess
import sys

from fs_session import PATIENCE_S, kill, running

from amfs.client.control import Client
from amfs.client.files import Files
from amfs.vocabulary.messages import View

DATA = b"0123456789abcdef" * (1 << 15)


def amfs(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "amfs", *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr


def loads(view: View) -> dict[int, float]:
    """The part of all partitions that each node has."""
    return {member.node: view.table.count(member.node) / len(view.table) for member in view.members}


def test_nodes_that_are_started_together_are_equal() -> None:
    with running(4) as session, Client(session) as client:
        assert set(loads(client.view(PATIENCE_S)).values()) == {0.25}


def test_a_larger_node_takes_more_and_a_death_is_evened_out() -> None:
    with running(2, "--store-limit", "64M") as session, Client(session) as client:
        for size in ("192M", "320M"):
            amfs("node", "--join", session.name, "--detach", "--slots", "1", "--store-limit", size)
        found = loads(client.view(PATIENCE_S, lambda view: len(view.members) == 4))
        for node, share in enumerate((0.1, 0.1, 0.3, 0.5)):
            assert abs(found[node] - share) < 0.005
        with Files(node=3) as files:
            files.mkdir("/striped")
            files.set_layout("/striped", "striped")
            files.write_bytes("/striped/before", DATA)
        kill(session, 1)
        death = client.view(PATIENCE_S, lambda view: len(view.members) == 3)
        assert loads(death)[0] > 0.12, "the backups have it, whatever their loads"
        after = client.view(PATIENCE_S, lambda view: loads(view)[0] < 1.06 / 9)
        assert after.epoch > death.epoch
        with Files(node=0) as files:
            files.write_bytes("/striped/after", DATA)
        with Files(node=3) as files:
            assert files.read_bytes("/striped/after") == DATA
