"""One file that is open on this node, about to be, or was written there: the record, and its states. Pure."""

from __future__ import annotations

from amfs.vocabulary.attr import Facts
from amfs.vocabulary.states import OPEN_NEXT, OpenEvent, OpenState, illegal

_MOUNTS = "mounts"


def _user(endpoint: object) -> object:
    """The mounts of this node are one user: they have one table of open files, and say together when the last handle is closed."""
    return _MOUNTS if isinstance(endpoint, tuple) and endpoint[0] == "fuse" else endpoint


class OpenFile:
    """One file on this node. ``vocabulary.states.OpenState`` says what the states mean."""

    __slots__ = ("brought", "copies", "ino", "opening", "opening_to_write", "proxy", "said", "state", "stripe", "unreported", "users")

    def __init__(self, ino: int) -> None:
        self.ino = ino
        self.state = OpenState.IDLE
        self.users: dict[object, list[int]] = {}  # endpoint, or all mounts -> [readers, writers]: handles given out here
        self.opening = 0  # openings under way here
        self.opening_to_write = 0  # those of them that may write
        self.proxy = 0  # the handle that this node holds open because others write through it; 0: none
        self.unreported = False  # a writing handle was closed
        self.said: Facts | None = None  # the facts by the writing handle closed last
        self.stripe = 0  # it has outgrown this node, and lies in stripes of so many bytes; its record does not say so yet
        self.brought = False  # its content lies here for an opening that is under way
        self.copies = 1  # how many nodes shall have it, as its record said last

    def move(self, event: OpenEvent) -> None:
        after = OPEN_NEXT[self.state][event]
        if after is None:
            raise illegal("open file", hex(self.ino), self.state, event)
        self.state = after

    @property
    def has_writer(self) -> bool:
        """Does a handle given out here write it, or one of another node through this one?"""
        return bool(self.proxy) or any(counts[True] for counts in self.users.values())

    @property
    def is_forgettable(self) -> bool:
        return self.state is OpenState.IDLE and not (self.users or self.opening or self.stripe or self.brought)

    # ── moves ──────────────────────────────────────────────────────────────────────────────────────

    def end_fetch(self) -> None:
        """An opening to write has ended. The handles and proxies that came meanwhile count from now on."""
        if self.state is OpenState.FETCHING:
            self.move(OpenEvent.FETCH_ENDED)
            if self.proxy:
                self.move(OpenEvent.PROXY_OPENED)
            elif self.unreported:
                self.move(OpenEvent.WRITER_CLOSED)
            elif self.has_writer:
                self.move(OpenEvent.OPENED_TO_WRITE)

    def use(self, endpoint: object, writing: bool) -> None:
        """A handle is given out."""
        self.users.setdefault(_user(endpoint), [0, 0])[writing] += 1
        if writing:
            self.move(OpenEvent.OPENED_TO_WRITE)

    def end_use(self, endpoint: object, writing: bool) -> None:
        """One handle is closed."""
        user = _user(endpoint)
        counts = self.users.get(user)
        if counts is not None:
            counts[writing] -= 1
            if counts == [0, 0]:
                del self.users[user]

    def end_uses(self, endpoint: object, wrote: bool, last: bool) -> None:
        """The mounts have closed their last writing handle (``wrote``), or their last one. They count their readers by themselves.

        One may have said so before it knew of a handle that was given out meanwhile. A writer among these counts until a mount says that
        it is closed, which may be on its way: its writes are not known before.
        """
        user = _user(endpoint)
        counts = self.users.get(user)
        if counts is not None:
            if wrote:
                counts[True] = 0
            if last:
                counts[False] = 0
            if last and not counts[True]:
                del self.users[user]

    def close_writer(self, facts: Facts | None) -> None:
        """A writing handle was closed, which has said this of the file."""
        self.unreported = True
        self.said = facts or self.said
        self.move(OpenEvent.WRITER_CLOSED)

    def settle(self) -> None:
        """No handle is left that can write, though none of them has said that it wrote."""
        if self.state is OpenState.WRITING and not self.has_writer:
            self.move(OpenEvent.UNUSED)

    def open_proxy(self, handle: int) -> None:
        self.proxy = handle
        self.move(OpenEvent.PROXY_OPENED)

    def close_proxy(self) -> int:
        """The handle, which the caller closes. The writes that went through it are unreported."""
        handle, self.proxy = self.proxy, 0
        self.unreported = True
        self.move(OpenEvent.PROXY_CLOSED)
        return handle

    def report(self) -> Facts | None:
        """The end of the writing is about to be told; the facts said of it."""
        said, self.said, self.unreported = self.said, None, False
        self.move(OpenEvent.REPORTED)
        return said

    def check_invariants(self) -> None:
        where = f"open file {self.ino:#x} in state {self.state.name}"
        assert self.opening >= self.opening_to_write >= 0, f"{where}: {self.opening} openings, {self.opening_to_write} of them to write"
        assert self.opening or not self.brought, f"{where}: content was brought for no opening"
        if self.state is OpenState.FETCHING:
            assert self.opening_to_write, f"{where}: nobody opens it to write"
            return
        due = OpenState.IDLE
        if self.proxy:
            due = OpenState.PROXIED
        elif self.unreported:
            due = OpenState.UNREPORTED
        elif self.has_writer:
            due = OpenState.WRITING
        assert self.state is due, f"{where}, and should be in {due.name}"
