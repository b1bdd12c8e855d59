"""The signals that end this process, SIGINT, SIGTERM and SIGHUP, in its main thread. Must not know: what the process does."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.01  # after which a callback has ended in which an interrupt was lost


def exit_on_end() -> None:
    """From now on SIGTERM and SIGHUP raise SystemExit, so that files made are removed. The second one ends the process at once."""

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has it ignored
            signal.signal(number, leave)


def keep_interrupts() -> None:
    """From now on a Ctrl-C comes again if Python drops it: in a callback of its garbage collector, such as any import may run."""
    if sys.unraisablehook is not sys.__unraisablehook__:
        return

    def again() -> None:
        time.sleep(_AGAIN_S)
        os.kill(os.getpid(), signal.SIGINT)

    def heard(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            _thread.start_new_thread(again, ())
        else:
            sys.__unraisablehook__(dropped)

    sys.unraisablehook = heard


@contextlib.contextmanager
def as_exits() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit meanwhile. Nothing happens in another thread than the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """A signal that would end the process waits until this is over: for a beginning whose half nobody could remove.

    Nothing happens in another thread than the main one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: handler for number in _ENDING if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
