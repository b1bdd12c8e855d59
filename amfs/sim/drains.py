"""A node that was told to end leaves, and says that all that it had is on other nodes: is it?"""

from __future__ import annotations

from amfs.sim.file_backend import SimFileBackend
from amfs.sim.session_files import Elsewhere, record_of
from amfs.sim.world import World
from amfs.vocabulary.attr import LOST, STRIPED


def check_handed_over(world: World, files: SimFileBackend) -> None:
    """No whole file has its only copy there; one whose other copies were on nodes that have died is passed over. Raises AssertionError."""
    contents, number = files.contents, files.number
    for ino, data in files.parts.items():
        try:
            attr, holders = record_of(world, ino)
        except Elsewhere:
            continue
        if attr is None or attr.finished == LOST or attr.layout == STRIPED or not data:
            continue
        who = f"node {number} leaves, says that others have all that it had, and inode {ino:#x}"
        assert attr.writer != number, f"{who} is being written there: {attr}"
        others = set(holders) - {number}
        if number in holders and not others & contents.gone:
            assert any(ino in contents.nodes[other].parts for other in others if other in contents.nodes), f"{who} is only there: {attr}"
