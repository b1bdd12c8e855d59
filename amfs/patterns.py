"""Regular expressions that are compiled when they are first used: compiling one takes up to milliseconds, and a command uses few."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """In place of ``re.compile`` at the top of a module."""
    return cast("re.Pattern[AnyStr]", _Pattern(text, flags))


class _Pattern:
    def __init__(self, text: Any, flags: int) -> None:
        self._given = text, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._given), name)
        setattr(self, name, value)
        return value
