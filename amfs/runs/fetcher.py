"""Reading a file that lives on some node of a session, from a client. Used by ``amfs.Session.read``.

The protocol is the worker's: Locate at the file's shard, Fetch from a holder, content inline or from its data server.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from amfs.errors import AmfsError
from amfs.vocabulary import messages as m
from amfs.vocabulary.paths import stored_as

if TYPE_CHECKING:
    from amfs.runs.driver import RunDriver

PATIENCE_S = 60.0


class Fetcher:
    """One file being read. Made in the loop's thread, waited for in another."""

    def __init__(self, driver: RunDriver, key: str) -> None:
        self.driver = driver
        self.key = key
        self.name = key[len(driver.info.scope) :]
        self._done = threading.Event()
        self._error = ""
        self._blob: m.Blob | None = None
        self._holder = -1
        driver.readers.setdefault(key, []).append(self)
        driver.send(driver.submitter.table.node_of(key), m.Locate(driver.context.run, (key,)))

    # ── in the loop's thread ───────────────────────────────────────────────────────────────────────

    def located(self, at: m.FileAt) -> None:
        if not at.holders:
            self.failed("it is on shared storage only")
            return
        self._holder = at.holders[0]
        self.driver.send(self._holder, m.Fetch(self.driver.context.run, (self.key,)))

    def content(self, blob: m.Blob) -> None:
        if blob.missing:
            self.failed(f"node {self._holder} holds it no longer")
            return
        self._blob = blob
        self._done.set()

    def failed(self, why: str) -> None:
        self._error = why
        self._done.set()

    # ── in the reader's thread ─────────────────────────────────────────────────────────────────────

    def read(self) -> bytes:
        """The content. Raises AmfsError if it cannot be had."""
        if not self._done.wait(PATIENCE_S):
            raise AmfsError(f"cannot read {self.name}: no answer within {PATIENCE_S:g} s")
        blob = self._blob
        if blob is None:
            raise AmfsError(f"cannot read {self.name}: {self._error}")
        if blob.data is not None:
            return blob.data
        return self._from_data_server(blob)

    def _from_data_server(self, blob: m.Blob) -> bytes:
        from amfs._native import read_stored

        context = self.driver.context
        view = context.view
        member = next((member for member in view.members if member.node == self._holder), None) if view is not None else None
        if member is None:
            raise AmfsError(f"cannot read {self.name}: node {self._holder}, which held it, is gone")
        host, path = _host_of(member), stored_as(self.key)
        try:
            return read_stored(
                context.data_key, context.client, member.node, member.incarnation, host, member.data_port, path, blob.size
            )
        except OSError as error:
            raise AmfsError(f"cannot read {self.name} from node {member.node}: {error.strerror}") from None


def _host_of(member: m.Member) -> str:
    from amfs.host.processes import host_id
    from amfs.net.addresses import loopback

    tcp = [urlsplit(endpoint).hostname for endpoint in member.endpoints if endpoint.startswith("tcp://")]
    return loopback() if member.host == host_id() or not tcp else tcp[0] or loopback()
