"""Shared by all tests: the command run as a person would, and a check that nothing is left behind.

Tests marked ``root`` or ``mpi`` need these; where they are missing the test is skipped with the reason, except when CI is set, where a
missing MPI is an error. Tests marked ``soak`` or ``chaos`` run when asked for (``-m soak``), not otherwise.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import commands
import pytest
from hypothesis import HealthCheck, settings

from amfs.client import discovery
from amfs.net import records
from amfs.provision import daemon

ROOT = Path(__file__).resolve().parent.parent

# Several processes run tests, and what else runs on the machine nobody knows: that an example took long says nothing.
# The same examples each time, so that a change that fails has a fault of its own; a soak looks for those of others.
settings.register_profile("amfs", deadline=None, max_examples=50, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("amfs"), max_examples=1000, derandomize=False)
settings.load_profile(os.environ.get("AMFS_EXAMPLES", "amfs"))

# Where CI is set, pytest tells all differences between two values: of files of megabytes that takes longer than any test may.
if os.environ.get("CI"):
    os.environ["AMFS_TESTS_IN_CI"] = os.environ.pop("CI")  # for the workers, too


@pytest.fixture(scope="session", autouse=True)
def own_home() -> Iterator[None]:
    """Sessions, journals and traces of this process's tests lie in a directory of its own, away from the user's."""
    home = Path(tempfile.mkdtemp(prefix="amfs-t-", dir="/tmp"))  # short: sockets lie in it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMFS_RUN_DIR", str(home / "run"))
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        patch.delenv("AMFS_SESSION", raising=False)
        yield
        left = [session for session in records.list_all() if discovery.is_live(session, probe_s=0)]
    daemon.stop([(entry.pid, entry.started) for session in left for entry in session.nodes])
    commands.end()
    shutil.rmtree(home)
    assert not left, f"sessions were left running: {', '.join(session.name for session in left)}"


#: Lines that a run begins with because of other tests: remains of their killed runs, and the memory that they take just now.
OTHERS = r"^.*(?:a killed run of (?!{own})/.* has left |files are kept in /.*; --store names another place).*\n"


@pytest.fixture
def amfs(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``amfs ARGS…`` in the test's own directory; the limit only turns a hang into a failure."""
    return _runner("amfs", tmp_path)


@pytest.fixture
def benchmark(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``python -m benchmarks ARGS…`` in the same way."""
    return _runner("benchmarks", tmp_path)


def _runner(module: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(
        *args: str, input: str | None = None, cwd: Path | None = None, env: dict[str, str] | None = None, timeout: float = 100
    ) -> subprocess.CompletedProcess[str]:
        done = commands.run(*args, module=module, input=input, cwd=cwd or tmp_path, env=env, timeout=timeout)
        others = OTHERS.format(own=re.escape(str(tmp_path)))
        done.stdout, done.stderr = (re.sub(others, "", text, flags=re.MULTILINE) for text in (done.stdout, done.stderr))
        return done

    return run


#: Files that take longest, the longest first.
LONG = (
    "test_documents.py", "test_dask.py", "test_montage.py", "test_urls.py", "test_submitting.py", "test_posix_areas.py",
    "test_posix_striped.py", "test_counts.py", "test_ssh.py", "test_slurm_jobs.py", "test_bounds.py", "test_fsspec_session.py",
    "test_join_hosts.py", "test_posix_programs.py", "test_shell.py", "test_dashboard.py", "test_files_session.py", "test_planted.py",
    "test_scale_auto.py", "test_mpi_hosts.py", "test_fs_deaths.py", "test_run_command.py", "test_executor.py", "test_namespaces.py",
    "test_runs_on_nodes.py", "test_url_loads.py", "test_bench_files.py", "test_swift_programs.py", "test_drain_session.py",
    "test_ordinary_user.py", "test_chirp.py", "test_memory_cgroup.py", "test_replay.py", "test_slurm.py", "test_resume.py", "test_seeds.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Each process of several reads the files in another order: they share compiled files, rather than all compile all."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files = sorted(map(str, (ROOT / "tests").rglob("test_*.py")))
    number = int(worker.removeprefix("gw"))
    first = len(files) // 2 if number // 2 % 2 else 0
    files = files[first:] + files[:first]
    config.args = files[::-1] if number % 2 else files


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker in ("soak", "chaos"):
        if marker not in (config.option.markexpr or ""):
            long = [item for item in items if item.get_closest_marker(marker)]
            items[:] = [item for item in items if not item.get_closest_marker(marker)]
            config.hook.pytest_deselected(items=long)
    # A file is one worker's: files that take minutes must not come last. All workers have the same order.
    order = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: (order.get(item.path.name, len(LONG)), item.path))
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs to be root"))
        if item.get_closest_marker("mpi") and not os.environ.get("AMFS_TESTS_IN_CI") and mpiexec() is None:
            item.add_marker(pytest.mark.skip(reason="needs mpiexec: pip install 'amfs-hpc[mpi]'"))


def mpiexec() -> str | None:
    """The mpiexec of this environment (the mpich wheel's), else the one on PATH."""
    own = Path(sys.executable).with_name("mpiexec")
    return str(own) if own.exists() else shutil.which("mpiexec")
