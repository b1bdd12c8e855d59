"""The process that applies a policy to a session: looks at its nodes, asks ``engine.elasticity`` how many there are to be, has it so in the
way of ``amfs scale N``, and writes down what was decided and why. In a session of jobs the keeper of the jobs starts this process, and
starts it again if it dies (``tend``). Must not know: what rules mean; how nodes come and go (``resizing``).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from amfs.client import discovery
from amfs.engine.elasticity import Done, Elasticity, Facts, HaveNodes, Looked, NotDone
from amfs.engine.flapping import check
from amfs.engine.jobs import Target
from amfs.engine.policy import Policy, parse
from amfs.errors import AmfsError, SessionError
from amfs.host import processes
from amfs.net import records
from amfs.net.records import SessionRecord
from amfs.provision import daemon, ledger, resizing
from amfs.provision.provisioner import NodeOptions

TURN_S = 1.0
SAID = 50  # lines that are kept
HEARD_S = 20.0  # for the keeper to hear of a policy
PAUSE_MAX_S = 60.0  # before a process that dies again and again is started once more; one that has lived so long begins anew
_OVER_S = 30.0  # without an answer, on a host on which no node lives


class Auto(msgspec.Struct):
    """``auto.json``: which policy is applied, and what was said. ``process``: host, pid and start time of the one that applies it."""

    created: float  # of the session, so that another one of this name is told from it
    policy: str  # as it was named
    text: str
    least: int
    most: int
    options: NodeOptions  # of new processes
    process: tuple[str, int, int] | None = None
    said: list[str] = []
    over: str = ""  # why it is applied no more
    starts: int = 0  # of its process, since it has last lived for long
    started: float = 0.0  # when it was last started
    tended: bool = False  # the keeper of the jobs starts its process
    begun: bool = False  # it has been applied: a process that is started now goes on with it

    def say(self, text: str) -> None:
        self.said = [*self.said, f"{time.strftime('%H:%M:%S')} auto: {text}"][-SAID:]

    def is_applied(self) -> bool:
        """Does its process live, as far as can be seen from this host?"""
        if self.over or self.process is None:
            return False
        host, pid, started = self.process
        return host != processes.host_id() or processes.is_running(pid, started)

    def state(self) -> str:
        """One line for people."""
        where = f"policy {self.policy}, {self.least}..{self.most} nodes"
        if self.over:
            return f"{where}: over, {self.over}"
        if self.is_applied():
            return f"auto: {where}"
        if self.tended:
            return f"{where}: its process has ended; it is started again soon"
        again = f"amfs scale auto --policy {shlex.quote(self.policy)} --nodes {self.least}..{self.most}"  # else: the default policy
        return f"{where}: its process has ended; '{again}' starts it again"

    def pause_s(self) -> float:
        """From its last start to the next one, if it has died."""
        return min(PAUSE_MAX_S, 2.0 ** (self.starts - 1) - 1) if self.starts else 0.0


def _place(session: SessionRecord) -> Path:
    """Jobs have a directory that all hosts share."""
    return records.shared_dir(session.name) if ledger.load(session) is not None else session.directory


def _path(session: SessionRecord) -> Path:
    return _place(session) / "auto.json"


def load(session: SessionRecord) -> Auto | None:
    """The policy applied to this session now, or last; None: there was none."""
    try:
        found = msgspec.json.decode(_path(session).read_bytes(), type=Auto)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.created == session.created else None


def save(session: SessionRecord, auto: Auto) -> None:
    path = _path(session)
    temporary = path.with_name(f".auto-{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):  # the session was taken down
        temporary.write_bytes(msgspec.json.encode(auto))
        os.replace(temporary, path)


def start(session: SessionRecord, policy: Policy, options: NodeOptions) -> None:
    """Apply ``policy`` from now on, in place of another one. Raises SessionError if there are jobs, and nobody who keeps them."""
    before = load(session)
    end(session, "another policy is applied")
    tended = ledger.load(session) is not None
    said = before.said if before else []
    auto = Auto(session.created, policy.source, policy.text, policy.least, policy.most, options, said=said, tended=tended)
    auto.say(f"policy {policy.source}, {policy.least}..{policy.most} nodes: {policy.title}")
    save(session, auto)
    if not tended:
        _launch(session, auto)
        return
    give_up = time.monotonic() + HEARD_S
    while (now := load(session)) is None or now.process is None:
        if time.monotonic() > give_up:
            auto.over = "the process that keeps the jobs does not answer"
            save(session, auto)
            raise SessionError(f"the process that keeps the jobs of {session.name} does not answer: no policy is applied")
        time.sleep(0.1)
    if (book := ledger.load(session)) is not None:
        book.order(Target(book.wish.nodes))  # a person's order ends a pause; the policy says how many


def tend(session: SessionRecord) -> None:
    """Of the keeper of the jobs: start the process of a policy that was given, or whose process has died."""
    auto = load(session)
    if auto is None or auto.over or auto.is_applied():
        return
    lived = time.time() - auto.started
    if lived < auto.pause_s():
        return
    if lived >= PAUSE_MAX_S:
        auto.starts = 0
    if auto.process is not None:
        auto.say("the process that applies the policy has died; it is started again")
    _launch(session, auto)


def _launch(session: SessionRecord, auto: Auto) -> None:
    place = _place(session)
    with open(place / "auto.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "amfs.provision.autoscale", str(place / "session.json")], stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True, cwd="/", env=daemon.node_environment(),
        )  # fmt: skip
    auto.process = (processes.host_id(), process.pid, processes.start_time(process.pid))
    auto.starts, auto.started = auto.starts + 1, time.time()
    save(session, auto)


def end(session: SessionRecord, why: str) -> bool:
    """Apply the policy no more; was one applied? On another host its process sees it in the file."""
    auto = load(session)
    if auto is None or auto.over or not (auto.tended or auto.is_applied()):
        return False
    auto.over = why  # first, or it would be started again
    auto.say(f"over, {why}")
    save(session, auto)
    if auto.process is not None and auto.process[0] == processes.host_id():
        daemon.stop([auto.process[1:]], 2 * TURN_S + 10.0)
        if (now := load(session)) is not None and not now.over:  # it was just writing
            save(session, auto)
    return True


def facts_of(nodes: resizing.Nodes) -> Facts:
    says = nodes.says.values()
    leaving = sum(member.draining and member.slots > 0 for member in nodes.view.members)

    def total(*names: str) -> int:
        return sum(data.get(name, 0) for data in says for name in names)

    return Facts(
        nodes=len(nodes.members), limits=tuple([data.get("memory_limit", 0) for data in says]),
        memory=total("memory", "fs_memory") - total("memory_spare"), spilled=total("spilled", "fs_spilled"),
        slots=total("slots"), running=total("running"), ready=total("ready"), parked=total("parked"), coming=nodes.waiting, leaving=leaving,
        copies=max((data.get("copies", 1) for data in says), default=1), silent=len(nodes.members) - len(nodes.says),
    )  # fmt: skip


class Scaler:
    """Applies the policy in ``auto`` to a session."""

    def __init__(self, session: SessionRecord, auto: Auto) -> None:
        self.session, self.auto = session, auto
        policy = parse(auto.text, auto.policy)
        self.machine = Elasticity(check(policy.within(auto.least, auto.most)), resumed=time.monotonic() if auto.begun else None)
        self.answered = time.monotonic()

    def turn(self) -> None:
        try:
            facts = facts_of(resizing.look(self.session))
        except AmfsError:
            return
        self.answered = time.monotonic()
        for effect in self.machine.handle(Looked(facts), time.monotonic()):
            self._say(effect.reason if isinstance(effect, HaveNodes) else effect.text)
            if isinstance(effect, HaveNodes):
                self._have(effect.nodes)
        if not self.auto.begun:
            self._write(lambda auto: setattr(auto, "begun", True))

    def _have(self, nodes: int) -> None:
        try:
            resizing.resize(self.session, nodes, self.auto.options, self._say, by_policy=True, wait=False)
        except AmfsError as error:
            for effect in self.machine.handle(NotDone(str(error)), time.monotonic()):
                self._say(effect.reason if isinstance(effect, HaveNodes) else effect.text)
        else:
            self.machine.handle(Done(), time.monotonic())

    def _say(self, text: str) -> None:
        self._write(lambda auto: auto.say(text.split("\n")[0]))

    def _write(self, change: Callable[[Auto], None]) -> None:
        """Change what is written now: another process may have ended this one's work meanwhile."""
        now = load(self.session)
        if now is None or now.over or now.process != self.auto.process:
            sys.exit(0)
        change(now)
        self.auto = now
        save(self.session, now)


def main(path: str) -> int:
    """Until the session is over, or the policy is applied no more."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # a node that is just being started is ended then
    session = records.load(Path(path))
    mine = (processes.host_id(), os.getpid(), processes.start_time(os.getpid()))
    begun = time.monotonic() + 10.0
    while (auto := load(session)) is None or auto.process != mine:  # the starter of this process writes it down
        if time.monotonic() > begun:
            return 1
        time.sleep(0.05)
    scaler = Scaler(session, auto)
    while Path(path).exists():
        if (now := load(session)) is None or now.over or now.process != mine:
            return 0
        scaler.turn()
        if time.monotonic() - scaler.answered > _OVER_S and not discovery.held(session):
            return 0
        time.sleep(TURN_S)
        with contextlib.suppress(AmfsError, OSError):
            scaler.session = records.load(Path(path))  # with the nodes that have come
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
