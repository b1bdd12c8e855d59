"""Scenarios: a few nodes, a few tasks, and everything the nodes said to each other.

A scenario file opens with its story in words (lines that begin with ``#``), goes on with the set-up and what happens, one step a line, and
after ``----`` has the transcript. Steps::

    cluster nodes=3 slots=1 unit=0 links=no heartbeats=no stealing=no data-aware=yes parked-step=1
    task NAME [in=F,F] [out=F,F] [given=F] [node=N] [soft] [seconds=S] [fails=N|always] [retries=N] [reduce=N] [keep=F] [cores=N]
         [priority=N]
    file NAME BYTES
    at SECONDS crash N | leave N | stop REASON | cut N[,N…] | heal
    end                       (run to the end of the run; without it the scenario is not run at all)

In the transcript a line is ``milliseconds  who  what``; messages are those that arrive. Messages of a node to itself do not show;
heartbeats and others of no interest here (``RunReady``, ``StealAsk``, ``StealNone``, ``View``, ``ViewChange``) are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fuzz.checker import check_nothing_left

from amfs.config import MemberLimits, SubmitterLimits, WorkerLimits
from amfs.net.link import Limits as LinkLimits
from amfs.sim.cluster import Cluster
from amfs.sim.settings import Costs, Limits, Storage
from amfs.sim.workload import Workload
from amfs.sim.world import World
from amfs.vocabulary import messages as m
from amfs.vocabulary.paths import scope_of
from amfs.vocabulary.states import FAILED, FINISHED
from amfs.workflow.workflow import Task

SILENT = (m.Heartbeat, m.RunReady, m.StealAsk, m.StealNone, m.ClientHello, m.View, m.ViewChange, m.RunGone)
COSTS = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, latency_s=1e-3, bandwidth_bytes_s=1e9, spawn_us=0.0, file_us=0.0)


class Scenario:
    """One file, taken apart and run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        head, _, self.expected = path.read_text(encoding="utf-8").partition("\n----\n")
        self.head = head
        self.tasks: list[Task] = []
        self.facts: dict[str, dict[str, str]] = {}
        self.sizes: dict[str, int] = {}
        self.cluster: dict[str, str] = {}
        self.events: list[tuple[float, list[str]]] = []
        self.lines: list[str] = []
        for line in head.splitlines():
            words = line.split("#")[0].split()
            if words:
                getattr(self, f"_{words[0]}")(words[1:])

    def _cluster(self, words: list[str]) -> None:
        self.cluster = dict(word.split("=", 1) for word in words)

    def _file(self, words: list[str]) -> None:
        self.sizes[words[0]] = int(words[1])

    def _at(self, words: list[str]) -> None:
        self.events.append((float(words[0]), words[1:]))

    def _end(self, words: list[str]) -> None:
        """Where the reader of the file sees that the run ends."""

    def _task(self, words: list[str]) -> None:
        facts = {key: value for key, _, value in (word.partition("=") for word in words[1:])}
        self.facts[words[0]] = facts
        reduce = int(facts.get("reduce", "0"))
        self.tasks.append(
            Task(
                words[0],
                ("cat", "{in}", "{out}") if reduce else ("work",),
                inputs=(*_list(facts.get("in", "")), *_list(facts.get("given", ""))),
                outputs=_list(facts.get("out", "")),
                keep=_list(facts.get("keep", "")),
                node=int(facts.get("node", "-1")),
                node_soft="soft" in facts,
                retries=int(facts.get("retries", "0")),
                reduce=reduce,
                cores=int(facts.get("cores", "1")),
                priority=int(facts.get("priority", "0")),
            )
        )

    # ── running ────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> str:
        """The transcript, ending with how each task ended."""
        given = self.cluster
        workload = Workload(self.tasks)
        workload.sizes = dict(self.sizes)
        for tid, task in enumerate(workload.tasks):
            facts = self.facts[task.id]
            workload.seconds[tid] = float(facts.get("seconds", "0.01"))
            if facts.get("fails") == "always":
                workload.broken[tid] = None
            elif "fails" in facts:
                workload.flaky[tid] = int(facts["fails"])
        beating = given.get("heartbeats") == "yes"
        silent = Limits.silent()
        limits = Limits(
            WorkerLimits(
                parked_step=int(given.get("parked-step", "1")),
                steal_first_s=0.005 if given.get("stealing") == "yes" else silent.worker.steal_first_s,
                backlog_s=0.0,
            ),
            submitter=SubmitterLimits() if beating else silent.submitter,
            member=MemberLimits() if beating else silent.member,
        )
        world = World(0, costs=COSTS, storage=Storage(1e12, 1e-3))
        cluster = Cluster(
            world, workload, nodes=int(given["nodes"]), slots=int(given.get("slots", "1")), unit_size=int(given.get("unit", "0")),
            limits=limits, links=LinkLimits() if given.get("links") == "yes" else None,
        )  # fmt: skip
        world.hear = self._heard
        info = m.RunInfo(scope_of(1), workload.plan.base, (), data_aware=given.get("data-aware", "yes") == "yes")
        client = cluster.client(info=info)
        client.start()
        for when, words in self.events:
            if words[0] == "crash":
                world.at(when, cluster.crash, int(words[1]))
            elif words[0] == "leave":
                world.at(when, cluster.leave, int(words[1]))
            elif words[0] == "stop":
                world.at(when, client.stop, " ".join(words[1:]))
            else:
                side = {int(word) for word in words[1].split(",")} if words[0] == "cut" else set()
                world.at(when, _cut, world, side)
        world.run(lambda: client.over is not None, 600.0)
        names = {FINISHED: "finished", FAILED: "failed"}
        for tid, task in enumerate(workload.tasks):
            state = names.get(client.submitter.state[tid], "not run")
            detail = next((f": {result.detail}" for result in client.ended.get(tid, ()) if result.detail), "")
            self.lines.append(f"{task.id} {state}{detail if state == 'failed' else ''}")
        assert client.over is not None
        self.lines.append(f"the run is over{': ' + client.over.reason if client.over.reason else ''}")
        world.hear = None
        world.let_pass(1.0)
        client.die()
        if not any(words[0] in ("crash", "leave", "cut") for _, words in self.events):
            world.let_pass(60.0)
            check_nothing_left(cluster, cut_off=False)
        return "\n".join(self.lines) + "\n"

    def _heard(self, when: float, who: object, kind: str, what: object) -> None:
        name = "client" if isinstance(who, int) and who >= m.CLIENT_ID_MIN else f"node {who}" if isinstance(who, int) else str(who)
        if kind.startswith("from "):
            if isinstance(what, SILENT):
                return
            sender = int(kind[5:])
            text = f"<- {'client' if sender >= m.CLIENT_ID_MIN else f'node {sender}'}: {self._message(what)}"
        elif kind == "launches":
            text = f"launches {self._name(what[0])}" + (f" (attempt {what[1] + 1})" if what[1] else "")  # type: ignore[index]
        elif kind in ("says", "sees down", "crashes", "leaves", "cut", "healed"):
            text = f"{kind} {what}".rstrip()
        else:
            return
        self.lines.append(f"{when * 1000:8.0f} {name:<7} {text}")

    def _name(self, tid: int) -> str:
        return self.tasks[tid].id if tid >= 0 else f"part {-tid & 0xFFFFFFFF}"

    def _message(self, message: Any) -> str:
        """A message in few words: its kind, tasks by name, files by name."""
        words = [type(message).__name__]
        for field in message.__struct_fields__:
            value = getattr(message, field)
            if field == "tasks":
                words += [self._name(task.tid if isinstance(task, m.TaskSpec) else task[0]) for task in value]
            elif field == "results":
                words += [self._name(r.tid) + (f" ({r.detail})" if r.outcome else "") for r in value]
            elif field == "names":
                words += [name.partition("/")[2] for name in value]
            elif field == "blobs":
                words += [blob.name.partition("/")[2] + (" gone" if blob.missing else "") for blob in value]
            elif field == "files" and isinstance(message, m.Flushed):
                words += [name for name, _, _ in value]
            elif field == "files":
                words += [_at(file) for file in value]
            elif field in ("parked", "by", "holder") and value not in (0, -1):
                words.append(f"{field} {value}")
            elif field in ("cause",):
                words.append(f"({value})")
            elif field in ("finals", "drops") and value:
                words += [field, *[name.partition("/")[2] for name in value]]
        return " ".join(words)


def _at(file: m.FileAt | m.Published) -> str:
    name = file.name.partition("/")[2]
    if isinstance(file, m.FileAt):
        return f"{name}@{','.join(map(str, file.holders)) or 'shared'}"
    return name + (" on shared storage" if file.retention < 0 else "")


def _cut(world: World, side: set[int]) -> None:
    world.note("network", "cut" if side else "healed", sorted(side) if side else "")
    world.cut = (lambda a, b: (a in side) != (b in side)) if side else None


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()
