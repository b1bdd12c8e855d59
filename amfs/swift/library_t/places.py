"""Places: ranks, locations, which node holds a file (Hercules §II, §III). A rank is a node: each is one worker with many slots."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from amfs.swift.builtins import Failure, Location
from amfs.swift.library_t.registry import T
from amfs.swift.requests import FileValue, Locate, Nodes, Place, Random, Request

T.constants += [("string", "HARD", "HARD"), ("string", "SOFT", "SOFT"), ("string", "RANK", "RANK"), ("string", "NODE", "NODE")]


@T.function('(location o) location(int rank, string strictness="HARD", string accuracy="RANK")')
def location(rank: int, strictness: str, accuracy: str) -> Location:
    if strictness not in ("HARD", "SOFT"):
        raise Failure(f"location: the strictness is HARD or SOFT, and not {strictness}")
    if accuracy not in ("RANK", "NODE"):
        raise Failure(f"location: the accuracy is RANK or NODE, and not {accuracy}")
    return Location(rank, strictness == "HARD", accuracy == "NODE")


@T.function("(location o) locationFromRank(int rank)", "(location o) location_from_rank(int rank)", "(location o) rank2location(int rank)")
def location_from_rank(rank: int) -> Location:
    return Location(rank)


@T.function("(int o) rankFromLocation(location l)", "(int o) locationRank(location l)")
def rank_of(place: Location) -> int:
    return place.rank


@T.function("(string o) locationStrictness(location l)")
def strictness_of(place: Location) -> str:
    return "HARD" if place.hard else "SOFT"


@T.function("(string o) locationAccuracy(location l)")
def accuracy_of(place: Location) -> str:
    return "NODE" if place.node else "RANK"


# ── which node holds a file ────────────────────────────────────────────────────────────────────────


def default_rank(name: str, nodes: int) -> int:
    """Where a file lies by default, as Hercules places by a hash of the name: FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in name.encode(errors="surrogateescape"):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value % nodes


def _rank_of_file(name: str) -> Generator[Request, Any, int]:
    ranks = yield Locate(name)
    return int(ranks[0]) if ranks else default_rank(name, len((yield Nodes())))


@T.asking("(int o) get_rank(string name)")
def get_rank(name: str) -> Generator[Request, Any, int]:
    """The node that holds the file; before it is made, the one that ``set_rank`` gave it, or one by a hash of its name."""
    return (yield from _rank_of_file(name))


@T.asking("(int o) get_rank(file f)")
def get_rank_of_file(f: FileValue) -> Generator[Request, Any, int]:
    return (yield from _rank_of_file(f.name))


@T.asking("(void v) set_rank(string name, int rank)")
def set_rank(name: str, rank: int) -> Generator[Request, Any, None]:
    nodes = len((yield Nodes()))
    if not 0 <= rank < nodes:
        raise Failure(f"set_rank({name!r}, {rank}): there are {nodes} nodes, from 0 to {nodes - 1}")
    yield Place(name, rank)


# ── hosts ──────────────────────────────────────────────────────────────────────────────────────────


def _ranks_on(host: str) -> Generator[Request, Any, list[int]]:
    hosts: list[str] = yield Nodes()
    ranks = [rank for rank, name in enumerate(hosts) if name == host]
    if not ranks:
        raise Failure(f"no node runs on host {host!r}; there are {', '.join(sorted(set(hosts))[:8])}")
    return ranks


@T.asking("(string o[]) hostmap_list()", "(string o[]) hostmapList()")
def hostmap_list() -> Generator[Request, Any, dict[int, str]]:
    return dict(enumerate(dict.fromkeys((yield Nodes()))))


@T.asking("(int o[]) hostmap_leaders()", "(int o[]) hostmapLeaders()")
def hostmap_leaders() -> Generator[Request, Any, dict[int, int]]:
    """The lowest rank of each host."""
    hosts: list[str] = yield Nodes()
    return dict(enumerate(hosts.index(host) for host in dict.fromkeys(hosts)))


@T.asking("(int o[]) hostmap_lookup(string host)", "(int o[]) hostmapLookup(string host)")
def hostmap_lookup(host: str) -> Generator[Request, Any, dict[int, int]]:
    return dict(enumerate((yield from _ranks_on(host))))


@T.asking(
    "(location o) hostmap_one(string host)",
    "(location o) hostmapOne(string host)",
    "(location o) hostmap_one_worker(string host)",
    "(location o) hostmapOneWorker(string host)",
)
def hostmap_one(host: str) -> Generator[Request, Any, Location]:
    return Location((yield from _ranks_on(host))[0])


@T.asking("(int o) hostmap_one_rank(string host)", "(int o) hostmapOneRank(string host)", "(int o) hostmapOneWorkerRank(string host)")
def hostmap_one_rank(host: str) -> Generator[Request, Any, int]:
    return (yield from _ranks_on(host))[0]


# ── any worker ─────────────────────────────────────────────────────────────────────────────────────


def _random_rank() -> Generator[Request, Any, int]:
    nodes = len((yield Nodes()))
    return min(int((yield Random()) * nodes), nodes - 1)


@T.asking("(location o) randomWorker()", "(location o) random_worker()", "(location o) randomRank()", "(location o) random_engine()")
def random_worker() -> Generator[Request, Any, Location]:
    return Location((yield from _random_rank()))


@T.asking("(int o) randomWorkerRank()", "(int o) random_worker_rank()")
def random_worker_rank() -> Generator[Request, Any, int]:
    return (yield from _random_rank())


@T.asking("(int o) turbine_workers()", "(int o) adlb_workers()", "(int o) turbine_worker_count()")
def turbine_workers() -> Generator[Request, Any, int]:
    """As many as nodes: ranks count nodes here."""
    return len((yield Nodes()))


@T.function("(int o) turbine_rank()", "(int o) turbine_servers()", "(int o) turbine_engines()", "(int o) adlb_servers()")
def none_of_them() -> int:
    """There are no processes of these kinds."""
    return 0
