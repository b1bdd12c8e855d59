"""The place in which a workflow runs when there is a session: this machine's files, and those of the session (``amfs:/…``)."""

from __future__ import annotations

import os
from collections.abc import Iterable

from amfs.errors import SessionError, UsageError
from amfs.translate.place import HostPlace
from amfs.vocabulary.paths import in_namespace, namespace_path


class FilesPlace(HostPlace):
    """``HostPlace`` that also knows names of the file system of ``session`` (None: there is none, and a name in it is an error)."""

    def __init__(self, base: str | os.PathLike[str] | None, session: str | None) -> None:
        super().__init__(base)
        self.session = session

    def missing(self, names: Iterable[str]) -> set[str]:
        mine: list[str] = []
        others: list[str] = []
        for name in names:
            (mine if in_namespace(name) else others).append(name)
        gone = super().missing(others)
        if not mine:
            return gone
        if self.session is None:
            raise UsageError(f"{mine[0]} is a file of a session, and this run has none; start one with 'amfs up'")
        from amfs.client.connection import Call, NodeConnection  # brings the network, which few runs without a session need
        from amfs.vocabulary import fs_requests as q

        connection = NodeConnection(self.session or None)
        try:
            answers = connection.call_many([Call(q.Walk(namespace_path(name), True)) for name in mine])
        finally:
            connection.close()
        for name, answer in zip(mine, answers, strict=True):
            if isinstance(answer, SessionError):
                raise answer
            if isinstance(answer, BaseException):
                gone.add(name)
        return gone

    def unwritable(self, directory: str) -> str:
        if in_namespace(f"{directory}/"):
            return "" if self.session is not None else "it is in the file system of a session, and this run has none"
        return super().unwritable(directory)
