"""Exactly-once, in-order delivery of message batches to one peer, over a channel that may lose, duplicate and reorder. Pure.

Owns sequence numbers, acknowledgements, retransmission, and the judgement that a peer is down or was started anew. Must not know: sockets,
encodings, clocks, the meaning of a message. Both the ZeroMQ transport and the simulator drive it.

A packet names the *incarnation* of its sender (a number that grows with every start of that process) and of the receiver it is meant for. A
pair of incarnations is one stream with sequence numbers from 1. A packet for an earlier incarnation is never delivered to a later one.
Messages travel only when the peer's incarnation is known: told by ``expect`` (membership knows it) or learnt by a hello, which is a packet
without a receiver's incarnation (``target`` 0) and is answered at once.

::

    IDLE ──send──► CONNECTING ──heard──► UP ──renewed──► UP   (unacknowledged messages are dropped and reported)
      └────────────heard────────────────►│
                   CONNECTING, UP ──give up──► DOWN ──renewed──► UP
                   any ──close──► DOWN

A peer that is DOWN stays so for that incarnation: messages for it are dropped, and a packet of it is answered by one that says *closed*. So
a process that was stopped for long learns by the first answer that it has been given up.

Time in which this process itself was stopped does not count as silence of the peer: a timer that fires late shows it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from amfs.errors import InvalidTransition
from amfs.net.weight import weight
from amfs.vocabulary.messages import Message


class Packet(NamedTuple):
    """The unit that crosses the channel: a batch of messages, or none (``seq`` 0), with an acknowledgement."""

    sender: int
    receiver: int
    incarnation: int  # of the sender
    target: int  # incarnation of the receiver for which this is meant; 0: not known yet (a hello)
    seq: int  # 1, 2, …; 0: carries no messages
    ack: int  # every batch up to this one has arrived
    messages: Sequence[Message] = ()
    closed: bool = False  # the sender has given up on this incarnation of the receiver


class Limits(msgspec.Struct, frozen=True):
    """Times in seconds, sizes in batches."""

    ack_delay_s: float = 0.02  # how long an acknowledgement may wait for a batch to ride on
    ack_every: int = 16  # batches after which it waits no longer
    resend_after_s: float = 0.5
    resend_max_s: float = 2.0  # back-off doubles up to this
    resend_batches: int = 64  # at most, at one time-out
    window: int = 256  # unacknowledged batches; also the bound of the reorder buffer
    batch_messages: int = 1024  # in one batch, when a full window made messages wait
    batch_bytes: int = 8 << 20  # about; a message that is larger goes alone
    give_up_s: float = 10.0  # without progress while something is outstanding


class State(enum.Enum):
    IDLE = "idle"
    CONNECTING = "connecting"
    UP = "up"
    DOWN = "down"


class Move(enum.Enum):
    SEND = "send"
    HEARD = "heard"  # the first incarnation that we learn of
    RENEWED = "renewed"  # a later one than the one known
    GIVE_UP = "give up"
    CLOSE = "close"


MOVES: dict[tuple[State, Move], State] = {
    (State.IDLE, Move.SEND): State.CONNECTING,
    (State.IDLE, Move.HEARD): State.UP,
    (State.IDLE, Move.CLOSE): State.DOWN,
    (State.CONNECTING, Move.HEARD): State.UP,
    (State.CONNECTING, Move.GIVE_UP): State.DOWN,
    (State.CONNECTING, Move.CLOSE): State.DOWN,
    (State.UP, Move.RENEWED): State.UP,
    (State.UP, Move.GIVE_UP): State.DOWN,
    (State.UP, Move.CLOSE): State.DOWN,
    (State.DOWN, Move.HEARD): State.UP,  # we gave up on it before we ever heard of it
    (State.DOWN, Move.RENEWED): State.UP,
    (State.DOWN, Move.CLOSE): State.DOWN,
}


class Link:
    """Our end of the connection with one peer. ``now`` is any clock in seconds that does not go back."""

    def __init__(self, peer: int, incarnation: int, own_id: int = 0, limits: Limits | None = None) -> None:
        """``incarnation`` > 0 and ``own_id`` are ours."""
        if incarnation <= 0:
            raise ValueError("an incarnation is a positive number")
        self.peer = peer
        self.own_id = own_id
        self.incarnation = incarnation
        self.limits = limits or Limits()
        self.state = State.IDLE
        self.peer_incarnation = 0  # 0: never heard of
        self.heard_at = 0.0  # when a packet of the peer's present incarnation last arrived, whatever was in it
        self.restarts = 0  # how often the peer was found to be a new incarnation
        self.refused = False  # the peer has given up on us
        self.resent = 0  # batches sent again, for counters
        self.repeated = 0  # batches received again
        self._dropped: list[Message] = []
        # sending
        self._waiting: list[Message] = []  # for the peer's incarnation, or for room in the window
        self._unacked: dict[int, Sequence[Message]] = {}  # by sequence number, without gaps
        self._next_seq = 1
        self._resend_at: float | None = None
        self._backoff_s = self.limits.resend_after_s
        self._progress_at = 0.0  # when something last moved, or began to wait
        # receiving
        self._received = 0  # every batch up to this one was delivered
        self._early: dict[int, Sequence[Message]] = {}  # beyond a gap
        self._ack_at: float | None = None
        self._ack_owed = 0  # batches delivered since we last told

    # ── what the shell calls ───────────────────────────────────────────────────────────────────────

    def send(self, messages: Sequence[Message], now: float) -> list[Packet]:
        """Accept a batch; returns what to put on the channel (nothing while the peer is not known or the window is full)."""
        if not messages:
            return []
        if self.state is State.UP:
            if self._waiting or len(self._unacked) >= self.limits.window:
                self._waiting.extend(messages)
                return []
            if len(messages) == 1 or sum(map(weight, messages)) <= self.limits.batch_bytes:
                return [self._batch(messages, now)]
            self._waiting.extend(messages)
            return self._pump(now)
        if self.state is State.DOWN:
            self._dropped.extend(messages)
            return []
        self._waiting.extend(messages)
        if self.state is State.CONNECTING:
            return []
        self._move(Move.SEND)
        self._progress_at = now
        self._resend_at = now + self._backoff_s
        return [self._hello()]

    def expect(self, incarnation: int, now: float) -> list[Packet]:
        """Membership says which incarnation the peer is: saves the hello. An older one than known is ignored."""
        if incarnation <= self.peer_incarnation:
            return []
        self._adopt(incarnation, now)
        return self._pump(now)

    def receive(self, packet: Packet, now: float) -> tuple[list[Message], list[Packet]]:
        """A packet of this peer arrived. Returns the messages that are now in order, and what to put on the channel."""
        if packet.incarnation < self.peer_incarnation or packet.incarnation <= 0:
            return [], []  # of an earlier life
        if packet.incarnation > self.peer_incarnation:
            self._adopt(packet.incarnation, now)
        elif self.state is State.DOWN:
            return [], [] if packet.closed else [self._closed()]
        self.heard_at = now
        if packet.closed:
            if packet.target == self.incarnation:
                self._move(Move.GIVE_UP)
                self._abandon()
                self.refused = True
            return [], []
        if packet.target != self.incarnation:
            # A hello, or meant for an earlier life of ours: whatever we say tells the peer who we are.
            return [], self._pump(now) or [self._ack()]
        if packet.ack >= self._next_seq:
            return [], self._pump(now)  # acknowledges what was never sent: garbage
        delivered: list[Message] = []
        out: list[Packet] = []
        urgent = False
        if packet.seq:
            urgent = self._take(packet, delivered)
        if packet.ack and self._unacked:
            self._acknowledged(packet.ack, now)
        if self._waiting:
            out = self._pump(now)
        if packet.seq and not out:  # else the batch that leaves has told already
            if urgent or self._ack_owed >= self.limits.ack_every:
                out.append(self._ack())
            elif self._ack_owed and self._ack_at is None:
                self._ack_at = now + self.limits.ack_delay_s
        return delivered, out

    def on_timer(self, now: float) -> list[Packet]:
        """Do what is due; returns what to put on the channel. The state is DOWN afterwards if the peer was given up."""
        due = self.next_timer()
        if due is not None and now - due > self.limits.resend_max_s:
            self._progress_at += now - due
        if self._resend_at is not None and now >= self._progress_at + self.limits.give_up_s:
            self._move(Move.GIVE_UP)
            self._abandon()
            return []
        out: list[Packet] = []
        if self._resend_at is not None and now >= self._resend_at:
            if self.state is State.CONNECTING:
                out.append(self._hello())
            else:
                for seq in list(self._unacked)[: self.limits.resend_batches]:
                    out.append(self._packet(seq, self._unacked[seq]))
                self.resent += len(out)
            self._backoff_s = min(2 * self._backoff_s, self.limits.resend_max_s)
            self._resend_at = now + self._backoff_s
        if self._ack_at is not None and now >= self._ack_at:
            out.append(self._ack())
        return out

    def next_timer(self) -> float | None:
        """When ``on_timer`` wants to be called, if at all."""
        due = self._ack_at
        if self._resend_at is not None:
            resend = min(self._resend_at, self._progress_at + self.limits.give_up_s)
            due = resend if due is None else min(due, resend)
        return due

    def acknowledge(self) -> Packet:
        """The acknowledgement so far, as a packet for the peer, which is UP."""
        return self._ack()

    def close(self) -> None:
        """Forget the peer's present incarnation; messages not acknowledged count as dropped."""
        self._move(Move.CLOSE)
        self._abandon()

    def take_dropped(self) -> list[Message]:
        """Messages that may not have reached the peer, and never will; each is told once."""
        dropped, self._dropped = self._dropped, []
        return dropped

    @property
    def outstanding(self) -> int:
        """Batches and waiting messages that the peer has not acknowledged."""
        return len(self._unacked) + len(self._waiting)

    @property
    def acknowledged(self) -> int:
        """The highest sequence number of ours that the peer has acknowledged."""
        return self._next_seq - 1 - len(self._unacked)

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────

    def _move(self, move: Move) -> None:
        try:
            self.state = MOVES[self.state, move]
        except KeyError:
            raise InvalidTransition("link", self.peer, self.state.value, move.value) from None

    def _adopt(self, incarnation: int, now: float) -> None:
        """The peer is this incarnation from now on; drop what was on the way to the one before."""
        if self.peer_incarnation:
            waiting_for_any = False
            self._move(Move.RENEWED)
            self.restarts += 1
        else:
            waiting_for_any = self.state is State.CONNECTING
            self._move(Move.HEARD)
        kept = self._waiting if waiting_for_any else []
        if waiting_for_any:
            self._waiting = []
        self._abandon()
        self._waiting = kept
        self.peer_incarnation = incarnation
        self.refused = False
        self._next_seq = 1
        self._received = 0
        self._progress_at = now

    def _abandon(self) -> None:
        for messages in self._unacked.values():
            self._dropped.extend(messages)
        self._dropped.extend(self._waiting)
        self._unacked.clear()
        self._waiting = []
        self._early.clear()
        self._next_seq = 1
        self._resend_at = None
        self._backoff_s = self.limits.resend_after_s
        self._ack_at = None
        self._ack_owed = 0

    def _packet(self, seq: int, messages: Sequence[Message]) -> Packet:
        self._ack_at = None
        self._ack_owed = 0
        return Packet(self.own_id, self.peer, self.incarnation, self.peer_incarnation, seq, self._received, messages)

    def _ack(self) -> Packet:
        return self._packet(0, ())

    def _closed(self) -> Packet:
        return Packet(self.own_id, self.peer, self.incarnation, self.peer_incarnation, 0, 0, (), True)

    def _hello(self) -> Packet:
        return Packet(self.own_id, self.peer, self.incarnation, 0, 0, 0)

    def _batch(self, messages: Sequence[Message], now: float) -> Packet:
        seq = self._next_seq
        self._next_seq = seq + 1
        if not self._unacked:
            self._progress_at = now
            self._resend_at = now + self._backoff_s
        self._unacked[seq] = messages
        return self._packet(seq, messages)

    def _pump(self, now: float) -> list[Packet]:
        out = []
        waiting, first = self._waiting, 0
        while first < len(waiting) and len(self._unacked) < self.limits.window:
            size, end = weight(waiting[first]), first + 1
            while end < len(waiting) and end - first < self.limits.batch_messages:
                size += weight(waiting[end])
                if size > self.limits.batch_bytes:
                    break
                end += 1
            out.append(self._batch(waiting[first:end], now))
            first = end
        self._waiting = waiting[first:]
        return out

    def _acknowledged(self, ack: int, now: float) -> None:
        first = self._next_seq - len(self._unacked)
        if ack < first:
            return
        for seq in range(first, ack + 1):
            del self._unacked[seq]
        self._progress_at = now
        self._backoff_s = self.limits.resend_after_s
        self._resend_at = now + self._backoff_s if self._unacked else None

    def _take(self, packet: Packet, delivered: list[Message]) -> bool:
        """Sort a batch in; returns whether the peer should hear of it at once (it repeats itself, or there is a gap)."""
        if packet.seq <= self._received:
            self.repeated += 1
            return True
        if packet.seq > self._received + 1:
            if packet.seq in self._early:
                self.repeated += 1
            elif packet.seq <= self._received + self.limits.window:
                self._early[packet.seq] = packet.messages
            return True
        delivered.extend(packet.messages)
        self._received += 1
        self._ack_owed += 1
        while self._early and (early := self._early.pop(self._received + 1, None)) is not None:
            delivered.extend(early)
            self._received += 1
            self._ack_owed += 1
        return False

    def check_invariants(self) -> None:
        """Raise AssertionError if the parts contradict each other."""
        unacked = list(self._unacked)
        assert unacked == list(range(self._next_seq - len(unacked), self._next_seq)), f"gap in what is unacknowledged: {unacked}"
        assert len(unacked) <= self.limits.window, "window exceeded"
        assert all(self._received + 1 < seq <= self._received + self.limits.window for seq in self._early), "reorder buffer out of bounds"
        assert (self._resend_at is not None) == (bool(unacked) or self.state is State.CONNECTING), "something outstanding without a timer"
        assert (self._ack_at is not None) <= (self._ack_owed > 0), "an acknowledgement timer without a debt"
        if self.state is State.UP:
            assert self.peer_incarnation > 0, "up, but the peer was never heard of"
            assert not self._waiting or len(unacked) == self.limits.window, "messages wait although there is room"
            assert not self._ack_owed or self._ack_at is not None, "an acknowledgement is owed and no timer runs"
        elif self.state is State.CONNECTING:
            assert self._waiting and not unacked and not self.peer_incarnation, "connecting without reason"
        else:
            assert not self._waiting and not unacked and not self._early, f"{self.state} keeps something"
