"""Names that mean one file because a directory on their way is a link. Pure: ``Place.real`` says where a directory is.

Directories are looked at, each once, and not files: a file may well be a link to another one and be replaced by an output.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from amfs.vocabulary.paths import NAMESPACE
from amfs.workflow.check_parts import Place, directory_of


class RealNames:
    """``base`` is where names are relative to; a name that leads there by a link is, in truth, a relative one."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._home = ""
        self._directories: dict[str, str] = {}

    def directory(self, directory: str) -> str:
        """The true name of a directory, '' for the base directory. Of those in the file system of a session: as it is."""
        known = self._directories.get(directory)
        if known is None:
            self._home = self._home or self._place.real("")
            if directory.startswith(NAMESPACE) or directory == NAMESPACE[:-1]:
                known = directory
            else:
                path = self._place.real(directory)
                inside = f"{self._home.rstrip('/')}/"
                known = "" if path == self._home else path.removeprefix(inside)
            self._directories[directory] = known
        return known

    def of(self, name: str) -> str:
        """The true name of a file with a canonical name."""
        directory = directory_of(name)
        true = self.directory(directory)
        return name if true == directory else f"{true.rstrip('/')}/{name.rpartition('/')[2]}" if true else name.rpartition("/")[2]

    def several(self, *lists: Collection[str]) -> dict[str, list[str]]:
        """True names that are not only themselves -> those of the names that mean them, the linked ones first."""
        directories = {name.rpartition("/")[0] for names in lists for name in names}  # of "/file" it is not, but no link leads to "/"
        moved = {directory for directory in directories if self.directory(directory) != directory}
        if not moved:
            return {}
        given = dict.fromkeys(chain(*lists))
        found: dict[str, list[str]] = {}
        for name in given:
            if directory_of(name) in moved:
                found.setdefault(self.of(name), []).append(name)
        for true, linked in found.items():
            if true in given and true not in linked:
                linked.append(true)
        return {true: linked for true, linked in found.items() if len(linked) > 1}

    def strays(self, written: str, true: str) -> str:
        """Why a name with ".." in it is not what its canonical name ``true`` says, in words; '' if it is."""
        parts = written.split("/")
        if ".." not in parts[1:] or written.startswith(NAMESPACE):
            return ""
        last = parts[-1] in ("..", ".", "")
        there, said = (written, true) if last else (written.rpartition("/")[0], directory_of(true))
        if self.directory(there) == self.directory("" if said == "." else said):
            return ""
        return f"{written!r} leads through a link to another directory than {true!r}; name the file without '..'"
