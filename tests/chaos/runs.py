"""One chaos run: a session, a load, a disturbance in the middle, and the checks. Everything random is drawn from the seed first."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos import disturbances, fscheck, loads
from chaos.hosts import hosts
from chaos.sessions import AMFS, Finding, Node, Session, running

NODES = 4
JOURNAL = "journal"
RUN_S = 150.0  # a run that has not ended by then hangs
SETTLE_S = 40.0  # until the nodes agree who is a member, after a disturbance
LEAVE_S = 30.0  # until what a run used is gone
WRITE_S = 3.0  # how long programs go on after a disturbance


class Plan:
    """A seed's run. ``load``: a workflow of ``loads``, or "fs"; ``kind``: of the disturbance; ``replicas``: of each file in ``fs``.
    "" and 0 draw them."""

    def __init__(self, seed: int, load: str = "", kind: str = "", replicas: int = 0) -> None:
        self.seed = seed
        if load and kind and not fits(load, kind):
            raise Finding(f"the load {load} and the disturbance {kind} do not go together")
        kinds = [kind] if kind else list(disturbances.KINDS)
        allowed = [(one, other) for one in ([load] if load else [*loads.WORKFLOWS, "fs"]) for other in kinds if fits(one, other)]
        self.load, self.kind = random.Random(f"amfs chaos {seed}: which").choice(allowed)
        rng = random.Random(f"amfs chaos {seed}")  # apart, so that naming load and kind changes nothing else
        self.workflow = loads.workflow(self.load, rng) if self.load != "fs" else None
        self.replicas = (replicas or random.Random(f"amfs chaos {seed}: replicas").choice((1, 2))) if self.load == "fs" else 1
        self.moment = rng.uniform(0.0, 0.9)  # the part of the tasks that have ended then
        self.delay_s = rng.uniform(0.0, 0.3)
        self.disturbance = disturbances.KINDS[self.kind](rng, NODES)
        self.rng = rng

    @property
    def command(self) -> str:
        how = f' ARGS="--replicas {self.replicas}"' if self.load == "fs" else ""
        return f"make chaos N=1 SEED={self.seed} LOAD={self.load} KIND={self.kind}{how}"


def fits(load: str, kind: str) -> bool:
    if kind == "submitter" and load == "dax":
        return False  # a replay begins from the beginning
    return ("fs" if load == "fs" else "workflow") in disturbances.KINDS[kind].loads


class Outcome:
    """The result of a run. ``findings`` empty: all is as promised."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.what = ""
        self.findings: list[str] = []
        self.seconds = 0.0
        self.lost_s: float | None = None  # how much longer than undisturbed
        self.work_s: float | None = None  # task-seconds that were lost
        self.remarks: list[str] = []
        self.home = Path()

    def row(self) -> tuple[str, ...]:
        ratio = f"{self.lost_s / self.work_s:.1f}" if self.lost_s is not None and self.work_s else "-"
        times = ["-" if value is None else f"{value:.1f}" for value in (self.lost_s, self.work_s)]
        load = self.plan.workflow.name if self.plan.workflow else f"fs, {self.plan.replicas} x"
        return (str(self.plan.seed), load, self.plan.disturbance.told or self.plan.kind, self.what, *times, ratio)


@contextlib.contextmanager
def place_of(plan: Plan, keep: Path) -> Iterator[tuple[Path, Session]]:
    """A session on its hosts, in a short directory of its own."""
    home = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))  # short: sockets lie in it
    mark = home.name[-8:].replace("_", "x")
    with hosts(NODES, home, mark) as those, running(Session(f"c{mark}", those, home, plan.replicas)) as session:
        yield home, session


def submit(session: Session, place: Path, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    common = ["--session", session.name, "--trace", loads.TRACE, "--journal", str(log.with_name(JOURNAL))]
    with open(log, "ab") as file:
        return subprocess.Popen(
            session.hosts.login.command([*AMFS, "run", *common, *arguments]),
            env=session.hosts.login.environment(session.name), cwd=place, stdout=file, stderr=file, stdin=subprocess.DEVNULL,
        )  # fmt: skip


def wait(process: subprocess.Popen[bytes], within_s: float, what: str) -> int:
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        raise Finding(f"{what} has not ended after {within_s:g} s") from None


# ── workflows ──────────────────────────────────────────────────────────────────────────────────────


class Baselines:
    """Results, time and bytes of journal of each workflow when nothing happens; made when first asked for, kept in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def of(self, plan: Plan) -> tuple[dict[str, str], float, int]:
        assert plan.workflow is not None
        file = self.directory / f"{plan.workflow.name}.json"
        if not file.exists():
            with place_of(plan, self.directory) as (home, session):
                place = prepared(plan, home)
                begin = time.monotonic()
                status = wait(submit(session, place, plan.workflow.arguments(), home / "submitter.log"), RUN_S, "an undisturbed run")
                seconds = time.monotonic() - begin
                if status:
                    raise Finding(f"an undisturbed run ends with {status}: {(home / 'submitter.log').read_text()}")
                if not plan.workflow.fetch(place, lambda *words: not session.run(session.nodes[0].host, *words).returncode):
                    raise Finding("the outputs of an undisturbed run are not there")
                file.write_text(json.dumps([plan.workflow.results(place), seconds, (home / JOURNAL).stat().st_size]))
                session.down()
            shutil.rmtree(home)
        results, seconds, grown = json.loads(file.read_text())
        return results, seconds, grown


def prepared(plan: Plan, home: Path) -> Path:
    assert plan.workflow is not None
    place = home / "work"
    place.mkdir()
    plan.workflow.prepare(place, random.Random(plan.workflow.name))
    return place


def run_workflow(plan: Plan, home: Path, session: Session, outcome: Outcome, baselines: Baselines) -> None:
    assert plan.workflow is not None
    expected, usual_s, grown = baselines.of(plan)
    place, log = prepared(plan, home), home / "submitter.log"
    arguments = [*(("--retries", "3") if plan.kind == "task" else ()), *plan.workflow.arguments()]
    begin = time.monotonic()
    process = submit(session, place, arguments, log)
    try:
        journal = home / JOURNAL
        while process.poll() is None and (not journal.exists() or journal.stat().st_size < plan.moment * grown):
            time.sleep(0.005)
        time.sleep(plan.delay_s)
        if process.poll() is not None:
            if process.returncode:
                raise Finding(f"the run ended with {process.returncode} before anything had happened: " + log.read_text()[-3000:])
            outcome.what = "too late"
            return
        plan.disturbance.apply(session, process)
        status = wait(process, RUN_S, "the run")
        if plan.kind == "submitter":
            time.sleep(plan.disturbance.choice)
            with contextlib.suppress(FileNotFoundError):  # killed before it had one
                (place / loads.TRACE).rename(home / "first-trace.json")
            status = wait(submit(session, place, ["--resume", *arguments], log), RUN_S, "the resumed run")
            outcome.what = "resumed"
        elif status and plan.kind == "cut" and "--resume" in log.read_text():
            # It was on the side that had to end, and says what to do. (A replay begins from the beginning.)
            outcome.what = f"ended with {status}, then " + ("resumed" if plan.workflow.resumable else "run again")
            session.settle(SETTLE_S)
            if not plan.workflow.resumable:
                place.rename(home / "first-work")
                place = prepared(plan, home)
            again = ["--resume"] if plan.workflow.resumable else []
            status = wait(submit(session, place, [*again, *arguments], log), RUN_S, "the resumed run")
        outcome.lost_s = time.monotonic() - begin - usual_s
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if status:
        raise Finding(f"the run ended with {status}: " + log.read_text()[-3000:])
    if not plan.workflow.fetch(place, lambda *words: not session.run(session.settle(SETTLE_S)[0].host, *words).returncode):
        # A node was lost after the run had looked for losses, or before anybody had noticed.
        outcome.what = "lost files made again by --resume"
        status = wait(submit(session, place, ["--resume", *arguments], log), RUN_S, "the run that makes lost files again")
        session.run(session.settle(SETTLE_S)[0].host, "scrub", "-q", "--accept-lost-names")  # if there are any: of two nodes at once
        if status or not plan.workflow.fetch(place, lambda *words: not session.run(session.settle(SETTLE_S)[0].host, *words).returncode):
            raise Finding(f"lost files are not made again ({status}): " + log.read_text()[-3000:])
    found = plan.workflow.results(place)
    differ = {
        "missing": expected.keys() - found.keys(), "not expected": found.keys() - expected.keys(),
        "other than in the undisturbed run": {name for name in expected.keys() & found.keys() if expected[name] != found[name]},
    }  # fmt: skip
    if any(differ.values()):
        each = [f"{len(names)} {what}: {', '.join(sorted(names)[:5])}" for what, names in differ.items() if names]
        raise Finding(f"of {len(expected)} outputs {'; '.join(each)}")
    outcome.what = outcome.what or "identical"
    living = session.settle(SETTLE_S)
    gone = disturbances.lost(session, living)
    if plan.kind == "kill" and (place / loads.TRACE).exists():
        outcome.work_s = lost_work(place / loads.TRACE, gone, plan.disturbance.at)
    outcome.findings += after_a_run(session, living)


def lost_work(trace: Path, gone: set[int], at: float) -> float:
    """Task-seconds: of work that was done again, and of work that each lost node may have been doing since its last result."""
    from amfs.runs.trace import read_trace

    read = read_trace(trace)
    began_us = read.facts["started_us"]
    last: dict[str, int] = {}
    again = 0.0
    until = dict.fromkeys(gone, 0)
    for n in range(len(read)):
        if not read.ok[n]:
            continue
        if read.task[n] in last:
            again += (read.end[last[read.task[n]]] - read.start[last[read.task[n]]]) / 1e6
        last[read.task[n]] = n
        if read.node[n] in until:
            until[read.node[n]] = max(until[read.node[n]], read.end[n])
    return again + sum(max(0.0, at - (began_us + end) / 1e6) for end in until.values())


def after_a_run(session: Session, living: list[Node]) -> list[str]:
    """Remains on living nodes of a run that has ended: sandboxes, files, processes."""
    stores = {path for node in living for path in Path("/dev/shm").glob(f"amfs-*-{session.name}-n{node.number}-*")}
    end = time.monotonic() + LEAVE_S
    while True:
        left = [
            path for store in stores for inside in (store / "mem", store) for pattern in ("work/sandboxes/*", "files/*", "aside/*")
            for path in inside.glob(pattern)
        ]  # fmt: skip
        if not left or time.monotonic() > end:
            return [f"{path} is left after the run on a living node" for path in left[:5]]
        time.sleep(0.2)


# ── the file system ────────────────────────────────────────────────────────────────────────────────


def run_fs(plan: Plan, home: Path, session: Session, outcome: Outcome) -> None:
    mounts = session.mounts()
    session.ok("mkdir", "amfs:/flat")
    session.ok("mkdir", "--layout", "striped", "amfs:/striped")
    writers = [(f"m{node.number}", node, str(mounts[node.number])) for node in session.nodes]
    writers += [(f"c{node.number}", node, "") for node in plan.rng.sample(session.nodes, 2)]
    logs = [str(home / f"{name}.log") for name, _, _ in writers]
    programs = []
    for (name, node, mount), log in zip(writers, logs, strict=True):
        argv = [sys.executable, "-m", "chaos.fsload", "--log", log, "--seed", f"{plan.seed} {name}", "--name", name, "--seconds", "120"]
        argv += ["--node", str(node.number), *(["--mount", mount] if mount else []), "--others", *logs]
        environment = {**node.host.environment(session.name), "PYTHONPATH": str(loads.ROOT / "tests")}
        with open(home / f"{name}.err", "wb") as errors:
            programs.append(subprocess.Popen(node.host.command(argv), env=environment, stderr=errors, stdin=subprocess.DEVNULL, cwd=home))
    try:
        end = time.monotonic() + RUN_S
        while not all(os.path.exists(log) for log in logs) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.3 + 4.0 * plan.moment)
        plan.disturbance.apply(session, None)
        time.sleep(WRITE_S)
        living = session.settle(SETTLE_S)
        time.sleep(1.0)
        for log in logs:
            Path(log + ".stop").touch()
        for (name, _, _), program in zip(writers, programs, strict=True):
            if status := wait(program, 60.0, f"program {name}"):
                outcome.findings.append(f"program {name} ended with {status}: " + (home / f"{name}.err").read_text()[-500:])
    finally:
        for program in programs:
            program.kill()
    living = session.settle(SETTLE_S)
    gone = disturbances.lost(session, living)
    expected = fscheck.Expected()
    for log in logs:
        expected.take(Path(log))
    aborted = {session.nodes[plan.disturbance.victim].number} if plan.kind == "mount" else set()
    reads = {f"mount of node {node.number}": reader(mounts[node.number]) for node in living if node.number not in aborted}
    listed = fscheck.listing(lambda *words: session.run(living[0].host, *words), ("/flat", "/striped"))
    wrong, lost = fscheck.check(expected, reads, listed, gone, plan.replicas)
    outcome.findings += wrong[:20]
    outcome.what = f"{expected.acknowledged} calls, {len(expected.may)} names, {lost} lost by name"
    for place in mounts.values():
        subprocess.run(["umount", "-l", str(place)], capture_output=True)


def reader(mount: Path) -> Callable[[str], bytes]:
    return lambda name: Path(f"{mount}{name}").read_bytes()


# ── one run ────────────────────────────────────────────────────────────────────────────────────────


def run(plan: Plan, keep: Path, baselines: Baselines) -> Outcome:
    """Never raises for what amfs does; the directory of a run with findings is kept."""
    outcome = Outcome(plan)
    begin = time.monotonic()
    try:
        if plan.workflow:
            baselines.of(plan)
        with place_of(plan, keep) as (home, session):
            outcome.home = home
            outcome.remarks = session.hosts.remarks
            if plan.kind == "cut" and not session.hosts.isolated:
                outcome.what = "not possible here"
                return outcome
            try:
                if plan.workflow:
                    run_workflow(plan, home, session, outcome, baselines)
                else:
                    run_fs(plan, home, session, outcome)
            finally:
                describe(session, home, bool(outcome.findings) or sys.exc_info()[1] is not None)
            session.down()
            outcome.findings += session.leftovers()
    except Finding as finding:
        outcome.findings.append(str(finding))
    except Exception:
        outcome.findings.append("the chaos program itself: " + traceback.format_exc())
    outcome.seconds = time.monotonic() - begin
    if outcome.findings:
        outcome.what = "FOUND " + outcome.what
        kept = keep / f"{plan.seed}-{plan.load}-{plan.kind}"
        shutil.rmtree(kept, ignore_errors=True)
        keep.mkdir(parents=True, exist_ok=True)
        if outcome.home.is_absolute():
            shutil.copytree(outcome.home, kept, symlinks=True, ignore=no_files)
            shutil.rmtree(outcome.home, ignore_errors=True)
        else:
            kept.mkdir()
        outcome.home = kept
        (kept / "findings.txt").write_text("\n".join([plan.command, plan.disturbance.told, *outcome.findings]) + "\n")
    elif outcome.home.is_absolute():
        shutil.rmtree(outcome.home, ignore_errors=True)
    return outcome


def no_files(directory: str, names: list[str]) -> list[str]:
    """Names that are not copied: mounts and sockets."""
    return [name for name in names if name.startswith("mount-") or stat.S_ISSOCK(os.lstat(f"{directory}/{name}").st_mode)]


def describe(session: Session, home: Path, wrong: bool) -> None:
    """Keep the logs of the nodes, which go with the session; and, if something is ``wrong``, what the session says of itself."""
    for log in home.glob("*/*/node-*.log"):
        shutil.copy(log, home / log.name)
    if wrong:
        with contextlib.suppress(Exception):
            text = "\n".join(f"{pid} {what}" for pid, what in session.processes())
            for node in session.nodes:
                if node.lives():
                    said = session.run(node.host, "status", session.name)
                    text += f"\nnode {node.number}:\n{said.stdout}{said.stderr}"
            (home / "described.txt").write_text(text)
