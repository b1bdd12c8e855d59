"""Batch systems as data: what ``--on`` names. Owns the form of a system's file and the shipped ones; runs nothing."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from amfs.errors import UsageError

HERE = Path(__file__).parent
SHIPPED = tuple(sorted(path.stem for path in HERE.glob("*.toml")))


class System(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One batch system. Commands are lists of words, in which ``{name}`` stands for a value."""

    inside: str  # the environment variable that is set within a job
    hosts: tuple[str, ...]  # prints the hosts of the job
    launch: tuple[str, ...]  # runs a command on {count} of them, {hosts} with commas between
    tasks: str = ""  # the variable that says how many copies of this command the system runs
    name: str = ""

    def is_inside(self, environ: Mapping[str, str]) -> bool:
        """Whether a process with this environment is in a job of the system."""
        return bool(environ.get(self.inside))

    def copies(self, environ: Mapping[str, str]) -> int:
        """How many processes the system has started for the command that this process runs."""
        text = environ.get(self.tasks, "")
        return int(text) if text.isdecimal() else 1

    def launcher(self, hosts: Sequence[str]) -> list[str]:
        """The words before a command that is to run once on each of ``hosts``."""
        values = {"count": str(len(hosts)), "hosts": ",".join(hosts)}
        return [word.format_map(values) for word in self.launch]


def load(name: str) -> System:
    """A shipped system by its name, or the one in a file (a path with a slash, or ``*.toml``). Raises UsageError."""
    path = Path(name) if "/" in name or name.endswith(".toml") else HERE / f"{name}.toml"
    try:
        found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), type=System)
        for command in (found.hosts, found.launch):
            if not command:
                raise ValueError("a command has no words")
        found.launcher(["host"])
    except FileNotFoundError:
        raise UsageError(f"--on {name}: no such system; there are local, {', '.join(SHIPPED)}, or the path of a file") from None
    except OSError as error:
        raise UsageError(f"--on {name}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError, ValueError, KeyError, IndexError) as error:
        raise UsageError(f"--on {path}: not the description of a batch system: {error}") from None
    return msgspec.structs.replace(found, name=path.stem)


def around(environ: Mapping[str, str] | None = None) -> System | None:
    """The system in one of whose jobs this process is, if any."""
    environ = os.environ if environ is None else environ
    return next((system for system in map(load, SHIPPED) if system.is_inside(environ)), None)
