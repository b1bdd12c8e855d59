"""The C launcher through Python: processes that tasks leave behind, whatever they did to get away; and outputs without an end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from daily import daily
from launching import GUARD_SECONDS, World, gone
from waiting import until

from amfs.vocabulary.records import STAGED, WANT_OUTPUT
from amfs.vocabulary.states import Outcome

DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.chdir("/")
with open(sys.argv[1], "a") as told:
    print(os.getpid(), file=told)
os.closerange(0, 100)
time.sleep(1000)
"""

LEAVERS = {
    "group of its own": "timeout 500 sleep 400 & echo $! >> {pids}",
    "session of its own": "setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' & until [ -s {pids} ]; do sleep 0.01; done",
    "empty environment": "env -i setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' & until [ -s {pids} ]; do sleep 0.01; done",
    "daemon": "{python} {daemon} {pids}; until [ -s {pids} ]; do sleep 0.01; done",
    "deaf": "setsid sh -c 'trap : TERM HUP; echo $$ >> {pids}; while :; do sleep 0.1; done' & until [ -s {pids} ]; do sleep 0.01; done",
}


def leaver(kind: str, pids: Path) -> str:
    daemon = pids.parent / "daemon.py"
    daemon.write_text(DAEMON)
    return LEAVERS[kind].format(pids=pids, python=sys.executable, daemon=daemon)


def processes(pids: Path) -> list[int]:
    return [int(word) for word in pids.read_text().split()] if pids.exists() else []


@pytest.mark.parametrize("kind", LEAVERS)
def test_what_a_task_leaves_behind_ends_with_it(world: World, kind: str) -> None:
    pids = world.base / "pids"
    assert world.run(world.shell(leaver(kind, pids))).outcome == Outcome.OK
    assert processes(pids)
    until(lambda: all(gone(pid) for pid in processes(pids)))


def test_what_a_task_leaves_behind_is_ended_before_its_files_are_looked_at(world: World) -> None:
    script = "echo > out; (setsid sh -c 'while :; do echo x > beside; rm -f out; echo intruder > out; done' &) ; sleep 0.1"
    done = world.run(world.shell(script, outputs=[("out", world.to("out"))]))
    assert done.facts is not None and done.facts[4] >= 1
    if done.outcome == Outcome.OK:  # it was ended between two rounds
        assert done.outputs[0][0] == os.stat(world.to("out")).st_size
    else:
        assert done.outcome == Outcome.MISSING_OUTPUT and not os.path.exists(world.to("out"))


BACKGROUND = {
    "and": "sleep 1000 > out &",
    "nohup": "nohup sleep 1000 > out 2>/dev/null &",
    "a shell within": "( sleep 1000 > out & )",
    "session of its own": "setsid sleep 1000 > out &",
    "daemon": "{python} {daemon} /dev/null; setsid sh -c 'exec 9>> out; sleep 1000' & until [ -e out ]; do sleep 0.01; done",
}


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("kind", daily(BACKGROUND, "and", "daemon"))
def test_a_task_whose_output_is_still_being_written_has_failed(world: World, kind: str, staged: bool) -> None:
    daemon = world.base / "daemon.py"
    daemon.write_text(DAEMON)
    script = BACKGROUND[kind].format(python=sys.executable, daemon=daemon) + "\nuntil [ -e out ]; do sleep 0.01; done"
    done = world.run(world.shell(script, flags=STAGED if staged else 0, outputs=[("out", world.to("out") if staged else "")]))
    assert done.outcome == Outcome.MISSING_OUTPUT
    assert done.detail.startswith("did not finish: out (a process that it left running in the background")
    assert done.facts is not None and done.facts[4] >= 1
    assert not os.path.exists(world.to("out"))


@pytest.mark.parametrize("kind", ["and", "nohup", "a shell within", "session of its own"])
def test_what_a_task_left_running_is_counted(world: World, kind: str) -> None:
    """Whether it is in the group of the task or not, and also where it does nothing to the outputs."""
    script = BACKGROUND[kind].replace("> out", "> other")
    done = world.run(world.shell(f"{script}\n{script}\necho > out", outputs=[("out", world.to("out"))]))
    assert (done.outcome, done.detail) == (Outcome.OK, "")
    assert done.facts is not None and done.facts[4] == 2


@pytest.mark.parametrize("script", ["true", "sleep 0.01; true", "seq 1000 | head -1", "sleep 0.001 & wait", "sleep 0 &", "(exit 3) &"])
def test_nothing_is_said_of_processes_that_end_by_themselves(world: World, script: str) -> None:
    assert world.run(world.shell(script)).facts is None


def test_what_is_ended_by_a_limit_was_not_left_by_the_task(world: World) -> None:
    done = world.run(world.shell("sleep 1000 & sleep 1000", time_limit_ms=100))
    assert (done.outcome, done.facts) == (Outcome.TIME_LIMIT, None)


def test_a_limit_that_passes_when_the_program_has_ended_is_not_exceeded(world: World) -> None:
    done = world.run(world.shell("sleep 1000 > out &", time_limit_ms=300, outputs=[("out", world.to("out"))]))
    assert done.outcome == Outcome.MISSING_OUTPUT and done.detail.startswith("did not finish: out")
    assert done.facts is not None and done.facts[4] == 1
    assert done.end_us - done.start_us < 1_500_000  # the two seconds of an output that is being written are cut short


def test_of_two_tasks_each_is_told_of_its_own(root: Path) -> None:
    several = World(root, slots=8)
    several.launcher.submit([several.shell("sleep 1000 & " * (n % 4) + "sleep 0.05", serial=n + 1) for n in range(40)])
    found = {done.serial: done.facts[4] if done.facts else 0 for done in several.wait(40)}
    assert found == {n + 1: n % 4 for n in range(40)}
    several.launcher.stop()


@pytest.mark.parametrize("kind", ["group of its own", "daemon", "deaf"])
def test_a_time_limit_reaches_what_has_left_the_group(world: World, kind: str) -> None:
    pids = world.base / "pids"
    done = world.run(world.shell(leaver(kind, pids) + "; wait; sleep 1000", time_limit_ms=700))
    assert done.outcome == Outcome.TIME_LIMIT
    assert processes(pids) and all(gone(pid) for pid in processes(pids))


def test_a_command_in_a_group_of_its_own_ends_at_the_limit(world: World) -> None:
    done = world.run(world.shell("timeout 500 sleep 400; echo", time_limit_ms=200, flags=WANT_OUTPUT))
    assert done.outcome == Outcome.TIME_LIMIT
    assert done.end_us - done.start_us < 30_000_000


def test_kill_and_stop_reach_what_has_left_the_group(root: Path) -> None:
    world = World(root)
    first, second = world.base / "first", world.base / "second"
    world.launcher.submit([world.shell(leaver("daemon", path) + "; sleep 1000") for path in (first, second)])
    until(lambda: len(processes(first)) == 1 and len(processes(second)) == 1)
    world.launcher.kill([1])
    assert world.wait()[0].outcome == Outcome.CANCELLED
    assert gone(processes(first)[0]) and not gone(processes(second)[0])
    world.launcher.stop()
    assert gone(processes(second)[0])


def test_a_daemon_lives_as_long_as_its_own_task(root: Path) -> None:
    """Others that end in the meantime take nothing of it along."""
    world = World(root, slots=2)
    pids, over = world.base / "pids", world.base / "over"
    world.launcher.submit([world.shell(leaver("daemon", pids) + f"; until [ -e {over} ]; do sleep 0.01; done; kill -0 $(cat {pids})")])
    until(lambda: len(processes(pids)) == 1)
    for _ in range(5):
        assert world.run(world.shell("setsid sleep 100 &")).outcome == Outcome.OK
    over.touch()
    assert world.wait()[0].outcome == Outcome.OK
    until(lambda: gone(processes(pids)[0]))
    world.launcher.stop()


def test_nobody_writes_into_the_output_of_another_task(root: Path) -> None:
    """A task's child goes on writing to its standard output after the task has ended, while the slot's next tasks run and print."""
    world = World(root, slots=1)
    intruder = "setsid sh -c 'while :; do echo intruder; echo intruder >&2; done' & sleep 0.02"
    scripts = [intruder if i % 10 == 0 else f"echo {i}; sleep 0.002; echo {i} >&2" for i in range(60)]
    world.launcher.submit([world.shell(script, serial=i + 1, flags=WANT_OUTPUT) for i, script in enumerate(scripts)])
    for done in world.wait(60):
        if (done.serial - 1) % 10:
            assert (done.stdout, done.stderr) == (b"%d\n" % (done.serial - 1), b"%d\n" % (done.serial - 1))
    world.launcher.stop()


def test_everything_ends_with_a_process_that_is_killed(root: Path) -> None:
    names = list(LEAVERS)
    code = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from test_launcher_left_behind import LEAVERS, leaver, processes
from launching import World
from waiting import until
from pathlib import Path
world = World(Path({str(root)!r}), slots=9)
(world.base / "x").mkdir()
kinds = {names!r}
world.launcher.submit([world.shell(leaver(kind, world.base / str(i)) + "; sleep 1000", flags=0) for i, kind in enumerate(kinds)])
until(lambda: all(processes(world.base / str(i)) for i in range(len(kinds))))
os.kill(os.getpid(), 9)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], timeout=GUARD_SECONDS, check=False)
    assert ended.returncode == -signal.SIGKILL
    pids = [pid for i in range(len(names)) for pid in processes(root / "base" / str(i))]
    assert len(pids) == len(names)
    until(lambda: all(gone(pid) for pid in pids))


def test_no_watcher_is_left(root: Path) -> None:
    def watchers() -> list[str]:
        ours = re.compile(rf"\(amfs-watcher\) [A-Z] {os.getpid()} ")
        return [str(path) for path in Path("/proc").glob("[0-9]*/stat") if ours.search(text_of(path))]

    def text_of(path: Path) -> str:
        try:
            return path.read_text()
        except OSError:
            return ""

    before = watchers()
    world = World(root)
    until(lambda: len(watchers()) == len(before) + 1, "there is no watcher")  # it has its name when it has begun
    world.launcher.stop()
    assert watchers() == before


def test_an_output_without_an_end_is_bounded(world: World) -> None:
    """The beginning is kept up to 16 MiB, and that something is missing is said; the memory of the rest is given back meanwhile."""
    script = "head -c 300000000 /dev/zero | tr '\\0' x"
    done = world.run(world.shell(script, flags=WANT_OUTPUT))
    assert done.outcome == Outcome.OK
    assert done.facts is not None
    _, path, size, _, _ = done.facts
    assert (size, os.stat(path).st_size) == (300_000_000, 16 << 20)
    assert done.stdout == b"x" * 65536


def test_two_that_print_without_an_end_take_little_memory(world: World) -> None:
    def caught() -> list[os.stat_result]:
        found = []
        for path in Path("/proc/self/task").glob("*/fd/*"):
            try:
                if os.readlink(path).startswith("/memfd:output"):
                    found.append(os.stat(path))
            except OSError:
                continue
        return sorted(found, key=lambda each: each.st_size)[-2:]

    def bounded() -> bool:
        return len(caught()) == 2 and all(each.st_size > 200_000_000 > 4 * each.st_blocks * 512 for each in caught())

    world.launcher.submit([world.shell("yes", flags=WANT_OUTPUT), world.shell("yes >&2", flags=WANT_OUTPUT)])
    until(bounded)
    world.launcher.kill([1, 2])
    assert {done.outcome for done in world.wait(2)} == {Outcome.CANCELLED}


def test_an_output_that_is_a_file_is_not_cut(world: World) -> None:
    size = 20_000_000
    done = world.run(world.shell(f"head -c {size} /dev/zero", stdout="o", outputs=[("o", world.to("o"))], flags=1 | WANT_OUTPUT))
    assert (done.outcome, os.stat(world.to("o")).st_size, done.detail) == (Outcome.OK, size, "")
