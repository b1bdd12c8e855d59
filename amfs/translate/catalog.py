"""A catalog of inputs, for workflows of any format: ``NAME PLACE``, one file a line, as Pegasus' replica catalogs of plain text.

Reads it; knows no storage. Words after the second (``site="…"``) are left out. A place is a URL, or a path relative to the catalog.
"""

from __future__ import annotations

import os

from amfs.translate.document import local_path
from amfs.translate.reader import Reader
from amfs.translate.shell_quoting import lines_of_words


class CatalogReader(Reader):
    """Reads a catalog into ``paths``. ``directory``: that of the catalog, absolute."""

    def __init__(self, source: str, directory: str) -> None:
        super().__init__(source)
        self._directory = directory

    def text(self, text: str, first: int) -> None:
        for number, line, words in lines_of_words(text, first, self.fault):
            if len(words) < 2 or not words[0] or not words[1]:
                self.fault(number, "a line of a catalog is NAME PLACE", line)
                continue
            path = local_path(words[1])
            where = os.path.normpath(os.path.join(self._directory, path)) if path else str(words[1])
            if self.paths.setdefault(self.share(words[0]), where) != where:
                self.fault(number, f"file {words[0]!r} is already listed, at another place", line)


def read_catalog(path: str) -> CatalogReader:
    """Raises OSError, UnicodeDecodeError."""
    reader = CatalogReader(path, os.path.dirname(os.path.abspath(path)))
    with open(path, encoding="utf-8") as file:
        reader.text(file.read(), 1)
    return reader
