"""Answers to those who look at runs and sessions: frames of aggregates, pages of tasks, and the questions to one run. Values only.

A frame is as large as stages and nodes are many, whatever the number of tasks. Fields are only added; ``VERSION`` counts other changes.
Times are seconds since 1970, durations seconds, amounts bytes, rates per second.
"""

from __future__ import annotations

from msgspec import Struct

VERSION = 1
PAGE = 20  # tasks of a page, unless somebody asks for more,
PAGE_MAX = 500  # and at most


class Stage(Struct):
    """The tasks of one label. ``tasks`` 0: they are not counted yet, or the list still grows."""

    label: str
    tasks: int = 0
    finished: int = 0
    failed: int = 0
    not_run: int = 0  # because a task before them failed
    busy_s: float = 0.0
    moved: int = 0
    to_shared: int = 0
    rate: float = 0.0  # ends


class AtWork(Struct):
    """A task that runs. ``place``: its session, or the one-shot run. ``memory``: of its processes; -1: not known. ``run`` and ``task``
    "": of a run whose process is on another host, ``number`` tells the task within it."""

    place: str
    node: int
    slot: int
    pid: int
    since: float
    memory: int = -1
    number: int = -1
    run_number: int = 0
    run: str = ""
    task: str = ""
    label: str = ""


class Failed(Struct):
    """A task that failed by itself. ``stderr``: its last lines."""

    run: str
    task: str
    why: str
    stderr: str = ""
    where: str = ""
    node: int = -1


class Node(Struct):
    """``waiting``: tasks that wait here for files. ``ready``: for a slot or for memory. ``ended`` and ``fetched``: since the node began."""

    place: str
    node: int
    state: str = "up"  # or draining, silent, gone
    host: str = ""
    slots: int = 0
    running: int = 0
    ready: int = 0
    waiting: int = 0
    files: int = 0
    memory: int = 0
    memory_limit: int = 0
    spilled: int = 0
    ended: int = 0
    fetched: int = 0
    fetched_from: dict[int, int] = {}  # the nodes that sent most
    rate: float = 0.0
    fetched_rate: float = 0.0


class Run(Struct):
    """``total`` -1: the list still grows. ``place``: the session, or ``id`` of a run with its own node. ``failures``: so many can be asked
    for. ``over``: how it ended, "" while it goes on. ``eta_s`` -1: not known."""

    id: str
    number: int
    place: str
    pid: int
    source: str
    directory: str
    began: float
    total: int = -1
    finished: int = 0
    failed: int = 0
    running: int = 0
    waiting: int = 0
    moved: int = 0
    failures: int = 0
    reruns: int = 0
    lost_nodes: int = 0
    stages: list[Stage] = []
    over: str = ""
    silent: bool = False  # it did not answer in time: these are older facts
    rate: float = 0.0
    moved_rate: float = 0.0
    eta_s: float = -1.0


class Transfer(Struct):
    """Bytes that one node has fetched from another."""

    place: str
    source: int
    node: int
    total: int
    rate: float = 0.0


class Session(Struct):
    """``decisions``: on nodes, with reasons, newest last. ``jobs``: of the batch system, no nodes yet: (number, state, why).
    ``policy``: by which it grows and shrinks, in words; "": by none. ``paused``: why no more jobs are submitted; "": they are."""

    name: str
    began: float
    epoch: int = 0
    manager: int = -1
    error: str = ""
    decisions: list[str] = []
    jobs: list[tuple[str, str, str]] = []
    policy: str = ""
    paused: str = ""


class Frame(Struct):
    """All runs and sessions at one moment."""

    at: float
    version: int = VERSION
    sessions: list[Session] = []
    runs: list[Run] = []
    nodes: list[Node] = []
    transfers: list[Transfer] = []
    notes: list[str] = []  # sessions and runs that could not be asked, and why


class Page(Struct):
    """Tasks at work, those that run longest first; failures, the newest last. ``*_total``: how many there are."""

    at_work: list[AtWork] = []
    at_work_total: int = 0
    failed: list[Failed] = []
    failed_total: int = 0
    version: int = VERSION


class Ask(Struct):
    """A question to a run. ``what``: totals (its ``Run``), tasks (its own tasks at work), names (of tasks by ``numbers``), failed (from
    ``start``), explain (``numbers``)."""

    what: str
    start: int = 0
    count: int = PAGE
    numbers: tuple[int, ...] = ()


class Told(Struct):
    """The answer of a run. ``names``: (id, label) by number, as asked."""

    run: Run | None = None
    nodes: list[Node] = []
    at_work: list[AtWork] = []
    at_work_total: int = 0
    failed: list[Failed] = []
    failed_total: int = 0
    names: list[tuple[str, str]] = []
    lines: list[str] = []
    error: str = ""
    version: int = VERSION
