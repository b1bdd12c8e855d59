"""The C launcher through Python: real processes, files and signals. What the sanitisers see is csrc/tests/test_launcher.c."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs._native import Launcher
from amfs.engine.records import KEEP_FAILED, STAGED, WANT_OUTPUT, pack_body, pack_record
from amfs.engine.states import Outcome
from amfs.libexec import program

GUARD_SECONDS = 60.0
CONTEXT = 1
ENVIRONMENT = ["PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", "KEPT=base", "GONE=base"]


class Done(NamedTuple):
    serial: int
    outcome: int
    code: int
    slot: int
    start_us: int
    end_us: int
    cpu_us: int
    maxrss_kib: int
    outputs: tuple[tuple[int, int], ...]
    stdout: bytes
    stderr: bytes
    detail: str


class World:
    """A launcher with a store, a sandbox directory and a base directory on one file system."""

    def __init__(self, root: Path, slots: int = 2, memory: int = 0) -> None:
        self.root = root
        self.sandboxes = root / "sandboxes"
        self.store = root / "store"
        self.base = root / "base"
        self.logs = root / "logs"
        for directory in (self.sandboxes, self.store, self.base):
            directory.mkdir(exist_ok=True)
        self.launcher = Launcher(slots, memory=memory, sandbox_dir=str(self.sandboxes), log_dir=str(self.logs))
        self.launcher.set_context(CONTEXT, str(self.base), ENVIRONMENT)
        self.serial = 0

    def stored(self, name: str, content: bytes = b"content\n", mode: int = 0o444) -> str:
        """A file in the store, as a published output would be."""
        path = self.store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        return str(path)

    def to(self, name: str) -> str:
        return str(self.store / name)

    def record(self, argv: Sequence[str], serial: int | None = None, **options: Any) -> bytes:
        if serial is None:
            self.serial += 1
            serial = self.serial
        executable = options.pop("program", None) or argv[0]
        command = {name: options.pop(name) for name in ("env", "cwd", "stdin", "stdout", "stderr") if name in options}
        options.setdefault("context", CONTEXT)
        return pack_record(serial, pack_body(executable, argv, **command), **options)

    def shell(self, script: str, **options: Any) -> bytes:
        return self.record(["/bin/sh", "-c", script], **options)

    def wait(self, count: int = 1) -> list[Done]:
        """The next ``count`` completions; fails instead of hanging."""
        found: list[Done] = []
        end = time.monotonic() + GUARD_SECONDS
        while len(found) < count:
            ready, _, _ = select.select([self.launcher.fd], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"only {len(found)} of {count} completions, queued {self.launcher.queued()}, running {self.launcher.running()}"
            found += [Done(*each) for each in self.launcher.completions()]
        assert len(found) == count
        return found

    def run(self, record: bytes) -> Done:
        self.launcher.submit([record])
        return self.wait()[0]

    def until(self, true: Callable[[], object]) -> None:
        end = time.monotonic() + GUARD_SECONDS
        while not true():
            assert time.monotonic() < end, "it never became so"
            time.sleep(0.005)

    def assert_clean(self) -> None:
        assert os.listdir(self.sandboxes) == []


@pytest.fixture
def root() -> Iterator[Path]:
    shm = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="amfs-test-", dir=shm if os.access(shm, os.W_OK) else None))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def world(root: Path) -> Iterator[World]:
    it = World(root)
    yield it
    it.launcher.stop()
    it.assert_clean()


def gone(pid: int) -> bool:
    """No such process, or dead and only waiting to be collected by whoever adopted it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


# ── how a task ends ────────────────────────────────────────────────────────────────────────────────


def test_a_staged_task_from_input_to_published_output(world: World) -> None:
    before = time.time_ns() // 1000
    done = world.run(
        world.shell("tr a-z A-Z < in.txt > out.txt", inputs=[(world.stored("x"), "in.txt")], outputs=[("out.txt", world.to("new/dir/y"))])
    )
    assert (done.outcome, done.code, done.detail, done.stdout, done.stderr) == (Outcome.OK, 0, "", b"", b"")
    published = Path(world.to("new/dir/y"))
    assert published.read_bytes() == b"CONTENT\n"
    assert stat.S_IMODE(published.stat().st_mode) & 0o222 == 0
    assert done.outputs == ((8, published.stat().st_mtime_ns),)
    assert before <= done.start_us <= done.end_us <= time.time_ns() // 1000
    assert done.slot in (0, 1)
    world.assert_clean()


@pytest.mark.parametrize("status", [1, 2, 42, 255])
def test_exit_status(world: World, status: int) -> None:
    done = world.run(world.shell(f"echo said; echo complained >&2; exit {status}", outputs=[("never", world.to("never"))]))
    assert (done.outcome, done.code) == (Outcome.EXIT, status)
    assert (done.stdout, done.stderr) == (b"said\n", b"complained\n")
    assert done.detail == f"exit status {status}"
    assert not os.path.exists(world.to("never"))


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "USR1"])
def test_death_by_signal(world: World, name: str) -> None:
    number = getattr(signal, f"SIG{name}")
    done = world.run(world.shell(f"kill -{name} $$"))
    assert (done.outcome, done.code) == (Outcome.SIGNAL, number)
    assert done.detail.startswith(f"killed by signal {int(number)} (SIG{name})")


def test_signals_are_at_their_defaults(world: World) -> None:
    """Python ignores SIGPIPE; ``yes | head`` must not."""
    done = world.run(world.shell("grep -E '^Sig(Blk|Ign|Cgt)' /proc/$$/status; yes | head -1", flags=STAGED | WANT_OUTPUT))
    lines = done.stdout.decode().split("\n")
    # dash itself catches SIGINT and SIGCHLD at times; nothing may be blocked or ignored
    assert lines[0].split() == ["SigBlk:", "0" * 16]
    assert lines[1].split() == ["SigIgn:", "0" * 16]
    assert lines[3] == "y"
    assert done.stderr == b""


def test_missing_outputs_are_named_and_nothing_is_published(world: World) -> None:
    names = ["a.txt", "made.txt", "sub/b.txt"]
    done = world.run(world.shell("echo > made.txt", outputs=[(name, world.to(name)) for name in names]))
    assert done.outcome == Outcome.MISSING_OUTPUT
    assert done.detail == "did not make: a.txt, sub/b.txt"
    assert done.outputs == ((0, 0),) * 3
    assert os.listdir(world.store) == []


def test_an_output_that_is_a_directory(world: World) -> None:
    done = world.run(world.shell("mkdir out", outputs=[("out", world.to("out"))]))
    assert (done.outcome, done.detail) == (Outcome.MISSING_OUTPUT, "output out is a directory, not a regular file")


def test_an_output_without_destination_only_has_to_exist(world: World) -> None:
    assert world.run(world.shell("mkdir out; echo hi > file", outputs=[("out", ""), ("file", "")])).outcome == Outcome.OK
    assert world.run(world.shell("ln -s nowhere out", outputs=[("out", "")])).outcome == Outcome.MISSING_OUTPUT


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_an_output_that_is_a_symbolic_link_is_followed(world: World, where: str) -> None:
    outside = world.base / "outside"
    outside.write_bytes(b"linked")
    outside.chmod(0o644)
    script = "printf linked > real; ln -s real out" if where == "inside" else f"ln -s {outside} out"
    done = world.run(world.shell(script, outputs=[("out", world.to("deep/out"))]))
    assert done.outcome == Outcome.OK, done.detail
    assert done.outputs[0][0] == 6
    published = Path(world.to("deep/out"))
    assert not published.is_symlink()
    assert published.read_bytes() == b"linked"
    assert stat.S_IMODE(published.stat().st_mode) == 0o444
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    assert published.stat().st_ino != outside.stat().st_ino


def test_publishing_across_file_systems(world: World, tmp_path: Path) -> None:
    if tmp_path.stat().st_dev == world.store.stat().st_dev:
        pytest.skip("the store and the temporary directory are on one file system")
    data = os.urandom(3_000_001)
    source = world.stored("data", data)
    done = world.run(world.shell("cp in out", inputs=[(source, "in")], outputs=[("out", str(tmp_path / "new" / "out"))]))
    assert done.outcome == Outcome.OK, done.detail
    assert (tmp_path / "new" / "out").read_bytes() == data
    assert os.listdir(tmp_path / "new") == ["out"]


def test_staging_across_file_systems_copies(world: World, tmp_path: Path) -> None:
    (tmp_path / "far").write_bytes(b"far away")
    done = world.run(world.shell("cat in", inputs=[(str(tmp_path / "far"), "in")], flags=STAGED | WANT_OUTPUT))
    assert (done.outcome, done.stdout) == (Outcome.OK, b"far away")


def test_publishing_is_all_or_nothing(world: World) -> None:
    (world.store / "file").write_bytes(b"")
    done = world.run(world.shell("echo 1 > a; echo 2 > b", outputs=[("a", world.to("a")), ("b", world.to("file/b"))]))
    assert done.outcome == Outcome.SETUP
    assert "cannot publish 'b' as" in done.detail
    assert "Not a directory" in done.detail
    assert os.listdir(world.store) == ["file"]


def test_an_output_replaces_an_older_one(world: World) -> None:
    world.stored("out", b"old")
    assert world.run(world.shell("echo new > out", outputs=[("out", world.to("out"))])).outcome == Outcome.OK
    assert Path(world.to("out")).read_bytes() == b"new\n"


# ── what a task sees ───────────────────────────────────────────────────────────────────────────────


def test_names_with_anything_but_nul(world: World) -> None:
    name = "a b/ä→\n'\"$x\udcff*.txt"
    done = world.run(
        world.shell('cat "$IN" > "$OUT"', env=[f"IN={name}", f"OUT=o{name}"],
                    inputs=[(world.stored("x"), name)], outputs=[(f"o{name}", world.to(f"p{name}"))])
    )  # fmt: skip
    assert done.outcome == Outcome.OK, (done.detail, done.stderr)
    assert Path(world.to(f"p{name}")).read_bytes() == b"content\n"
    done = world.run(world.shell("true", outputs=[(name, world.to("q"))]))
    assert done.detail == f"did not make: {name}"


def test_names_above_the_working_directory(world: World) -> None:
    done = world.run(
        world.shell("pwd; cat ../../data/in > ../out; ls ..", depth=2, flags=STAGED | WANT_OUTPUT,
                    inputs=[(world.stored("x"), "../../data/in")], outputs=[("../out", world.to("y"))])
    )  # fmt: skip
    assert done.outcome == Outcome.OK, (done.detail, done.stderr)
    assert done.stdout.decode().split("\n") == [f"{world.sandboxes}/1/d0/d1", "d1", "out", ""]
    assert Path(world.to("y")).read_bytes() == b"content\n"


def test_inputs_read_in_place_and_named_absolutely(world: World) -> None:
    place = world.base / "big"
    place.write_bytes(b"big\n")
    done = world.run(
        world.shell(f"readlink sub/in; cat sub/in {place}", flags=STAGED | WANT_OUTPUT,
                    inputs=[(f"@{place}", "sub/in"), (f"@{place}", str(place))])
    )  # fmt: skip
    assert (done.outcome, done.stdout.decode()) == (Outcome.OK, f"{place}\nbig\nbig\n")


def test_environment(world: World) -> None:
    assert world.run(world.record(["/usr/bin/env"], flags=STAGED | WANT_OUTPUT)).stdout.decode().splitlines() == ENVIRONMENT
    done = world.run(world.record(["/usr/bin/env"], flags=STAGED | WANT_OUTPUT, env=["GONE", "KEPT=own", "NEW=a=b", "NEW=c", "NEVER"]))
    assert done.stdout.decode().splitlines() == [*ENVIRONMENT[:2], "KEPT=own", "NEW=c"]


def test_a_replaced_context_counts_for_records_submitted_later(world: World) -> None:
    other = world.root / "other"
    other.mkdir()
    world.launcher.submit([world.shell("sleep 0.05; pwd; echo $A", flags=WANT_OUTPUT) for _ in range(3)])
    world.launcher.set_context(CONTEXT, f"{other}/", ["A=2"])
    world.launcher.submit([world.shell("pwd; echo $A", flags=WANT_OUTPUT)])
    world.launcher.drop_context(CONTEXT)
    done = sorted(world.wait(4))
    assert [each.stdout.decode().split("\n") for each in done] == [[str(world.base), "", ""]] * 3 + [[str(other), "2", ""]]
    with pytest.raises(ValueError, match="context is not set"):
        world.launcher.submit([world.shell("true")])


def test_working_directories(world: World) -> None:
    (world.base / "here").mkdir()
    assert world.run(world.shell("pwd", cwd="here", flags=WANT_OUTPUT)).stdout.decode() == f"{world.base}/here\n"
    done = world.run(world.shell("pwd; cat ../in; echo > ../out", cwd="made/for it", flags=STAGED | WANT_OUTPUT,
                                 inputs=[(world.stored("x"), "made/in")], outputs=[("made/out", world.to("y"))]))  # fmt: skip
    assert done.outcome == Outcome.OK, (done.detail, done.stderr)
    assert done.stdout.decode() == f"{world.sandboxes}/2/made/for it\ncontent\n"
    done = world.run(world.shell("pwd", cwd="nowhere", flags=0))
    assert (done.outcome, done.code) == (Outcome.SETUP, 2)
    assert done.detail == f"cannot enter the working directory '{world.base}/nowhere': No such file or directory"


def test_unstaged_tasks_run_in_the_base_directory(world: World) -> None:
    done = world.run(world.shell("pwd; echo hi > out", flags=WANT_OUTPUT, outputs=[("out", world.to("out"))]))
    assert done.stdout.decode() == f"{world.base}\n"
    assert (world.base / "out").exists()
    assert not os.path.exists(world.to("out"))
    assert done.outputs == ((3, (world.base / "out").stat().st_mtime_ns),)
    assert world.run(world.shell("true", flags=0, outputs=[("none", "")])).detail == "did not make: none"


@pytest.mark.parametrize("flags", [0, STAGED])
def test_stdin_stdout_and_stderr_files(world: World, flags: int) -> None:
    data = bytes(range(256)) * 400
    (world.base / "in.bin").write_bytes(data)
    source = world.stored("in.bin", data)
    done = world.run(
        world.shell("cat; echo oops >&2", stdin="in.bin", stdout="logs/out.bin" if flags else "out.bin", stderr="err.txt", flags=flags,
                    inputs=[(source, "in.bin")], outputs=[("logs/out.bin" if flags else "out.bin", world.to("out.bin")),
                                                          ("err.txt", world.to("err.txt"))])
    )  # fmt: skip
    assert done.outcome == Outcome.OK, done.detail
    directory = world.store if flags else world.base
    assert (directory / "out.bin").read_bytes() == data
    assert (directory / "err.txt").read_bytes() == b"oops\n"
    assert (done.stdout, done.stderr) == (b"", b"")


def test_stdout_and_stderr_in_one_file(world: World) -> None:
    done = world.run(world.shell("echo 1; echo 2 >&2; echo 3", stdout="log", stderr="log", outputs=[("log", world.to("log"))]))
    assert done.outcome == Outcome.OK, done.detail
    assert Path(world.to("log")).read_bytes() == b"1\n2\n3\n"


def test_stdin_is_empty_unless_declared(world: World) -> None:
    assert world.run(world.shell("wc -c", flags=WANT_OUTPUT)).stdout.strip() == b"0"
    done = world.run(world.shell("cat", stdin="missing", flags=0))
    assert (done.outcome, done.code, done.detail) == (Outcome.SETUP, 2, "cannot open 'missing': No such file or directory")


def test_a_pipe_as_stdin_or_stdout_cannot_stop_the_launcher(world: World) -> None:
    os.mkfifo(world.base / "pipe")
    assert world.run(world.shell("cat", stdin="pipe", flags=0)).outcome == Outcome.OK
    done = world.run(world.shell("true", stdout="pipe", flags=0))
    assert (done.outcome, done.detail) == (Outcome.SETUP, "cannot open 'pipe': No such device or address")


def test_only_standard_descriptors_are_inherited(world: World) -> None:
    with open(os.devnull) as extra:
        os.set_inheritable(extra.fileno(), True)
        done = world.run(world.record([sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"], flags=WANT_OUTPUT))
    assert done.stdout == b"['0', '1', '2', '3']\n"  # 3 is the listing itself


def test_captured_tails(world: World) -> None:
    script = "i=0; while [ $i -lt 2000 ]; do echo line $i; echo oops $i >&2; i=$((i+1)); done; exit 3"
    done = world.run(world.shell(script, capture=100))
    assert len(done.stdout) == len(done.stderr) == 100
    assert done.stdout.endswith(b"line 1998\nline 1999\n")
    assert done.stderr.endswith(b"oops 1998\noops 1999\n")
    assert world.run(world.shell("exit 3", capture=100)).stdout == b""  # nothing of the earlier task
    assert world.run(world.shell("echo no; exit 3", capture=0)).stdout == b""


def test_wanted_output_is_whole_or_in_a_file(world: World) -> None:
    done = world.run(world.shell("printf '\\0\\377binary'", flags=STAGED | WANT_OUTPUT))
    assert (done.stdout, done.detail) == (b"\0\xffbinary", "")
    done = world.run(world.shell("seq 1 5000", flags=STAGED | WANT_OUTPUT, capture=10, serial=0xABC))
    whole = "".join(f"{i}\n" for i in range(1, 5001))
    assert done.outcome == Outcome.OK
    assert done.stdout == whole[:10].encode()
    assert done.detail == f"all {len(whole)} bytes of stdout: {world.logs}/abc.stdout"
    assert (world.logs / "abc.stdout").read_text() == whole


def test_a_talkative_task_does_not_fill_the_memory(world: World) -> None:
    """Output beyond the tail is given back while the task still runs."""
    pattern = f"/proc/{os.getpid()}/task/*/fd/*"
    script = "head -c 64000000 /dev/zero; echo; sleep 1; exit 1"
    world.launcher.submit([world.shell(script, capture=1000)])

    def blocks() -> int:
        total = 0
        for path in Path("/").glob(pattern[1:]):
            with contextlib.suppress(OSError):
                if "memfd:stdout" in os.readlink(path):
                    total = max(total, os.stat(path).st_blocks * 512)
        return total

    world.until(lambda: blocks() > 0)
    world.until(lambda: blocks() < 3_000_000)
    done = world.wait()[0]
    assert done.stdout == b"\0" * 999 + b"\n"


# ── programs ───────────────────────────────────────────────────────────────────────────────────────


def test_setup_errors_are_for_people(world: World) -> None:
    done = world.run(world.record(["/no/such/program"]))
    assert (done.outcome, done.code, done.detail) == (Outcome.SETUP, 2, "cannot start '/no/such/program': No such file or directory")
    text = world.base / "text"
    text.write_text("hello")
    done = world.run(world.record([str(text)]))
    assert (done.outcome, done.code, done.detail) == (Outcome.SETUP, 13, f"cannot start '{text}': Permission denied")
    text.write_text("#!/no/interpreter\n")
    text.chmod(0o755)
    done = world.run(world.record([str(text)]))
    assert done.detail == (
        f"cannot start '{text}': No such file or directory (the file exists; the interpreter that it asks for does not)"
    )
    done = world.run(world.shell("true", inputs=[(world.to("missing"), "in")]))
    assert (done.outcome, done.code) == (Outcome.SETUP, 2)
    assert done.detail == f"cannot stage input 'in' from '{world.to('missing')}': No such file or directory"
    done = world.run(world.shell("true", inputs=[(str(world.store), "in")]))
    assert (done.outcome, done.detail) == (Outcome.SETUP, f"cannot stage input 'in': '{world.store}' is a directory")
    world.assert_clean()


def test_a_script_without_interpreter_line_goes_to_the_shell(world: World) -> None:
    script = world.base / "script"
    script.write_text('echo "$0|$1|$2"\n')
    script.chmod(0o755)
    done = world.run(world.record(["ignored", "a b", "c"], program=str(script), flags=WANT_OUTPUT))
    assert (done.outcome, done.stdout.decode()) == (Outcome.OK, f"{script}|a b|c\n")


def test_a_relative_program_is_relative_to_the_working_directory(world: World) -> None:
    (world.base / "bin").mkdir()
    script = world.base / "bin" / "tool"
    script.write_text("#!/bin/sh\necho tool $0\n")
    script.chmod(0o755)
    assert world.run(world.record(["./tool"], cwd="bin", flags=WANT_OUTPUT)).stdout == b"tool ./tool\n"
    stored = world.stored("tool", script.read_bytes(), 0o555)
    assert world.run(world.record(["bin/tool"], inputs=[(stored, "bin/tool")], flags=STAGED | WANT_OUTPUT)).stdout == b"tool bin/tool\n"


def test_argument_lists_up_to_the_system_limit(world: World) -> None:
    many = [f"{i:07d}" for i in range(100_000)]
    done = world.run(world.record(["/bin/sh", "-c", "echo $#", "sh", *many], flags=WANT_OUTPUT))
    assert done.stdout == b"100000\n"
    done = world.run(world.record(["/bin/echo", *(["x" * 100_000] * 100)]))
    assert (done.outcome, done.code) == (Outcome.SETUP, 7)
    assert done.detail.startswith("cannot start '/bin/echo': Argument list too long (arguments and environment take 100")
    done = world.run(world.record(["/bin/echo", "x" * 200_000]))
    assert done.detail == (
        "cannot start '/bin/echo': Argument list too long (one argument or environment value has 200000 bytes; Linux allows 131071)"
    )


def test_thousands_of_inputs(world: World) -> None:
    inputs = [(world.stored(f"d{i % 7}/f{i}", b"%d\n" % i), f"part {i % 5}/f{i}") for i in range(3000)]
    done = world.run(world.shell("cat part*/* | wc -l > out", inputs=inputs, outputs=[("out", world.to("count"))]))
    assert done.outcome == Outcome.OK, done.detail
    assert Path(world.to("count")).read_text().strip() == "3000"


# ── protection of inputs ───────────────────────────────────────────────────────────────────────────


def test_scribbling_on_an_input_is_prevented_or_detected(world: World) -> None:
    """As root the mode does not stop it; then the change is seen, named, and nothing is published."""
    source = world.stored("shared", b"original")
    good = world.stored("good")
    done = world.run(
        world.shell("printf changed! > in; echo > out", inputs=[(good, "good"), (source, "in")], outputs=[("out", world.to("out"))])
    )
    if os.geteuid() == 0:
        assert (done.outcome, done.detail) == (Outcome.INPUT_CHANGED, "changed its input: in")
        assert not os.path.exists(world.to("out"))
    else:
        assert done.outcome == Outcome.OK or done.outcome == Outcome.EXIT
        assert Path(source).read_bytes() == b"original"


@pytest.mark.root
@pytest.mark.parametrize(
    "script", ["printf 12345678 > in", "printf x | dd of=in conv=notrunc bs=1 2>/dev/null", ": > in", "exec >> in; echo"]
)
def test_root_cannot_change_an_input_unseen(world: World, script: str) -> None:
    source = world.stored("shared", b"original")
    done = world.run(world.shell(f"{script}; exit 5", inputs=[(source, "in"), (source, "also")]))
    assert done.outcome == Outcome.INPUT_CHANGED
    assert done.detail == "changed its input: in, also; exit status 5"


def test_what_a_task_may_do_to_its_inputs(world: World) -> None:
    """Removing, replacing and renaming concern its sandbox only."""
    source = world.stored("shared", b"original")
    done = world.run(
        world.shell("rm a; printf x > a; mv b c; cp a d; mv d c", inputs=[(source, "a"), (source, "b")], outputs=[("c", world.to("c"))])
    )
    assert done.outcome == Outcome.OK, (done.detail, done.stderr)
    assert Path(source).read_bytes() == b"original"


def test_an_input_moved_to_an_output(world: World) -> None:
    source = world.stored("shared", b"original")
    done = world.run(world.shell("mv a b", inputs=[(source, "a")], outputs=[("b", world.to("b"))]))
    assert done.outcome == Outcome.OK, done.detail
    assert Path(source).read_bytes() == Path(world.to("b")).read_bytes() == b"original"


def test_a_stamp_in_the_record_is_what_counts(world: World) -> None:
    source = world.stored("shared", b"original")
    status = os.stat(source)
    right = (status.st_size, status.st_mtime_ns)
    assert world.run(world.shell("true", inputs=[(source, "in")], stamps=[right])).outcome == Outcome.OK
    for wrong in ((right[0] + 1, right[1]), (right[0], right[1] - 1)):
        done = world.run(world.shell("true", inputs=[(source, "in")], stamps=[wrong]))
        assert (done.outcome, done.detail) == (Outcome.INPUT_CHANGED, "changed its input: in")


# ── sandboxes ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "script",
    ["mkdir -p a/b/c; touch a/b/c/f", "mkdir x; touch x/y; chmod 0 x", "ln -s / all; ln -s . self", "touch .hidden '-rf'", "mkfifo p"],
)
def test_a_sandbox_is_removed_whatever_is_in_it(world: World, script: str) -> None:
    assert world.run(world.shell(f"{script}; exit 1")).outcome == Outcome.EXIT
    world.assert_clean()


def test_a_very_deep_sandbox_is_removed(world: World) -> None:
    code = "import os\nfor i in range(3000):\n    os.mkdir('d'); open('f', 'w').close(); os.chdir('d')"
    assert world.run(world.record([sys.executable, "-c", code])).outcome == Outcome.OK
    world.assert_clean()


def test_the_sandbox_of_a_failed_task_can_be_kept(root: Path) -> None:
    world = World(root)
    flags = STAGED | KEEP_FAILED
    assert world.run(world.shell("touch x", flags=flags)).outcome == Outcome.OK
    world.assert_clean()
    done = world.run(world.shell("echo > evidence; exit 1", flags=flags, serial=0x1F))
    assert done.detail == f"exit status 1; sandbox kept: {world.sandboxes}/1f"
    assert (world.sandboxes / "1f" / "evidence").exists()
    done = world.run(world.shell("ls", flags=flags | WANT_OUTPUT, serial=0x1F))  # an attempt later finds a fresh one
    assert (done.outcome, done.stdout) == (Outcome.OK, b"")
    world.launcher.stop()
    world.assert_clean()


# ── ending tasks ───────────────────────────────────────────────────────────────────────────────────


def test_a_time_limit(world: World) -> None:
    done = world.run(world.shell("sleep 100", time_limit_ms=250))
    assert (done.outcome, done.detail) == (Outcome.TIME_LIMIT, "exceeded its time limit of 0.25 s")
    assert done.end_us - done.start_us >= 250_000


def test_a_time_limit_on_a_task_that_does_not_listen(world: World) -> None:
    done = world.run(world.shell("trap '' TERM; echo started; while :; do sleep 0.05; done", time_limit_ms=150))
    assert (done.outcome, done.detail) == (Outcome.TIME_LIMIT, "exceeded its time limit of 0.15 s")
    assert done.end_us - done.start_us >= 1_150_000
    assert done.stdout == b"started\n"


def test_a_time_limit_on_a_task_that_left_its_group(world: World) -> None:
    code = "import os, time\nif os.fork() == 0:\n    os._exit(0)\nos.setpgid(0, os.getpgid(os.getppid()))\ntime.sleep(100)"
    done = world.run(world.record([sys.executable, "-c", code], time_limit_ms=300))
    assert done.outcome == Outcome.TIME_LIMIT, done.detail


def test_what_is_left_of_the_process_group_is_killed(world: World) -> None:
    done = world.run(world.shell("sleep 1000 & echo $!; (sleep 1000 & echo $!)", flags=WANT_OUTPUT))
    assert done.outcome == Outcome.OK
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    world.until(lambda: all(gone(pid) for pid in pids))


def test_kill(world: World) -> None:
    marker = world.base / "marker"
    records = [world.shell(f"echo $$ >> {marker}; sleep 1000", serial=i, flags=0) for i in range(1, 6)]
    world.launcher.submit(records)
    world.until(lambda: marker.exists() and len(marker.read_text().split()) == 2)
    assert (world.launcher.running(), world.launcher.queued()) == (2, 3)
    world.launcher.kill([1, 3, 5, 99])
    done = {each.serial: each for each in world.wait(3)}
    assert {serial: each.outcome for serial, each in done.items()} == {1: Outcome.CANCELLED, 3: Outcome.CANCELLED, 5: Outcome.CANCELLED}
    assert done[1].detail == "cancelled"
    assert done[1].start_us > 0
    assert (done[3].start_us, done[3].detail) == (0, "cancelled before it started")
    world.launcher.kill([2, 4])
    assert {each.serial for each in world.wait(2)} == {2, 4}
    assert all(gone(int(pid)) for pid in marker.read_text().split())


def test_kill_a_task_that_does_not_listen(world: World) -> None:
    world.launcher.submit([world.shell("trap '' TERM; echo > ready; while :; do sleep 0.05; done", flags=0)])
    world.until((world.base / "ready").exists)
    world.launcher.kill([1])
    done = world.wait()[0]
    assert (done.outcome, done.detail) == (Outcome.CANCELLED, "cancelled")


def test_withdraw(world: World) -> None:
    world.launcher.submit([world.shell("sleep 0.3", serial=i) for i in range(1, 9)])
    world.until(lambda: world.launcher.running() == 2)
    assert world.launcher.withdraw(0) == []
    assert world.launcher.withdraw(2) == [7, 8]
    assert world.launcher.withdraw(100) == [3, 4, 5, 6]
    assert world.launcher.queued() == 0
    assert {each.serial for each in world.wait(2)} == {1, 2}
    assert world.launcher.completions() == []


def test_stop_kills_and_cleans_up(root: Path) -> None:
    world = World(root, slots=3)
    pids = world.base / "pids"
    script = f"sleep 1000 & echo $! >> {pids}; trap '' TERM; echo $$ >> {pids}; wait"
    world.launcher.submit([world.shell(script, outputs=[("o", world.to("o"))]) for _ in range(10)])
    world.until(lambda: pids.exists() and len(pids.read_text().split()) == 6)
    world.launcher.stop()
    world.launcher.stop()
    world.assert_clean()
    world.until(lambda: all(gone(int(pid)) for pid in pids.read_text().split()))
    assert [Done(*each).outcome for each in world.launcher.completions()] == [Outcome.CANCELLED] * 3
    assert (world.launcher.queued(), world.launcher.running()) == (0, 0)
    assert world.launcher.cpu_us() > 0
    with pytest.raises(RuntimeError, match="stopped"):
        world.launcher.submit([world.shell("true")])


def test_tasks_die_with_the_process(root: Path) -> None:
    code = f"""
import os, sys, time
sys.path[:0] = {sys.path!r}
from tests.native.test_launcher import World
from pathlib import Path
world = World(Path({str(root)!r}))
world.launcher.submit([world.shell("echo $$ > pid$$; exec sleep 1000", flags=0) for _ in range(2)])
world.until(lambda: len(list(world.base.glob("pid*"))) == 2)
os.kill(os.getpid(), 9)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], timeout=GUARD_SECONDS, check=False)
    assert ended.returncode == -9
    pids = [int(path.name[3:]) for path in (root / "base").glob("pid*")]
    assert len(pids) == 2
    end = time.monotonic() + GUARD_SECONDS
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.01)


# ── order and resources ────────────────────────────────────────────────────────────────────────────


def overlap(done: Sequence[Done]) -> int:
    """The most tasks that ran at one time."""
    steps = sorted([(each.start_us, 1) for each in done] + [(each.end_us, -1) for each in done])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def test_slots_are_filled_and_kept(root: Path) -> None:
    world = World(root, slots=4)
    world.launcher.submit([world.shell("sleep 0.05") for _ in range(20)])
    done = world.wait(20)
    assert overlap(done) == 4
    assert {each.slot for each in done} == {0, 1, 2, 3}
    assert [each.serial for each in sorted(done, key=lambda each: each.start_us)] == list(range(1, 21))
    world.launcher.stop()


def test_cores_and_memory_are_accounted(root: Path) -> None:
    world = World(root, slots=4, memory=1000)
    world.launcher.submit([world.shell("sleep 0.05", cores=2) for _ in range(6)])
    assert overlap(world.wait(6)) == 2
    world.launcher.submit([world.shell("sleep 0.05", memory=400) for _ in range(6)])
    assert overlap(world.wait(6)) == 2
    world.launcher.submit([world.shell("sleep 0.02", cores=100, memory=10**12) for _ in range(3)])  # larger than the whole: alone
    world.launcher.submit([world.shell("sleep 0.02")])
    done = sorted(world.wait(4))
    assert overlap(done) == 1
    assert [each.outcome for each in done] == [Outcome.OK] * 4
    world.launcher.stop()


def test_usage_is_measured(world: World) -> None:
    code = "x = bytearray(300_000_000); n = 0\nwhile __import__('time').process_time() < 0.2: n += 1"
    done = world.run(world.record([sys.executable, "-c", code]))
    assert done.cpu_us >= 200_000
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert done.maxrss_kib >= 290_000 or (done.maxrss_kib == 0 and own > 290_000)
    assert world.run(world.shell("true")).maxrss_kib == 0  # smaller than this process: not known


def test_two_thousand_tasks(root: Path) -> None:
    world = World(root)
    body = pack_body("/bin/true", ["true"])
    world.launcher.submit([pack_record(i, body, context=CONTEXT) for i in range(1000)])
    for i in range(1000, 2000, 50):
        world.launcher.submit([pack_record(j, body, context=CONTEXT) for j in range(i, i + 50)])
    done = world.wait(2000)
    assert {each.serial for each in done} == set(range(2000))
    assert {each.outcome for each in done} == {Outcome.OK}
    assert (world.launcher.queued(), world.launcher.running()) == (0, 0)
    world.launcher.stop()
    world.assert_clean()


def test_no_wake_up_is_lost(world: World) -> None:
    """Chains: each task is submitted when the one before it is seen; many tiny batches; an odd pause now and then."""
    body = pack_body(program("amfs-noop"), ["noop"])
    for i in range(1500):
        count = 1 + i % 5
        world.launcher.submit([pack_record(100 * i + j, body, context=CONTEXT, flags=0) for j in range(count)])
        if i % 100 == 0:
            time.sleep(0.002)
        assert len(world.wait(count)) == count


def test_descriptors_do_not_leak(world: World) -> None:
    def threads_descriptors() -> int:
        counts = []
        for task in Path("/proc/self/task").iterdir():
            if (task / "comm").read_text().strip() == "amfs-launcher":
                counts.append(len(list((task / "fd").iterdir())))
        return max(counts)

    def batch() -> None:
        records = [world.shell("echo; exit 1", inputs=[(source, "i/n")], stdout="o", time_limit_ms=90_000) for _ in range(60)]
        records += [world.record(["/no/such"]) for _ in range(20)]
        records += [world.shell("true", stdin="nope") for _ in range(20)]
        world.launcher.submit(records)
        world.wait(100)

    source = world.stored("x")
    world.launcher.submit([world.shell("echo; echo >&2; sleep 0.2") for _ in range(2)])  # now each slot has what it will ever have
    world.wait(2)
    batch()
    here, there = len(os.listdir("/proc/self/fd")), threads_descriptors()
    for _ in range(3):
        batch()
    assert (len(os.listdir("/proc/self/fd")), threads_descriptors()) == (here, there)
    assert there < 20


def test_launchers_come_and_go(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    worlds = []
    for i in range(4):
        (root / str(i)).mkdir()
        worlds.append(World(root / str(i)))
    for world in worlds:
        world.launcher.submit([world.shell("echo $PPID; sleep 0.01", flags=WANT_OUTPUT) for _ in range(10)])
    for world in worlds:
        assert {each.outcome for each in world.wait(10)} == {Outcome.OK}
    del world
    worlds[0].launcher.stop()
    worlds.clear()  # the others without being stopped
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # that is the point
def test_a_fork_of_this_process_harms_nothing(world: World) -> None:
    world.launcher.submit([world.shell("sleep 0.2") for _ in range(4)])
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with contextlib.suppress(RuntimeError):
                world.launcher.submit([])
                os._exit(2)
            world.launcher = None  # type: ignore[assignment]
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert {each.outcome for each in world.wait(4)} == {Outcome.OK}


def test_a_parent_that_ignores_the_end_of_children(root: Path) -> None:
    """Started by a shell that ignores SIGCHLD, statuses must still arrive."""
    code = f"""
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
sys.path[:0] = {sys.path!r}
from tests.native.test_launcher import World
from pathlib import Path
world = World(Path({str(root)!r}))
done = world.run(world.shell("exit 7"))
world.launcher.stop()
sys.exit(done.code)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], timeout=GUARD_SECONDS, check=False)
    assert ended.returncode == 7


# ── malformed records ──────────────────────────────────────────────────────────────────────────────


def damaged(record: bytes, at: int, value: int) -> bytes:
    return record[:at] + struct.pack("<I", value) + record[at + 4 :]


def test_malformed_records_queue_nothing(world: World) -> None:
    good = world.shell("echo > ran", flags=0, env=["A=b"])
    faults = [
        (b"", "0 bytes"),
        (good[:-1], "bytes long"),
        (good + b"x", "bytes long"),
        (damaged(good, 4, 64), "unknown flags"),
        (damaged(good, 20, 0), "no cores"),
        (damaged(good, 36, 100_000), "too deep"),
        (damaged(good, 40, 0), "shorter than its counts"),
        (damaged(good, 40, 2), "do not agree"),
        (damaged(good, 40, 2**32 - 1), "shorter than its counts"),
        (damaged(good, 48, 2**32 - 1), "longer than it is"),
        (damaged(good, 52, 2**31), "shorter than its counts"),
        (damaged(good, 60, 2**32 - 1), "longer than it is"),
        (world.record(["sh"]), "bare name"),
        (world.record(["/bin/sh"], context=77), "context"),
        (world.shell("true", env=["=x"]), "environment"),
        (world.shell("true", inputs=[("", "x")]), "no source"),
        (world.shell("true", inputs=[("/x", "../x")]), "name of an input"),
        (world.shell("true", inputs=[("/x", "a/../../x")], depth=0), "name of an input"),
        (world.shell("true", outputs=[("a/..", "/x")]), "name of an output"),
        (world.shell("true", outputs=[("", "/x")]), "name of an output"),
        (world.shell("true", stdout="../../x", depth=1), "stdin, stdout or stderr"),
    ]
    for record, fault in faults:
        with pytest.raises(ValueError, match=fault):
            world.launcher.submit([good, record])
    with pytest.raises(TypeError):
        world.launcher.submit([good, "text"])  # type: ignore[list-item]
    assert (world.launcher.queued(), world.launcher.running()) == (0, 0)
    assert world.run(world.shell("true")).outcome == Outcome.OK
    assert not (world.base / "ran").exists()


@given(st.data())
def test_no_damage_gets_past_the_parser(data: st.DataObject) -> None:
    """Any record with bytes changed is refused, or is one that would run; parsing it never reads beyond it (the sanitisers look)."""
    record = bytearray(
        pack_record(1, pack_body("/bin/true", ["true", "x"], env=["A=b"]), context=9, inputs=[("/in", "a/b")], outputs=[("c", "/d")])
    )
    for _ in range(data.draw(st.integers(1, 6))):
        record[data.draw(st.integers(4, len(record) - 1))] = data.draw(st.integers(0, 255))
    with pytest.raises(ValueError, match=r"^record \d+: "):  # at the latest: no such context
        PARSER.submit([bytes(record)])


PARSER = Launcher(1, sandbox_dir=tempfile.gettempdir(), log_dir=tempfile.gettempdir())


def test_faults_of_set_up(root: Path) -> None:
    with pytest.raises(FileNotFoundError, match="sandbox directory"):
        Launcher(1, sandbox_dir=str(root / "no"), log_dir=str(root))
    with pytest.raises(NotADirectoryError, match="sandbox directory"):
        (root / "file").touch()
        Launcher(1, sandbox_dir=str(root / "file"), log_dir=str(root))
    for slots in (0, -1, 10**6):
        with pytest.raises(ValueError, match="slots"):
            Launcher(slots, sandbox_dir=str(root), log_dir=str(root))
    with pytest.raises(TypeError):
        Launcher(1)  # type: ignore[call-arg]
    launcher = Launcher(1, sandbox_dir=str(root), log_dir=str(root))
    with pytest.raises(ValueError, match="absolute"):
        launcher.set_context(1, "relative", [])
    with pytest.raises(ValueError, match="NAME=VALUE"):
        launcher.set_context(1, "/", ["A=b", "nonsense"])
    launcher.stop()
