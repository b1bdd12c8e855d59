"""``make soak-storage``: load and dump on real servers, while servers and commands and nodes are killed. See docs/testing.md.

    python -m chaos.storage [--stores moto,versitygw,hdfs,https,sftp,directory] [--small 10000] [--large 2048] [--kills 20] [--outages 5]
                            [--only whole,names,kills,outages,node] [--seed 1]

After each kill every object must be the old or the new one, and the same command said again must complete it. Exit code 1 if anything
was otherwise; each finding is a line.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from amfs.host.processes import is_running
from amfs.net.records import SessionRecord, load
from chaos.stores import RECORD, STORES, Directory, NotHere, Store, sha_of_file

NODES = 3
MIDDLE = 24 << 20  # bytes of one of them, which goes in parts
END_S = 600.0
HOWS = ("SIGINT", "SIGTERM", "SIGKILL")
Digests = dict[str, str]


def content(key: str, version: int, size: int) -> bytes:
    """Another one for each key and version, in each of its 64 KiB."""
    block = hashlib.shake_128(f"{key} {version}".encode()).digest(min(size, 1 << 16))
    return (block * (size // len(block) + 1))[:size] if block else b""


def objects_of(version: int, tag: str, count: int) -> dict[str, bytes]:
    sizes = {f"{tag}/{number:02}": 1 + number * 997 for number in range(count)} | {f"{tag}/middle": MIDDLE}
    made = {key: content(key, version, size) for key, size in sizes.items()}
    return made | {f"{tag}/zeros": bytes(100_000) + content("zeros", version, 8)}  # digests count runs of zeros


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Ended(NamedTuple):
    code: int
    told: str


class Session:
    """Three nodes of our own. ``replicas``: 2, so that one that dies takes nothing with it."""

    def __init__(self, place: Path, environment: dict[str, str]) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="amfs-k-", dir="/tmp"))  # short: sockets lie in it
        self._place = place
        self.name = f"store-{os.getpid()}-{time.monotonic_ns() % 100000}"
        self.environment = {**os.environ, **environment, "AMFS_RUN_DIR": str(self._home), "AMFS_SESSION": self.name}
        up = self.amfs("up", "--nodes", str(NODES), "--slots", "1", "--replicas", "2", "--name", self.name)
        assert up.code == 0, up.told
        self.record: SessionRecord = load(self._home / self.name / "session.json")

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "amfs", *arguments]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def amfs(self, *arguments: str) -> Ended:
        process = self.started(*arguments)
        _, told = process.communicate(timeout=END_S)
        return Ended(process.returncode, told)

    def kill_node(self, node: int) -> None:
        entry = self.record.nodes[node]
        os.kill(entry.pid, signal.SIGKILL)

    def end(self) -> str:
        told = self.amfs("down", self.name, "--timeout", "30")
        left = [entry for entry in self.record.nodes if is_running(entry.pid, entry.started)]
        for entry in left:
            os.kill(entry.pid, signal.SIGKILL)
        shutil.rmtree(self._home, ignore_errors=True)
        return f"amfs down left nodes: {told.told}" if left else ""


class Soak:
    """One store. Findings are gathered, and told as they come."""

    def __init__(self, store: Store, session: Session, place: Path, chance: random.Random) -> None:
        self.store = store
        self.session = session
        self.place = place
        self.chance = chance
        self.findings: list[str] = []
        self.checked = 0  # objects
        self.chosen: list[str] = []  # of the ways to kill; empty: all
        self.hows: list[str] = []  # of the signals; empty: all
        self.objects = 40  # small ones of the loads and dumps that are disturbed

    def find(self, words: str) -> None:
        self.findings.append(words)
        print(f"FINDING {self.store.name}: {words}", flush=True)

    def note(self, words: str) -> None:
        print(f"{self.store.name}: {words}", flush=True)

    # ── what is there ──

    def inside(self, directory: str) -> Digests:
        """The files of the session below a directory, by a dump to a directory of this machine, which is another way than URLs."""
        with tempfile.TemporaryDirectory(dir=self.place) as scratch:
            ended = self.session.amfs("dump", f"amfs:{directory}", f"{scratch}/out")
            for _ in range(5):  # the place of a node that died is just being taken
                if not ended.code or "Input/output error" not in ended.told:
                    break
                time.sleep(1)
                ended = self.session.amfs("dump", f"amfs:{directory}", f"{scratch}/out")
            top = Path(scratch, "out")
            if ended.code:
                if "No such file" not in ended.told:
                    self.find(f"what is in the session cannot be read: {ended}")
                return {}
            return {str(path.relative_to(top)): sha_of_file(path) for path in top.rglob("*") if path.is_file()}

    def outside(self, prefix: str) -> Digests:
        """Without what is deleted while it is looked at: the nodes end what a command that was killed had begun."""
        digests = self.store.digests(self.store.keys(prefix))
        return {key[len(prefix) :]: value for key, value in digests.items() if value}

    def compare(self, found: Digests, *allowed: Digests, what: str) -> None:
        """Each of ``found`` is the same in one of ``allowed``; all of the last are there if there is only one."""
        self.checked += len(found)
        for key, value in found.items():
            if value not in [one.get(key) for one in allowed]:
                self.find(f"{what}: {key} is neither old nor new" if len(allowed) > 1 else f"{what}: {key} differs, or is too much")
        if len(allowed) == 1 and (lost := allowed[0].keys() - found.keys()):
            self.find(f"{what}: {len(lost)} are missing, such as {min(lost)}")

    # ── whole: many small objects, and a large one ──

    def whole(self, small: int, large_mib: int) -> None:
        if small:
            self.many(small)
        if large_mib:
            self.large(large_mib)

    def many(self, small: int) -> None:
        many = {f"many/{number // 100:03}/{number:05}": content(str(number), 0, 1 + number % 2000) for number in range(small)}
        self.store.put_all(many)
        expected = {key[5:]: sha(data) for key, data in many.items()}
        self.timed(f"load of {small}", "load", self.store.directory("many"), "amfs:/many")
        self.compare(self.inside("/many"), expected, what="load of many")
        if self.store.writes:
            self.timed(f"dump of {small}", "dump", "amfs:/many", f"{self.store.url}back")
            self.compare(self.outside("back/"), expected, what="dump of many")
            self.timed(f"dump of {small} that are there", "dump", "amfs:/many", f"{self.store.url}back")
            self.store.remove("back/")
        self.store.remove("many/")
        self.session.amfs("rm", "-r", "amfs:/many")

    def large(self, mib: int) -> None:
        path = self.place / "large"
        with path.open("wb") as file:
            for number in range(mib):
                file.write(content("large", number, 1 << 20))
        expected = sha_of_file(path)
        self.store.put("large", path)
        path.unlink()
        self.timed(f"load of {mib} MiB", "load", f"{self.store.url}large", "amfs:/large")
        self.store.remove("large")
        if self.store.writes:
            self.timed(f"dump of {mib} MiB", "dump", "amfs:/large", f"{self.store.url}big/large")
            self.compare(self.outside("big/"), {"large": expected}, what="dump of a large one")
            self.store.remove("big/")
        else:
            self.compare(self.inside_one("/large"), {"large": expected}, what="load of a large one")
        self.session.amfs("rm", "amfs:/large")

    def inside_one(self, name: str) -> Digests:
        with tempfile.TemporaryDirectory(dir=self.place) as scratch:
            self.session.amfs("dump", f"amfs:{name}", f"{scratch}/large")
            path = Path(scratch, "large")
            return {"large": sha_of_file(path)} if path.is_file() else {}

    def timed(self, what: str, *arguments: str) -> None:
        begun = time.perf_counter()
        ended = self.session.amfs(*arguments)
        self.note(f"{what}: {time.perf_counter() - begun:.1f} s")
        if ended.code or ended.told:
            self.find(f"{what}: exit {ended.code}: {ended.told[:300]}")

    # ── names ──

    def names(self) -> None:
        """Each byte in a name, and some characters of more bytes: into the session, to the storage, back, and compared. A name that a
        storage cannot have must be told; none may come back as another."""
        ascii_names = [b"a%cz" % byte for byte in range(1, 128) if byte != ord("/")]
        ascii_names += [b"%c" % byte for byte in range(33, 127) if byte not in b"./"]
        bare = [b"b%cz" % byte for byte in range(128, 256)]  # no UTF-8
        wide = [f"c{chr(code)}z".encode() for code in (*range(128, 256), 0x2028, 0x4E2D, 0xFEFF, 0xFFFD, 0x1F600)]
        odd = [b" ", b" x", b"x ", b"...", b"%2F", b"%", b"x" * 255, b"a+b c", b"-rf", b"*", b"[a]", b"http:"]
        with tempfile.TemporaryDirectory(dir=self.place) as scratch:
            top = os.fsencode(scratch)
            os.mkdir(top + b"/in")
            expected = {name: b"content of " + name for name in {*ascii_names, *bare, *wide, *odd}}
            if self.store.hides_dotted:
                expected = {name: data for name, data in expected.items() if not name.startswith(b".")}
            for name, data in expected.items():
                with open(top + b"/in/" + name, "wb") as file:
                    file.write(data)
            told = self.session.amfs("load", f"{scratch}/in", "amfs:/names").told
            if self.store.writes:
                out = self.session.amfs("dump", "amfs:/names", f"{self.store.url}names")
                told += out.told
            else:
                assert isinstance(self.store, Directory)
                shutil.copytree(f"{scratch}/in", self.store.root / "names")
            told += self.session.amfs("load", self.store.directory("names"), "amfs:/again").told
            told += self.session.amfs("dump", "amfs:/again", f"{scratch}/out").told
            found = {}
            if os.path.isdir(top + b"/out"):
                for name in os.listdir(top + b"/out"):
                    with open(top + b"/out/" + name, "rb") as file:
                        found[name] = file.read()
        self.checked += len(found)
        if wrong := [name for name, data in found.items() if expected.get(name) != data]:
            self.find(f"names: {len(wrong)} came back as others, such as {wrong[0]!r}")
        lost = sorted(expected.keys() - found.keys())
        lines = told.count("\n")
        self.note(f"names: {len(expected)}, {len(found)} came back, {len(lost)} did not: {lost[:40]}; {lines} lines told")
        if lines < len(lost):
            self.find(f"names: {len(lost)} did not come, and {lines} lines were told: {told[:500]}")
        self.store.remove("names/")

    # ── disturbed ──

    def ways(self) -> list[str]:
        return ["load", "dump"] if self.store.writes else ["load"]

    def ways_to_kill(self) -> list[str]:
        """Of a directory; of one file; and of a run whose outputs are both."""
        ways = [*self.ways(), *(f"{way} of one" for way in self.ways())]
        if self.store.writes and "://" in self.store.url:  # outputs of a run get other places only at URLs
            ways.append("run")
        return [way for way in ways if way in self.chosen] if self.chosen else ways

    def prepared(self, way: str, version: int) -> tuple[list[str], Digests]:
        """The command that brings this version to where the one before is, and what must be there when it has ended."""
        if way.endswith(" of one"):
            return self._prepared_one(way, version)
        new = objects_of(version, "in", self.objects)
        if way == "run":
            return self._prepared_run(new, version)
        if way == "load":
            self.store.put_all(new)
            command = ["load", self.store.directory("in"), "amfs:/target"]
        else:
            with tempfile.TemporaryDirectory(dir=self.place) as scratch:
                for key, data in new.items():
                    path = Path(scratch, key)
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(data)
                ended = self.session.amfs("load", f"{scratch}/in", "amfs:/source")
                if ended.code:
                    self.find(f"a load from a directory failed: {ended}")
            command = ["dump", "amfs:/source", f"{self.store.url}target"]
        return command, {key[3:]: sha(data) for key, data in new.items()}

    def _prepared_one(self, way: str, version: int) -> tuple[list[str], Digests]:
        data = content("one", version, MIDDLE)
        if way == "load of one":
            self.store.put("one", data)
            return ["load", f"{self.store.url}one", "amfs:/one"], {"one": sha(data)}
        with tempfile.TemporaryDirectory(dir=self.place) as scratch:
            Path(scratch, "one").write_bytes(data)
            ended = self.session.amfs("load", f"{scratch}/one", "amfs:/source-one")
            if ended.code:
                self.find(f"a load from a directory failed: {ended}")
        return ["dump", "amfs:/source-one", f"{self.store.url}target-one/one"], {"one": sha(data)}

    def _prepared_run(self, new: dict[str, bytes], version: int) -> tuple[list[str], Digests]:
        """A task that makes a directory, half of whose names are of this version only, and one that makes a file."""
        names = {key: f"{key[3:]}-{version}" if number % 2 and key != "in/middle" else key[3:] for number, key in enumerate(new)}
        top = self.place / "run-in"
        shutil.rmtree(top, ignore_errors=True)
        top.mkdir()
        for key, name in names.items():
            (top / name).write_bytes(new[key])
        where = f"{self.store.url}target-run"
        lines = [
            f"#amfs path made {where}/d/",
            f"#amfs path one {where}/one",
            f"a -b cp -i {top} -o made -a -r {top} made",
            f"b -b cp -i {top}/middle -o one -a {top}/middle one",
        ]
        (self.place / "tasks").write_text("\n".join(lines) + "\n")
        digests = {f"d/{name}": sha(new[key]) for key, name in names.items()}
        return ["run", "-q", str(self.place / "tasks")], {**digests, "one": sha(new["in/middle"])}

    def seen(self, way: str) -> Digests:
        if way == "load of one":
            found = {"one": one["large"]} if (one := self.inside_one("/one")) else {}
        elif way == "load":
            found = self.inside("/target")
        else:
            found = self.outside({"dump": "target/", "dump of one": "target-one/", "run": "target-run/"}[way])
            found = {key: value for key, value in found.items() if not key.endswith(RECORD)}
        return {key: value for key, value in found.items() if not key.startswith(".amfs-")}

    def usual_s(self, way: str) -> tuple[float, Digests]:
        """How long it takes undisturbed, and what is there then."""
        command, expected = self.prepared(way, 0)
        begun = time.perf_counter()
        ended = self.session.amfs(*command)
        taken = time.perf_counter() - begun
        if ended.code:
            self.find(f"{way}: exit {ended.code}: {ended.told[:300]}")
        self.compare(self.seen(way), expected, what=f"{way}, undisturbed")
        return taken, expected

    def complete(self, way: str, command: list[str], expected: Digests, what: str) -> None:
        """Said again, it completes."""
        ended = self.session.amfs(*command)
        if ended.code:
            self.find(f"{what}: said again it ends with {ended.code}: {ended.told[:300]}")
        self.compare(self.seen(way), expected, what=f"{what}, said again")

    def kills(self, repeats: int) -> None:
        for way in self.ways_to_kill():
            usual, old = self.usual_s(way)
            for how in self.hows or HOWS:
                number, early = signal.Signals[how], 0
                for repeat in range(repeats):
                    version = self.chance.randrange(1, 1 << 30)
                    what = f"{way}, {how} {repeat}"
                    command, new = self.prepared(way, version)
                    process = self.session.started(*command)
                    time.sleep(self.chance.uniform(0.1, 1.0) * usual)
                    process.send_signal(number)
                    _, told = process.communicate(timeout=END_S)
                    early += process.returncode == 0
                    if "runpy" in told and "amfs/__main__.py" not in told:
                        told, process.returncode = "", 130  # Python had not begun amfs yet
                    if process.returncode not in (0, 130, 143, -number):
                        self.find(f"{what}: exit {process.returncode}: {told[:300]}")
                    if "Traceback" in told or told.count("\n") > (3 if way == "run" else 2):
                        self.find(f"{what}: tells {told[:300]!r}")
                    self.compare(self.seen(way), old, new, what=what)
                    self.complete(way, command, new, what)
                    old = new
                self.note(f"{way} with {how}: {repeats} times, {early} had ended before")

    def outages(self, repeats: int) -> None:
        for way in self.ways():
            usual, old = self.usual_s(way)
            went_on = 0
            for repeat in range(repeats):
                what = f"{way}, server killed {repeat}"
                command, new = self.prepared(way, self.chance.randrange(1, 1 << 30))
                process = self.session.started(*command)
                time.sleep(self.chance.uniform(0.2, 1.0) * usual)
                self.store.kill()
                time.sleep(self.chance.uniform(0.0, 3.0))
                self.store.start()
                if self.store.forgets:
                    old = {}
                    if way == "load":
                        self.store.put_all(objects_of(0, "in", self.objects))  # others than were promised
                        process.communicate(timeout=END_S)
                        command, new = self.prepared(way, self.chance.randrange(1, 1 << 30))
                        self.complete(way, command, new, what)
                        old = new
                        continue
                _, told = process.communicate(timeout=END_S)
                went_on += process.returncode == 0
                if "Traceback" in told or (process.returncode and not told):
                    self.find(f"{what}: exit {process.returncode}, tells {told[:300]!r}")
                self.compare(self.seen(way), old, new, what=what)
                self.complete(way, command, new, what)
                old = new
            self.note(f"{way} with the server killed and started: {repeats} times, {went_on} ended as if nothing had been")

    def node(self, repeats: int) -> None:
        """One of three nodes is killed; each time a session of its own."""
        for way in self.ways():
            went_on = 0
            for repeat in range(repeats):
                what = f"{way}, node killed {repeat}"
                usual, old = self.usual_s(way)
                command, new = self.prepared(way, self.chance.randrange(1, 1 << 30))
                process = self.session.started(*command)
                time.sleep(self.chance.uniform(0.2, 1.0) * usual)
                self.session.kill_node(self.chance.randrange(NODES))
                _, told = process.communicate(timeout=END_S)
                went_on += process.returncode == 0
                if "Traceback" in told or (process.returncode and not told):
                    self.find(f"{what}: exit {process.returncode}, tells {told[:300]!r}")
                self.compare(self.seen(way), old, new, what=what)
                self.complete(way, command, new, what)
                if words := self.session.end():
                    self.find(f"{what}: {words}")
                self.session = Session(self.place, self.store.environment)
                self.store.remove("target/")
            self.note(f"{way} with a node killed: {repeats} times, {went_on} ended as if nothing had been")

    def scrub(self) -> None:
        """Nothing is left of what did not end."""
        before = self.store.unfinished()
        if self.store.scrubbed:
            ended = self.session.amfs("scrub", "--remote", self.store.url, "--older", "0")
            if ended.code:
                self.find(f"scrub --remote: {ended}")
        after = self.store.unfinished()
        self.note(f"parts of what did not end: {len(before)}, after scrub --remote {len(after)}")
        if after and self.store.scrubbed:
            self.find(f"scrub --remote left {after[:3]}")


@contextlib.contextmanager
def opened(name: str, chance: random.Random) -> Iterator[Soak]:
    """Raises NotHere."""
    place = Path(tempfile.mkdtemp(prefix="amfs-soak-"))
    try:
        store = STORES[name](place)
        try:
            soak = Soak(store, Session(place, store.environment), place, chance)
            try:
                yield soak
            finally:
                if words := soak.session.end():
                    soak.find(words)
        finally:
            store.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos.storage", description="load and dump on real servers, disturbed")
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--only", default="whole,names,kills,outages,node")
    parser.add_argument("--small", type=int, default=10_000, help="objects of the load and dump that are not disturbed (default 10000)")
    parser.add_argument("--large", type=int, default=2048, metavar="MIB", help="of one more object (default 2048; 0: none)")
    parser.add_argument("--kills", type=int, default=20, help="of a command by each signal, and of a node, for each of load and dump")
    parser.add_argument("--ways", default="", help="what is killed: load, dump, 'load of one', 'dump of one', run (default: all)")
    parser.add_argument("--signals", default="", help="by which commands are killed: SIGINT, SIGTERM, SIGKILL (default: all)")
    parser.add_argument("--objects", type=int, default=40, help="small ones of each disturbed load and dump (default 40)")
    parser.add_argument("--outages", type=int, default=5, help="of the server, likewise")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a program started in the background ignores it, and so do its children
    findings = 0
    for name in options.stores.split(","):
        begun = time.perf_counter()
        try:
            with opened(name, random.Random(f"{options.seed} {name}")) as soak:
                only = options.only.split(",")
                soak.chosen = options.ways.split(",") if options.ways else []
                soak.hows = options.signals.split(",") if options.signals else []
                soak.objects = options.objects
                if "whole" in only:
                    soak.whole(options.small, options.large)
                if "names" in only:
                    soak.names()
                if "kills" in only:
                    soak.kills(options.kills)
                if "outages" in only and name != "directory":
                    soak.outages(options.outages)
                if "node" in only:
                    soak.node(options.kills)
                if soak.store.writes:
                    soak.scrub()
        except NotHere as error:
            print(f"{name}: not here: {error}")
            continue
        findings += len(soak.findings)
        print(f"{name}: {soak.checked} objects compared, {len(soak.findings)} findings, {time.perf_counter() - begun:.0f} s", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
