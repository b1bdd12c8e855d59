"""A place of which the checks of a workflow need to know nothing. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from amfs.vocabulary.object_versions import ObjectVersion
from amfs.workflow.checks import absolute
from amfs.workflow.workflow import canonical


class AnyPlace:
    """A place in which every file and every program exists: for simulations, and for checking a workflow by itself."""

    def __init__(self, base: str = "/") -> None:
        self.base = base

    def missing(self, names: Iterable[str]) -> set[str]:
        return set()

    def versions(self, urls: Iterable[str]) -> dict[str, ObjectVersion]:
        return {}

    def real(self, directory: str) -> str:
        return posixpath.normpath(posixpath.join(self.base, directory))

    def unwritable(self, directory: str) -> str:
        return ""

    def find_program(self, name: str, *, here: bool) -> tuple[str, str]:
        return absolute(canonical(name, self.base), self.base), ""
