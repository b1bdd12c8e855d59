"""Sessions of jobs on a small real Slurm, each disturbed once while it works, and what must hold afterwards.

    python -m chaos.slurm --runs 20 --what scancel,limit --seed 1

A run is a session of its own: `amfs up --on slurm` on the login host, a file put into amfs:/ from each host, a workflow whose tasks pass
files to each other, driven with `--retries 0` from a host that has no job. At a random moment comes one of:

scancel       one job is cancelled
scancel-all   all jobs are cancelled
limit         the jobs meet their time limit of a minute
controller    slurmctld is away for 1 to 8 s
node          a node process is killed (-9); files of amfs:/ have two copies; in half of the runs a new job comes to its host
host          a host with a job crashes, and comes back before or after the session's end; likewise
founder       the session's node process on the login host, its keeper, or both are killed (-9); files of amfs:/ have two copies

Half of the sessions want all their jobs, so those that end are replaced; the others want one at least. Where jobs end, a node without a job
is in the session in half of the runs, and the work must go on there. Otherwise the run goes on in new jobs, or has to say in a line that no
node has slots; then after `amfs scale` the same run with `--resume` must do the rest.

Owns the runs and what is checked. The hosts and the Slurm are those of tests/cluster. Needs root and Slurm's daemons.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import waiting
from cluster import hosts as of_hosts
from cluster import slurm as of_slurm
from cluster.hosts import Host
from cluster.slurm import Slurm

JOBS = 3  # of a session: all hosts but the last have one
TASK_S = 0.5
LONG = 4  # of the first tasks, where some are longer than what is left of a job
PAIRS = 9  # of tasks: each of the first half makes a file, each of the second makes one of two of those
END_S = 180.0  # only turns a hang into a finding
NO_SLOTS = "no node of the session has slots for tasks"
OURS = (b"amfs\0node", b"amfs.node.main", b"amfs.provision", b"amfs\0run", b"amfs\0up", b"amfs-watcher", b"amfs-launcher")
SHOWN = 8  # of what is left, when much is
DRAIN_S = 55.0  # after amfs up began: the node of a job of a minute begins to drain


def until(condition: Callable[[], object], otherwise: str) -> None:
    """Look twice a second: each look starts commands, or goes through all processes."""
    waiting.until(lambda: condition() or time.sleep(0.5), otherwise)


class Finding(Exception):
    """Something that amfs promises and did not keep."""


class Outcome(NamedTuple):
    what: str
    number: int
    findings: list[str]
    line: str


class Run:
    """One session, its work, and what is done to it."""

    def __init__(self, slurm: Slurm, what: str, number: int, seed: int) -> None:
        self.slurm, self.what, self.number = slurm, what, number
        self.chance = random.Random(f"{seed} {what} {number}")
        self.name = f"{what}-{number}"
        self.login, self.outside = slurm.hosts.login, slurm.hosts.nodes[-1]
        self.place = slurm.hosts.shared / "runs" / self.name
        self.place.mkdir(parents=True)
        self.notes: list[str] = []
        self.crashed: Host | None = None
        self.killed: Host | None = None
        self.stores: set[str] = set()  # on the host of a node that is killed
        self.least = self.chance.choice([JOBS, 1])
        self.stays: subprocess.Popen[bytes] | None = None
        ends_jobs = what in ("scancel", "scancel-all", "limit")
        self.with_another = ends_jobs and self.chance.random() < 0.5
        self.copies = 2 if what in ("node", "host", "founder") else 1
        self.task_s = self.chance.choice([TASK_S, 12.0]) if what == "limit" else TASK_S

    # ── a session and its work ─────────────────────────────────────────────────────────────────────

    def amfs(self, host: Host, *words: str, timeout: float = END_S) -> subprocess.CompletedProcess[str]:
        done = host.run("amfs", *words, env=self.slurm.env, check=False, cwd=self.place, timeout=timeout)
        with open(self.place / "commands.log", "a") as log:
            print(f"{time.strftime('%X')} {host.name}: amfs {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}", file=log)
        if "Traceback" in done.stderr:
            raise Finding(f"amfs {words[0]} shows a traceback: {done.stderr[-600:]}")
        return done

    def ok(self, host: Host, *words: str) -> str:
        done = self.amfs(host, *words)
        if done.returncode:
            raise Finding(f"amfs {' '.join(words)} on {host.name}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        """As the login host is told; it has no part in the run, of which who asks would leave a record there."""
        said = self.amfs(self.login, "status", self.name, "--output", "json")
        return json.loads(said.stdout)["sessions"][0] if said.returncode == 0 else {"nodes": [], "jobs": [], "said": [said.stderr]}

    def members(self) -> int:
        return sum(node["state"] == "up" for node in self.status()["nodes"])

    def start(self) -> None:
        nodes = f"{JOBS}" if self.least == JOBS else f"1..{JOBS}"
        more = [*(("--time", "1m") if self.what == "limit" else ()), *(("--replicas", "2") if self.copies == 2 else ())]
        options = ("--exclusive", f"--exclude={self.outside.name}")
        self.began = time.monotonic()
        self.ok(self.login, "up", "--on", "slurm", "--name", self.name, "--nodes", nodes, "--slots", "1", *more, "--", *options)
        until(lambda: self.members() == JOBS + 1, "the nodes do not come")
        self.first = set(self.jobs())
        if self.with_another:
            self.notes.append("with a node that has no job")
            file = str(self.login.home / ".amfs/sessions" / self.name / "session.json")
            self.stays = self.outside.start(
                "amfs", "node", "--join", file, "--slots", "1", log=self.place / "another.log", cwd=self.place, env=self.slurm.env
            )
            until(lambda: self.members() == JOBS + 2, "the node without a job does not come")
        putting = []
        for number, host in enumerate(self.slurm.hosts.nodes[:JOBS]):
            (self.place / f"kept-{number}").write_bytes(self.chance.randbytes(self.chance.randrange(1, 300_000)))
            words = ("amfs", "put", "--session", self.name, f"kept-{number}", f"amfs:/kept-{number}")
            putting.append(host.start(*words, log=self.place / "put.log", cwd=self.place, env=self.slurm.env))
        codes = [one.wait(timeout=END_S) for one in putting]
        if any(codes):
            raise Finding(f"amfs put: {(self.place / 'put.log').read_text()}")
        lines = []
        for k in range(PAIRS):
            script = f"echo a{k} >> {self.place}/begun; sleep {self.task_s if k < LONG else TASK_S}; seq {k} {k + 2000} > m{k}"
            lines.append(f"a{k} -b sh -o m{k} -a -c '{script}'")
        for k in range(PAIRS):
            one, other = f"m{k}", f"m{(k + 1) % PAIRS}"
            script = f"echo b{k} >> {self.place}/begun; cat {one} {other} > o{k}; sleep {TASK_S}"
            lines.append(f"b{k} -b sh -i {one} -i {other} -o o{k} -a -c '{script}'")
        (self.place / "list").write_text("\n".join(lines) + "\n")

    def driven(self, *more: str) -> subprocess.Popen[bytes]:
        words = ("amfs", "run", "--session", self.name, "--retries", "0", *more, "list")
        return self.outside.start(*words, cwd=self.place, log=self.place / "run.log", env=self.slurm.env)

    def said(self) -> str:
        return (self.place / "run.log").read_text()

    # ── what is done to it ─────────────────────────────────────────────────────────────────────────

    def jobs(self) -> list[str]:
        return [job["job"] for job in self.status()["jobs"]]

    def running(self) -> set[str]:
        return {line.partition("|")[0] for line in self.slurm.queue() if "|RUNNING|" in line}

    def scancel(self) -> None:
        job = self.chance.choice(self.jobs())
        self.slurm.on_login("scancel", job)
        self.is_told(job, "it was cancelled")

    def scancel_all(self) -> None:
        jobs = self.jobs()
        self.slurm.on_login("scancel", *jobs)
        for job in jobs:
            self.is_told(job, "it was cancelled")

    def is_told(self, job: str, words: str) -> None:
        until(
            lambda: any(f"job {job}, " in line and words in line for line in self.status()["said"]),
            f"status does not say of job {job}: {words}",
        )

    def limit(self) -> None:
        """The clock does it."""
        until(lambda: not self.running() & self.first, "jobs go on after their time limit")
        self.notes.append(f"jobs ended {time.monotonic() - self.began:.0f} s after amfs up began")

    def controller(self) -> None:
        away = self.chance.uniform(1.0, 8.0)
        self.notes.append(f"away for {away:.1f} s")
        self.slurm.stop_controller()
        try:
            time.sleep(away)
        finally:
            self.slurm.start_controller()

    def node(self) -> None:
        self.killed = self.chance.choice(self.slurm.hosts.nodes[:JOBS])
        self.stores = set(self.killed.listing("/dev/shm"))
        self.kill(self.killed, "amfs\x00node")

    def host(self) -> None:
        self.crashed = self.chance.choice(self.slurm.hosts.nodes[:JOBS])
        self.crashed.crash()
        if self.chance.random() < 0.5:
            self.revive()

    def founder(self) -> None:
        words = self.chance.choice([("amfs.node.main",), ("amfs.provision.keeper",), ("amfs.node.main", "amfs.provision.keeper")])
        self.notes.append(f"killed {' and '.join(words)}")
        for word in words:
            self.kill(self.login, word)

    def come_again(self, host: Host) -> None:
        """A new job on the host, the only one that is free, whose node takes away what the killed one had in memory."""
        until(lambda: any(job["state"] == "ended" for job in self.status()["jobs"]), "the killed node stays a member")
        if self.least < JOBS:
            self.ok(self.login, "scale", str(JOBS), "--session", self.name)
        until(lambda: self.members() == JOBS + 1, "the node of the new job does not come")
        self.notes.append("a new job on its host" + (", by itself" if self.least == JOBS else ""))
        if rest := self.stores & set(host.listing("/dev/shm")):
            raise Finding(f"what the killed node left is not taken away by the one that came: {', '.join(rest)}")

    def kill(self, host: Host, word: str) -> None:
        found = host.processes(word)
        if not found:
            raise Finding(f"there is no process of {word!r} on {host.name}")
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def revive(self) -> None:
        if self.crashed is not None:
            host = self.slurm.hosts.revive(self.crashed)
            self.crashed = None
            self.slurm.start_node(host)
            self.notes.append("the host is back")

    # ── what must hold ─────────────────────────────────────────────────────────────────────────────

    def work(self) -> None:
        """The run, disturbed, and if it could not go on, the rest of it in new jobs."""
        if self.what == "limit":
            time.sleep(max(0.0, self.began + DRAIN_S - self.chance.uniform(2.0, 6.0) - time.monotonic()))
        process = self.driven()
        moment = 0.0 if self.what == "limit" else self.chance.uniform(0.3, 4.0)
        time.sleep(moment)
        if self.what == "limit":
            self.notes.append(f"tasks of {self.task_s:g} s first")
        else:
            self.notes.append(f"at {moment:.1f} s, when {self.begun()} tasks had begun")
        done: Callable[[], None] = getattr(self, self.what.replace("-", "_"))
        done()
        code = self.ended(process)
        if self.killed is not None and self.chance.random() < 0.5:
            self.come_again(self.killed)
        all_jobs_ended = self.what in ("scancel-all", "limit")
        if code and all_jobs_ended and not self.with_another and NO_SLOTS in self.said():
            self.notes.append("stopped, resumed")
            self.ok(self.login, "scale", str(JOBS), "--session", self.name)
            until(lambda: self.members() == JOBS + 1, "the nodes of the new jobs do not come")
            code = self.ended(self.driven("--resume"))
        if code:
            raise Finding(f"the run: exit {code}: {self.said()[-1500:]}")
        if "Traceback" in self.said():
            raise Finding(f"the run shows a traceback: {self.said()[-1500:]}")
        self.notes.append(f"{self.begun()} begun of {2 * PAIRS} tasks")

    def begun(self) -> int:
        """How often a task has begun."""
        with suppress(FileNotFoundError):
            return len((self.place / "begun").read_text().split())
        return 0

    def ended(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            raise Finding(f"the run does not end within {END_S:.0f} s: {self.said()[-1500:]}") from None

    def files(self) -> Iterator[str]:
        for k in range(PAIRS):
            parts = (k, (k + 1) % PAIRS)
            right = "".join(f"{line}\n" for part in parts for line in range(part, part + 2001))
            made = self.place / f"o{k}"
            if not made.exists() or made.read_text() != right:
                yield f"o{k} is {'wrong' if made.exists() else 'missing'}"
        back = self.place / "back"
        back.mkdir()
        names = [f"kept-{k}" for k in range(JOBS)]
        got = self.amfs(self.outside, "get", "--session", self.name, *(f"amfs:/{name}" for name in names), str(back))
        for name in names:
            if not (back / name).exists() or (back / name).read_bytes() != (self.place / name).read_bytes():
                yield f"amfs:/{name} is not there as it was closed: {got.stderr.strip()}"

    def end(self) -> None:
        where = self.outside if self.what == "founder" else self.chance.choice([self.login, self.outside])
        self.ok(where, "down", self.name)
        if self.stays is not None:
            self.stays.wait(timeout=END_S)
        self.revive()
        if self.what == "founder":
            self.amfs(self.login, "status")  # sweeps what was killed there
        if self.killed is not None:
            self.amfs(self.killed, "clean")  # it took nothing along, and no node may have come to its host
        until(lambda: not left(self.slurm), "")  # which is named by who calls

    def do(self) -> Outcome:
        findings: list[str] = []
        begun = time.monotonic()
        try:
            self.start()
            self.work()
            findings += self.files()
            self.end()
        except AssertionError as error:
            findings.append(str(error) or "after amfs down something is left")
        except (Finding, OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
            findings.append(str(error) if isinstance(error, Finding) else f"{type(error).__name__}: {error}")
        if findings:
            rest = left(self.slurm)
            findings += [f"left: {line}" for line in rest[:SHOWN]] + ([f"and {len(rest) - SHOWN} more"] if len(rest) > SHOWN else [])
        return Outcome(self.what, self.number, findings, f"{', '.join(self.notes)}; {time.monotonic() - begun:.0f} s")

    def clear(self, keep: Path) -> None:
        """Keep what a finding leaves, and make all hosts as they were for the run that comes next."""
        target = keep / self.name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.place, target)
        logs = [*(self.login.home / ".amfs/sessions").glob("*/*")]
        for host in self.slurm.hosts.all:
            logs += Path(f"/proc/{host.pid}/root/tmp/amfs-0").glob("*/node-*.log")
        for number, log in enumerate(path for path in logs if path.is_file() and not path.name.endswith(".json")):  # keys
            shutil.copy(log, target / f"{number}-{log.name}")
        if self.crashed is not None:
            self.revive()
        self.slurm.on_login("scancel", "--user=root", check=False)
        until(lambda: not self.slurm.queue(), "jobs do not end")
        for _, pid in processes(self.slurm):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for host in self.slurm.hosts.all:
            for place in ("dev/shm", "tmp"):
                for path in Path(f"/proc/{host.pid}/root/{place}").iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(self.login.home / ".amfs", ignore_errors=True)


def left(slurm: Slurm) -> list[str]:
    """Remains of amfs anywhere: files of hosts' memory, jobs, records in the home, processes. Python's own bytecode is nobody's."""
    bytecode = os.environ.get("PYTHONPYCACHEPREFIX") or "/nowhere"
    found = [f"job {line}" for line in slurm.queue()]
    found += [str(path) for path in (slurm.hosts.login.home / ".amfs/sessions").glob("*")]
    for host in slurm.hosts.all:
        for place in ("/dev/shm", "/tmp"):
            root = f"/proc/{host.pid}/root"
            paths = (f"{folder}/{name}" for folder, inner, names in os.walk(root + place) for name in (*inner, *names))
            for path in (path.removeprefix(root) for path in paths if path != f"{root}/tmp/amfs-0"):
                if not f"{bytecode}/".startswith(f"{path}/") and not path.startswith(f"{bytecode}/"):
                    found.append(f"{host.name}:{path}")
    return found + [f"process {pid} on {host.name}" for host, pid in processes(slurm)]


def processes(slurm: Slurm) -> Iterator[tuple[Host, int]]:
    """Of amfs, on all hosts."""
    inside = {os.readlink(f"/proc/{host.pid}/ns/pid"): host for host in slurm.hosts.all}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended
            if entry.name.isdigit() and (host := inside.get(os.readlink(entry / "ns/pid"))) is not None:
                command = (entry / "cmdline").read_bytes()
                if any(word in command for word in OURS):
                    yield host, int(entry.name)


WHAT = ("scancel", "scancel-all", "limit", "controller", "node", "host", "founder")


def one(slurm: Slurm, what: str, number: int, seed: int, keep: Path) -> Outcome:
    """One run; afterwards the Slurm is as before."""
    slurm.wait_until_idle()
    run = Run(slurm, what, number, seed)
    outcome = run.do()
    if outcome.findings:
        run.clear(keep)
    shutil.rmtree(run.place)
    return outcome


@contextmanager
def opened() -> Iterator[Slurm]:
    """A Slurm of its own. Raises OSError where there can be none."""
    shared = Path(tempfile.mkdtemp(prefix="amfs-h-", dir="/var/tmp"))  # hosts have a /tmp of their own
    try:
        with of_hosts.hosts(JOBS + 1, shared, f"s{os.getpid()}") as hosts, of_slurm.slurm(hosts) as made:
            yield made
    finally:
        shutil.rmtree(shared, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos.slurm", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20, help="of each kind [20]")
    parser.add_argument("--what", default=",".join(WHAT), help=f"kinds, with commas between them [{','.join(WHAT)}]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first run of each kind: a finding names its own [0]")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "amfs-slurm", help="for what runs with findings leave")
    options = parser.parse_args()
    kinds = options.what.split(",")
    if unknown := [kind for kind in kinds if kind not in WHAT]:
        parser.error(f"--what {','.join(unknown)}: there are {', '.join(WHAT)}")
    if reason := of_slurm.why_no_slurm():
        print(f"chaos.slurm: {reason}", file=sys.stderr)
        return 1
    for ending in (signal.SIGTERM, signal.SIGINT):  # and all is taken down first
        signal.signal(ending, lambda number, frame: sys.exit(128 + number))
    outcomes: list[Outcome] = []
    try:
        with opened() as slurm:
            for kind in kinds:
                for number in range(options.first, options.first + options.runs):
                    outcome = one(slurm, kind, number, options.seed, options.keep)
                    outcomes.append(outcome)
                    print(f"{'FOUND' if outcome.findings else 'fine '}  {kind} {number}: {outcome.line}", flush=True)
                    for finding in outcome.findings:
                        print(f"    {finding}", flush=True)
                    if outcome.findings:
                        print(f"    again: python -m chaos.slurm --what {kind} --runs 1 --first {number} --seed {options.seed}", flush=True)
    finally:
        print(table(kinds, outcomes), flush=True)
    return 1 if any(outcome.findings for outcome in outcomes) else 0


def table(kinds: list[str], outcomes: list[Outcome]) -> str:
    lines = [f"{'what':<12} runs  fine  with findings"]
    for kind in kinds:
        of_kind = [outcome for outcome in outcomes if outcome.what == kind]
        bad = sum(bool(outcome.findings) for outcome in of_kind)
        lines.append(f"{kind:<12} {len(of_kind):>4}  {len(of_kind) - bad:>4}  {bad:>13}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
