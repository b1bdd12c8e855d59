"""``benchmarks swift``: the costs of scripts: functions, app tasks beside a task list, memory, the time to the first task, translation.

Owns the scripts and how they are timed. Runs are commands of their own; Swift/T is measured with the same scripts where ``swift-t`` is.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from amfs.bench.dispatch import work_parent
from amfs.errors import AmfsError

FUNCTIONS_TARGET = 20_000.0  # a second, at least
APPS_TARGET = 0.9  # of the rate of a task list, at least
MEMORY_TARGET = 1.0  # KiB a call, at most
FIRST_TARGET = 0.35  # seconds, at most
LINEAR_TARGET = 1.5  # ten times the tasks take at most so many times ten times the time

_FUNCTIONS = "(int o) f(int x) {{ o = x + 1; }}\nint A[];\nforeach i in [1:{count}] {{ A[i] = f(i); }}\ntrace(A[{count}]);\n"
_APPS = 'app noop(int i) {{ "/bin/true" i; }}\nforeach i in [1:{count}] {{ noop(i); }}\n'
_FILES = 'app (file o) noop(int i) {{ "/bin/true" i @stdout=o; }}\nforeach i in [1:{count}] {{ file f = noop(i); }}\n'
_FIRST = 'app first() {{ "touch" "{mark}"; }}\nfirst();\n'


class Row(msgspec.Struct):
    """One quantity. ``relation``: "at least", "at most"; ``compared_with``: the other one in the comparison."""

    title: str
    value: float
    unit: str
    target: float
    relation: str
    compared_with: str = ""
    reference: float | None = None

    @property
    def passed(self) -> bool:
        return self.value >= self.target if self.relation == "at least" else self.value <= self.target


class Report(msgspec.Struct):
    rows: list[Row]
    repeat: int
    remarks: list[str]


class Timed(msgspec.Struct):
    seconds: float
    peak_kib: int


def measure(*, calls: int, repeat: int, say: Callable[[str], None]) -> Report:
    """Measure everything with so many calls. Raises AmfsError."""
    with tempfile.TemporaryDirectory(prefix="amfs-bench-", dir=work_parent()) as work:
        bench = _Bench(Path(work), repeat)
        rows: list[Row] = []
        for measured in (bench.functions, bench.apps, bench.memory, bench.first, bench.translation):
            say(measured.__name__)
            rows += measured(calls)
        remarks = []
        if shutil.which("swift-t"):
            say("swift-t")
            rows += bench.peer(calls)
        else:
            remarks.append("swift-t is not installed, so nothing is measured beside it")
        return Report(rows, repeat, remarks)


def more(much: float, little: float) -> float:
    """How much more a large script takes than a small one. Raises AmfsError if that is not more than the noise."""
    if much <= little:
        raise AmfsError("the scripts are too small to be measured on this machine: use more calls")
    return much - little


class _Bench:
    def __init__(self, work: Path, repeat: int) -> None:
        self.work = work
        self.repeat = repeat

    def timed(self, *words: str) -> Timed:
        """Run a command to its end."""
        code = "import resource, subprocess, sys; e = subprocess.run(sys.argv[1:], stdout=2).returncode; " \
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(e)"  # fmt: skip
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-S", "-c", code, *words], cwd=self.work, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - begin
        if done.returncode:
            raise AmfsError(f"{' '.join(words)} has failed: {done.stderr.strip()[-300:]}")
        return Timed(seconds, int(done.stdout.split()[-1]))

    def amfs(self, *words: str) -> Timed:
        return self.timed(sys.executable, "-m", "amfs", *words)

    def run(self, file: str) -> Timed:
        return self.amfs("run", "--local", "--no-journal", "-q", file)

    def script(self, name: str, text: str, count: int) -> str:
        (self.work / name).write_text(text.format(count=count))
        return name

    def median(self, call: Callable[[], float]) -> float:
        return statistics.median(call() for _ in range(self.repeat))

    def functions(self, calls: int) -> list[Row]:
        little, much = self.script("f1.swift", _FUNCTIONS, 1), self.script("f.swift", _FUNCTIONS, calls)
        seconds = self.median(lambda: more(self.run(much).seconds, self.run(little).seconds))
        return [Row("function calls", calls / seconds, "calls/s", FUNCTIONS_TARGET, "at least")]

    def apps(self, calls: int) -> list[Row]:
        count = max(10, calls // 20)
        little, much = self.script("a1.swift", _APPS, 1), self.script("a.swift", _APPS, count)
        (self.work / "list1.txt").write_text("/bin/true 1\n")
        (self.work / "list.txt").write_text("".join(f"/bin/true {number}\n" for number in range(count)))
        rates, references = [], []
        for _ in range(self.repeat):
            rates.append(count / more(self.run(much).seconds, self.run(little).seconds))
            references.append(count / more(self.run("list.txt").seconds, self.run("list1.txt").seconds))
        value, reference = statistics.median(rates), statistics.median(references)
        return [
            Row("app calls", value / reference, "of its rate", APPS_TARGET, "at least", "the same tasks from a list", reference),
        ]

    def memory(self, calls: int) -> list[Row]:
        count = max(1000, calls)
        little, much = self.script("m1.swift", _FILES, 100), self.script("m.swift", _FILES, count)
        used = self.median(lambda: more(self.run(much).peak_kib, self.run(little).peak_kib) / (count - 100))
        return [Row("memory", used, "KiB an app call", MEMORY_TARGET, "at most")]

    def first(self, calls: int) -> list[Row]:
        mark = self.work / "mark"

        def once() -> float:
            mark.unlink(missing_ok=True)
            (self.work / "first.swift").write_text(_FIRST.format(mark=mark))
            words = [sys.executable, "-m", "amfs", "run", "--local", "--no-journal", "-q", "first.swift"]
            begin = time.time()
            subprocess.run(words, cwd=self.work, check=True)  # not timed(): its own start would count
            return mark.stat().st_mtime - begin

        return [Row("start to first task", self.median(once), "s", FIRST_TARGET, "at most")]

    def translation(self, calls: int) -> list[Row]:
        little, much = self.script("t1.swift", _FILES, calls // 10), self.script("t.swift", _FILES, calls)
        empty = self.script("t0.swift", _FILES, 1)

        def seconds(file: str) -> float:
            return self.amfs("translate", "--to", "tasklist", "-o", "/dev/null", file).seconds

        start = self.median(lambda: seconds(empty))
        short, long = more(self.median(lambda: seconds(little)), start), more(self.median(lambda: seconds(much)), start)
        return [
            Row(f"translation of {calls:,} tasks", long / (10 * short), "of linear", LINEAR_TARGET, "at most", "a tenth of them", short)
        ]

    def peer(self, calls: int) -> list[Row]:
        rows = []
        for title, name in (("function calls", "f.swift"), ("app calls", "a.swift")):
            count = calls if name == "f.swift" else max(10, calls // 20)
            ours = count / self.median(lambda name=name: self.run(name).seconds)  # type: ignore[misc]
            theirs = count / self.median(lambda name=name: self.timed("swift-t", name).seconds)  # type: ignore[misc]
            rows.append(Row(f"{title} beside Swift/T", ours / theirs, "of its rate", 1.0, "at least", "swift-t", theirs))
        return rows
