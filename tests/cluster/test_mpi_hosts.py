"""``mpiexec amfs up`` over hosts: a node on each rank, started over real sshds, and nothing stays behind."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from waiting import until

from cluster.hosts import Hosts
from cluster.sshd import Sshd
from cluster.test_ssh import left, ran_on, up_nodes

pytestmark = [pytest.mark.root, pytest.mark.mpi, pytest.mark.slow]

MPIEXEC = Path(sys.executable).with_name("mpiexec.hydra")


@pytest.fixture(autouse=True)
def clean(hosts: Hosts) -> Iterator[None]:
    yield
    hosts.nodes[0].run("amfs", "down", "lab", check=False)
    until(lambda: not any(host.processes("amfs.node.main") for host in hosts.all), "processes are left")


@pytest.fixture
def rsh(sshd: Sshd) -> str:
    """ssh, as a launcher calls it, with the keys of these hosts."""
    script = sshd.place / "rsh"
    script.write_text(f'#!/bin/sh\nexec ssh -F {sshd.client} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_ranks_of_mpich_on_several_hosts_are_one_session(sshd: Sshd, rsh: str) -> None:
    if find_spec("mpi4py") is None or not MPIEXEC.exists():
        pytest.skip("needs the wheels of mpi4py and mpich")
    three = sshd.hosts.nodes[:3]
    words = ["-launcher", "ssh", "-launcher-exec", rsh, "-hosts", ",".join(host.name for host in three), "-n", "3"]
    words += ["-genv", "UCX_TLS", "tcp"]  # the hosts have one kernel, but no memory that they share
    done = sshd.hosts.login.run(str(MPIEXEC), *words, "amfs", "up", "--name", "lab", "--slots", "1")
    assert "3 nodes on 3 hosts" in done.stderr, done.stderr
    assert {node["host"].partition("/")[0] for node in up_nodes(three[1])} == {host.name for host in three}
    assert ran_on(sshd.hosts, at=three[2]) == {host.name for host in three}
    three[0].run("amfs", "down", "lab")
    until(lambda: not left(sshd.hosts), f"left: {left(sshd.hosts)}")  # keys neither


OPEN_MPI = shutil.which("mpiexec.openmpi")


def test_ranks_of_open_mpi_on_several_hosts_are_one_session(sshd: Sshd, rsh: str) -> None:
    """The wheel of mpi4py takes any MPI whose library it is shown."""
    library = next(iter(sorted(Path("/usr/lib").glob("*/libmpi.so.40"))), None)
    if find_spec("mpi4py") is None or OPEN_MPI is None or library is None:
        pytest.skip("needs the wheel of mpi4py and Open MPI 4")
    three = sshd.hosts.nodes[:3]
    words = ["--allow-run-as-root", "--host", ",".join(f"{host.name}:1" for host in three), "-n", "3", "--mca", "plm_rsh_agent", rsh]
    words += ["--mca", "btl", "tcp,self", "-x", "PATH", "-x", "MPI4PY_MPIABI=openmpi", "-x", f"MPI4PY_LIBMPI={library}"]
    done = sshd.hosts.login.run(OPEN_MPI, *words, "amfs", "up", "--name", "lab", "--slots", "1")
    assert "3 nodes on 3 hosts" in done.stderr, done.stderr
    assert ran_on(sshd.hosts, at=three[2]) == {host.name for host in three}
    three[0].run("amfs", "down", "lab")
    until(lambda: not left(sshd.hosts), f"left: {left(sshd.hosts)}")


def test_the_launcher_of_another_mpi_over_hosts_is_refused_in_a_line(sshd: Sshd, rsh: str) -> None:
    if find_spec("mpich") is None and not MPIEXEC.exists():
        pytest.skip("needs the wheels of mpi4py and mpich")
    if OPEN_MPI is None:
        pytest.skip("needs Open MPI beside the wheel of mpich")
    two = sshd.hosts.nodes[:2]
    words = ["--allow-run-as-root", "--host", ",".join(f"{host.name}:1" for host in two), "-n", "2", "--mca", "plm_rsh_agent", rsh]
    done = sshd.hosts.login.run(OPEN_MPI, *words, "-x", "PATH", "amfs", "up", "--name", "lab", check=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("amfs: ")]
    assert done.returncode and said and all("mpi4py does not see them: its MPI is another" in line for line in said), done.stderr
    assert not left(sshd.hosts)
