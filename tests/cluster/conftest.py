"""Hosts and a Slurm for the tests of a module. Where they cannot be had the tests are skipped, and say why; in CI that is an error."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import hosts as of_hosts
from cluster import slurm as of_slurm
from cluster import sshd as of_sshd


def needed(reason: str) -> None:
    if reason and os.environ.get("AMFS_TESTS_IN_CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def hosts() -> Iterator[of_hosts.Hosts]:
    """Four hosts and a login host."""
    needed(of_hosts.why_not())
    shared = Path(tempfile.mkdtemp(prefix="amfs-h-", dir="/var/tmp"))  # short, for sockets; hosts have a /tmp of their own
    with of_hosts.hosts(4, shared, os.environ.get("PYTEST_XDIST_WORKER", "")) as made:
        yield made
    shutil.rmtree(shared)


@pytest.fixture(scope="module")
def slurm(hosts: of_hosts.Hosts) -> Iterator[of_slurm.Slurm]:
    """A Slurm on them."""
    needed(of_slurm.why_no_slurm())
    with of_slurm.slurm(hosts) as made:
        yield made


@pytest.fixture(scope="module")
def sshd(hosts: of_hosts.Hosts) -> Iterator[of_sshd.Sshd]:
    """An sshd on each of them."""
    needed(of_sshd.why_no_sshd())
    with of_sshd.sshd(hosts) as made:
        yield made
