"""Nothing of a task goes on when its run has ended, however it has ended: processes in groups and sessions of their own included."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fs_session import kill, running
from waiting import until

# A group of its own, and a session of its own with nothing that its parent had.
TASK = """\
a -b sh -a -c 'timeout 500 sh -c "echo \\$\\$ > {here}/one; exec sleep 400"; echo'
b -b sh -a -c 'env -i setsid sh -c "echo \\$\\$ > {here}/two; exec sleep 400" & sleep 400'
"""


def start(here: Path, *options: str) -> subprocess.Popen[bytes]:
    (here / "list").write_text(TASK.format(here=here))
    driver = subprocess.Popen(
        [sys.executable, "-m", "amfs", "run", "-q", *(options or ("-j", "2")), "list"],
        cwd=here, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: all((here / name).exists() and (here / name).read_text().endswith("\n") for name in ("one", "two")))
    return driver


def gone(here: Path) -> bool:
    def state(pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return "X"

    return all(state(int((here / name).read_text())) in "XZ" for name in ("one", "two"))


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_by_itself(tmp_path: Path, number: signal.Signals) -> None:
    driver = start(tmp_path)
    driver.send_signal(number)
    assert driver.wait(60) in (128 + number, -number)
    until(lambda: gone(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_while_it_starts_leaves_no_store(
    tmp_path: Path, number: signal.Signals, request: pytest.FixtureRequest
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it, and so would its programs
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    (tmp_path / "list").write_text("a -b sleep -a 100\n")
    (stores := tmp_path / "stores").mkdir()
    for later_s in (0, 0.01, 0.03):
        driver = subprocess.Popen(
            [sys.executable, "-m", "amfs", "run", "--store", "stores", "list"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        until(lambda: list(stores.iterdir()))
        time.sleep(later_s)
        driver.send_signal(number)
        told = driver.communicate(timeout=60)[1]
        assert driver.returncode == 128 + number and "Traceback" not in told, told
        assert not list(stores.iterdir())


def test_two_ctrl_c_in_a_row(tmp_path: Path) -> None:
    driver = start(tmp_path)
    driver.send_signal(signal.SIGINT)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(60) == 130
    until(lambda: gone(tmp_path))


def test_a_submitter_that_is_killed(tmp_path: Path) -> None:
    with running(2) as session:
        driver = start(tmp_path, "--session", session.name)
        driver.kill()
        driver.wait()
        until(lambda: gone(tmp_path))


def test_nodes_that_are_killed(tmp_path: Path) -> None:
    with running(2) as session:
        driver = start(tmp_path, "--session", session.name)
        for node in range(2):
            kill(session, node)
        until(lambda: gone(tmp_path))
        driver.kill()
        driver.wait()


def test_the_end_of_the_session(tmp_path: Path) -> None:
    with running(2) as session:
        driver = start(tmp_path, "--session", session.name)
        down = subprocess.run([sys.executable, "-m", "amfs", "down", session.name], capture_output=True, timeout=60, check=False)
        assert down.returncode == 0, down.stderr
        assert gone(tmp_path)
        driver.kill()
        driver.wait()


def test_what_a_task_leaves_in_the_background_is_ended_with_it(tmp_path: Path) -> None:
    """Its dependants run as usual."""
    (tmp_path / "list").write_text(
        "a -b sh -o x -a -c 'setsid sh -c \"echo \\$\\$ > y; mv y x; exec sleep 400\" & until [ -s x ]; do sleep 0.01; done'\n"
        "b -b cp -i x -o y -a x y\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "amfs", "run", "-q", "list"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "one").write_text((tmp_path / "y").read_text())
    (tmp_path / "two").write_text((tmp_path / "y").read_text())
    until(lambda: gone(tmp_path))
