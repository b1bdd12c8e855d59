"""The library object that the modules of Swift/K's library fill; names that Swift/K knows and that do not exist here."""

from __future__ import annotations

from amfs.swift.builtins import Library

K = Library()

K.refused["java"] = "methods of Java cannot be called here; run java by an app function"
