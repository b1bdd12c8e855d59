"""The common part of mappers: their parameters, and values that stand for files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from amfs.swift.builtins import Failure
from amfs.swift.formats import text_k
from amfs.swift.mapping import Path
from amfs.swift.requests import FileValue


class Parameters:
    """The parameters of one mapper; each is asked for once, and ``finish`` refuses the rest."""

    def __init__(self, mapper: str, given: Mapping[str, Any]) -> None:
        self.mapper = mapper
        self.given = given
        self._known: set[str] = set()

    def value(self, name: str) -> Any:
        """Or None."""
        self._known.add(name)
        return self.given.get(name)

    def needed(self, name: str) -> Any:
        value = self.value(name)
        if value is None:
            self.fail(f"the parameter {name!r} is missing")
        return value

    def text(self, name: str, default: str = "") -> str:
        value = self.value(name)
        return default if value is None else text_k(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.value(name)
        if value is None:
            return default
        if value not in (True, False, "true", "false"):
            self.fail(f"{name} is true or false, and not {text_k(value)}")
        return value in (True, "true")

    def whole(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        if not text.isdecimal() or len(text) > 6:
            self.fail(f"{name} is a whole number, and not {text!r}")
        return int(text)

    def finish(self) -> None:
        for name in self.given:
            if name not in self._known:
                self.fail(f"there is no parameter {name!r}; it has {', '.join(sorted(self._known))}")

    def fail(self, message: str) -> NoReturn:
        raise Failure(f"{self.mapper}: {message}")


def file_names(value: Any) -> list[tuple[Path, str]]:
    """(place, name) of each file in a value: files, strings, arrays and structs of them."""
    found: list[tuple[Path, str]] = []

    def walk(value: Any, path: Path) -> None:
        if isinstance(value, FileValue):
            found.append((path, value.name))
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(item, (*path, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, (*path, index))
        else:
            found.append((path, text_k(value)))

    walk(value, ())
    return found


def files_in(value: Any) -> list[str]:
    """The names of the files in a value, without its strings."""
    if isinstance(value, dict | list):
        return [name for item in (value.values() if isinstance(value, dict) else value) for name in files_in(item)]
    return [value.name] if isinstance(value, FileValue) else []


def shown(path: Path) -> str:
    """As a program writes it: ``[2].field``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path) or "the variable itself"


def in_directory(location: str, name: str) -> str:
    return name if location in ("", ".") else f"{location.rstrip('/') or ''}/{name}"
