"""What reaches a storage: endpoints, keys, profiles, and options of its library, by the beginning of URLs.

Owns the file of settings (``--storage``, else ``$AMFS_STORAGE``, else ``~/.config/amfs/storage.toml``). Without one the environment and the
usual files of the storage count. Nothing of it goes into a message, a journal or a log.
"""

from __future__ import annotations

import configparser
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amfs.errors import UsageError

#: What a section may say of an object store; everything else belongs into its table ``options``.
NAMES = frozenset(
    ("endpoint", "region", "access_key_id", "secret_access_key", "session_token", "profile", "anonymous", "path_style", "options")
)


class Settings:
    """By the longest beginning that fits a URL."""

    def __init__(self, sections: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._sections = dict(sections or {})

    def of(self, url: str) -> Mapping[str, Any]:
        """The section of ``url``; empty if none fits."""
        fitting = [start for start in self._sections if url.startswith(start)]
        return self._sections[max(fitting, key=len)] if fitting else {}


def load(path: str | os.PathLike[str] | None = None) -> Settings:
    """The settings in ``path``, or in the usual place. Raises UsageError."""
    given = os.fspath(path) if path else os.environ.get("AMFS_STORAGE", "")
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    file = Path(given or os.path.join(home, "amfs", "storage.toml"))
    try:
        text = file.read_text()
        mode = file.stat().st_mode
    except FileNotFoundError:
        if given:
            raise UsageError(f"{given}: no such file of storage settings") from None
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    try:
        sections = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: {error}") from None
    for start, section in sections.items():
        _check(file, start, section, mode)
    return Settings(sections)


def _check(file: Path, start: str, section: Any, mode: int) -> None:
    if not isinstance(section, dict) or "://" not in start:
        raise UsageError(f"{file}: '{start}' is no section of storage settings: each is the beginning of URLs, such as [\"s3://bucket/\"]")
    for name in section:
        if name not in NAMES:
            raise UsageError(f"{file}: [\"{start}\"] has '{name}'; known are {', '.join(sorted(NAMES))}")
    if "secret_access_key" in section and stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"{file}: holds a secret key, and others may read it; type: chmod 600 {file}")


def aws_profile(name: str) -> dict[str, str]:
    """Keys, region and endpoint of a profile in the usual files of AWS; ``name`` "": that of the environment, else "default"."""
    name = name or os.environ.get("AWS_PROFILE", "default")
    found: dict[str, str] = {}
    for variable, usual, section in (
        ("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    ):
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(os.environ.get(variable) or os.path.expanduser(usual))
        except configparser.Error as error:
            raise UsageError(f"the files of AWS cannot be read: {error}") from None
        if parser.has_section(section):
            found.update(parser.items(section))
    return found
