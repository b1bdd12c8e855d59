"""Paths of the small C programs that come with amfs."""

from __future__ import annotations

import os

from amfs.errors import SystemSetupError


def program(name: str) -> str:
    """Absolute path of the C program ``name``. Raises SystemSetupError when it was not built.

    An editable install keeps sources and built files in two directories, so the whole package path is searched.
    """
    for directory in __path__:
        path = os.path.join(directory, name)
        if os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise SystemSetupError(f"the program {name} is not part of this installation; install amfs again (it needs a C compiler)")
