"""The base of all machines: they take events, answer with effects, and send in batches. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from amfs.errors import ProtocolError
from amfs.vocabulary.events import CancelTimer, Effect, Event, Log, Received, Send, SetTimer
from amfs.vocabulary.messages import Message


class GoneRuns:
    """Runs that ended lately. Messages still on their way for them must not make anything of them come back."""

    __slots__ = ("_numbers",)

    REMEMBERED = 1000

    def __init__(self) -> None:
        self._numbers: dict[int, None] = {}  # oldest first

    def add(self, run: int) -> None:
        self._numbers[run] = None
        while len(self._numbers) > self.REMEMBERED:
            del self._numbers[next(iter(self._numbers))]

    def __contains__(self, run: int) -> bool:
        return run in self._numbers


class Machine:
    """Base of the pure machines.

    ``handle`` is the only way in. A subclass lists its handlers in ``on_message`` (by message type: ``(peer, message)``) and
    ``on_event`` (by event type: ``(event)``); they append to ``out`` through the helpers. ``now`` is the time of the event being
    handled, in seconds of the shell's monotonic clock; no machine asks a clock.
    """

    def __init__(self, node: int) -> None:
        self.node = node
        self.now = 0.0
        self.out: list[Effect] = []
        self.on_message: dict[type, Callable[[int, Any], None]] = {}
        self.on_event: dict[type, Callable[[Any], None]] = {}

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event, return what is to be done about it. Raises ProtocolError for what this machine does not know."""
        self.now = now
        if isinstance(event, Received):
            on_message = self.on_message.get(type(event.message))
            if on_message is None:
                raise ProtocolError(f"{type(self).__name__} got {type(event.message).__name__}, which is not for it")
            on_message(event.peer, event.message)
        else:
            on_event = self.on_event.get(type(event))
            if on_event is None:
                raise ProtocolError(f"{type(self).__name__} got {type(event).__name__}, which is not for it")
            on_event(event)
        self.flush()
        out = self.out
        self.out = []
        return out

    def flush(self) -> None:
        """Turn what was gathered while handling into messages; subclasses that gather override it."""

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. Called after every event in tests and in the simulator."""

    def send(self, to: int, message: Message) -> None:
        self.out.append(Send(to, message))

    def set_timer(self, key: object, delay_s: float) -> None:
        self.out.append(SetTimer(key, self.now + delay_s))

    def cancel_timer(self, key: object) -> None:
        self.out.append(CancelTimer(key))

    def log(self, text: str, level: int = logging.INFO) -> None:
        self.out.append(Log(level, text))
