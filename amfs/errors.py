"""The errors amfs raises on purpose, and the exit codes of its commands.

::

    AmfsError                  exit 1
    ├── UsageError             exit 2   bad command line, bad option value
    ├── WorkflowError          exit 2   faults in a workflow, all of them at once
    ├── SessionError           exit 4   no such session, wrong keys, session gone
    ├── SystemSetupError       exit 5   something this machine lacks; the message says what to do
    └── ProtocolError          exit 70  a peer (or we) broke the protocol
        └── InvalidTransition  exit 70  a machine was told something its table does not list

Exit codes of ``amfs run``: 0 all tasks finished; 1 some failed; 2 the input is faulty, nothing ran; 3 stopped before the end (a node or
the session was lost, --fail-fast); 4 and 5 as above; 130 interrupted by Ctrl-C; 143 terminated.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

#: The longest word, and the longest line, that a message quotes whole; and how much of a longer one is shown.
WORD_MAX, WORD_SHOWN = 1024, 200
LINE_MAX, LINE_SHOWN = 8192, 4096

_LONG_WORD = re.compile(rf"\S{{{WORD_MAX + 1},}}")
_BYTE = re.compile(r"[\udc80-\udcff]|(?<!\\)\\udc[89a-f][0-9a-f]")


def readable(text: str) -> str:
    """Bytes outside of UTF-8, which Python keeps as surrogates, for people: ``\\xff``."""
    if text.isascii() and "\\udc" not in text:
        return text
    return _BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}" if len(found[0]) == 1 else f"\\x{found[0][-2:]}", text)


def brief(text: str) -> str:
    """A message without what nobody reads: of a long word that it quotes, or a long line, the beginning."""
    text = readable(text)
    if len(text) <= WORD_MAX:
        return text
    short = _LONG_WORD.sub(lambda found: f"{found[0][:WORD_SHOWN]}… ({len(found[0]):,} characters)", text)
    return "\n".join(
        line if len(line) <= LINE_MAX else f"{line[:LINE_SHOWN]}… ({len(line):,} characters)" for line in short.split("\n")
    )


def unknown_key(error: Exception, keys: Sequence[str]) -> str:
    """msgspec's fault of an object, in words; of a key that is not among ``keys``, which was meant. For people."""
    found = re.match(r"Object contains unknown field `([^`]*)`", str(error))
    if found is None:
        return str(error).replace(" - at ", ", at ")
    from difflib import get_close_matches  # only for mistakes

    near = get_close_matches(found[1], keys, 1)
    return f"there is no key '{found[1]}'; " + (f"did you mean '{near[0]}'?" if near else f"keys are {', '.join(keys)}")


class AmfsError(Exception):
    """Base of all: ``str(error)`` is one clear message for the person at the prompt."""

    exit_code = 1

    def __str__(self) -> str:
        return brief(super().__str__())


class UsageError(AmfsError):
    exit_code = 2


class Fault(NamedTuple):
    """One thing wrong with a workflow. ``line`` 0: not tied to a line, ``column`` likewise; ``source`` "": not to a text."""

    source: str
    line: int
    message: str
    column: int = 0

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        place += f":{self.column}" if self.column else ""
        return brief(f"{place}: {self.message}" if place else self.message)


#: Faults of one kind that are told one by one, and kinds that are told at all: beyond that they are counted.
TOLD_OF_A_KIND = 5
KINDS_TOLD = 40

#: Parts that differ between faults of one kind: quoted names, ids of tasks, numbers.
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"")
_DETAIL = re.compile(r"\b(task|tasks|job) [^\s:,]+|\d+")


class Telling:
    """Which faults of a list, however long, are told one by one: the first few of each kind. The others are counted."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[Fault, int]] = {}  # source and kind -> the first, and how many
        self._others = 0  # of kinds beyond KINDS_TOLD

    def tells(self, fault: Fault) -> bool:
        """Count one in; whether it is to be told."""
        kind = fault.source, _DETAIL.sub(r"\1", _QUOTED.sub("", fault.message))
        first, count = self._seen.get(kind, (fault, 0))
        if not count and len(self._seen) >= KINDS_TOLD:
            self._others += 1
            return False
        self._seen[kind] = first, count + 1
        return count < TOLD_OF_A_KIND

    def rest(self) -> Iterator[str]:
        """How many more there were, a line for each kind."""
        for first, count in self._seen.values():
            if count > TOLD_OF_A_KIND:
                yield str(Fault(first.source, 0, f"{count - TOLD_OF_A_KIND} more like this: {first.message}"))
        if self._others:
            yield f"{self._others} more faults of other kinds"


class WorkflowError(AmfsError):
    """Faults found in a workflow before anything ran. ``faults`` has all of them; ``str`` gives one line for each of the first few of a
    kind, and counts the others."""

    exit_code = 2

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(faults)
        self.faults = list(faults)

    def __str__(self) -> str:
        return "\n".join(told(self.faults))


def told(faults: Iterable[Fault]) -> Iterator[str]:
    """The lines in which people read a list of faults."""
    telling = Telling()
    yield from (str(fault) for fault in faults if telling.tells(fault))
    yield from telling.rest()


class SessionError(AmfsError):
    exit_code = 4


class SystemSetupError(AmfsError):
    exit_code = 5


_HINTS = {
    errno.EAGAIN: "this user may have no more processes or threads here: raise the limit (ulimit -u), end some, or use fewer slots",
    errno.EMFILE: "this process may have no more open files: raise the limit (ulimit -n)",
    errno.ENFILE: "this machine has no more room for open files",
    errno.ENOMEM: "there is not enough memory here",
}


def hint(text: str) -> str:
    """Advice on a fault of the system that ``text`` names in the system's words, with a colon before it; "" if nothing is known."""
    return next((f": {advice}" for number, advice in _HINTS.items() if os.strerror(number) in text), "")


def in_words(error: OSError) -> str:
    """The system's words for an error: ``fs/vfs``, which does not ask the system, knows its name only (ENOSPC)."""
    number = error.errno
    return os.strerror(number) if number and error.strerror == errno.errorcode.get(number) else error.strerror or str(error)


def understood(error: Exception) -> Exception:
    """An error of amfs that says what to do, in place of one of the system whose cause is known; else ``error`` itself."""
    if isinstance(error, AmfsError):
        return error
    if isinstance(error, FileNotFoundError) and error.filename is None:
        try:
            os.getcwd()
        except FileNotFoundError:
            return UsageError("the current directory does not exist any more; change to one that does")
    if isinstance(error, RuntimeError) and "new thread" in str(error):
        error = OSError(errno.EAGAIN, "cannot start a thread")
    if isinstance(error, MemoryError):
        error = OSError(errno.ENOMEM, "out of memory")
    if isinstance(error, OSError) and error.filename is None and error.errno in _HINTS:
        return SystemSetupError(f"{error.strerror}: {_HINTS[error.errno]}")
    if isinstance(error, OSError) and error.errno is None and (advice := hint(str(error))):  # told by the C code in words
        return SystemSetupError(f"{error}{advice}")
    return error


class ProtocolError(AmfsError):
    exit_code = 70


class InvalidTransition(ProtocolError):
    """``story``: the last events of the thing concerned, oldest first."""

    def __init__(self, machine: str, key: object, state: object, event: object, story: Sequence[object] = ()) -> None:
        tail = "".join(f"\n  {line}" for line in story)
        super().__init__(f"{machine} {key}: no move from {state} on {event}{tail}")
        self.state = state
        self.event = event
