"""The C launcher through Python: ending tasks, order and resources, wake-ups, leaks, malformed records."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from descriptors import open_descriptors
from hypothesis import given
from hypothesis import strategies as st
from launching import CONTEXT, GUARD_SECONDS, Done, World, gone
from waiting import until

from amfs._native import Launcher
from amfs.errors import SystemSetupError
from amfs.libexec import program
from amfs.vocabulary.records import STAGED, WANT_OUTPUT, pack_body, pack_record
from amfs.vocabulary.states import Outcome

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
    until(lambda: all(gone(pid) for pid in pids))


def test_kill(world: World) -> None:
    marker = world.base / "marker"
    records = [world.shell(f"echo $$ >> {marker}; sleep 1000", serial=i, flags=0) for i in range(1, 6)]
    world.launcher.submit(records)
    until(lambda: marker.exists() and len(marker.read_text().split()) == 2)
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
    until((world.base / "ready").exists)
    world.launcher.kill([1])
    done = world.wait()[0]
    assert (done.outcome, done.detail) == (Outcome.CANCELLED, "cancelled")


def test_withdraw(world: World) -> None:
    world.launcher.submit([world.shell("sleep 0.3", serial=i) for i in range(1, 9)])
    until(lambda: world.launcher.running() == 2)
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
    until(lambda: pids.exists() and len(pids.read_text().split()) == 6)
    world.launcher.stop()
    world.launcher.stop()
    world.assert_clean()
    until(lambda: all(gone(int(pid)) for pid in pids.read_text().split()))
    assert [Done(*each).outcome for each in world.launcher.completions()] == [Outcome.CANCELLED] * 3
    assert (world.launcher.queued(), world.launcher.running()) == (0, 0)
    assert world.launcher.cpu_us() > 0
    with pytest.raises(RuntimeError, match="stopped"):
        world.launcher.submit([world.shell("true")])


def test_tasks_die_with_the_process(root: Path) -> None:
    code = f"""
import os, sys, time
sys.path[:0] = {sys.path!r}
from launching import World
from waiting import until
from pathlib import Path
world = World(Path({str(root)!r}))
world.launcher.submit([world.shell("echo $$ > pid$$; exec sleep 1000", flags=0) for _ in range(2)])
until(lambda: len(list(world.base.glob("pid*"))) == 2)
os.kill(os.getpid(), 9)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], timeout=GUARD_SECONDS, check=False)
    assert ended.returncode == -9
    pids = [int(path.name[3:]) for path in (root / "base").glob("pid*")]
    assert len(pids) == 2
    until(lambda: all(gone(pid) for pid in pids))


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


def test_starts_that_fail_among_those_that_do_not(root: Path) -> None:
    """Several children are on their way to their programs at once: each has its own arguments, environment, directory and error."""
    several = World(root, slots=6)
    plain = several.base / "plain"
    plain.write_text("no program\n")
    outcomes: dict[int, tuple[int, int, str]] = {}
    records = []
    for serial in range(1, 601):
        kind = serial % 5
        if kind == 0:
            records.append(several.record(["/no/such/program"], serial=serial))
            outcomes[serial] = (Outcome.SETUP, errno.ENOENT, "cannot start '/no/such/program': No such file")
        elif kind == 1:
            records.append(several.record(["./plain"], serial=serial, flags=0))
            outcomes[serial] = (Outcome.SETUP, errno.EACCES, "cannot start './plain': Permission denied")
        elif kind == 2:
            cwd = f"none{serial}"
            records.append(several.record(["/bin/true"], serial=serial, flags=0, cwd=cwd))
            outcomes[serial] = (Outcome.SETUP, errno.ENOENT, f"cannot enter the working directory '{several.base}/{cwd}'")
        else:
            script = 'test "$MINE" = "$0" || exit 9; exit $1'
            argv = ["/bin/sh", "-c", script, str(serial), str(serial % 7)]
            records.append(several.record(argv, serial=serial, env=[f"MINE={serial}"]))
            outcomes[serial] = (Outcome.EXIT if serial % 7 else Outcome.OK, serial % 7, "exit status" if serial % 7 else "")
    several.launcher.submit(records)
    for done in several.wait(600):
        outcome, code, words = outcomes.pop(done.serial)
        assert (done.outcome, done.code) == (outcome, code), done
        assert done.detail.startswith(words), done
        assert (done.stdout, done.stderr) == (b"", b"")
    assert outcomes == {}
    several.assert_clean()
    several.launcher.stop()


def test_kills_meet_children_that_have_yet_to_start_their_programs(root: Path) -> None:
    several, late = World(root, slots=4), 0
    for turn in range(60):
        serials = [turn * 4 + each + 1 for each in range(4)]
        several.launcher.submit([several.record(["/bin/sleep", "100"], serial=serial) for serial in serials])
        time.sleep(0.0005 * (turn % 6))
        started = time.monotonic()
        several.launcher.kill(serials)
        assert {done.outcome for done in several.wait(4)} == {Outcome.CANCELLED}
        late += time.monotonic() - started > 0.9
    assert late <= 2, "SIGTERM was not heard, only SIGKILL a second later"
    several.assert_clean()
    several.launcher.stop()


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
    here = open_descriptors()
    for _ in range(3):
        batch()
    assert open_descriptors() <= here
    until(lambda: threads_descriptors() < 20)  # once it is idle and has seen that nothing is left of the tasks


def test_launchers_come_and_go(root: Path) -> None:
    before = open_descriptors()
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
    assert open_descriptors() <= before


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
from launching import World
from waiting import until
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


# ── all at once ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_any_use_accounts_for_every_task_once(root: Path, seed: int) -> None:
    """Random batches, ends, kills, withdrawals and limits: one completion for each task but the withdrawn, and nothing left."""
    chance = random.Random(seed)
    world = World(root, slots=3, memory=100)
    source = world.stored("in")
    scripts = ["exit 0", "exit 1", "sleep 0.03", "sleep 30", "kill -9 $$", "cat in > out; sleep 0.01", "trap '' TERM; sleep 0.2", "rm in"]
    waiting: set[int] = set()
    outcomes: dict[int, int] = {}
    for step in range(60):
        records = []
        for serial in range(1000 * step, 1000 * step + chance.randrange(5)):
            waiting.add(serial)
            staged = chance.random() < 0.7
            records.append(
                world.shell(
                    chance.choice(scripts), serial=serial, flags=STAGED if staged else 0, cores=chance.choice([1, 1, 1, 2, 9]),
                    memory=chance.choice([0, 10, 60, 1000]), time_limit_ms=chance.choice([20, 100, 400]),
                    inputs=[(source, "in")] if staged else [], outputs=[("out", world.to(f"out{serial}"))] if staged else [],
                )
            )  # fmt: skip
        world.launcher.submit(records)
        if chance.random() < 0.2:
            world.launcher.kill(chance.sample(sorted(waiting), min(len(waiting), 4)))
        if chance.random() < 0.1:
            waiting.difference_update(world.launcher.withdraw(chance.randrange(4)))
        if chance.random() < 0.3:
            time.sleep(chance.random() * 0.01)
        for each in world.launcher.completions():
            assert each[0] in waiting and each[0] not in outcomes
            outcomes[each[0]] = each[1]
    end = time.monotonic() + GUARD_SECONDS
    while len(outcomes) < len(waiting):
        assert select.select([world.launcher.fd], [], [], max(0.0, end - time.monotonic()))[0]
        for each in world.launcher.completions():
            assert each[0] in waiting and each[0] not in outcomes
            outcomes[each[0]] = each[1]
    assert outcomes.keys() == waiting
    assert len(set(outcomes.values())) >= 5
    made = {f"out{serial}" for serial, outcome in outcomes.items() if outcome == Outcome.OK}
    assert set(os.listdir(world.store)) <= {"in", *made}
    assert (world.launcher.queued(), world.launcher.running()) == (0, 0)
    world.assert_clean()
    world.launcher.stop()


def test_programs_are_found_or_missed_clearly() -> None:
    assert subprocess.run([program("amfs-noop")], check=False).returncode == 0
    with pytest.raises(SystemSetupError, match="amfs-nothing is not part of this installation"):
        program("amfs-nothing")
