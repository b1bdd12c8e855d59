"""The C launcher through Python: outcomes, files and programs. For the sanitisers: csrc/tests/test_launcher.c."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import stat
import sys
import time
from pathlib import Path

import pytest
from launching import CONTEXT, ENVIRONMENT, World
from waiting import until

from amfs._native import caller_limits
from amfs.host.umask import umask
from amfs.vocabulary.records import KEEP_FAILED, STAGED, WANT_OUTPUT
from amfs.vocabulary.states import Outcome

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


def test_who_looks_sees_what_runs(world: World) -> None:
    before = time.time_ns() // 1000
    assert world.launcher.at_work() == []
    world.launcher.submit([world.shell("sleep 600"), world.shell("sleep 600"), world.shell("sleep 600")])
    until(lambda: len(world.launcher.at_work()) == 2)  # slots
    tasks = world.launcher.at_work()
    assert [slot for _, _, slot, _ in tasks] == [0, 1] and len({serial for serial, *_ in tasks}) == 2
    for _, start_us, _, pid in tasks:
        assert before <= start_us <= time.time_ns() // 1000 and Path(f"/proc/{pid}").exists()
    os.kill(tasks[0][3], signal.SIGKILL)
    until(lambda: len({serial for serial, *_ in [*tasks, *world.launcher.at_work()]}) == 3)
    assert len(world.launcher.at_work()) <= 2


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
    # asked without a shell: dash blocks signals for a moment while it waits
    done = world.run(world.record(["/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"], flags=STAGED | WANT_OUTPUT))
    assert done.stdout.decode().split() == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16]
    done = world.run(world.shell("yes | head -1", flags=STAGED | WANT_OUTPUT))
    assert (done.stdout, done.stderr) == (b"y\n", b"")


def test_tasks_have_the_limit_of_open_files_that_the_launcher_began_with(tmp_path: Path) -> None:
    """A node raises its own later."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 7, hard))
    try:
        world = World(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        assert world.run(world.shell("ulimit -Sn", flags=STAGED | WANT_OUTPUT)).stdout == b"%d\n" % (soft - 7)
    finally:
        world.launcher.stop()


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
    published = Path(world.to("deep/out"))
    assert done.outputs[0] == (6, published.stat().st_mtime_ns)  # readers will compare it with these
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


def test_an_output_leaves_an_older_one_in_place(world: World) -> None:
    """Tasks may have been started with it. Its stamp is what the completion tells."""
    old = Path(world.stored("out", b"old"))
    os.utime(old, ns=(5, 5))
    inode = old.stat().st_ino
    done = world.run(world.shell("echo new > out; echo more > more", outputs=[("out", str(old)), ("more", world.to("more"))]))
    assert done.outcome == Outcome.OK, done.detail
    assert (old.read_bytes(), old.stat().st_ino) == (b"old", inode)
    assert done.outputs[0] == (3, 5) and done.outputs[1][0] == 5
    assert Path(world.to("more")).read_bytes() == b"more\n"
    world.assert_clean()


def test_a_linked_output_leaves_an_older_one_in_place(world: World) -> None:
    old = Path(world.stored("out", b"old"))
    done = world.run(world.shell("echo new > real; ln -s real out", outputs=[("out", str(old))]))
    assert done.outcome == Outcome.OK, done.detail
    assert old.read_bytes() == b"old" and done.outputs[0][0] == 3
    assert os.listdir(old.parent) == ["out"]


def test_what_cannot_be_published_whole_leaves_older_ones_in_place(world: World) -> None:
    old = Path(world.stored("out", b"old"))
    bad = world.to("dir")
    os.makedirs(f"{bad}/inside")
    done = world.run(world.shell("echo 1 > out; echo 2 > made; echo 3 > bad", outputs=[
        ("out", str(old)), ("made", world.to("made")), ("bad", f"{bad}/inside/../../out/x"),
    ]))  # fmt: skip
    assert done.outcome == Outcome.SETUP, done
    assert old.read_bytes() == b"old"
    assert not os.path.exists(world.to("made"))


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
    assert world.run(world.record(["/usr/bin/env"], flags=STAGED | WANT_OUTPUT)).stdout.decode().splitlines()[:-1] == ENVIRONMENT
    done = world.run(world.record(["/usr/bin/env"], flags=STAGED | WANT_OUTPUT, env=["GONE", "KEPT=own", "NEW=a=b", "NEW=c", "NEVER"]))
    assert done.stdout.decode().splitlines()[:-1] == [*ENVIRONMENT[:2], "KEPT=own", "NEW=c"]


@pytest.mark.parametrize(("flags", "cwd", "place"), [
    (STAGED, "", "{sandboxes}/1"), (STAGED, "sub/", "{sandboxes}/1/sub"), (STAGED, "a/./../b", "{sandboxes}/1/b"),
    (0, "", "{base}"), (0, "here", "{base}/here"), (0, "here/../here/.", "{base}/here"), (0, "/", "/"), (0, "/usr/", "/usr"),
])  # fmt: skip
def test_pwd_is_where_the_task_runs(world: World, flags: int, cwd: str, place: str) -> None:
    (world.base / "here").mkdir()
    world.launcher.set_context(CONTEXT, str(world.base), ["PWD=/somewhere/else", "OLDPWD=/before", *ENVIRONMENT])
    for own in ([], ["PWD=/wrong"]):
        done = world.run(world.record(["/usr/bin/env"], flags=flags | WANT_OUTPUT, cwd=cwd, env=own, serial=1))
        words = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
        assert (words.get("PWD"), words.get("OLDPWD")) == (place.format(sandboxes=world.sandboxes, base=world.base), None), done


def test_tasks_have_umask_limits_and_niceness_of_their_run(world: World) -> None:
    limits = list(caller_limits())
    limits[resource.RLIMIT_FSIZE], limits[resource.RLIMIT_CORE] = 1 << 20, 0
    world.launcher.set_context(CONTEXT, str(world.base), ENVIRONMENT, 0o027, os.getpriority(os.PRIO_PROCESS, 0) + 3, limits)
    done = world.run(world.shell("umask; ulimit -S -f; ulimit -S -c; nice; ulimit -H -f", flags=WANT_OUTPUT))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard // 512)
    assert done.stdout.decode().split() == ["0027", "2048", "0", str(os.getpriority(os.PRIO_PROCESS, 0) + 3), most]
    world.launcher.set_context(CONTEXT, str(world.base), ENVIRONMENT)
    done = world.run(world.shell("umask; nice", flags=WANT_OUTPUT))
    assert done.stdout.decode().split() == [f"{umask():04o}", str(os.getpriority(os.PRIO_PROCESS, 0))]


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
    assert (done.detail, done.facts) == ("", ((), f"{world.logs}/abc.stdout", len(whole), "", 0))
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
                if "memfd:output" in os.readlink(path):
                    total = max(total, os.stat(path).st_blocks * 512)
        return total

    until(lambda: blocks() > 0)
    until(lambda: blocks() < 3_000_000)
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
    world.assert_clean()


def test_a_directory_in_the_store_is_linked(world: World) -> None:
    tree = world.store / "tree"
    tree.mkdir()
    (tree / "file").write_text("content")
    done = world.run(world.shell("test $(cat in/file) = content && test -L in", inputs=[(str(tree), "in")]))
    assert done.outcome == Outcome.OK, done.detail
    assert [path.name for path in tree.iterdir()] == ["file"]
    shutil.rmtree(tree)
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


@pytest.mark.root
def test_a_change_is_seen_though_the_spoiled_file_was_dropped_meanwhile(world: World) -> None:
    """Another task wrote on it and the store let go of it: this one has read who knows what."""
    source = world.stored("shared", b"original")
    done = world.run(world.shell(f"printf x >> in; rm -f {source}", inputs=[(source, "in")]))
    assert (done.outcome, done.detail) == (Outcome.INPUT_CHANGED, "changed its input: in")


def test_a_file_made_again_while_a_task_reads_the_first_is_no_change_of_its_input(world: World) -> None:
    source = world.stored("shared", b"original")
    status = os.stat(source)
    stamps = [(status.st_size, status.st_mtime_ns)]
    script = f"echo another > {source}.new; mv {source}.new {source}; cat in > out"
    done = world.run(world.shell(script, inputs=[(source, "in")], stamps=stamps, outputs=[("out", world.to("out"))]))
    assert done.outcome == Outcome.OK, done.detail
    assert Path(world.to("out")).read_bytes() == b"original"


@pytest.mark.parametrize("damage", ["rm {}", "truncate -s 3 {}", "truncate -s 3 {}; exit 4"])
def test_what_the_spill_directory_loses_is_not_the_fault_of_the_task(world: World, damage: str) -> None:
    """A pipeline hides that its first program found no file, or a short one: nothing is published."""
    spilled, kept = world.stored("spilled", b"original"), world.stored("kept")
    os.chmod(spilled, 0o644)
    script = f"{damage.format(spilled)}; cat in | wc -c > out"
    done = world.run(world.shell(script, inputs=[(kept, "kept"), (f"@@{spilled}", "in")], outputs=[("out", world.to("out"))]))
    rest = "; exit status 4" if "exit" in damage else ""
    assert (done.outcome, done.detail) == (Outcome.INPUT_LOST, f"lost or changed in the spill directory: in{rest}")
    assert done.facts is not None and list(done.facts[0]) == [1]
    assert not os.path.exists(world.to("out"))


def test_what_the_spill_directory_loses_does_not_hide_what_a_task_changed(world: World) -> None:
    spilled, shared = world.stored("spilled"), world.stored("shared")
    script = f"rm {spilled} in; chmod u+w {shared}; echo more >> {shared}"
    done = world.run(world.shell(script, inputs=[(f"@@{spilled}", "in"), (shared, "also")]))
    assert (done.outcome, done.detail) == (Outcome.INPUT_CHANGED, "changed its input: in, also")


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
    assert (done.detail, done.facts) == ("exit status 1", ((), "", 0, f"{world.sandboxes}/1f", 0))
    assert (world.sandboxes / "1f" / "evidence").exists()
    done = world.run(world.shell("ls", flags=flags | WANT_OUTPUT, serial=0x1F))  # an attempt later finds a fresh one
    assert (done.outcome, done.stdout) == (Outcome.OK, b"")
    world.launcher.stop()
    world.assert_clean()
