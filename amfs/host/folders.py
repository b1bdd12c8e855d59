"""Where a user's own files of amfs are kept. Must not know: what they are."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from amfs.errors import SystemSetupError


def home() -> Path:
    """The home directory; of a user who has none (no $HOME, and no name on this machine) a private one for temporary use.
    Raises SystemSetupError."""
    path = Path(os.path.expanduser("~"))
    if path.is_absolute():
        return path
    path = Path(f"/tmp/amfs-{os.getuid()}-home")
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        facts = os.lstat(path)
    except OSError as error:
        raise SystemSetupError(f"no home directory: set HOME (and cannot make {path}: {error.strerror})") from None
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise SystemSetupError(f"no home directory: set HOME ({path} is not a private directory of this user)")
    return path


def state() -> Path:
    """For what is to be remembered: ``$XDG_STATE_HOME``, else ``~/.local/state``. Raises SystemSetupError."""
    return Path(os.environ.get("XDG_STATE_HOME") or home() / ".local" / "state") / "amfs"


def cache() -> Path:
    """For what can be made again: ``$XDG_CACHE_HOME``, else ``~/.cache``. Raises SystemSetupError."""
    return Path(os.environ.get("XDG_CACHE_HOME") or home() / ".cache") / "amfs"
