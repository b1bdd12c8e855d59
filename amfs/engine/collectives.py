"""Plans of collective file movement (AMFS Shell §3.3): which node sends which files to which, in rounds. Pure functions.

Files are numbers, ``holders`` says which nodes have each as a whole, ``nodes`` take part. All transfers of a round can go at the same time;
a source has what it sends before the round begins. No plan sends a node what it has. With the algorithm MST a plan has at most
⌈log2 N⌉ rounds: a binomial tree, in which every node that has the files passes them on. SEQUENTIAL is one transfer a round: no node ever
has more than one connection into it, or out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

MST, SEQUENTIAL = "mst", "sequential"
ALGORITHMS = (MST, SEQUENTIAL)
MULTICAST, GATHER, ALLGATHER, SCATTER = KINDS = ("multicast", "gather", "allgather", "scatter")

Holders = Mapping[int, Set[int]]


class Transfer(NamedTuple):
    """``target`` gets whole copies of ``files`` from ``source``."""

    source: int
    target: int
    files: tuple[int, ...]


Round = list[Transfer]


def rounds_of(nodes: int) -> int:
    """⌈log2 N⌉"""
    return max(0, nodes - 1).bit_length()


def after(plan: Iterable[Round], holders: Holders) -> dict[int, set[int]]:
    """The nodes that have each file when a plan was carried out."""
    held = {file: set(nodes) for file, nodes in holders.items()}
    for transfers in plan:
        for transfer in transfers:
            for file in transfer.files:
                held[file].add(transfer.target)
    return held


def _ring(nodes: Iterable[int], first: int) -> list[int]:
    """The nodes in order, ``first`` in front."""
    order = sorted(nodes)
    at = order.index(first)
    return order[at:] + order[:at]


def _packed(moves: Mapping[tuple[int, int], list[int]]) -> Round:
    return [Transfer(source, target, tuple(files)) for (source, target), files in sorted(moves.items()) if files]


def _one_by_one(moves: Mapping[tuple[int, int], list[int]]) -> list[Round]:
    return [[transfer] for transfer in _packed(moves)]


# ── multicast ──────────────────────────────────────────────────────────────────────────────────────


def multicast(nodes: Set[int], holders: Holders, algorithm: str = MST) -> list[Round]:
    """Every node gets every file. Files that the same nodes have travel together, and sets of files beside each other."""
    groups: dict[frozenset[int], list[int]] = {}
    for file in sorted(holders):
        groups.setdefault(frozenset(holders[file]) & frozenset(nodes), []).append(file)
    plan: list[Round] = []
    for there, files in sorted(groups.items(), key=lambda group: group[1]):
        have = sorted(there)
        lack = [node for node in _ring(nodes, have[0]) if node not in there]
        number = 0
        while lack:
            senders = have[:1] if algorithm == SEQUENTIAL else list(have)
            pairs = list(zip(senders, lack, strict=False))
            chosen = [Transfer(source, target, tuple(files)) for source, target in pairs]
            if algorithm == SEQUENTIAL or number == len(plan):
                plan.append(chosen)
            else:
                plan[number] += chosen
            number += 1
            have += [target for _, target in pairs]
            lack = lack[len(pairs) :]
    return plan


# ── gather ─────────────────────────────────────────────────────────────────────────────────────────


def gather(nodes: Set[int], holders: Holders, root: int, algorithm: str = MST) -> list[Round]:
    """The node ``root`` gets every file. In the tree, number n from the root sends all that has come to it to n without its lowest bit."""
    order = _ring(nodes, root)
    place = {node: at for at, node in enumerate(order)}
    #: at number n in the tree: the files that it will have to pass on
    carried: dict[int, list[int]] = {}
    for file in sorted(holders):
        near = min((place[node] for node in holders[file] if node in place), key=lambda at: (at.bit_count(), at))
        if near:
            carried.setdefault(near, []).append(file)
    if algorithm == SEQUENTIAL:
        return [[Transfer(order[at], root, tuple(files))] for at, files in sorted(carried.items())]
    plan = []
    for bit in range(rounds_of(len(order))):
        moves: dict[tuple[int, int], list[int]] = {}
        for at in sorted(carried):
            if at & -at == 1 << bit:
                to = at - (1 << bit)
                moves[order[at], order[to]] = files = carried.pop(at)
                if to:
                    carried[to] = sorted([*carried.get(to, ()), *files])
        plan.append(_packed(moves))
    return [transfers for transfers in plan if transfers]


def allgather(nodes: Set[int], holders: Holders, root: int, algorithm: str = MST) -> list[Round]:
    """Every node gets every file: first ``root`` gathers them, then all of them go out from it, to each node what that has not got."""
    plan = gather(nodes, holders, root, algorithm)
    held = after(plan, holders)
    have, lack = [root], _ring(nodes, root)[1:]
    while lack:
        pairs = list(zip(have[:1] if algorithm == SEQUENTIAL else have, lack, strict=False))
        transfers = []
        for source, target in pairs:
            if files := tuple(file for file in sorted(held) if target not in held[file]):
                transfers.append(Transfer(source, target, files))
        if transfers:
            plan.append(transfers)
        have = have + [target for _, target in pairs]
        lack = lack[len(pairs) :]
    return plan


# ── scatter ────────────────────────────────────────────────────────────────────────────────────────


def deal(files: Sequence[int], nodes: Iterable[int], root: int) -> dict[int, int]:
    """Which node each file goes to: one after the other, the root first."""
    order = _ring(nodes, root)
    return {file: order[at % len(order)] for at, file in enumerate(files)}


def scatter(nodes: Set[int], holders: Holders, root: int, places: Mapping[int, int], algorithm: str = MST) -> list[Round]:
    """Each file gets to the node that ``places`` says. In the tree, halves of the nodes get theirs together, from the root downward; a file
    that is not on the way from the root to its place goes there directly, in the first round."""
    order = _ring(nodes, root)
    place = {node: at for at, node in enumerate(order)}
    depth = rounds_of(len(order))
    rounds: list[dict[tuple[int, int], list[int]]] = [{} for _ in range(max(depth, 1))]
    directly: dict[tuple[int, int], list[int]] = {}
    for file in sorted(holders):
        target = places[file]
        held = {place[node] for node in holders[file] if node in place}
        if place[target] in held:
            continue
        way = _way(place[target], depth)
        begin = max((step for step, at in enumerate(way) if at in held), default=-1)
        if algorithm == SEQUENTIAL or begin < 0:
            directly.setdefault((order[min(held)], target), []).append(file)
            continue
        for step in range(begin + 1, len(way)):
            if way[step] != way[step - 1]:
                rounds[step - 1].setdefault((order[way[step - 1]], order[way[step]]), []).append(file)
    if algorithm == SEQUENTIAL:
        return _one_by_one(directly)
    for pair, files in directly.items():
        rounds[0].setdefault(pair, []).extend(files)
    return [transfers for moves in rounds if (transfers := _packed(moves))]


def _way(target: int, depth: int) -> list[int]:
    """The numbers on the way from 0 to ``target``, one a round: its bits from the highest down."""
    return [target >> (depth - step) << (depth - step) for step in range(depth + 1)]


# ── all of them ────────────────────────────────────────────────────────────────────────────────────


def goals(kind: str, nodes: Set[int], root: int, places: Mapping[int, int]) -> Callable[[int], Set[int]]:
    """Which nodes must have a file in the end."""
    if kind == SCATTER:
        return lambda file: {places[file]}
    return lambda file: {root} if kind == GATHER else nodes


def plan(kind: str, nodes: Set[int], holders: Holders, root: int, places: Mapping[int, int], algorithm: str = MST) -> list[Round]:
    """The plan of any of the kinds; every file has a holder among ``nodes``."""
    if kind == MULTICAST:
        return multicast(nodes, holders, algorithm)
    if kind == GATHER:
        return gather(nodes, holders, root, algorithm)
    if kind == ALLGATHER:
        return allgather(nodes, holders, root, algorithm)
    return scatter(nodes, holders, root, places, algorithm)
