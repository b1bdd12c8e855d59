"""The library of Swift/T: ``T`` has all its functions. Importing a module (``import string;``) changes nothing: they are there anyway."""

from amfs.swift.library_t import checks, containers, files, json, matrix, numbers, places, strings, system
from amfs.swift.library_t.registry import T

__all__ = ["T", "checks", "containers", "files", "json", "matrix", "numbers", "places", "strings", "system"]
