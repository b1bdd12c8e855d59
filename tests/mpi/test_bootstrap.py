"""One node per MPI rank: MPI carries keys and addresses, then steps aside."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amfs.host import orphans
from amfs.host.processes import is_running
from amfs.net.records import SessionRecord, load
from amfs.provision import daemon

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.mpi

PATIENCE_S = 60.0  # only turns a hang into a failure
MPIEXEC = next((str(path) for path in [Path(sys.executable).with_name("mpiexec")] if path.exists()), shutil.which("mpiexec") or "mpiexec")
AMFS = [sys.executable, "-m", "amfs"]
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="amfs-t-", dir="/tmp"))
    monkeypatch.setenv("AMFS_RUN_DIR", str(path))
    monkeypatch.delenv("AMFS_SESSION", raising=False)
    # pip's Open MPI refuses root and more ranks than cores unless told otherwise; MPICH does not look at these.
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    yield path
    left = [entry for file in path.glob("*/session.json") for entry in load(file).nodes if is_running(entry.pid, entry.started)]
    daemon.stop([(entry.pid, entry.started) for entry in left])
    shutil.rmtree(path)
    assert not left, "nodes were left running"


@pytest.fixture
def command(tmp_path: Path) -> Command:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(args, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    return run


def await_gone(session: SessionRecord) -> None:
    assert not daemon.await_end([(entry.pid, entry.started) for entry in session.nodes], PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    while list(orphans.SHM.glob(f"amfs-{os.getuid()}-{session.name}-*")):  # another session that starts may be just removing it
        assert time.monotonic() < end, "stores were left behind"
        time.sleep(0.05)


def is_mapped(path: Path) -> bool:
    """Whether any process has it in its memory: other tests may use MPI, too."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if str(path) in maps.read_text():
                return True
    return False


def test_ranks_leave_nodes_that_know_nothing_of_mpi(home: Path, command: Command, tmp_path: Path) -> None:
    name = f"mpi-{os.getpid()}"
    up = command(MPIEXEC, "-n", "3", *AMFS, "up", "--slots", "1", "--name", name)
    assert (up.returncode, up.stdout) == (0, name + "\n"), up.stderr
    session = load(home / name / "session.json")
    assert sorted(entry.node for entry in session.nodes) == [0, 1, 2]
    for entry in session.nodes:
        assert is_running(entry.pid, entry.started)
        told = Path(f"/proc/{entry.pid}/environ").read_text().split("\0")
        assert not [line for line in told if line.startswith(("PMI_", "PMIX_", "OMPI_", "HYDRA_", "MPI_"))]
        assert "libmpi" not in Path(f"/proc/{entry.pid}/maps").read_text()
    (tmp_path / "list").write_text("".join(f"t{i} -b /bin/sh -o f{i} -a -c -a 'echo {i} > f{i}'\n" for i in range(12)))
    ran = command(*AMFS, "run", "list", "--session", name)
    assert ran.returncode == 0, ran.stderr
    assert [(tmp_path / f"f{i}").read_text() for i in range(12)] == [f"{i}\n" for i in range(12)]
    assert command(*AMFS, "down", name).returncode == 0
    await_gone(session)


def test_nodes_survive_the_launcher(home: Path, tmp_path: Path, command: Command) -> None:
    """mpiexec and all it started are killed right after the session is there (the ranks are held up so that they still are)."""
    name = f"mpik-{os.getpid()}"
    hold = tmp_path / "hold.py"
    hold.write_text("import sys, time\nfrom amfs.cli.main import main\ncode = main(sys.argv[1:])\ntime.sleep(600)\n")
    before = set(orphans.SHM.iterdir())
    arguments = [MPIEXEC, "-n", "2", sys.executable, str(hold), "up", "--slots", "1", "--name", name]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True) as launcher:
        assert launcher.stdout is not None
        end = time.monotonic() + PATIENCE_S
        while not (home / name / "session.json").exists():
            assert time.monotonic() < end, "the session did not come up"
            time.sleep(0.05)
        os.killpg(launcher.pid, signal.SIGKILL)
    status = command(*AMFS, "status", name, "--output", "json")
    (seen,) = json.loads(status.stdout)["sessions"]
    assert [node["state"] for node in seen["nodes"]] == ["up", "up"]
    session = load(home / name / "session.json")
    assert command(*AMFS, "down", name).returncode == 0
    await_gone(session)
    for process in Path("/proc").glob("[0-9]*"):  # ranks that the launcher's proxy left
        try:
            mine = str(hold).encode() in (process / "cmdline").read_bytes()
        except OSError:
            continue
        if mine:
            os.kill(int(process.name), signal.SIGKILL)
    for path in set(orphans.SHM.iterdir()) - before:  # what MPI leaves when it is killed
        if path.name.startswith(("mpich_shm_", "sm_segment.")) and not is_mapped(path):
            path.unlink()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--nodes", "2"], 2, "under an MPI launcher every rank is one node"),
        (["--tcp", "192.0.2.1"], 4, "cannot listen on tcp://192.0.2.1:0"),
        (["--store", "/proc/nowhere"], 4, "cannot make the store in /proc/nowhere"),
        (["--name", "a/b"], 4, "cannot name a session"),
    ],
)
def test_a_failure_is_said_once_and_hangs_nobody(home: Path, command: Command, arguments: list[str], code: int, words: str) -> None:
    up = command(MPIEXEC, "-n", "3", *AMFS, "up", *arguments)
    assert up.returncode == code and up.stdout == "", (up.returncode, up.stderr)
    assert up.stderr.count(words) >= 1 and "Traceback" not in up.stderr
    assert list(home.iterdir()) == []


def test_a_rank_that_fails_alone_ends_the_others(home: Path, command: Command, tmp_path: Path) -> None:
    """Rank 1 cannot make its store; the nodes that did start are taken back."""
    script = tmp_path / "one.sh"
    script.write_text('[ "${PMI_RANK:-${OMPI_COMM_WORLD_RANK}}" = 1 ] && set -- "$@" --store /proc/nowhere\nexec "$@"\n')
    up = command(MPIEXEC, "-n", "3", "sh", str(script), *AMFS, "up", "--slots", "1")
    assert up.returncode == 4 and "rank 1: node 1 did not start: cannot make the store in /proc/nowhere" in up.stderr
    assert list(home.iterdir()) == []


def test_the_launcher_of_another_mpi_is_refused_before_mpi_starts(home: Path, command: Command) -> None:
    """MPICH aborts when it is started by Open MPI's launcher, with pages that tell nothing."""
    launcher = shutil.which("mpiexec.openmpi")
    from importlib.metadata import PackageNotFoundError, version

    try:
        version("mpich")
    except PackageNotFoundError:
        launcher = None
    if launcher is None:
        pytest.skip("needs Open MPI beside the mpich wheel")
    for _ in range(3):  # Open MPI may drop the last words of the processes that it ends
        done = command(launcher, "--oversubscribe", "-n", "2", *AMFS, "up")
        if "amfs: " in done.stderr:
            break
    assert done.returncode and "amfs: the MPI launcher started 2 processes, but mpi4py does not see them" in done.stderr
    assert "Abort" not in done.stderr and not list(home.iterdir())
