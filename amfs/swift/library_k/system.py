"""The world outside: command line, environment, programs that run at once; names of files."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import text_k
from amfs.swift.library_k.registry import K
from amfs.swift.names import directory_of, last_part
from amfs.swift.requests import Arguments, Environment, Execute, Executed, FileValue, Request, Stat


@K.asking("(string o) arg(string name)")
def arg(name: str) -> Generator[Request, Any, str]:
    _, named = yield Arguments()
    if name not in named:
        raise Failure(f"argument -{name} is missing: add -{name}=VALUE after --")
    return str(named[name])


@K.asking("(string o) arg(string name, any default)")
def arg_or(name: str, default: Any) -> Generator[Request, Any, str]:
    _, named = yield Arguments()
    return str(named[name]) if name in named else text_k(default)


@K.asking("(string o[]) args()")
def args() -> Generator[Request, Any, dict[int, str]]:
    return dict(enumerate((yield Arguments())[0]))


@K.asking("(string o) getEnv(string name)", "(string o) env(string name)")
def get_env(name: str) -> Generator[Request, Any, str]:
    value = yield Environment(name)
    return "" if value is None else str(value)


@K.asking("(string o[]) system(string command)")
def system(command: str) -> Generator[Request, Any, dict[int, str]]:
    """The lines that a line for the shell prints."""
    done: Executed = yield Execute(("sh", "-c", command))
    if done.status:
        said = done.stderr.decode(errors="replace").strip()
        raise Failure(f"system: {command!r} ended with exit status {done.status}{': ' + said[-200:] if said else ''}")
    return dict(enumerate(done.stdout.decode(errors="surrogateescape").splitlines()))


# ── files ──────────────────────────────────────────────────────────────────────────────────────────


def names_in(value: Any) -> list[str]:
    """Of all files in the value, in order."""
    if isinstance(value, FileValue):
        return [value.name]
    if isinstance(value, dict):
        return [name for item in value.values() for name in names_in(item)]
    if isinstance(value, str):
        return [value]
    raise Failure(f"{text_k(value)} is no file")


@K.naming("(string o) filename(any f)")
def filename(value: Any) -> str:
    return " ".join(names_in(value))


@K.naming("(string o[]) filenames(any f)")
def filenames(value: Any) -> dict[int, str]:
    return dict(enumerate(names_in(value)))


@K.naming("(string o) dirname(any f)")
def dirname(value: Any) -> str:
    return directory_of(names_in(value)[0])


@K.naming("(string o) basename(any f)")
def basename(value: Any) -> str:
    return last_part(names_in(value)[0])


@K.asking("(boolean o) exists(any f)", names_only=True)
def exists(value: Any) -> Generator[Request, Any, bool]:
    for name in names_in(value):
        if (yield Stat(name)) is None:
            return False
    return True
