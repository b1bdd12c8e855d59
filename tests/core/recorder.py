"""A strict recorder around one pure machine.

It feeds events, checks the machine's invariants after every one of them, and keeps what was answered until a test takes it. Every message,
told or sent, crosses the wire format first, so that each test is a test of the encoding as well. Timers run on a virtual clock. What
nobody took fails the test that caused it (``nothing_left``).
"""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from amfs.engine.machine import Machine
from amfs.net.link import Packet
from amfs.net.wire import decode, encode
from amfs.vocabulary.events import CancelTimer, Effect, Event, Log, Received, Send, SetTimer, TimerFired
from amfs.vocabulary.messages import Message

M = TypeVar("M", bound=Message)
E = TypeVar("E")
T = TypeVar("T", bound=Machine)


def over_the_wire(message: M, sender: int = 0, receiver: int = 0) -> M:
    """The message as it arrives at the other side."""
    packet = Packet(sender, receiver, 1, 1, 1, 0, (message,))
    arrived = decode(encode(packet))
    assert list(arrived.messages) == [message], f"{message} became {arrived.messages} on the wire"
    (decoded,) = arrived.messages
    assert isinstance(decoded, type(message))
    return decoded


class Recorder(Generic[T]):
    """``tell`` and ``feed`` put events in; ``take``, ``take_all`` and ``effect`` get answers out; ``nothing_left`` ends a story."""

    def __init__(self, machine: T, now: float = 100.0) -> None:
        self.machine = machine
        self.now = now
        self.sent: list[tuple[int, Message]] = []
        self.effects: list[Effect] = []  # other than messages, timers and log lines
        self.timers: dict[object, float] = {}
        self.logs: list[str] = []

    # ── in ─────────────────────────────────────────────────────────────────────────────────────────

    def tell(self, peer: int, *messages: Message) -> Self:
        """``peer`` says these."""
        for message in messages:
            self.feed(Received(peer, over_the_wire(message, peer, self.machine.node)))
        return self

    def feed(self, event: Event) -> Self:
        self._answer(self.machine.handle(event, self.now))
        return self

    def advance(self, seconds: float) -> Self:
        """Let time pass; timers that become due fire in their order, each at its own time."""
        end = self.now + seconds
        while True:
            key, at = min(self.timers.items(), key=lambda timer: timer[1], default=(None, end))
            if key is None or at > end:
                break
            self.now = at
            del self.timers[key]
            self.feed(TimerFired(key))
        self.now = end
        return self

    def _answer(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                assert effect.to >= 0, f"{effect.message} is for nobody"
                self.sent.append((effect.to, over_the_wire(effect.message, self.machine.node, effect.to)))
            elif isinstance(effect, SetTimer):
                assert effect.at >= self.now, "a timer in the past"
                self.timers[effect.key] = effect.at
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
            elif isinstance(effect, Log):
                self.logs.append(effect.text)
            else:
                self.effects.append(effect)
        self.machine.check_invariants()

    # ── out ────────────────────────────────────────────────────────────────────────────────────────

    def take_all(self, kind: type[M], to: int | None = None) -> list[tuple[int, M]]:
        """All messages of a kind (for one receiver), in order: (receiver, message)."""
        taken: list[tuple[int, M]] = []
        left: list[tuple[int, Message]] = []
        for peer, message in self.sent:
            if isinstance(message, kind) and to in (None, peer):
                taken.append((peer, message))
            else:
                left.append((peer, message))
        self.sent = left
        return taken

    def take(self, kind: type[M], to: int | None = None) -> M:
        """The one message of a kind (for one receiver)."""
        taken = self.take_all(kind, to)
        assert len(taken) == 1, f"{len(taken)} messages {kind.__name__} for {'anybody' if to is None else to}: {taken}; others: {self.sent}"
        return taken[0][1]

    def effect(self, kind: type[E]) -> E:
        """The one effect of a kind."""
        taken = self.effects_of(kind)
        assert len(taken) == 1, f"{len(taken)} effects {kind.__name__}: {taken}; others: {self.effects}"
        return taken[0]

    def effects_of(self, kind: type[E]) -> list[E]:
        """All effects of a kind, in order."""
        taken: list[E] = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, kind)]
        return taken

    def nothing_left(self) -> Self:
        """Nothing was said or asked for that the test has not taken."""
        assert not self.sent, f"nobody expected {self.sent}"
        assert not self.effects, f"nobody expected {self.effects}"
        return self

    def forget(self) -> Self:
        """The test is not about the messages so far."""
        self.sent.clear()
        self.effects.clear()
        return self

    def forget_messages(self) -> Self:
        """Likewise, but effects are."""
        self.sent.clear()
        return self
