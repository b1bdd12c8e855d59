"""One collective file movement, from looking where the files are to the last copy that served only as a step. Pure.

The machine knows the plan (``engine.collectives``) and carries it out round by round: it orders a node to fetch whole copies of some files
from another, waits for the answers of a round, and begins the next. When something went wrong it looks again who lives and who has what,
and plans anew for what is left, so a node that dies on the way is gone around. It ends when every living node has what it should, or when
nothing more can be done for a file; then the report says why.

The caller (a client, or the simulator) carries out the effects and answers each ``Look``, ``Bring`` and ``Spare`` with one event.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from amfs.engine.collectives import MST, SCATTER, SEQUENTIAL, Round, deal, goals, plan

ORDER_FILES = 64  # in one order
ORDER_BYTES = 256 << 20  # the same, but of one file that is larger
SILENT_MAX = 40  # how often an order may be given again whose answer is late; each time the node has been alive half a minute later
FRUITLESS_MAX = 16  # how often in a row it looks again without anything having been brought, or anybody having died
PAUSE_FIRST_S, PAUSE_LAST_S = 0.1, 3.0  # before it looks again: together longer than it takes to notice that a node is dead

#: Errors that concern the file, not the way: it is given up at once. Others are tried again in another way.
FINAL = {
    errno.ENOENT: "is not there any more",
    errno.EBUSY: "is being written",
    errno.EISDIR: "is no regular file",
}
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Held(NamedTuple):
    """The state of a file. ``why`` not "": nothing can be done with it."""

    size: int
    holders: frozenset[int]
    why: str = ""


# ── events ─────────────────────────────────────────────────────────────────────────────────────────


class Looked(NamedTuple):
    """The living nodes, and the places of the files that were asked for."""

    live: frozenset[int]
    files: Mapping[int, Held]


class Brought(NamedTuple):
    """An order was answered: an errno for each of its files (0: it is there), or one for all of it."""

    serial: int
    errors: Sequence[int]
    error: int = 0


class Spared(NamedTuple):
    """A node has deleted copies, or would not."""

    serial: int


# ── effects ────────────────────────────────────────────────────────────────────────────────────────


class Look(NamedTuple):
    """After ``pause_s`` seconds, look which nodes live and which have these."""

    files: tuple[int, ...]
    pause_s: float = 0.0


class Bring(NamedTuple):
    """Have ``target`` fetch whole copies from ``source``."""

    serial: int
    source: int
    target: int
    files: tuple[int, ...]


class Spare(NamedTuple):
    """Have ``node`` delete its copies of these, as long as others have them and nobody uses them there."""

    serial: int
    node: int
    files: tuple[int, ...]


class Ended(NamedTuple):
    """All is done that could be done."""


Event = Looked | Brought | Spared
Effect = Look | Bring | Spare | Ended


class Phase(enum.Enum):
    LOOKING = "looking where the files are"
    MOVING = "moving them"
    SPARING = "deleting what served as a step"
    ENDED = "ended"


MOVES = {
    Phase.LOOKING: (Phase.MOVING, Phase.SPARING, Phase.ENDED),
    Phase.MOVING: (Phase.LOOKING, Phase.SPARING, Phase.ENDED),
    Phase.SPARING: (Phase.ENDED,),
    Phase.ENDED: (),
}


class Movement:
    """``files``: their numbers, in the order in which they are dealt out. ``root`` -1: the node that has most of their bytes. ``within``:
    the nodes that take part (default: all that live at first)."""

    def __init__(
        self, kind: str, files: Iterable[int], *, root: int = -1, algorithm: str = MST, within: Iterable[int] | None = None
    ) -> None:
        self.kind = kind
        self.algorithm = algorithm
        self.phase = Phase.LOOKING
        self.nodes: frozenset[int] = frozenset(within) if within is not None else frozenset()
        self.root = root
        self.failed: dict[int, str] = {}  # file -> why it is not everywhere where it should be
        self.refused: dict[tuple[int, int], str] = {}  # (file, node) -> why it cannot lie there
        self.lost: set[int] = set()  # nodes that took part and died
        self.holders: dict[int, set[int]] = {}  # of the files that are not given up, as far as is known
        self.sizes: dict[int, int] = {}
        self.places: dict[int, int] = {}  # of a scatter
        self.rounds = self.transfers = self.bytes = 0
        self._files = tuple(files)
        self._chosen_root = root < 0
        self._began = False
        self._brought: set[tuple[int, int]] = set()  # (file, node): by us
        self._plan: list[Round] = []
        self._orders: dict[int, Bring | Spare] = {}
        self._silent: dict[int, int] = {}  # order -> how often its answer was late
        self._serial = 0
        self._trouble = ""  # the fault of this round; "": none
        self._progress = False  # since it looked last
        self._fruitless = 0

    # ── the only ways in ───────────────────────────────────────────────────────────────────────────

    def start(self) -> list[Effect]:
        """The first effects."""
        return [Look(self._files)]

    def handle(self, event: Event) -> list[Effect]:
        """Take one event, return what is to be done about it."""
        if isinstance(event, Looked):
            return self._looked(event)
        order = self._orders.pop(event.serial, None)
        if order is None:
            return []
        if isinstance(event, Spared) or isinstance(order, Spare):
            return self._end_of_sparing()
        return self._answered(order, event)

    def _go(self, phase: Phase) -> None:
        assert phase in MOVES[self.phase], f"cannot go from {self.phase} to {phase}"
        self.phase = phase

    # ── looking ────────────────────────────────────────────────────────────────────────────────────

    def _looked(self, event: Looked) -> list[Effect]:
        if not self._began:
            self.nodes = self.nodes & event.live if self.nodes else event.live
        died = self.nodes - event.live
        self.lost |= died
        self.nodes -= died
        self._fruitless = 0 if self._progress or died or not self._began else self._fruitless + 1
        self._progress = False
        for file, held in event.files.items():
            if file in self.failed:
                continue
            self.sizes[file] = held.size
            self.holders[file] = set(held.holders & event.live)
            if held.why or not self.holders[file]:
                self._give_up(file, held.why or "every node that had it is gone")
        if not self._began:
            self._began = True
        if not self._choose_root():
            self._give_up_all(f"node {self.root} is not in the session" + (" any more" if self.root in self.lost else ""))
        if self._fruitless >= FRUITLESS_MAX:
            for file in self._unfinished():
                self._give_up(file, self._trouble or "it could not be moved")
        self._trouble = ""
        self._deal()
        self._plan = self._plans()
        return self._next_round()

    def _choose_root(self) -> bool:
        """False: the one that the user named is not there."""
        if self.root in self.nodes:
            return True
        if not self._chosen_root or not self.nodes:
            return False
        weight = dict.fromkeys(sorted(self.nodes), 0)
        for file, nodes in self.holders.items():
            for node in nodes & self.nodes:
                weight[node] += self.sizes[file] + 1
        self.root = max(weight, key=lambda node: (weight[node], -node))
        return True

    def _deal(self) -> None:
        """Say where each file of a scatter goes; files for a node that died go to others."""
        if self.kind != SCATTER or not self.nodes or self.root not in self.nodes:
            return
        left = [file for file in self._files if file in self.holders and self.places.get(file) not in self.nodes]
        self.places.update(deal(left, self.nodes, self.root))

    def _give_up(self, file: int, why: str) -> None:
        self.failed.setdefault(file, why)
        self.holders.pop(file, None)

    def _give_up_all(self, why: str) -> None:
        for file in list(self.holders):
            self._give_up(file, why)

    def _goal(self, file: int) -> Set[int]:
        """The nodes that must have it, without those that cannot."""
        wanted = goals(self.kind, self.nodes, self.root, self.places)(file) & self.nodes
        return {node for node in wanted if (file, node) not in self.refused} if self.refused else wanted

    def _unfinished(self) -> list[int]:
        return [file for file, nodes in self.holders.items() if not self._goal(file) <= nodes]

    def _plans(self) -> list[Round]:
        """The plans of the work left. Files that some nodes have no room for are planned without these."""
        groups: dict[frozenset[int], dict[int, set[int]]] = {}
        for file in self._unfinished():
            out = {node for other, node in self.refused if other == file}
            nodes = self.nodes - out
            if self.holders[file] & nodes:
                groups.setdefault(nodes, {})[file] = self.holders[file] & nodes
            else:
                nodes |= self.holders[file]
                groups.setdefault(nodes, {})[file] = self.holders[file]
        whole: list[Round] = []
        for nodes, holders in groups.items():
            root = self.root if self.root in nodes else min(nodes)
            for number, transfers in enumerate(plan(self.kind, nodes, holders, root, self.places, self.algorithm)):
                if self.algorithm == SEQUENTIAL or number == len(whole):
                    whole.append(transfers)
                else:
                    whole[number] += transfers
        return whole

    # ── moving ─────────────────────────────────────────────────────────────────────────────────────

    def _next_round(self) -> list[Effect]:
        if not self._plan:
            return self._spare()
        transfers = self._plan.pop(0)
        if self.phase is not Phase.MOVING:
            self._go(Phase.MOVING)
        self.rounds += 1
        out: list[Effect] = []
        for transfer in transfers:
            for files in self._portions(transfer.files):
                out.append(self._order(Bring(self._number(), transfer.source, transfer.target, files)))
        return out

    def _portions(self, files: Sequence[int]) -> Iterable[tuple[int, ...]]:
        portion: list[int] = []
        size = 0
        for file in files:
            if portion and (len(portion) == ORDER_FILES or size + self.sizes[file] > ORDER_BYTES):
                yield tuple(portion)
                portion, size = [], 0
            portion.append(file)
            size += self.sizes[file]
        yield tuple(portion)

    def _number(self) -> int:
        self._serial += 1
        return self._serial

    def _order(self, order: Bring) -> Bring:
        self._orders[order.serial] = order
        return order

    def _answered(self, order: Bring, event: Brought) -> list[Effect]:
        errors = [event.error] * len(order.files) if event.error else list(event.errors)
        if len(errors) != len(order.files):
            errors = [errno.EIO] * len(order.files)
        late = [file for file, error in zip(order.files, errors, strict=True) if error == errno.ETIMEDOUT]
        for file, error in zip(order.files, errors, strict=True):
            if not error:
                self._has(file, order.target)
            elif error != errno.ETIMEDOUT:
                self._wrong(file, order, error)
        if late:
            # The node goes on meanwhile, or will be found to be dead: ask again.
            count = self._silent.pop(order.serial, 0) + 1
            if count <= SILENT_MAX:
                again = self._order(Bring(self._number(), order.source, order.target, tuple(late)))
                self._silent[again.serial] = count
                return [again]
            self._trouble = f"node {order.target} does not answer"
        if self._orders:
            return []
        if self._trouble:
            self._go(Phase.LOOKING)
            pause = min(PAUSE_LAST_S, PAUSE_FIRST_S * 2**self._fruitless) if not self._progress else 0.0
            return [Look(tuple(file for file in self._files if file in self.holders), pause)]
        return self._next_round()

    def _has(self, file: int, node: int) -> None:
        if file in self.holders and node not in self.holders[file]:
            self.holders[file].add(node)
            self._brought.add((file, node))
            self.transfers += 1
            self.bytes += self.sizes[file]
            self._progress = True

    def _wrong(self, file: int, order: Bring, error: int) -> None:
        if error in FINAL:
            self._give_up(file, FINAL[error])
        elif error in NO_ROOM:
            self.refused[file, order.target] = f"there is no room on node {order.target}"
            self._progress = True
        self._trouble = f"it cannot be copied from node {order.source} to node {order.target}"

    # ── the end ────────────────────────────────────────────────────────────────────────────────────

    def _spare(self) -> list[Effect]:
        """Copies that only served as a step; of a scatter also those that were given away."""
        for (file, _), why in self.refused.items():
            if self._misses(file):
                self.failed.setdefault(file, why)
        spare: dict[int, list[int]] = {}
        for file, nodes in self.holders.items():
            goal = self._goal(file)
            if not goal or not goal <= nodes or file in self.failed:
                continue
            for node in sorted(nodes - goal):
                if (file, node) in self._brought or self.kind == SCATTER:
                    spare.setdefault(node, []).append(file)
        out: list[Effect] = []
        for node, files in sorted(spare.items()):
            for start in range(0, len(files), ORDER_FILES):
                order = Spare(self._number(), node, tuple(files[start : start + ORDER_FILES]))
                self._orders[order.serial] = order
                out.append(order)
        self._go(Phase.SPARING if out else Phase.ENDED)
        return out or [Ended()]

    def _misses(self, file: int) -> bool:
        """Is it missing where it should be, had there been room?"""
        wanted = goals(self.kind, self.nodes, self.root, self.places)(file) & self.nodes
        return file in self.holders and not wanted <= self.holders[file]

    def _end_of_sparing(self) -> list[Effect]:
        if self._orders:
            return []
        self._go(Phase.ENDED)
        return [Ended()]

    # ── for tests and people ───────────────────────────────────────────────────────────────────────

    def goal(self, file: int) -> Set[int]:
        """The living nodes that have the file when all has gone well."""
        return self._goal(file)

    def remark(self) -> str:
        """Nodes that died meanwhile, in words for a person; "" if none did."""
        if not self.lost:
            return ""
        return f"node{'s' if len(self.lost) > 1 else ''} {', '.join(map(str, sorted(self.lost)))} died meanwhile; the others went on"

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        assert not (self.phase in (Phase.LOOKING, Phase.ENDED) and self._orders), "orders are out, and nobody waits for them"
        assert self.phase is not Phase.MOVING or self._orders, "it moves, and nothing is under way"
        assert not set(self.failed) & set(self.holders) or self.phase in (Phase.SPARING, Phase.ENDED)
