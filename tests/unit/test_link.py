"""The link machine: its table, and exactly-once in-order delivery over a channel that does everything wrong."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from amfs.errors import InvalidTransition
from amfs.net.link import MOVES, Limits, Link, Move, Packet, State
from amfs.net.weight import weight
from amfs.net.wire import decode, encode
from amfs.vocabulary.attr import Attr, Listed
from amfs.vocabulary.messages import (
    Blob,
    Content,
    FsResponse,
    Locate,
    Message,
    Options,
    PeerRequest,
    Result,
    Results,
    StealAsk,
    Submit,
    TaskSpec,
)  # fmt: skip
from amfs.vocabulary.object_versions import ObjectVersion
from amfs.vocabulary.peer_requests import Insert

LIMITS = Limits(window=4, ack_every=3, resend_batches=3, batch_messages=2)


def batch(*labels: int) -> list[Message]:
    return [StealAsk(want=label) for label in labels]


def labels(messages: list[Message]) -> list[int]:
    return [message.want for message in messages if isinstance(message, StealAsk)]


def pair(limits: Limits = LIMITS) -> tuple[Link, Link]:
    """Two links that know each other already."""
    one, two = Link(2, 100, 1, limits), Link(1, 200, 2, limits)
    assert one.expect(200, 0.0) == [] and two.expect(100, 0.0) == []
    return one, two


def test_a_batch_is_one_packet_and_its_acknowledgement_waits_for_company() -> None:
    one, two = pair()
    (packet,) = one.send(batch(1, 2, 3), 0.0)
    delivered, out = two.receive(packet, 0.0)
    assert labels(delivered) == [1, 2, 3] and out == []
    assert two.next_timer() == LIMITS.ack_delay_s
    (answer,) = two.send(batch(4), 0.01)
    assert answer.ack == 1 and two.next_timer() == pytest.approx(0.51)  # only the resend timer is left
    assert labels(one.receive(answer, 0.01)[0]) == [4]
    assert one.outstanding == 0


def test_large_messages_go_in_several_batches() -> None:
    limits = Limits(batch_bytes=1000)
    one, two = pair(limits)
    messages: list[Message] = [Content(1, (Blob(f"1/{i}", 400, bytes(400)),)) for i in range(5)]
    messages.append(Content(1, (Blob("1/large", 5000, bytes(5000)),)))
    packets = one.send(messages, 0.0)
    assert len(packets) >= 4
    assert all(len(packet.messages) == 1 or sum(map(weight, packet.messages)) <= 1000 for packet in packets)
    assert [message for packet in packets for message in two.receive(packet, 0.0)[0]] == messages


def test_a_message_is_never_much_heavier_than_said() -> None:
    long = ("7/" + "x" * 300,) * 10
    for message in (
        Content(1, (Blob("1/a", 9, bytes(9000)),)), Results(1, (Result(1, detail="x" * 500, stdout=bytes(700), stderr=bytes(70)),)),
        Submit(1, (TaskSpec(1, bytes(800), long, long, long, (1,) * 10),)), FsResponse(1, 0, [[bytes(900), 1], "y" * 99]), Locate(1, long),
        FsResponse(1, 0, {"a": "y" * 900, "z" * 900: [1]}), FsResponse(1, 0, Attr(*[1 << 62] * len(Attr._fields))),
        PeerRequest(1, Insert(1 << 62, b"n" * 900, 1 << 62, 0o100000, False, 0, 0)),
        FsResponse(1, 0, [Listed(b"n" * 900, 1, 2, 3, Attr())] * 9),
        Submit(1, (TaskSpec(1, b"", options=Options(paths={f"in{i}": "/" + "x" * 300 for i in range(9)})),)),
        Submit(1, (TaskSpec(1, b"", options=Options(versions={f"in{i}": ObjectVersion(1 << 60, "x" * 300) for i in range(9)})),)),
    ):  # fmt: skip
        assert len(encode(Packet(1, 2, 1, 1, 1, 0, [message]))) <= weight(message)


def test_without_company_the_acknowledgement_leaves_by_itself() -> None:
    one, two = pair()
    two.receive(one.send(batch(1), 0.0)[0], 0.0)
    assert two.on_timer(0.019) == []
    (ack,) = two.on_timer(0.02)
    assert (ack.seq, ack.ack) == (0, 1)
    assert one.receive(ack, 0.02) == ([], [])
    assert one.outstanding == 0 and one.next_timer() is None and two.next_timer() is None


def test_many_batches_are_acknowledged_before_the_delay() -> None:
    one, two = pair()
    acks = [packet for label in range(4) for packet in two.receive(one.send(batch(label), 0.0)[0], 0.0)[1]]
    assert [ack.ack for ack in acks] == [LIMITS.ack_every]


def test_first_contact_takes_a_hello_and_keeps_the_order() -> None:
    one, two = Link(2, 100, 1, LIMITS), Link(1, 200, 2, LIMITS)
    (hello,) = one.send(batch(1), 0.0)
    assert hello == Packet(1, 2, 100, 0, 0, 0, ())
    assert one.send(batch(2), 0.0) == []
    _, (answer,) = two.receive(hello, 0.0)
    _, packets = one.receive(answer, 0.0)
    assert [label for packet in packets for label in labels(two.receive(packet, 0.0)[0])] == [1, 2]


def test_who_was_given_up_is_told_when_it_speaks() -> None:
    one, two = pair()
    two.close()
    _, (answer,) = two.receive(one.send(batch(1), 0.0)[0], 0.0)
    assert answer.closed and decode(bytes(encode(answer))) == answer
    assert one.receive(answer, 0.0) == ([], [])
    assert one.state is State.DOWN and one.refused and one.take_dropped()
    back = answer._replace(sender=1, receiver=2, incarnation=100, target=200)
    assert two.receive(back, 0.0) == ([], []), "two that are closed fall silent"


def test_to_be_closed_is_believed_of_this_life_only() -> None:
    one, two = pair()
    two.close()
    _, (answer,) = two.receive(one.send(batch(1), 0.0)[0], 0.0)
    one.receive(answer._replace(target=99), 0.0)
    assert one.state is State.UP


def test_a_process_that_was_stopped_gives_its_peers_another_chance() -> None:
    one, _ = pair()
    one.send(batch(1), 0.0)
    due = one.next_timer()
    assert due is not None
    assert one.on_timer(due + 60.0), "it sends again rather than give up"
    assert one.state is State.UP
    while one.state is State.UP:
        due = one.next_timer()
        assert due is not None and due < 60.0 + 2 * LIMITS.give_up_s
        one.on_timer(due)


def test_a_full_window_holds_messages_back_and_merges_them() -> None:
    one, two = pair()
    packets = [packet for label in range(LIMITS.window) for packet in one.send(batch(label), 0.0)]
    assert one.send(batch(10), 0.0) == one.send(batch(11), 0.0) == []
    acks = [two.receive(packet, 0.0)[1] for packet in packets]
    _, more = one.receive(next(ack for ack in acks if ack)[0], 0.1)
    assert [labels(list(packet.messages)) for packet in more] == [[10, 11]]


def test_duplicates_and_reordering_do_not_show() -> None:
    one, two = pair()
    first, second, third = (one.send(batch(label), 0.0)[0] for label in (1, 2, 3))
    assert two.receive(third, 0.0)[0] == []
    assert two.receive(third, 0.0)[0] == []
    assert labels(two.receive(first, 0.0)[0]) == [1]
    assert labels(two.receive(second, 0.0)[0]) == [2, 3]
    assert two.receive(second, 0.0)[0] == []
    assert two.repeated == 2


def test_gaps_and_repetitions_are_answered_at_once() -> None:
    one, two = pair()
    first, second = (one.send(batch(label), 0.0)[0] for label in (1, 2))
    assert [packet.ack for packet in two.receive(second, 0.0)[1]] == [0]  # there is a gap
    assert two.receive(first, 0.0)[1] == []  # it is filled: this can wait
    assert [packet.ack for packet in two.receive(first, 0.0)[1]] == [2]  # the sender must have missed something


def test_a_batch_beyond_the_reorder_buffer_is_not_kept() -> None:
    one, two = pair()
    far = one.send(batch(1), 0.0)[0]._replace(seq=LIMITS.window + 1 + 1)
    assert two.receive(far, 0.0)[0] == []
    two.check_invariants()
    assert not two._early


def test_resends_back_off_and_end_in_down() -> None:
    one, _ = pair()
    one.send(batch(1), 0.0)
    times = []
    while (due := one.next_timer()) is not None:
        for packet in one.on_timer(due):
            times.append((round(due, 3), packet.seq))
    assert times == [(0.5, 1), (1.5, 1), (3.5, 1), (5.5, 1), (7.5, 1), (9.5, 1)]
    assert one.state is State.DOWN and labels(one.take_dropped()) == [1] and one.take_dropped() == []
    assert one.send(batch(2), 11.0) == [] and labels(one.take_dropped()) == [2]


def test_a_new_incarnation_gets_nothing_that_was_meant_for_the_old_one() -> None:
    one, two = pair()
    lost = one.send(batch(1, 2), 0.0)[0]
    reborn = Link(1, 201, 2, LIMITS)
    delivered, (answer,) = reborn.receive(lost, 0.1)
    assert delivered == [] and answer.incarnation == 201
    one.receive(answer, 0.1)
    assert one.restarts == 1 and labels(one.take_dropped()) == [1, 2]
    assert labels(reborn.receive(one.send(batch(3), 0.2)[0], 0.2)[0]) == [3]
    # and the old one, should it still talk, is not listened to
    assert one.receive(two.send(batch(9), 0.3)[0], 0.3) == ([], [])


def test_an_acknowledgement_of_what_was_never_sent_is_ignored() -> None:
    one, _ = pair()
    one.send(batch(1), 0.0)
    assert one.receive(Packet(2, 1, 200, 100, 1, 7, batch(5)), 0.0) == ([], [])
    assert one.outstanding == 1
    one.check_invariants()


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("move", list(Move))
def test_every_pair_of_the_table(state: State, move: Move) -> None:
    link = Link(2, 100, 1)
    link.state = state
    if (state, move) in MOVES:
        link._move(move)
        assert link.state is MOVES[state, move]
    else:
        with pytest.raises(InvalidTransition, match=f"link 2: no move from {state.value} on {move.value}"):
            link._move(move)


@pytest.mark.parametrize("incarnation", [0, -1])
def test_an_incarnation_must_be_positive(incarnation: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        Link(2, incarnation)


class LossyChannel(RuleBasedStateMachine):
    """Two ends, a channel that loses, repeats and reorders, a clock, and now and then a new incarnation of an end.

    Messages carry rising numbers. Messages that one incarnation delivers from another must be consecutive among those that it sent.
    """

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.counter = 0
        self.lives = [1, 1]
        self.ends = [Link(1 - end, 1, end, LIMITS) for end in (0, 1)]
        self.channel: tuple[list[Packet], list[Packet]] = ([], [])  # to each end
        self.sent: dict[tuple[int, int], list[int]] = {}  # (end, its life) -> labels in order
        self.delivered: dict[tuple[int, int, int], list[int]] = {}  # (receiver, its life, sender's life) -> labels
        self.dropped: dict[tuple[int, int], set[int]] = {}
        self.disturbed = False

    def emit(self, end: int, packets: list[Packet]) -> None:
        assert all(packet.sender == end and packet.receiver == 1 - end and packet.incarnation == self.lives[end] for packet in packets)
        self.channel[1 - end].extend(packets)

    def collect(self, end: int) -> None:
        dropped = labels(self.ends[end].take_dropped())
        self.dropped.setdefault((end, self.lives[end]), set()).update(dropped)

    @rule(end=st.integers(0, 1), size=st.integers(1, 3))
    def send(self, end: int, size: int) -> None:
        numbers = list(range(self.counter, self.counter + size))
        self.counter += size
        self.sent.setdefault((end, self.lives[end]), []).extend(numbers)
        self.emit(end, self.ends[end].send(batch(*numbers), self.now))
        self.collect(end)

    def arrive(self, end: int, packet: Packet) -> None:
        messages, packets = self.ends[end].receive(packet, self.now)
        if messages:
            self.delivered.setdefault((end, self.lives[end], packet.incarnation), []).extend(labels(messages))
        self.emit(end, packets)
        self.collect(end)

    @rule(end=st.integers(0, 1), data=st.data(), repeat=st.booleans())
    def deliver(self, end: int, data: st.DataObject, repeat: bool) -> None:
        if self.channel[end]:
            place = data.draw(st.integers(0, len(self.channel[end]) - 1))
            packet = self.channel[end][place] if repeat else self.channel[end].pop(place)
            self.arrive(end, packet)

    @rule(end=st.integers(0, 1), data=st.data())
    def lose(self, end: int, data: st.DataObject) -> None:
        if self.channel[end]:
            self.channel[end].pop(data.draw(st.integers(0, len(self.channel[end]) - 1)))

    @rule(step=st.sampled_from([0.01, 0.3, 1.0, 4.0]))
    def wait(self, step: float) -> None:
        self.now += step
        for end in (0, 1):
            before = self.ends[end].state
            self.emit(end, self.ends[end].on_timer(self.now))
            self.disturbed |= self.ends[end].state is State.DOWN and before is not State.DOWN
            self.collect(end)

    @rule(end=st.integers(0, 1))
    def restart(self, end: int) -> None:
        self.disturbed = True
        self.lives[end] += 1
        self.ends[end] = Link(1 - end, self.lives[end], end, LIMITS)

    @rule(end=st.integers(0, 1))
    def told_by_membership(self, end: int) -> None:
        self.emit(end, self.ends[end].expect(self.lives[1 - end], self.now))
        self.collect(end)

    @invariant()
    def delivers_runs_of_what_was_sent(self) -> None:
        if not hasattr(self, "ends"):
            return
        for end in self.ends:
            end.check_invariants()
        for (receiver, _, life), got in self.delivered.items():
            sent = self.sent[1 - receiver, life]
            first = sent.index(got[0])
            assert got == sent[first : first + len(got)]

    def teardown(self) -> None:
        """Heal the channel: everything sent by the living was delivered, or is reported, and nothing stays outstanding."""
        if not hasattr(self, "ends"):
            return
        spoke = [False, False]  # since it is healed
        for _ in range(400):
            for end in (0, 1):
                while self.channel[end]:
                    self.arrive(end, self.channel[end].pop(0))
            if any(self.channel):
                continue  # time passes only when all has arrived: an answer on its way must not come after its sender was given up
            due = [timer for link in self.ends if (timer := link.next_timer()) is not None]
            if not due:
                break
            self.now = max(self.now, min(due))
            for end in (0, 1):
                up = self.ends[end].state is not State.DOWN
                packets = self.ends[end].on_timer(self.now)
                spoke[end] |= bool(packets)
                # Its time may be up before it has had another try.
                self.disturbed |= up and self.ends[end].state is State.DOWN and not spoke[end]
                self.emit(end, packets)
                self.collect(end)
        else:
            raise AssertionError("the links never come to rest")
        for end in (0, 1):
            life = self.lives[end]
            assert self.ends[end].outstanding == 0
            got = {label for (to, _, of), run in self.delivered.items() if to != end and of == life for label in run}
            assert set(self.sent.get((end, life), [])) == got | self.dropped.get((end, life), set())
            if not self.disturbed:
                assert not self.dropped.get((end, life))
        self.delivers_runs_of_what_was_sent()


LossyChannel.TestCase.settings = settings(max_examples=75, stateful_step_count=60, deadline=None)
TestLossyChannel = LossyChannel.TestCase
