"""Mappers by name: ``find("SimpleMapper")``."""

from __future__ import annotations

from amfs.swift.mappers import lists, programs, rules
from amfs.swift.mapping import Mapper

#: Name as ``normal`` makes it -> the mapper.
MAPPERS: dict[str, Mapper] = {
    "singlefilemapper": lists.single_file,
    "fixedarraymapper": lists.fixed_array,
    "arraymapper": lists.array,
    "csvmapper": lists.csv,
    "simplemapper": rules.simple,
    "concurrentmapper": rules.concurrent,
    "filesysmapper": rules.filesys,
    "regexpmapper": rules.regexp,
    "structuredregexpmapper": rules.structured_regexp,
    "ext": programs.external,
    "extmapper": programs.external,
}
#: The parameters of each; None: those of a program of the user.
PARAMETERS: dict[str, frozenset[str] | None] = {
    "singlefilemapper": frozenset(("file",)),
    "fixedarraymapper": frozenset(("files",)),
    "arraymapper": frozenset(("files",)),
    "csvmapper": frozenset(("file", "header", "skip", "hdelim", "delim")),
    "simplemapper": frozenset(("location", "prefix", "suffix", "pattern", "padding", "separator", "noauto")),
    "concurrentmapper": frozenset(("location", "prefix", "suffix", "pattern", "padding", "separator", "noauto")),
    "filesysmapper": frozenset(("location", "prefix", "suffix", "pattern", "noauto")),
    "regexpmapper": frozenset(("source", "match", "transform", "location")),
    "structuredregexpmapper": frozenset(("source", "match", "transform", "location")),
    "ext": None,
    "extmapper": None,
}
#: Parameters that they cannot do without.
NEEDED = {
    "singlefilemapper": "file", "fixedarraymapper": "files", "arraymapper": "files", "csvmapper": "file", "regexpmapper": "source",
    "structuredregexpmapper": "source", "ext": "exec", "extmapper": "exec",
}  # fmt: skip
#: Those that need the content of files among their parameters, and not only the names.
READING = frozenset({"csvmapper", "ext", "extmapper"})
#: As messages name them.
NAMES = (
    "single_file_mapper",
    "simple_mapper",
    "concurrent_mapper",
    "filesys_mapper",
    "fixed_array_mapper",
    "array_mapper",
    "regexp_mapper",
    "structured_regexp_mapper",
    "csv_mapper",
    "ext",
)


def normal(name: str) -> str:
    """``simple_mapper`` and ``SimpleMapper`` are the same."""
    return name.replace("_", "").lower()


def find(name: str) -> Mapper | None:
    return MAPPERS.get(normal(name))
