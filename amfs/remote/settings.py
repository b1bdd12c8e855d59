"""Settings by which a storage is reached: endpoints, keys, profiles, and options of its library, by the beginning of URLs.

Owns the file of settings (``--storage``, else ``$AMFS_STORAGE``, else ``~/.config/amfs/storage.toml``). Without one the environment and the
usual files of the storage count. Nothing of it goes into a message, a journal or a log.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amfs.errors import UsageError

_TEXTS = ("endpoint", "region", "access_key_id", "secret_access_key", "session_token", "profile", "certificate")
#: Names in a section on an object store, and their types; everything else belongs into its table ``options``.
NAMES: dict[str, type] = {**dict.fromkeys(_TEXTS, str), "anonymous": bool, "path_style": bool, "options": dict}
_TYPES = {str: "a text in quotation marks", bool: "true or false, without quotation marks", dict: "a table: { name = value }"}


class Settings:
    """By the longest beginning that fits a URL."""

    def __init__(self, sections: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._sections = dict(sections or {})

    def pack(self) -> bytes:
        """For the nodes, which have another environment and other files."""
        import json  # this module is loaded by every run, and few meet a URL

        return json.dumps({start: explicit(start, section) for start, section in {"s3://": {}, **self._sections}.items()}).encode()

    def of(self, url: str) -> Mapping[str, Any]:
        """The section of ``url``; empty if none fits."""
        fitting = [start for start in self._sections if url.startswith(start)]
        return self._sections[max(fitting, key=len)] if fitting else {}


def load(path: str | os.PathLike[str] | None = None) -> Settings:
    """The settings in ``path``, or in the usual place. Raises UsageError."""
    import tomllib

    given = os.fspath(path) if path else os.environ.get("AMFS_STORAGE", "")
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    file = Path(given or os.path.join(home, "amfs", "storage.toml"))
    try:
        text = file.read_text(encoding="utf-8")
        mode = file.stat().st_mode
    except FileNotFoundError:
        if given:
            raise UsageError(f"{given}: no such file of storage settings") from None
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {_unreadable(error)}") from None
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
    for name, value in section.items():
        if name not in NAMES:
            raise UsageError(f"{file}: [\"{start}\"] has '{name}'; known are {', '.join(sorted(NAMES))}")
        if not isinstance(value, NAMES[name]):
            raise UsageError(f"{file}: [\"{start}\"] {name} must be {_TYPES[NAMES[name]]}")
    if "secret_access_key" in section and stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"{file}: holds a secret key, and others may read it; type: chmod 600 {file}")


def _unreadable(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "is not text in UTF-8"


def unpack(packed: bytes) -> Settings:
    import json

    return Settings(json.loads(packed) if packed else {})


def explicit(start: str, section: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section, with all that this process knows by its environment and files. Raises UsageError."""
    if "certificate" in section:
        section = {**section, "certificates": certificates(section)}
    if not start.startswith(("s3:", "s3a:")):
        known = {name.lower(): value for name, value in os.environ.items() if name.startswith(("GOOGLE_", "AZURE_"))}
        return {**section, "options": {**known, **section.get("options", {})}}
    return {**section, "options": s3_config(section)}


def certificates(given: Mapping[str, Any]) -> str:
    """Of authorities that are to be trusted beside the usual ones; "" if none. Raises UsageError."""
    if "certificates" in given:  # from another process
        return str(given["certificates"])
    file = given.get("certificate") or os.environ.get("AWS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
    if not file:
        return ""
    try:
        text = Path(file).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {_unreadable(error)}") from None
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise UsageError(f"{file}: holds no certificates (PEM)") from None
    return text


def s3_config(given: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration for obstore: by settings, else the environment, else the usual files. Raises UsageError."""
    profile: dict[str, str] = {}
    if given.get("profile") or not ("access_key_id" in given or os.environ.get("AWS_ACCESS_KEY_ID") or given.get("anonymous")):
        profile = aws_profile(given.get("profile", ""))
        if not profile and (name := given.get("profile") or os.environ.get("AWS_PROFILE")):
            raise UsageError(f"the files of AWS have no profile '{name}'")
    environment = {} if given.get("profile") else os.environ
    config: dict[str, Any] = {}
    for name, variable, entry in (
        ("endpoint", "AWS_ENDPOINT_URL", "endpoint_url"),
        ("region", "AWS_REGION", "region"),
        ("access_key_id", "AWS_ACCESS_KEY_ID", "aws_access_key_id"),
        ("secret_access_key", "AWS_SECRET_ACCESS_KEY", "aws_secret_access_key"),
        ("session_token", "AWS_SESSION_TOKEN", "aws_session_token"),
    ):
        value = given.get(name) or environment.get(variable) or profile.get(entry)
        if name == "session_token" and "access_key_id" in given:
            value = given.get(name)  # another one's would be that of other keys
        if value:
            config[name] = value
    config.setdefault("region", os.environ.get("AWS_DEFAULT_REGION", "us-east-1"))
    if given.get("anonymous"):
        config["skip_signature"] = "true"
    # Servers other than that of AWS know buckets by the path, not by the name of the host.
    by_path = given.get("path_style", "endpoint" in config)
    config["virtual_hosted_style_request"] = "false" if by_path else "true"
    return {**config, **given.get("options", {})}


def aws_profile(name: str) -> dict[str, str]:
    """Keys, region and endpoint of a profile in the usual files of AWS; ``name`` "": that of the environment, else "default"."""
    import configparser

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
