"""Blind tasks in the namespaces of a keeper: entered by them and by nobody else."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import CONTEXT, ENVIRONMENT, World, gone

from amfs._native import Launcher
from amfs.libexec import program
from amfs.node.keeper import Keeper
from amfs.vocabulary.records import BLIND, WANT_OUTPUT
from amfs.vocabulary.states import Outcome

SPACE = "readlink /proc/self/ns/mnt; readlink /proc/self/ns/user"
HERE = f"{os.readlink('/proc/self/ns/mnt')}\n{os.readlink('/proc/self/ns/user')}\n".encode()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, slots=1)
    world.launcher.stop()
    world.launcher = Launcher(
        1, sandbox_dir=str(world.sandboxes), log_dir=str(world.logs), watcher=program("amfs-watcher"), mount_dir=str(world.base)
    )
    world.launcher.set_context(CONTEXT, str(world.base), ENVIRONMENT)
    yield world
    world.launcher.stop()


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    try:
        keeper = Keeper()
    except OSError as error:
        pytest.skip(f"no user namespaces here: {error}")
    yield keeper
    keeper.close()


def space_of(keeper: Keeper) -> bytes:
    return "".join(f"{os.readlink(f'/proc/{keeper.pid}/ns/{kind}')}\n" for kind in ("mnt", "user")).encode()


def test_only_blind_tasks_enter(world: World, keeper: Keeper) -> None:
    assert space_of(keeper) != HERE and f"[{keeper.within.namespace}]".encode() in space_of(keeper)
    assert world.run(world.shell(SPACE, cwd="/", flags=BLIND | WANT_OUTPUT)).stdout == HERE
    world.launcher.enter(keeper.pid)
    entered = world.run(world.shell(f"{SPACE}; id -u", cwd="/", flags=BLIND | WANT_OUTPUT))
    assert entered.stdout == space_of(keeper) + b"%d\n" % os.geteuid()
    assert world.run(world.shell(SPACE, flags=WANT_OUTPUT)).stdout == HERE
    other = Keeper()
    try:
        world.launcher.enter(other.pid)
        assert world.run(world.shell(SPACE, cwd="/", flags=BLIND | WANT_OUTPUT)).stdout == space_of(other) != space_of(keeper)
    finally:
        other.close()
    world.launcher.enter(0)
    assert world.run(world.shell(SPACE, cwd="/", flags=BLIND | WANT_OUTPUT)).stdout == HERE


def test_what_its_processes_leave_is_ended_there_too(world: World, keeper: Keeper) -> None:
    world.launcher.enter(keeper.pid)
    done = world.run(world.shell("setsid sleep 1000 > /dev/null 2>&1 & echo $!", cwd="/", flags=BLIND | WANT_OUTPUT))
    assert done.outcome == Outcome.OK and done.facts is not None and done.facts[4] >= 1
    assert gone(int(done.stdout))
    limited = world.run(world.shell("sleep 1000", cwd="/", flags=BLIND, time_limit_ms=200))
    assert limited.outcome == Outcome.TIME_LIMIT


def test_a_keeper_that_has_ended_cannot_be_entered(world: World, keeper: Keeper) -> None:
    world.launcher.enter(keeper.pid)
    os.kill(keeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, keeper.pid, os.WEXITED | os.WNOWAIT)
    done = world.run(world.shell("true", cwd="/", flags=BLIND))
    assert (done.outcome, done.code) == (Outcome.SETUP, errno.ESRCH)
    assert "namespaces of the mount for blind tasks" in done.detail or "keeps the mount for blind tasks" in done.detail


def test_a_place_that_cannot_be_mounted_at_is_an_error_and_the_keeper_goes_on(keeper: Keeper, tmp_path: Path) -> None:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no /dev/fuse here")
    with pytest.raises(OSError, match="the mount is refused"):
        keeper.mount(str(tmp_path / "none"), "amfs:x")
    os.close(keeper.mount(str(tmp_path), "amfs:x"))
    with pytest.raises(OSError):  # nobody serves it
        keeper.settle()
    os.close(keeper.mount(str(tmp_path), "amfs:x"))  # in the place of the dead one
    with pytest.raises(OSError):
        keeper.settle()
    assert os.listdir(tmp_path) == [], "outside nothing is mounted"
